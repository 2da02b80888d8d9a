"""No test passes over an error that a service contained: it is raised again, as if it had not been.

Whoever lets something fail on purpose says so (`expected`).
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from tests.house import tree
from tidegate_runtime.observability.logs import _Event


class Unswallowed(logging.Handler):
    """Raises what a line in the log has a traceback of."""

    expected: tuple[type[Exception], ...] = ()

    def emit(self, record: logging.LogRecord) -> None:
        """Raise what was contained."""
        error = record.exc_info[1] if record.exc_info else None
        if error is None or not isinstance(record.msg, _Event):
            return
        if not isinstance(error, self.expected):
            raise error


HANDLER = Unswallowed()


@contextmanager
def unswallowed() -> Iterator[None]:
    """Raise again what is contained meanwhile."""
    loggers = [logging.getLogger(package) for package in tree.PACKAGES]
    is_outermost = HANDLER not in loggers[0].handlers
    for logger in loggers:
        logger.addHandler(HANDLER)
    try:
        yield
    finally:
        for logger in loggers if is_outermost else ():
            logger.removeHandler(HANDLER)


@contextmanager
def expected(kind: type[Exception] = Exception) -> Iterator[None]:
    """Let services contain what they are there to contain."""
    former, HANDLER.expected = HANDLER.expected, (kind,)
    try:
        yield
    finally:
        HANDLER.expected = former
