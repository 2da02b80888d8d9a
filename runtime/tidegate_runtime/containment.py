"""Containment: what goes wrong with one table, or one record, ends at the edge around it.

Every service puts `contained` around each piece of a table's work, and so no list of exceptions has
to be complete. A MemoryError is contained like any other: what the one table took is let go of with
it. A crash of the process, KeyboardInterrupt and SystemExit pass: they are no `Exception`.
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
"""How long a table is left alone after a fault: this long, twice as long after each more, at most
this long."""

REASON_CHARS_MAX: Final = 2_000
"""Characters of what an exception of no class of ours says: some quote all that they were given."""


@contextmanager
def contained(treat: Callable[[Exception], object], passing: Passing = ()) -> Iterator[None]:
    """Have any exception of the body treated, instead of letting it pass; `passing` ones do.

    Raises: as `treat`; what is in `passing`.
    """
    try:
        yield
    except passing:
        raise
    except Exception as error:
        treat(error)


def attempted(work: Callable[[], T], treat: Callable[[Exception], T], passing: Passing = ()) -> T:
    """Return what `work` returns, or, where it raises anything, what `treat` returns.

    Raises: as `contained`.
    """
    found: list[T] = []
    with contained(lambda error: found.append(treat(error)), passing):
        found.append(work())
    return found[0]


@contextmanager
def about(what: str) -> Iterator[None]:
    """Have exceptions of no class of ours say what they are about."""
    try:
        yield
    except TidegateError:
        raise
    except Exception as error:
        error.add_note(what)
        raise


def is_fault(error: Exception) -> bool:
    """Return whether an exception is of no class of ours: nobody foresaw it."""
    return not isinstance(error, TidegateError)


def class_of(error: Exception) -> str:
    """Return the class of an error in one word, as logs, metrics and records have it."""
    return error.error_class if isinstance(error, TidegateError) else type(error).__name__


def reason_of(error: Exception) -> str:
    """Return in words what went wrong, as text that any record can hold."""
    told = str(error)
    if is_fault(error):
        notes = " ".join(f"({note})" for note in getattr(error, "__notes__", ()))
        told = f"{class_of(error)}: {told[:REASON_CHARS_MAX]} {notes}".rstrip(": ")
    return told.encode(errors="backslashreplace").decode()


@dataclass
class Faults:
    """The faults of one table in a row, which ends where none came for long.

    Units: `last_s` by `Clock.boot_s`.
    """

    count: int = 0
    last_s: float = -inf

    def add(self, now_s: float) -> float:
        """Count one more; return for how many seconds the table is left alone."""
        if now_s - self.last_s > 2 * PAUSE_MAX_S:
            self.count = 0
        self.count, self.last_s = self.count + 1, now_s
        return float(min(PAUSE_MAX_S, PAUSE_MIN_S * 2 ** min(self.count - 1, 10)))
