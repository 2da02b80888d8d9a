"""Raise errors again that a service contained, so that no test passes over them.

A test that makes something fail on purpose says so with `expected`.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from tests.house import tree
from tidegate_runtime.observability.logs import _Event


class Unswallowed(logging.Handler):
    """A log handler that raises the exception of a log line with a traceback."""

    expected: tuple[type[Exception], ...] = ()

    def emit(self, record: logging.LogRecord) -> None:
        """Raise the contained exception."""
        error = record.exc_info[1] if record.exc_info else None
        if error is None or not isinstance(record.msg, _Event):
            return
        if not isinstance(error, self.expected):
            raise error


HANDLER = Unswallowed()


@contextmanager
def unswallowed() -> Iterator[None]:
    """Raise contained errors again within this context."""
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
    """Let services contain errors of one class within this context."""
    former, HANDLER.expected = HANDLER.expected, (kind,)
    try:
        yield
    finally:
        HANDLER.expected = former
