"""What librdkafka has to say, in our log: as warnings, and one a minute of each kind.

Its clients each tell of every attempt to connect. What matters of that reaches the caller as an
error; the rest is a hint for a person, who needs it once.
"""

import logging
import time
from collections.abc import Callable
from typing import Final

from tidegate.runtime.logs import Repeats, log_event

_log = logging.getLogger(__name__)


class LibraryLog:
    """Stands where librdkafka expects a logger. Threads of the library's clients share it."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._repeats = Repeats(now_s)

    def log(self, level: int, form: str, *parts: object) -> None:
        """Log a message, unless one of its kind was a moment ago; the next tells how many were."""
        held_back = self._repeats.held_back(str(parts[0]) if parts else form)
        if held_back is None:
            return
        told = {"held_back": held_back} if held_back else {}
        why = form % parts if parts else form
        log_event(_log, "librdkafka", level=min(level, logging.WARNING), why=why, **told)


LIBRARY: Final = LibraryLog()
"""The one of this process: so many clients, one voice."""
