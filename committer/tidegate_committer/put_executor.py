"""PUTs in flight, at most one for each table, in threads beside the loop; and how long they take.

A flight is one entry's put-if-absent until its result is certain. In tests and simulations
(`AtOnce`) it has landed when `start` returns.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from typing import Final, Protocol

from tidegate_committer import background_reads
from tidegate_committer.background_reads import at_once
from tidegate_runtime.storage.log_store import Put

REMEMBERED: Final = 16
"""The number of last PUTs whose median is taken for the duration of the next."""

QUIET_SHARE: Final = 0.2
"""How long a group stays open after the last arrival, as a share of a PUT, while half of the
expected members are there."""

FORBEARING: Final = 2.0
"""By how much the wait may grow where few have come and many are expected."""

STREAM_SHARE: Final = 0.03
"""How recent an arrival must be, as a share of a PUT, to count as part of a stream of arrivals."""

GIVES_WAY_SHARE: Final = 0.25
"""How long the loop leaves the interpreter to a prepared PUT whose turn has come, as a share of
the time that it would have waited at most."""

TOGETHER_MAX: Final = 64
"""PUTs in flight or prepared at once, over all tables in one store."""


@dataclass(frozen=True)
class PutResult:
    """How a PUT ended: WON or LOST, for certain. Units: `took_s` in seconds."""

    put: Put
    took_s: float


PutCall = Callable[[], PutResult]


class PendingPut(Protocol):
    """A PUT in flight."""

    def done(self) -> bool:
        """Return whether it has ended."""

    def result(self, timeout: float | None = None, /) -> PutResult:
        """Return how it ended, within so many seconds where they are given.

        Raises: OutcomeUnknown past its deadline; Unavailable; TimeoutError.
        """


class PutExecutor(Protocol):
    """Where PUTs are sent from."""

    def start(self, root: str, work: PutCall, behind: PendingPut | None = None) -> PendingPut:
        """Send a PUT to a table's store; with `behind`, prepare it to be sent after that one."""

    def wait(self, timeout_s: float) -> None:
        """Wait until a PUT ends, or for `timeout_s`."""

    def close(self) -> None:
        """Start no more; what is in flight goes on by itself."""


@dataclass
class PutsInline:
    """PUTs that end before `start` returns: no thread, so that a seed replays every step."""

    def start(self, root: str, work: PutCall, behind: PendingPut | None = None) -> PendingPut:
        """Send one and wait for its end."""
        return at_once(work)

    def wait(self, timeout_s: float) -> None:
        """Return: nothing flies."""

    def close(self) -> None:
        """Do nothing."""


class PutsInThreads:
    """PUTs in threads of their own; the interpreter is free while they wait for their stores."""

    def __init__(self) -> None:
        self._threads = background_reads.ReadsInThreads(TOGETHER_MAX, "put")
        self._landed = threading.Event()
        self._hands_over = threading.Event()
        self._followed: set[PendingPut] = set()

    def start(self, root: str, work: PutCall, behind: PendingPut | None = None) -> PendingPut:
        """Send one; past TOGETHER_MAX in a store it waits for a thread."""
        if behind is not None:
            self._followed.add(behind)
            if behind.done():
                self._followed.discard(behind)
        flight = self._threads.begin(root, work)
        flight.add_done_callback(self._ended)
        return flight

    def wait(self, timeout_s: float) -> None:
        """Wait until a PUT has ended since the last call, or for `timeout_s`.

        If a prepared one was waiting for that end, the loop sleeps a moment more, so that its
        request gets the interpreter first: else the loop's steps would delay it by milliseconds.
        """
        has_landed = self._landed.wait(timeout_s)
        self._landed.clear()
        if has_landed and self._hands_over.is_set():
            self._hands_over.clear()
            time.sleep(GIVES_WAY_SHARE * timeout_s)

    def _ended(self, flight: PendingPut) -> None:
        if flight in self._followed:
            self._followed.discard(flight)
            self._hands_over.set()
        self._landed.set()

    def close(self) -> None:
        """Start no more. What was sent may still land: the next owner finds it in the log."""
        self._threads.close()


@dataclass
class AdaptiveLinger:
    """The adaptive linger: how long a group is kept open, by how long PUTs take and who may come.

    `crowd` is the number of members of the last entry and of those who waited when it landed: so
    many writers may come together again. `told_s` is when these members had their outcomes.
    Units: seconds, moments by `Clock.boot_s`.
    """

    took_s: deque[float] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    crowd: int = 0
    told_s: float = 0.0

    def landed(self, took_s: float, members: int, waiting: int) -> None:
        """Note an entry that landed, its members, and how many more were waiting."""
        self.took_s.append(took_s)
        self.crowd = members + waiting

    @property
    def put_s(self) -> float:
        """How long a PUT takes lately: the median of the last ones; 0 where there was none."""
        return median(self.took_s) if self.took_s else 0.0

    def lingers_until_s(self, waiting: int, newest_s: float, share: float) -> float:
        """Return until when the group stays open, given how many wait and when the last came.

        A writer that just got its outcome may propose again at once. A group that leaves without it
        makes both wait for two PUTs, their own and the other's. So the group waits for as many as
        the `crowd`, up to `share` of a PUT after `told_s`, and gives up earlier where nobody came
        for a while. Both times are longer, within FORBEARING, the more are missing for each that
        waits. A lone writer never waits.
        """
        if waiting >= self.crowd:
            return 0.0
        out = max(1.0, (self.crowd - waiting) / max(1, waiting))
        usual_s, last_s = share * self.put_s, max(self.told_s, newest_s)
        patient_s = min(
            self.told_s + min(FORBEARING, out) * usual_s,
            last_s + QUIET_SHARE * self.put_s * out,
        )
        # While arrivals stream in, wait on: a wave of writers that is cut in two stays in two.
        longer_s = min(FORBEARING * usual_s, usual_s + QUIET_SHARE * self.put_s)
        return max(patient_s, min(self.told_s + longer_s, last_s + STREAM_SHARE * self.put_s))
