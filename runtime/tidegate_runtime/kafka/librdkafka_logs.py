"""librdkafka's messages in our log: as warnings, at most one of each kind a minute.

Each of its clients logs every failed attempt to connect. The caller gets an error anyway, so one
line is enough.
"""

import logging
import time
from collections.abc import Callable
from typing import Final

from tidegate_runtime.observability.logs import Repeats, log_event

_log = logging.getLogger(__name__)


class LibraryLog:
    """The logger for librdkafka's clients, shared by all their threads."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._repeats = Repeats(now_s)

    def log(self, level: int, form: str, *parts: object) -> None:
        """Log a message, unless one of its kind was just logged; the next counts those omitted."""
        held_back = self._repeats.held_back(str(parts[0]) if parts else form)
        if held_back is None:
            return
        fields = {"held_back": held_back} if held_back else {}
        message = form % parts if parts else form
        log_event(_log, "librdkafka", level=min(level, logging.WARNING), why=message, **fields)


LIBRARY: Final = LibraryLog()
"""The logger that all clients of this process share."""
