"""One simulated run: writers, committers, other engines, a broker and some tables, from a seed.

The real decision code and the real loop run with in-memory dependencies, in one thread, without
sleeping, and with a single source of randomness. A step is one event anywhere: a step of a
committer, a proposal, a crash, a PUT that lands late.
"""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Final, TypeVar
from unittest import mock

from tests import builders
from tests.contained_errors import expected, unswallowed
from tests.simulation import (
    external_faults,
    foreign_engines,
    identity_writers,
    operators,
    proposers,
    verbatim_writers,
)
from tests.simulation.faulty_dependencies import POLLED_MAX
from tests.simulation.history import History
from tests.simulation.invariants import (
    ALWAYS,
    AT_REST,
    all_answered,
    one_home,
    one_home_after_moves,
)
from tests.simulation.patch_invariants import patches_are_complete
from tests.simulation.row_invariants import ROW_INVARIANTS, Steps
from tests.simulation.run_state import Event, Odd, Stage
from tidegate_committer.decision import published_record_limits
from tidegate_committer.loop import read_ahead
from tidegate_runtime import containment, failpoints

HEALING_STEPS: Final = 240
"""Steps within which all work must finish; a suspected poison record takes one or two each."""

QUIET_STEPS: Final = 8
"""Consecutive steps without any change after which the world counts as at rest."""

USUAL: Final[dict[Event, int]] = {
    Stage.let_one_work: 60,
    proposers.write: 16,
    proposers.write_again: 8,
    proposers.write_late: 2,
    verbatim_writers.write: 5,
    identity_writers.write: 8,
    foreign_engines.append: 4,
    foreign_engines.delete: 2,
    foreign_engines.delete_rows: 2,
    Stage.land: 6,
    external_faults.kill: 2,
    external_faults.stop: 2,
    Stage.expire: 3,
    external_faults.clock_steps: 2,
    external_faults.long_wait: 2,
}
"""Events of every world, with their weights."""

CROWDED: Final[dict[Event, int]] = {
    Stage.let_one_work: 160,
    proposers.write: 60,
    Stage.expire: 1,
    external_faults.kill: 1,
}
"""Changed weights in one world of four, where an entry holds one proposal and PUTs follow closely.
"""

SOMETIMES: Final[dict[Event, int]] = {
    proposers.write_nonsense: 3,
    foreign_engines.set_property: 2,
    foreign_engines.clean_up: 6,
    foreign_engines.vacuum: 4,
    foreign_engines.litter: 3,
    external_faults.drop_offsets: 2,
    external_faults.rewind_offsets: 2,
    external_faults.rewind_registry: 2,
    external_faults.lose_registry: 1,
    external_faults.lose_outcomes: 1,
    external_faults.lose_commits: 1,
    external_faults.recreate_proposals: 1,
    external_faults.add_partition: 1,
    external_faults.misdirect: 4,
    external_faults.make_twice: 3,
    proposers.write_poison: 1,
}
"""Events of about one world in three each, so that seeds differ in character."""


WITH_OPERATORS: Final[dict[Event, int]] = {
    operators.halt: 4,
    operators.reopen: 4,
    operators.drop: 1,
    operators.make_again: 2,
}
"""Events of two worlds in seven. The seed number selects them, so that the random sequence of the
other worlds stays the same.
"""

IMPATIENT: Final[dict[Event, int]] = {operators.halt: 16, operators.reopen: 16}
"""Extra events where stores are slow to read: a halt must not wait for their responses."""

PRESSED: Final[dict[Event, int]] = {proposers.flood: 2}
"""Extra events in one world of three, where a committer may hold only a few records."""

ROOM_BYTES: Final = 160
OUTCOME_BYTES_MAX: Final = 540
TEXT_CHARS_MAX: Final = 40
"""Limits in one world of five on an outcome and on a text in it. With room for Kafka's record
overhead they also limit the topic's record size, so that some outcomes are too large as they are.
"""

