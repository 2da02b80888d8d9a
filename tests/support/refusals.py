"""Errors that a call must raise."""

from collections.abc import Iterator
from contextlib import contextmanager
from re import Pattern

import pytest

from tidegate_delta.errors import TidegateError


@contextmanager
def refused(
    kind: type[TidegateError], error_class: str, match: str | Pattern[str] | None = None
) -> Iterator[pytest.ExceptionInfo[TidegateError]]:
    """Expect an error of this kind and class, whose message matches."""
    with pytest.raises(kind, match=match) as raised:
        yield raised
    assert raised.value.error_class == error_class
