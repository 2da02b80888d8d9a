"""Faults for a test's committers, from a seed: kills at failpoints, and suspensions.

Two committers run at all times, each armed with the next failpoint of the plan. The active one dies
at its own, the other takes over, and the dead one starts again as standby.
"""

import logging
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

from tests.integration.conftest import Line
from tests.integration.proposers import committed_offset, read_topic
from tidegate_committer.dependencies import FAILPOINTS
from tidegate_local.child_processes import ServiceProcess, probe

SUSPENSION: Final = "SIGSTOP"
"""Suspend a committer until its successor has published outcomes; it wakes up as a zombie."""

ELSEWHERE: Final = ("before_resolve", "after_move")
"""The failpoint before an ambiguous PUT is resolved needs a store with such responses, like S3; the
other one an operator who moves a table.
"""

_OFTEN: Final = (2, 12)
_PASSAGES: Final[Mapping[str, tuple[int, int]]] = {
    "after_read": (12, 40),
    "after_take": (12, 40),
    "after_load": (1, 3),
    "after_claim": (1, 1),
    "after_register": (1, 1),
    "before_flush": (2, 8),
    "after_flush": (2, 8),
    "after_state": (1, 3),
    "before_offsets": (1, 3),
    "after_offsets": (1, 3),
}
PASSAGES: Final = {
    point: _PASSAGES.get(point, _OFTEN) for point in FAILPOINTS if point not in ELSEWHERE
}
"""The failpoints, and after how many passes a committer dies there; most lives commit something."""

SUSPENSIONS_A_ROUND: Final = 2
_POLL_S: Final = 0.02
_log = logging.getLogger(__name__)


def blows(dice: Random) -> Iterator[str]:
    """Yield faults for ever: all of them in each round, in a random order."""
    all_of_them = [*PASSAGES, *[SUSPENSION] * SUSPENSIONS_A_ROUND]
    while True:
        yield from dice.sample(all_of_them, len(all_of_them))


@dataclass
class Slot:
    """A committer's slot: when the process dies a new one starts, armed with another failpoint."""

    name: str
    point: str = ""
    service: ServiceProcess | None = None

    def signal(self, sign: signal.Signals) -> None:
        """Send a signal to the process."""
        assert self.service is not None, "the seat is taken"
        self.service.child.signal(sign)

    def fell(self) -> bool:
        """Return whether the process was killed at its failpoint; any other exit is a failure."""
        if self.service is None or self.service.child.is_alive():
            return False
        status = self.service.child.exit_status()
        assert status == -signal.SIGKILL, (
            f"{self.name} ended with {status} on its way to {self.point}:\n"
            f"{self.service.child.tail()}"
        )
        return True

    def is_active(self) -> bool:
        """Return whether the process reports that it owns the topic partition."""
        address = self.service.address() if self.service is not None else None
        return address is not None and "active" in probe(f"{address}/readyz", 1.0)[1]


class Siege:
    """The two committers of a test, and the faults they have had."""

    def __init__(self, line: Line, dice: Random, plan: Iterator[str]) -> None:
        self._line = line
        self._dice = dice
        self._plan = plan
        self._seats = (Slot("left"), Slot("right"))
        self._is_to_suspend = False
        self._suspended: Slot | None = None
        self._heard = 0

    def step(self, heard: int, unheard_max: int) -> list[str]:
        """Apply the faults that are due; return those that happened since the last step.

        `heard` counts the outcomes that writers have received; `unheard_max` is how many more may
        be under way, published by a committer that is suspended by now.
        """
        fallen = []
        for seat in self._seats:
            if seat.fell():
                fallen.append(seat.point)
                seat.service = None
            if seat.service is None:
                self._take(seat)
        if self._suspended is None and self._is_to_suspend:
            self._suspend(heard + unheard_max)
        elif self._suspended is not None and heard > self._heard:
            self._suspended.signal(signal.SIGCONT)
            self._suspended = None
            fallen.append(SUSPENSION)
        return fallen

    def lift(self) -> None:
        """End both committers, and start one that has no faults."""
        for seat in self._seats:
            if seat.service is not None:
                seat.service.child.signal(signal.SIGCONT)
                seat.service.child.stop()
        self._line.started("committer", "successor")

    def _take(self, seat: Slot) -> None:
        point = next(self._plan)
        while point == SUSPENSION:
            self._is_to_suspend = True
            point = next(self._plan)
        seat.point = point
        passage = self._dice.randint(*PASSAGES[point])
        seat.service = self._line.service("committer", seat.name, f"{point}:{passage}")
        seat.service.start()

    def _suspend(self, heard: int) -> None:
        active = next((seat for seat in self._seats if seat.is_active()), None)
        if active is not None:
            active.signal(signal.SIGSTOP)
            self._suspended, self._heard, self._is_to_suspend = active, heard, False


@dataclass
class Passed:
    """Check what the group's offset has passed; each record is read once."""

    line: Line
    _sent: dict[int, str] = field(default_factory=dict)
    _answered: set[str] = field(default_factory=set)
    _outcomes: int = 0

    def check(self) -> None:
        """Fail if a proposal before the offset has no outcome."""
        kafka, topics = self.line.kafka, self.line.kafka.topics
        passed = committed_offset(kafka, f"{kafka.topic_prefix}committer")
        for record in read_topic(kafka, topics.proposals, start=max(self._sent, default=-1) + 1):
            self._sent[record.offset] = dict(record.headers)["proposal_id"].decode()
        for record in read_topic(kafka, topics.outcomes, start=self._outcomes):
            self._answered.add((record.key or b"").decode())
            self._outcomes = record.offset + 1
        lost = [one for at, one in self._sent.items() if at < passed and one not in self._answered]
        assert not lost, f"passed without an outcome: {lost}"


def rain(
    sieges: Sequence[Siege], heard: Sequence[Callable[[], int]], limit: "Limit"
) -> Counter[str]:
    """Apply faults to all committers at once until the limit; return how often each happened."""
    fallen: Counter[str] = Counter()
    until_s = time.monotonic() + limit.patience_s
    while fallen.total() < limit.blows:
        assert time.monotonic() < until_s, f"{fallen.total()} blows in {limit.patience_s} s only"
        for number, (siege, count) in enumerate(zip(sieges, heard, strict=True)):
            for blow in siege.step(count(), limit.unheard_max):
                fallen[blow] += 1
                _log.info("blow %d of %d: %s", fallen.total(), limit.blows, blow)
                limit.after(number)
        time.sleep(_POLL_S)
    return fallen


@dataclass(frozen=True)
class Limit:
    """How many faults, how long at most, and the check after each, by number of the siege."""

    blows: int
    patience_s: float
    unheard_max: int
    after: Callable[[int], None]
