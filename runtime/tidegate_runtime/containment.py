"""Contain errors: an error of one table or one record does not affect the others.

Every service wraps each piece of a table's work in `contained`, so no list of exceptions has to be
complete. A MemoryError is contained like any other, as its table's memory is then released.
KeyboardInterrupt and SystemExit pass, as they are no `Exception`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from typing import Final, TypeVar

from tidegate_delta.errors import TidegateError

T = TypeVar("T")
Passing = type[Exception] | tuple[type[Exception], ...]

PAUSE_MIN_S: Final = 30.0
PAUSE_MAX_S: Final = 600.0
"""How long a table is paused after a fault: first `PAUSE_MIN_S`, twice as long after each further
fault, at most this long.
"""

REASON_CHARS_MAX: Final = 2_000
"""Characters kept of the message of a foreign exception: some quote their whole input."""


@contextmanager
def contained(treat: Callable[[Exception], object], passing: Passing = ()) -> Iterator[None]:
    """Pass any exception of the body to `treat` instead of raising it, except those in `passing`.

    Raises: as `treat`; what is in `passing`.
    """
    try:
        yield
    except passing:
        raise
    except Exception as error:
        treat(error)


def attempted(work: Callable[[], T], treat: Callable[[Exception], T], passing: Passing = ()) -> T:
    """Return what `work` returns or, if it raises, what `treat` returns.

    Raises: as `contained`.
    """
    results: list[T] = []
    with contained(lambda error: results.append(treat(error)), passing):
        results.append(work())
    return results[0]


@contextmanager
def about(note: str) -> Iterator[None]:
    """Add to foreign exceptions of the body what they are about."""
    try:
        yield
    except TidegateError:
        raise
    except Exception as error:
        error.add_note(note)
        raise


def is_fault(error: Exception) -> bool:
    """Return whether an exception is not a TidegateError, so that it was not foreseen."""
    return not isinstance(error, TidegateError)


def class_of(error: Exception) -> str:
    """Return an error's class in one word, for logs, metrics and records."""
    return error.error_class if isinstance(error, TidegateError) else type(error).__name__


def reason_of(error: Exception) -> str:
    """Return in words what went wrong, as text that any record can hold."""
    reason = str(error)
    if is_fault(error):
        notes = " ".join(f"({note})" for note in getattr(error, "__notes__", ()))
        reason = f"{class_of(error)}: {reason[:REASON_CHARS_MAX]} {notes}".rstrip(": ")
    return reason.encode(errors="backslashreplace").decode()


@dataclass
class Faults:
    """The consecutive faults of one table. The count starts again after a long time without any.

    Units: `last_s` by `Clock.boot_s`.
    """

    count: int = 0
    last_s: float = -inf

    def add(self, now_s: float) -> float:
        """Count one more, and return for how many seconds to pause the table."""
        if now_s - self.last_s > 2 * PAUSE_MAX_S:
            self.count = 0
        self.count, self.last_s = self.count + 1, now_s
        return float(min(PAUSE_MAX_S, PAUSE_MIN_S * 2 ** min(self.count - 1, 10)))
