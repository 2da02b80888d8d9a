"""Errors of ours are sent by Spark's workers without frames; bugs are sent with them."""

import io
import os
from collections.abc import Callable, Iterator

import pytest
from pyspark.util import handle_worker_exception

from tidegate_delta.errors import InvalidRequest
from tidegate_producers.datasource.plain_errors import (
    HIDES_FRAMES,
    plain_errors,
    plain_errors_of_rows,
)

EXCEPTION_THROWN = -2
WRONG = InvalidRequest("option mergeSchema=yes: expected true or false", error_class="X")


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HIDES_FRAMES, "")


@plain_errors
def fails(error: Exception) -> None:
    raise error


@plain_errors_of_rows
def yields_and_fails(error: Exception) -> Iterator[int]:
    yield 1
    raise error


def sent(run: Callable[[], object]) -> str:
    """Return what Spark's worker sends of an error."""
    out = io.BytesIO()
    try:
        run()
    except (InvalidRequest, KeyError) as error:
        handle_worker_exception(error, out)
    content = out.getvalue()
    assert int.from_bytes(content[:4], signed=True) == EXCEPTION_THROWN
    return content[8:].decode()


@pytest.mark.parametrize("run", [lambda: fails(WRONG), lambda: list(yields_and_fails(WRONG))])
def test_an_error_of_ours_is_sent_as_one_line(run: Callable[[], object]) -> None:
    assert sent(run) == f"tidegate_delta.errors.InvalidRequest: {WRONG}\n"


@pytest.mark.parametrize("run", [fails, lambda error: list(yields_and_fails(error))])
def test_a_bug_is_sent_with_its_frames(run: Callable[[Exception], object]) -> None:
    text = sent(lambda: run(KeyError("bug")))
    assert text.startswith("Traceback")
    assert "test_plain_errors.py" in text
    assert not os.environ[HIDES_FRAMES]
