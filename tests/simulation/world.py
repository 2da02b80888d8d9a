"""A small world: writers, committers, another engine, one broker, two tables, and a seed.

The real machine and the real loop run over the doors in memory; one thread, no sleeping, one source
of dice. A step is one event anywhere: a committer's step, a proposal, a crash, a late landing.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar
from unittest import mock
from uuid import UUID

from tests import builders
from tests.simulation.faults import (
    CALM,
    Character,
    Crash,
    SimulatedClock,
    StormyBus,
    StormyConsumer,
    StormyStore,
    Weather,
)
from tests.simulation.invariants import ALWAYS, AT_REST, History, Log
from tests.simulation.row_invariants import ROW_INVARIANTS, Steps
from tests.simulation.row_writers import (
    FEATURE,
    METADATA,
    LiveFile,
    RowWriter,
    added,
    live_files,
)
from tidegate.committer.doors import Doors
from tidegate.committer.service import CommitterLoop
from tidegate.committer.settings import CommitterSection
from tidegate.delta.errors import Fenced, Unavailable
from tidegate.pipeline.proposal import Operation, Proposal
from tidegate.pipeline.read_set import ReadSet
from tidegate.pipeline.topics import Topics
from tidegate.runtime import failpoints
from tidegate.runtime.bus import TopicPartition
from tidegate.runtime.log_store import LogStore, Put
from tidegate.runtime.memory import MemoryStore
from tidegate.runtime.memory_bus import MemoryBus, MemoryConsumer

ROOTS = ("memory://tables/made", "memory://tables/found")
"""One table is created through the gate, the other is registered with it."""

TABLES = dict(zip(ROOTS, (UUID(int=0xA), UUID(int=0xB)), strict=True))
COMMITTERS = 2
HEALING_STEPS = 60
KINDS = (*("append", "rewrite", "rows") * 2, "rows", "overwrite", "batch", "cancel", "bad")


T = TypeVar("T")


class Broken(AssertionError):
    """An invariant does not hold."""


@dataclass
class Process:
    """A committer process: it lives, stalls, dies, and is started again with nothing in mind."""

    loop: CommitterLoop | None = None
    is_running: bool = False


@dataclass
class World:
    """All there is."""

    seed: int
    steps: int = 120
    dice: random.Random = field(init=False)
    clock: SimulatedClock = field(default_factory=SimulatedClock)
    topics: Topics = field(default_factory=Topics)
    proposals: list[Proposal] = field(default_factory=list)
    members: list[MemoryConsumer] = field(default_factory=list)
    travelling: list[Callable[[], None]] = field(default_factory=list)
    row_steps: Steps = field(default_factory=Steps)
    depth: int = 0
    step: int = 0
    ids: int = 0

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)
        self.bus = MemoryBus(self.topics.declared(), self.clock.now_ms)
        self.stores = {root: MemoryStore(root, self.clock.now_ms) for root in ROOTS}
        found = [builders.info("CREATE TABLE"), FEATURE, METADATA]
        for version, rows in enumerate((found, [builders.add("old")])):
            self._foreign_put(ROOTS[1], version, rows)
        logs = {ROOTS[0]: Log(self.stores[ROOTS[0]]), ROOTS[1]: Log(self.stores[ROOTS[1]], True)}
        self.history = History(self.bus, self.topics, logs)
        self.weather = Weather(self.dice, Character.rolled(self.dice), self._pause, self.travelling)
        self.processes = [Process() for _ in range(COMMITTERS)]
        self.send(self._table(ROOTS[0]))
        self.send(self._table(ROOTS[1]))

    def run(self) -> str:
        """Live through the faults, heal, come to rest; return the hash of what was seen.

        Raises: Broken, naming the seed, the invariant and the step.
        """
        with mock.patch.object(failpoints, "reach", self._reach):
            for _ in range(self.steps):
                self._event()
                self._check()
            self._heal()
        return self.history.digest()

    # What happens.

    def _event(self) -> None:
        self.clock.boot += self.dice.choice((0.01, 0.05, 0.1, 0.3))
        events = (
            (30, self._let_one_work),
            (8, self._write),
            (5, self._write_again),
            (4, self._another_engine),
            (3, self.weather.land),
            (2, self._kill),
            (2, self._expire),
            (1, self._rewind),
            (1, self._clock_steps),
            (1, self._long_wait),
        )
        weights = [weight for weight, _ in events]
        self.dice.choices([event for _, event in events], weights)[0]()

    def _let_one_work(self) -> None:
        self._work(self.dice.choice(self.processes))

    def _work(self, process: Process) -> None:
        """Let a process do one step, if it is not in the midst of one."""
        if process.is_running:
            return
        process.is_running = True
        try:
            if process.loop is None:
                process.loop = CommitterLoop(self._doors())
            process.loop.step()
        except (Crash, Unavailable, Fenced):
            # A failure starts the process over, as the ladder does; a bug of ours ends the seed.
            process.loop = None
        finally:
            process.is_running = False

    def _pause(self) -> None:
        """The process in the midst of a call stops; the rest of the world goes on."""
        if self.depth >= 2:
            return
        self.depth += 1
        for _ in range(self.dice.randint(1, 6)):
            self.clock.boot += 0.1
            self.dice.choice((self._let_one_work, self._expire, self.weather.land))()
        self.depth -= 1

    def _reach(self, point: str) -> None:
        if self.weather.happens("crash", 1 / 8):
            raise Crash(point)

    def _kill(self) -> None:
        process = self.dice.choice(self.processes)
        if not process.is_running:
            process.loop = None

    def _expire(self) -> None:
        """The broker drops a member that it has not heard of: dead, or a zombie from now on."""
        if self.members:
            self._expel(self.dice.choice(self.members))

    def _expel(self, member: MemoryConsumer) -> None:
        self.bus.expire(member)
        alive = [one.loop.consumer for one in self.processes if one.loop is not None]
        if not any(isinstance(one, StormyConsumer) and one.inner is member for one in alive):
            self.members.remove(member)

    def _rewind(self) -> None:
        self.bus.drop_offsets(f"{self.topics.prefix}committer")

    def _clock_steps(self) -> None:
        self.clock.skew_ms += self.dice.choice((-3_600_000, -5_000, 5_000, 3_600_000))

    def _long_wait(self) -> None:
        self.clock.boot += self.dice.choice((30.0, 700.0))

    def _write(self) -> None:
        """One proposal, or several of a kind at once, so that groups form."""
        root = self.dice.choice(ROOTS)
        kind = self.dice.choice(KINDS)
        for _ in range(self.dice.choice((1, 1, 2, 4))):
            self.send(self._proposal(root, kind))

    def _write_again(self) -> None:
        """A writer without an answer sends the same bytes again, however late."""
        one = self.dice.choice(self.proposals)
        if one.kind == "commit" and self.dice.random() < 0.1:
            one = one.model_copy(update={"user_metadata": "the same id, other bytes"})
        self.send(one)

    def _another_engine(self) -> None:
        """Another engine appends, or removes a file it has just seen."""
        root = self.dice.choice(ROOTS)
        live = self._live(root)
        head = self._head(root)
        if head < 0:
            return
        rows = [builders.info(isBlindAppend=True), builders.add(f"other-{self._next()}")]
        if live and self.dice.random() < 0.4:
            path = self.dice.choice(sorted(live))
            rows = [builders.info("DELETE"), _removal(live, path)]
        elif live and self.dice.random() < 0.4:
            deleted = self._row_writer(root).foreign(live)
            rows = [builders.info("DELETE"), *deleted] if deleted else rows
        self._foreign_put(root, head + 1, rows)

    def _foreign_put(self, root: str, version: int, rows: list[dict[str, Any]]) -> None:
        path = f"_delta_log/{version:020d}.json"
        won = self.stores[root].put_if_absent(path, builders.to_bytes(rows), 0.0)
        assert won is Put.WON, "the other engine takes the version after the head"

    # What writers propose.

    def send(self, one: Proposal) -> None:
        """Produce a proposal."""
        if one not in self.proposals:
            self.proposals.append(one)
        at = TopicPartition(self.topics.proposals, 0)
        self.bus.append(at, str(one.table).encode(), builders.value_of(one))

    def _table(self, root: str) -> Proposal:
        told: dict[str, Any] = {
            "proposal_id": self._id(),
            "table": TABLES[root],
            "table_root": root,
        }
        if root == ROOTS[1]:
            return builders.proposal(kind="register", read_version=0, **told)
        told |= {"read_version": -1, "operation": Operation(name="CREATE TABLE")}
        return builders.proposal(FEATURE, METADATA, **told)

    def _proposal(self, root: str, kind: str) -> Proposal:
        head, live = self._head(root), self._live(root)
        told: dict[str, Any] = {
            "proposal_id": self._id(),
            "table": TABLES[root],
            "table_root": root,
            "read_version": max(head, 0),
        }
        if self.dice.random() < 0.15:
            told["deadline_ms"] = self.clock.now_ms() + self.dice.choice((-1_000, 500, 5_000))
        new = added(self.dice, f"f{self._next()}")
        if kind == "rows":
            made = self._row_writer(root).proposal(live, told)
            return made or builders.proposal(new, **told)
        if kind == "rewrite" and live:
            read = self.dice.sample(sorted(live), self.dice.randint(1, min(3, len(live))))
            rows = [*(_removal(live, path) for path in read[:2]), new]
            told |= {"reads": ReadSet(files=tuple(read)), "operation": Operation(name="DELETE")}
            return builders.proposal(*rows, **told)
        if kind == "overwrite" and live:
            rows = [*(_removal(live, path) for path in live), new]
            return builders.proposal(*rows, **told, reads=ReadSet(whole_table=True))
        if kind == "batch":
            own = {"app_id": "stream", "version": self.dice.randint(0, 12)}
            return builders.proposal(new, **told, app_txn=own)
        if kind == "cancel":
            other = self.dice.choice(self.proposals)
            told |= {"table": other.table, "table_root": other.table_root}
            told["read_version"] = other.read_version
            told.pop("deadline_ms", None)
            return builders.proposal(**told, kind="cancel", cancels=other.proposal_id)
        if kind == "bad":
            return builders.proposal(builders.add("../outside"), **told)
        return builders.proposal(new, **told)

    def _head(self, root: str) -> int:
        return len(self.history.logs[root].names()) - 1

    def _live(self, root: str) -> dict[str, LiveFile]:
        return live_files(self.stores[root], self.history.logs[root].entries)

    def _row_writer(self, root: str) -> RowWriter:
        return RowWriter(self.dice, self.stores[root], self._next())

    def _id(self) -> UUID:
        return UUID(int=0x7000_8000_0000_0000_0000 + self._next())

    def _next(self) -> int:
        self.ids += 1
        return self.ids

    # What holds.

    def _check(self) -> None:
        self.step += 1
        if not self.history.look():
            return
        for step in self.row_steps.look(self.history):
            for rule in ROW_INVARIANTS:
                self._hold(rule, step)
        for invariant in ALWAYS:
            self._hold(invariant, self.history)

    def _hold(self, invariant: Callable[[T], str | None], seen: T) -> None:
        broken = invariant(seen)
        if broken:
            name = getattr(invariant, "__name__", "?")
            raise Broken(f"seed {self.seed} broke {name} at step {self.step}: {broken}")

    def _heal(self) -> None:
        """The faults stop; what travels arrives; everybody gets the time to finish."""
        self.weather.character = CALM
        while self.travelling:
            self.weather.land()
        for member in list(self.members):
            self._expel(member)
        for _ in range(HEALING_STEPS):
            self.clock.boot += 31.0
            for process in self.processes:
                self._work(process)
            self._check()
        for invariant in AT_REST:
            self._hold(invariant, self.history)

    def _doors(self) -> Doors:
        bus = StormyBus(self.bus, self.weather, self.members)
        section = CommitterSection(
            roots=("memory://tables",),
            refusals_burst=3,
            refusals_per_s=1.0,
            group_members_max=4,
            id_window=5,
            put_deadline_s=0.5,
        )
        return Doors(bus, self.topics, self._store, self.clock, self._id, section)

    def _store(self, root: str) -> LogStore:
        return StormyStore(self.stores[root], self.weather)


def _removal(live: dict[str, LiveFile], path: str) -> dict[str, Any]:
    vector = live[path].vector
    return builders.remove(path, **({"deletionVector": vector} if vector else {}))
