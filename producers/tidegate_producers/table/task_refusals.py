"""Refusals of rows that are raised in Spark's tasks: they reach the driver as text only."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pyspark.errors import PySparkException

from tidegate_delta.errors import InvalidRequest

VIOLATED: Final = "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES"
"""The error class of a row that violates a constraint, with which Spark's `raise_error` begins."""

MISMATCH: Final = "DELTA_REPLACE_WHERE_MISMATCH"
"""The error class of a row that does not match the condition of its overwrite; as VIOLATED."""

OVERFLOW: Final = "DELTA_CAST_OVERFLOW_IN_TABLE_WRITE"
"""The error class of a value that its column can't hold; as VIOLATED."""

_STATE: Final = re.compile(r"\s*SQLSTATE: \w+$")
"""What Spark writes behind a message of `raise_error`."""

_REFUSED: Final = re.compile(r"tidegate_delta\.errors\.InvalidRequest: (\w+): (.*)")


@contextmanager
def naming_refusals() -> Iterator[None]:
    """In a task: write the error class into the text of a refusal, where `refusal_in` finds it."""
    try:
        yield
    except InvalidRequest as error:
        raise InvalidRequest(f"{error.error_class}: {error}") from error


@contextmanager
def refusals_of_tasks() -> Iterator[None]:
    """Raise the refusal of a row, by `raise_error` or by our writer, as InvalidRequest.

    It spans a whole verb: Spark may evaluate rows that it knows as soon as it plans.
    """
    try:
        yield
    except PySparkException as error:
        refusal = refusal_in(str(error))
        if refusal is None:
            raise
        raise refusal from error


def refusal_in(text: str) -> InvalidRequest | None:
    """Return the refusal of a row that an error's text names; None for another error."""
    for error_class in (VIOLATED, MISMATCH, OVERFLOW):
        if error_class in text:
            message = _STATE.sub("", text[text.index(error_class) :].partition("\n")[0])
            return InvalidRequest(message, error_class=error_class)
    match = _REFUSED.search(text)
    return None if match is None else InvalidRequest(match[2], error_class=match[1])