IN_HAND_MAX: Final = 5
"""Undecided records after which a topic partition is paused in a pressed world."""

ODD: Final = "found"
"""The table on which no decision succeeds in an odd world."""

REGISTRY_LOST: Final = frozenset({external_faults.rewind_registry, external_faults.lose_registry})
"""Events that make a committer forget a halt or a table's root; only the registry holds these."""

MOVING: Final[dict[Event, int]] = {operators.move: 10}
"""Extra events where operators move tables."""

T = TypeVar("T")

WHILE_ASLEEP: Final[tuple[Event, ...]] = (
    *(Stage.let_one_work,) * 10,
    *(proposers.write,) * 2,
    foreign_engines.append,
)
"""Events that happen while a machine sleeps."""

SESSION_S: Final = 6.0
"""The longest time a group member may be silent before the broker drops it."""

ASLEEP_STEPS: Final = 24
"""Enough steps for another committer to take over, to commit and to publish."""


def hands_not_full(stage: Stage) -> str | None:
    """No worker holds more undecided records of a topic than its limit and one poll allow."""
    for process in stage.processes:
        for at, worker in process.loop.workers.items() if process.loop else ():
            requests = worker.requests.pending
            for topic, count in (
                (at.topic, worker.pending - requests),
                (worker.requests.at.topic, requests),
            ):
                if count > read_ahead.RECORDS_MAX + POLLED_MAX:
                    return f"{count} records of {topic}/{at.partition} are in hand"
    return None


def signed_off(stage: Stage) -> str | None:
    """A committer that stopped cleanly left no name that a death could be put down to."""
    return next(iter(stage.flaws), None)


class Broken(AssertionError):
    """An invariant is violated."""


