"""What librdkafka has to say, in our log: as warnings, and one a minute of each kind.

Its clients each tell of every attempt to connect. What matters of that reaches the caller as an
error; the rest is a hint for a person, who needs it once.
"""

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from tidegate.runtime.logs import log_event

QUIET_S: Final = 60.0
"""How long a kind of message is held back after it was logged."""

_log = logging.getLogger(__name__)


class LibraryLog:
    """Stands where librdkafka expects a logger. Threads of the library's clients share it."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._lock = threading.Lock()
        self._logged: dict[str, tuple[float, int]] = {}

    def log(self, level: int, form: str, *parts: object) -> None:
        """Log a message, unless one of its kind was a moment ago; the next tells how many were."""
        kind = str(parts[0]) if parts else form
        with self._lock:
            at_s, held_back = self._logged.get(kind, (-QUIET_S, 0))
            now_s = self._now_s()
            if now_s - at_s < QUIET_S:
                self._logged[kind] = (at_s, held_back + 1)
                return
            self._logged[kind] = (now_s, 0)
        told = {"held_back": held_back} if held_back else {}
        why = form % parts if parts else form
        log_event(_log, "librdkafka", level=min(level, logging.WARNING), why=why, **told)


LIBRARY: Final = LibraryLog()
"""The one of this process: so many clients, one voice."""
