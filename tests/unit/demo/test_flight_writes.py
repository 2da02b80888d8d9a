import threading
from functools import partial

import pytest

from tidegate_demo.flight_writes import together

PATIENCE_S = 30


def test_jobs_run_at_once_and_their_results_keep_their_order() -> None:
    line = threading.Barrier(3, timeout=PATIENCE_S)

    def job(number: int) -> int:
        line.wait()
        return number

    assert together([partial(job, number) for number in range(3)]) == [0, 1, 2]


def test_a_failure_is_raised_when_the_others_have_ended() -> None:
    begun, ended = threading.Event(), threading.Event()

    def fails() -> None:
        begun.set()
        raise LookupError("the cause")

    def goes_on() -> None:
        assert begun.wait(PATIENCE_S)
        ended.set()

    with pytest.raises(LookupError, match="the cause"):
        together([fails, goes_on])
    assert ended.is_set()
