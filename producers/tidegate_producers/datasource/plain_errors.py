"""Makes our errors the first line that Spark shows.

Spark's Python workers send an error with the frames of the worker, some twenty lines that say
nothing to a user, and end. An error of ours names the column or option and what to do, so that it
is sent alone. Bugs keep their frames.
"""

import os
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Final, ParamSpec, TypeVar

from tidegate_delta.errors import TidegateError

HIDES_FRAMES: Final = "SPARK_HIDE_TRACEBACK"
"""What Spark's workers look at when they send an error; after it they end."""

Given = ParamSpec("Given")
Result = TypeVar("Result")


def plain_errors(method: Callable[Given, Result]) -> Callable[Given, Result]:
    """Return a method whose errors of ours reach the user without the worker's frames."""

    @wraps(method)
    def called(*args: Given.args, **kwargs: Given.kwargs) -> Result:
        try:
            return method(*args, **kwargs)
        except TidegateError:
            os.environ[HIDES_FRAMES] = "1"
            raise

    return called


def plain_errors_of_rows(
    method: Callable[Given, Iterator[Result]],
) -> Callable[Given, Iterator[Result]]:
    """Return the same for a method that yields."""

    @wraps(method)
    def called(*args: Given.args, **kwargs: Given.kwargs) -> Iterator[Result]:
        try:
            yield from method(*args, **kwargs)
        except TidegateError:
            os.environ[HIDES_FRAMES] = "1"
            raise

    return called