@dataclass
class World:
    """A stage and the events on it. `events` maps each event to its weight.

    `is_odd` means that every decision on one of the tables fails with an unforeseen error.
    `has_moves`: operators move tables between topic partitions.
    """

    seed: int
    steps: int = 160
    is_odd: bool = False
    has_moves: bool = False
    step: int = 0
    row_steps: Steps = field(default_factory=Steps)
    stage: Stage = field(init=False)

    def __post_init__(self) -> None:
        dice = random.Random(self.seed)
        self.stage = Stage(dice, is_ungrouped=self.seed % 4 == 3, reads_slowly=self.seed % 5 == 3)
        crowded = CROWDED if self.stage.is_ungrouped else {}
        rare = {event: often for event, often in SOMETIMES.items() if dice.random() < 0.35}
        by_hand = WITH_OPERATORS if self.seed % 7 in (2, 5) else {}
        by_hand = {**by_hand, **(IMPATIENT if self.stage.reads_slowly else {})}
        pressed = PRESSED if self.is_pressed else {}
        moving = MOVING if self.has_moves else {}
        self.events = {**USUAL, **crowded, **rare, **by_hand, **pressed, **moving}
        self.stage.weather.sleep = self._sleep
        if self.seed % 2 == 0:
            # The proposals that create the tables are on both topic partitions before anything
            # reads them.
            for table, opening in list(self.stage.past):
                self.stage.produce(table.id, builders.value_of(opening), elsewhere=1)

    @property
    def is_pressed(self) -> bool:
        """Whether a committer may hold only a few records here, while writers come in floods."""
        return self.seed % 3 == 1

    @property
    def history(self) -> History:
        """What was observed so far."""
        return self.stage.history

    def run(self) -> str:
        """Run with faults, heal, come to rest; return the hash of what was observed.

        Raises: Broken, naming the seed, the invariant and the step.
        """
        in_hand = IN_HAND_MAX if self.is_pressed else read_ahead.RECORDS_MAX
        with (
            mock.patch.object(failpoints, "reach", self.stage.reach),
            mock.patch.object(read_ahead, "RECORDS_MAX", in_hand),
            self._narrow() if self.seed % 5 == 4 else nullcontext(),
            unswallowed(),
            expected(Odd) if self.is_odd else nullcontext(),
            # The healing phase must outlast every containment pause, so pauses stay at the minimum.
            mock.patch.object(containment, "PAUSE_MAX_S", containment.PAUSE_MIN_S),
        ):
            self.stage.odd = ODD if self.is_odd else ""
            for _ in range(self.steps):
                self._happen()
                self._check()
            self._heal()
        return self.history.digest()

    @contextmanager
    def _narrow(self) -> Iterator[None]:
        """Lower the limits of outcomes to the values above."""
        self.stage.bus.limit(self.stage.topics.outcomes, OUTCOME_BYTES_MAX + ROOM_BYTES)
        with (
            mock.patch.object(published_record_limits, "VALUE_BYTES_MAX", OUTCOME_BYTES_MAX),
            mock.patch.object(published_record_limits, "TEXT_CHARS_MAX", TEXT_CHARS_MAX),
        ):
            yield

    def _happen(self) -> None:
        dice = self.stage.dice
        self.stage.clock.boot += dice.choice((0.01, 0.05, 0.1, 0.3))
        [event] = dice.choices(list(self.events), list(self.events.values()))
        event(self.stage)

    def _sleep(self) -> None:
        """Let one machine sleep while the others go on and another engine cleans up the logs."""
        stage = self.stage
        if stage.depth >= 2:
            return
        stage.depth += 1
        seconds = stage.dice.choice((5.0, 70.0, 1_000.0))
        if seconds > SESSION_S:
            stage.miss()
        for _ in range(ASLEEP_STEPS):
            stage.clock.boot += seconds / ASLEEP_STEPS
            stage.dice.choice(WHILE_ASLEEP)(stage)
        foreign_engines.clean_up_everywhere(stage)
        stage.depth -= 1

    def _check(self) -> bool:
        self.step += 1
        is_new = self.stage.look()
        if is_new:
            for step in self.row_steps.look(self.history):
                for rule in ROW_INVARIANTS:
                    self._hold(rule, step)
            for invariant in (*ALWAYS, patches_are_complete):
                self._hold(invariant, self.history)
            self._hold(signed_off, self.stage)
            self._hold(hands_not_full, self.stage)
            if not self.events.keys() & REGISTRY_LOST:
                self._hold(operators.halted_by_hand, self.history)
            if not self.stage.registry_is_lost:
                homes = one_home_after_moves if self.has_moves else one_home
                self._hold(homes, self.history)
        return is_new

    def _hold(self, invariant: Callable[[T], str | None], seen: T) -> None:
        broken = invariant(seen)
        if broken:
            name = getattr(invariant, "__name__", "?")
            raise Broken(f"seed {self.seed} broke {name} at step {self.step}: {broken}")

    def _heal(self) -> None:
        """Stop the faults, let pending PUTs arrive, and give every process time to finish."""
        self.stage.weather.clear()
        for member in list(self.stage.members):
            self.stage.expel(member)
        self._rest()
        if self.is_odd:
            # The other tables must be served while nothing can be decided on the odd one.
            self._hold(all_answered, self.history)
            self.stage.odd = ""
            self._rest()
        external_faults.register_missing(self.stage)
        self._rest()
        if {operators.halt, operators.move} & self.events.keys():
            # Who moved a table sends the request to its new owner, too.
            operators.reopen_all(self.stage)
            self._rest()
        for invariant in AT_REST:
            self._hold(invariant, self.history)

    def _rest(self) -> None:
        """Let every process work until nothing changes; contained errors get time to be retried."""
        quiet = 0
        for _ in range(HEALING_STEPS):
            self.stage.clock.boot += 31.0 if quiet else 0.3
            lives = [process.lives for process in self.stage.processes]
            for process in self.stage.processes:
                self.stage.work(process)
            self.stage.bury()
            died = lives != [process.lives for process in self.stage.processes]
            quiet = 0 if self._check() or died else quiet + 1
            if quiet == QUIET_STEPS:
                break
