"""PUTs in flight: one a table at most, many tables at once, while the loop goes on.

What flies is one entry's put-if-absent until its answer is certain. The loop never waits for one
while it could read, decode or decide; a test or a simulation lets each land before `start` returns.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from typing import Final, Protocol

from tidegate.committer import background
from tidegate.committer.background import at_once
from tidegate.runtime.stores.log_store import Put

REMEMBERED: Final = 16
"""PUTs whose durations say how long one takes just now."""

QUIET_SHARE: Final = 0.2
"""How long nobody may have come, as a share of what a PUT takes, for company to be waited for,
while half of it is there."""

FORBEARING: Final = 2.0
"""How many times as long they wait at most who are few beside those who are still out."""

STREAM_SHARE: Final = 0.03
"""How lately somebody must have come, as a share of what a PUT takes, for others to be coming."""

GIVES_WAY_SHARE: Final = 0.25
"""How long a PUT that was waiting for its turn is left alone with the interpreter, as a share of
what one would have waited at most."""

TOGETHER_MAX: Final = 64
"""PUTs in flight, and made ready for their turn, at once, over all tables in one store."""


@dataclass(frozen=True)
class Landing:
    """How a PUT ended: WON or LOST, for certain. Units: `took_s` in seconds."""

    put: Put
    took_s: float


Work = Callable[[], Landing]


class Flight(Protocol):
    """A PUT on its way."""

    def done(self) -> bool:
        """Return whether it has ended."""

    def result(self, timeout: float | None = None, /) -> Landing:
        """Return how it ended, within so many seconds where they are given.

        Raises: OutcomeUnknown past its deadline; Unavailable; TimeoutError.
        """


class Puts(Protocol):
    """Where PUTs are sent from."""

    def start(self, root: str, work: Work, behind: Flight | None = None) -> Flight:
        """Send one to the store in which a table lies, or have it made ready while the one flies
        behind which its turn comes.
        """

    def wait(self, timeout_s: float) -> None:
        """Wait until a PUT ends, no longer than so long."""

    def close(self) -> None:
        """Start no more; what flies goes on by itself."""


@dataclass
class AtOnce:
    """PUTs that end before `start` returns: no thread, so that a seed replays every step."""

    def start(self, root: str, work: Work, behind: Flight | None = None) -> Flight:
        """Send one and wait for its end."""
        return at_once(work)

    def wait(self, timeout_s: float) -> None:
        """Return: nothing flies."""

    def close(self) -> None:
        """Do nothing."""


class InThreads:
    """PUTs in threads of their own; the interpreter is free while they wait for their stores."""

    def __init__(self) -> None:
        self._threads = background.InThreads(TOGETHER_MAX, "put")
        self._landed = threading.Event()
        self._hands_over = threading.Event()
        self._followed: set[Flight] = set()

    def start(self, root: str, work: Work, behind: Flight | None = None) -> Flight:
        """Send one; past TOGETHER_MAX in a store it waits for a thread."""
        if behind is not None:
            self._followed.add(behind)
            if behind.done():
                self._followed.discard(behind)
        flight = self._threads.begin(root, work)
        flight.add_done_callback(self._ended)
        return flight

    def wait(self, timeout_s: float) -> None:
        """Wait until one has ended since the last call, no longer than so long.

        Where another has been waiting for that, its request goes first: it takes little of the
        interpreter, and more than a millisecond if it has to ask the loop for it at every step.
        """
        has_landed = self._landed.wait(timeout_s)
        self._landed.clear()
        if has_landed and self._hands_over.is_set():
            self._hands_over.clear()
            time.sleep(GIVES_WAY_SHARE * timeout_s)

    def _ended(self, flight: Flight) -> None:
        if flight in self._followed:
            self._followed.discard(flight)
            self._hands_over.set()
        self._landed.set()

    def close(self) -> None:
        """Start no more. What was sent may still land: the next owner finds it in the log."""
        self._threads.close()


@dataclass
class Pace:
    """How long PUTs take and how many writers there are: how long company is waited for.

    `crowd` is how many were told of the last entry, and how many waited at that moment: so many may
    wait together. `told_s` is when they had been told.
    Units: seconds, moments by `Clock.boot_s`.
    """

    took_s: deque[float] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    crowd: int = 0
    told_s: float = 0.0

    def landed(self, took_s: float, members: int, waiting: int) -> None:
        """Note an entry, and how many wait who are not in it."""
        self.took_s.append(took_s)
        self.crowd = members + waiting

    @property
    def put_s(self) -> float:
        """How long a PUT takes just now; 0 where there was none."""
        return median(self.took_s) if self.took_s else 0.0

    def lingers_until_s(self, waiting: int, newest_s: float, share: float) -> float:
        """Return until when to wait for company, of how many wait and when the last of them came.

        Who was told a moment ago may come back. Whoever leaves him behind meets him in the next
        entry, and then each waits for two PUTs, one of them another's. A lone writer has no
        company, and where nobody has come for a while, nobody is waited for: a while is the longer
        the more are still out for each who waits, and so is, within FORBEARING, the whole wait.
        """
        if waiting >= self.crowd:
            return 0.0
        out = max(1.0, (self.crowd - waiting) / max(1, waiting))
        usual_s, last_s = share * self.put_s, max(self.told_s, newest_s)
        patient_s = min(
            self.told_s + min(FORBEARING, out) * usual_s,
            last_s + QUIET_SHARE * self.put_s * out,
        )
        # A wave that is cut in two stays in two: who is just coming in is let in.
        longer_s = min(FORBEARING * usual_s, usual_s + QUIET_SHARE * self.put_s)
        return max(patient_s, min(self.told_s + longer_s, last_s + STREAM_SHARE * self.put_s))
