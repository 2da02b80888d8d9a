"""Runs PUTs in threads beside the loop, at most one in flight per table, and measures them.

A PUT is one entry's put-if-absent until its result is certain. In tests and simulations
(`PutsInline`) it has finished when `start` returns.
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
"""How many recent PUTs are kept: their median is the expected duration of the next one."""

QUIET_SHARE: Final = 0.2
"""How long a group stays open after the last arrival, as a share of a PUT, while half of the
expected members are there."""

LINGER_GROWTH_MAX: Final = 2.0
"""The most by which the wait may grow when few members have come and many are expected."""

STREAM_SHARE: Final = 0.03
"""How recent an arrival must be, as a share of a PUT, to count as part of a stream of arrivals."""

YIELD_SHARE: Final = 0.25
"""How long the loop leaves the interpreter to a prepared PUT that may be sent now, as a share of
its wait's timeout.
"""

PUTS_MAX: Final = 64
"""PUTs in flight or prepared at once in one store, over all tables."""


@dataclass(frozen=True)
class PutResult:
    """How a PUT ended: WON or LOST, for certain. Units: `took_s` in seconds."""

    put: Put
    took_s: float


PutCall = Callable[[], PutResult]


class PendingPut(Protocol):
    """A PUT in flight."""

    def done(self) -> bool:
        """Return whether the PUT has ended."""

    def result(self, timeout: float | None = None, /) -> PutResult:
        """Return how the PUT ended; wait for at most `timeout` seconds if it is given.

        Raises: OutcomeUnknown past its deadline; Unavailable; TimeoutError.
        """


class PutExecutor(Protocol):
    """Sends PUTs."""

    def start(self, root: str, work: PutCall, behind: PendingPut | None = None) -> PendingPut:
        """Send a PUT to a table's store; with `behind`, prepare it to be sent after that one."""

    def wait(self, timeout_s: float) -> None:
        """Wait until a PUT ends, or for `timeout_s`."""

    def close(self) -> None:
        """Start no more PUTs; those in flight may still finish."""


@dataclass
class PutsInline:
    """PUTs that end before `start` returns: no thread, so that a seed replays every step."""

    def start(self, root: str, work: PutCall, behind: PendingPut | None = None) -> PendingPut:
        """Send a PUT and wait for its end."""
        return at_once(work)

    def wait(self, timeout_s: float) -> None:
        """Return at once: no PUT is in flight."""

    def close(self) -> None:
        """Do nothing."""


class PutsInThreads:
    """PUTs in threads of their own, so that the loop goes on while they wait for their stores."""

    def __init__(self) -> None:
        self._threads = background_reads.ReadsInThreads(PUTS_MAX, "put")
        self._landed = threading.Event()
        self._hands_over = threading.Event()
        self._followed: set[PendingPut] = set()

    def start(self, root: str, work: PutCall, behind: PendingPut | None = None) -> PendingPut:
        """Send a PUT; beyond PUTS_MAX in a store it waits for a free thread."""
        if behind is not None:
            self._followed.add(behind)
            if behind.done():
                self._followed.discard(behind)
        flight = self._threads.begin(root, work)
        flight.add_done_callback(self._ended)
        return flight

    def wait(self, timeout_s: float) -> None:
        """Wait until a PUT has ended since the last call, or for `timeout_s`.

        If a prepared PUT was waiting for that end, the loop sleeps a little longer, so that the
        prepared one gets the interpreter first. Otherwise the loop would delay it by milliseconds.
        """
        has_landed = self._landed.wait(timeout_s)
        self._landed.clear()
        if has_landed and self._hands_over.is_set():
            self._hands_over.clear()
            time.sleep(YIELD_SHARE * timeout_s)

    def _ended(self, flight: PendingPut) -> None:
        if flight in self._followed:
            self._followed.discard(flight)
            self._hands_over.set()
        self._landed.set()

    def close(self) -> None:
        """Start no more PUTs. One in flight may still land: the next owner finds it in the log."""
        self._threads.close()


@dataclass
class AdaptiveLinger:
    """The adaptive linger: how long a group stays open, from PUT durations and expected members.

    `crowd` is the number of expected members: those of the last entry plus the proposals that
    waited when it landed. `told_s` is when the outcomes of that entry were published.
    Units: seconds, moments by `Clock.boot_s`.
    """

    took_s: deque[float] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    crowd: int = 0
    told_s: float = 0.0

    def landed(self, took_s: float, members: int, waiting: int) -> None:
        """Record an entry that landed, its member count, and how many proposals were waiting."""
        self.took_s.append(took_s)
        self.crowd = members + waiting

    @property
    def put_s(self) -> float:
        """The expected duration of a PUT: the median of the recent ones; 0 before the first."""
        return median(self.took_s) if self.took_s else 0.0

    def lingers_until_s(self, waiting: int, newest_s: float, share: float) -> float:
        """Return until when the group stays open, from the number waiting and the last arrival.

        A writer that just got its outcome may propose again at once. If the group closes without
        it, both wait for two PUTs: their own and the other's. So the group waits for `crowd`
        members, until `share` of a PUT after `told_s`, and closes earlier if no proposal came for
        a while. Both times grow, within LINGER_GROWTH_MAX, with the number of missing members per
        waiting one. A lone writer never waits.
        """
        if waiting >= self.crowd:
            return 0.0
        out = max(1.0, (self.crowd - waiting) / max(1, waiting))
        usual_s, last_s = share * self.put_s, max(self.told_s, newest_s)
        patient_s = min(
            self.told_s + min(LINGER_GROWTH_MAX, out) * usual_s,
            last_s + QUIET_SHARE * self.put_s * out,
        )
        # Wait on while proposals stream in: otherwise writers that propose together are split over
        # two groups, and stay split.
        longer_s = min(LINGER_GROWTH_MAX * usual_s, usual_s + QUIET_SHARE * self.put_s)
        return max(patient_s, min(self.told_s + longer_s, last_s + STREAM_SHARE * self.put_s))
