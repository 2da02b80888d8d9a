"""No test passes over an error that a service contained: it is raised again, as if it had not been.

Whoever lets something fail on purpose says so (`expected`).
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from tidegate.runtime.logs import _Event


class Unswallowed(logging.Handler):
    """Raises what a line in the log has a traceback of."""

    is_expected = False

    def emit(self, record: logging.LogRecord) -> None:
        """Raise what was contained."""
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and isinstance(record.msg, _Event) and not self.is_expected:
            raise error


HANDLER = Unswallowed()


@contextmanager
def unswallowed() -> Iterator[None]:
    """Raise again what is contained meanwhile."""
    logger = logging.getLogger("tidegate")
    logger.addHandler(HANDLER)
    try:
        yield
    finally:
        logger.removeHandler(HANDLER)


@contextmanager
def expected() -> Iterator[None]:
    """Let services contain what they are there to contain."""
    former, HANDLER.is_expected = HANDLER.is_expected, True
    try:
        yield
    finally:
        HANDLER.is_expected = former
