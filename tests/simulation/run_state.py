"""The state of a simulated run: clock, broker, stores, processes and the source of randomness.

The events are elsewhere: `proposers`, `engines` and `troubles` are functions of the stage.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final
from urllib.parse import unquote
from uuid import UUID

from tests import builders
from tests.fakes.memory_bus import MemoryBus, MemoryConsumer
from tests.fakes.memory_store import MemoryStore
from tests.simulation import background
from tests.simulation.faulty_dependencies import (
    Character,
    Crash,
    StormyBus,
    StormyConsumer,
    StormyPuts,
    StormyStore,
    Weather,
)
from tests.simulation.history import WINDOW, History, Log, commit_path
from tests.simulation.tables import TABLES, Table
from tidegate_committer.dependencies import Dependencies
from tidegate_committer.loop.poison_records import read_note
from tidegate_committer.loop.service import CommitterLoop, serve
from tidegate_committer.settings import CommitterSection
from tidegate_delta.errors import TidegateError
from tidegate_messages.proposal import Proposal
from tidegate_messages.topics import Topics
from tidegate_runtime.kafka.client_protocols import TopicPartition
from tidegate_runtime.service.health import Health
from tidegate_runtime.service.runner import Running
from tidegate_runtime.storage.log_store import LogStore, Put


class Odd(Exception):
    """An unforeseen error, of no class that the committer knows."""


COMMITTERS = 2
VIEW_AGE_S = 60.0
PUT_DEADLINE_S = 0.5

SECTION = CommitterSection(
    roots=("memory://tables",),
    refusals_burst=3,
    refusals_per_s=1.0,
    group_members_max=4,
    id_window=WINDOW,
    put_deadline_s=PUT_DEADLINE_S,
    view_age_max_s=VIEW_AGE_S,
)


UNGROUPED: Final[dict[str, Any]] = {"group_members_max": 1, "put_deadline_s": 20 * PUT_DEADLINE_S}
"""Settings where an entry holds one proposal: a PUT may land late, with the next right behind."""


@dataclass
class SimulatedClock:
    """A clock that the world moves. Wall time jumps; boot time does not."""

    boot: float = 0.0
    skew_ms: int = 0

    def now_ms(self) -> int:
        """Return wall time."""
        return builders.NOW_MS + int(self.boot * 1000) + self.skew_ms

    def boot_s(self) -> float:
        """Return boot time."""
        return self.boot

    def sleep(self, seconds: float) -> None:
        """Advance boot time."""
        self.boot += seconds


@dataclass
class Process:
    """A committer process: it runs, stalls, dies, and is started again without any state."""

    loop: CommitterLoop | None = None
    is_running: bool = False
    lives: int = 0

    def end(self) -> None:
        """Drop the loop; the next loop counts as another process."""
        self.loop = None
        self.lives += 1


@dataclass
class Stage:
    """The whole state of a run. `past` are all proposals ever sent, with their tables.

    `is_ungrouped`: an entry of the committers holds one proposal. `reads_slowly`: reads of stores
    take their time. `registry_is_lost`: the registry was lost or restored from a copy. `verbatim`
    maps the SHA-256 of a verbatim entry to its rows; `deadly` are the ids of proposals that kill
    the process that reads them; `flaws` are faults found at the moment they happened. `odd` is the
    name of a table on which nothing can be decided.
    """

    dice: random.Random
    clock: SimulatedClock = field(default_factory=SimulatedClock)
    topics: Topics = field(default_factory=lambda: Topics(partitions=2))
    past: list[tuple[Table, Proposal]] = field(default_factory=list)
    drafts: list[tuple[Table, Proposal]] = field(default_factory=list)
    members: list[MemoryConsumer] = field(default_factory=list)
    born_s: dict[tuple[str, str], float] = field(default_factory=dict)
    depth: int = 0
    ids: int = 0
    verbatim: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    deadly: set[str] = field(default_factory=set)
    is_ungrouped: bool = False
    reads_slowly: bool = False
    registry_is_lost: bool = False
    flaws: list[str] = field(default_factory=list)
    odd: str = ""

    def __post_init__(self) -> None:
        self.bus = MemoryBus(self.topics.declared(), self.clock.now_ms)
        self.stores = {table.root: MemoryStore(table.root, self.clock.now_ms) for table in TABLES}
        logs = {table.root: Log(self.stores[table.root], table.is_found) for table in TABLES}
        self.history = History(self.bus, self.topics, logs)
        character = Character.rolled(self.dice)
        if self.is_ungrouped:
            character = replace(character, slow=max(character.slow, 0.7))
        if self.reads_slowly:
            character = replace(character, slow_read=0.85)
        self.weather = Weather(self.dice, self.clock, character, self.pause)
        self.processes = [Process() for _ in range(COMMITTERS)]
        for table in TABLES:
            if table.is_found:
                self.foreign_put(table, [builders.info("CREATE TABLE"), *table.rows])
                self.look()
                self.foreign_put(
                    table, [builders.info(), builders.add(self.data_file(table, "old"))]
                )
                self.look()
            self.send(table, table.opening(self.new_id()))

    # Processes.

    def work(self, process: Process) -> None:
        """Let a process do one step, unless it is within one."""
        if process.is_running:
            return
        process.is_running = True
        try:
            if process.loop is None:
                process.loop = CommitterLoop(self._dependencies(process))
            with self.weather.aside(is_aside=False):
                process.loop.step()
        except (Crash, Odd):
            # An unforeseen error that reaches the top of the process kills it too.
            process.end()
        except TidegateError as error:
            self._fail(process, error)
        finally:
            process.is_running = False

    def stop(self, process: Process) -> None:
        """Tell a process to stop, unless it is within a step; it hands over its partitions.

        A process that stops cleanly removes its owner's name from its notes: it killed nothing.
        """
        loop = process.loop
        if process.is_running or loop is None:
            return
        process.is_running = True
        running = Running(self.clock, Health(self.clock))
        running.stopping.set()
        try:
            with self.weather.aside(is_aside=False):
                serve(loop, running)
        except (Crash, Odd, TidegateError):
            # Whatever error the stop raises, the process ends.
            self.weather.struck["stopped badly"] += 1
        else:
            self.weather.struck["stopped"] += 1
            owners = [read_note(loop.consumer.noted(at)[1]).owner for at in loop.workers]
            self.flaws += [f"{owner} stopped and left its name" for owner in owners if owner]
        finally:
            process.is_running = False
            process.end()

    def _fail(self, process: Process, error: TidegateError) -> None:
        """Handle an error as the service runner does: leave the group, then start over or exit.

        A bug ends the seed.
        """
        try:
            if process.loop is not None:
                process.loop.leave()
        finally:
            process.loop = None
        if error.advice != "retry":
            process.end()

    def let_one_work(self) -> None:
        """Let one of the processes that are not within a step do a step."""
        free = [process for process in self.processes if not process.is_running]
        if free:
            self.work(self.dice.choice(free))

    def pause(self) -> None:
        """Stall the process that is within a call, while the rest of the world goes on."""
        if self.depth >= 2:
            return
        self.depth += 1
        for _ in range(self.dice.randint(1, 6)):
            self.clock.boot += 0.1
            self.dice.choice((self.let_one_work, self.expire, self.land))()
        self.depth -= 1

    def land(self) -> None:
        """Let one pending PUT arrive, or one go on whose loop has ended."""
        try:
            self.weather.land()
        except Crash:
            self.weather.struck["crash of what was left"] += 1

    def reach(self, point: str, about: object = "") -> None:
        """Handle a committer's failpoint: suspend it, crash it, or let it pass."""
        self.weather.suspend(point)
        if point == "after_read" and str(about) in self.deadly:
            self.weather.struck["deadly"] += 1
            raise Crash(str(about))
        if self.odd and point == "after_decide" and about == self.odd:
            self.weather.struck["odd"] += 1
            raise Odd(self.odd)
        if self.weather.happens("crash", 1 / 8):
            raise Crash(point)

    def expire(self) -> None:
        """Let the broker drop a random member: a dead one, or a live one that becomes a zombie."""
        if self.members:
            self.expel(self.dice.choice(self.members))

    def miss(self) -> None:
        """Let the broker drop the members that have been within a step for too long."""
        for process in self.processes:
            consumer = process.loop.consumer if process.loop and process.is_running else None
            if isinstance(consumer, StormyConsumer):
                self.bus.expire(consumer.inner)

    def bury(self) -> None:
        """Let the broker drop the members whose processes are dead."""
        alive = [process.loop.consumer for process in self.processes if process.loop is not None]
        inner = [item.inner for item in alive if isinstance(item, StormyConsumer)]
        for member in [member for member in self.members if not any(member is it for it in inner)]:
            self.expel(member)

    def expel(self, member: MemoryConsumer) -> None:
        """End a member's session."""
        self.bus.expire(member)
        alive = [process.loop.consumer for process in self.processes if process.loop is not None]
        if not any(isinstance(item, StormyConsumer) and item.inner is member for item in alive):
            self.members.remove(member)

    # Stores and topics.

    def send(self, table: Table, one: Proposal) -> None:
        """Produce a proposal; each call produces it again."""
        if (table, one) not in self.past:
            self.past.append((table, one))
        self.produce(table.id, builders.value_of(one))

    def produce(self, table: UUID, value: bytes, elsewhere: int = 0) -> None:
        """Produce a record for a table, whatever its value is.

        It goes to the topic partition on which the table is registered, or to the one that its id
        selects; or `elsewhere` partitions further.
        """
        count = self.bus.partitions(self.topics.proposals)
        home = self.history.home_of(str(table))
        number = table.int % count if home is None else home
        at = TopicPartition(self.topics.proposals, (number + elsewhere) % count)
        self.bus.append(at, str(table).encode(), value)

    def administer(self, table: UUID, value: bytes) -> None:
        """Produce an operator's request, beside the partition of the table's proposals."""
        count = self.bus.partitions(self.topics.admin)
        home = self.history.home_of(str(table))
        number = table.int % count if home is None else home
        self.bus.append(TopicPartition(self.topics.admin, number), str(table).encode(), value)

    def foreign_put(self, table: Table, rows: list[dict[str, Any]]) -> None:
        """Let another engine write the version after the head."""
        path = commit_path(self.log(table).head + 1)
        won = self.stores[table.root].put_if_absent(path, builders.to_bytes(rows), 0.0)
        assert won is Put.WON, "the other engine takes the version after the head"

    def data_file(self, table: Table, name: str) -> str:
        """Write a data file, in a partition if the table has partition columns; return its path.

        Now and then the path has an unusual escape in the log.
        """
        folders = [f"{column}={self.dice.randint(1, 2)}" for column in table.partition_columns]
        path = "/".join([*folders, name])
        self.write_file(table, path)
        return respelt(path) if self.dice.random() < 0.1 else path

    def write_file(self, table: Table, path: str) -> None:
        """Write a data file; `born_s` records when."""
        self.stores[table.root].put(path, b"rows")
        self.born_s[table.root, path] = self.clock.boot

    def look(self) -> bool:
        """Observe what is new; return whether anything was."""
        return self.history.look(self.clock.boot)

    def log(self, table: Table) -> Log:
        """Return a table's log as it was observed."""
        return self.history.logs[table.root]

    def new_id(self) -> UUID:
        """Return an id that is not in use."""
        return UUID(int=0x7000_8000_0000_0000_0000 + self.next())

    def next(self) -> int:
        """Return a number that is not in use."""
        self.ids += 1
        return self.ids

    def _dependencies(self, process: Process) -> Dependencies:
        return Dependencies(
            StormyBus(self.bus, self.weather, self.members),
            self.topics,
            self._store,
            self.clock,
            self.new_id,
            SECTION.model_copy(update=UNGROUPED) if self.is_ungrouped else SECTION,
            puts=StormyPuts(self.weather),
            background=background.StormyBackground(self.weather),
            loads=background.StormyBackground(self.weather),
            reads=background.StormyBackground(self.weather),
            process=f"{self.processes.index(process)}/{process.lives}",
        )

    def _store(self, root: str) -> LogStore:
        return StormyStore(self.stores[root], self.weather)


def respelt(path: str) -> str:
    """Return another form of a path of the log: with its last letter escaped, or unescaped."""
    key = unquote(path)
    return key if key != path else f"{path[:-1]}%{ord(path[-1]):02X}"


Event = Callable[[Stage], None]
"""Something that happens on a stage."""
