"""The catch-all handler: what it handles, what it passes on, and what it reports."""

import pytest

from tidegate_delta.errors import BrokenLog, Misconfigured, Unavailable
from tidegate_runtime.containment import (
    PAUSE_MAX_S,
    PAUSE_MIN_S,
    REASON_CHARS_MAX,
    Faults,
    about,
    attempted,
    class_of,
    contained,
    is_fault,
    reason_of,
)


@pytest.mark.parametrize(
    "error",
    [
        RecursionError("deep"),
        OverflowError("large"),
        KeyError("k"),
        MemoryError(),
        Unavailable("x"),
    ],
)
def test_any_exception_is_treated(error: Exception) -> None:
    treated: list[Exception] = []
    with contained(treated.append):
        raise error
    assert treated == [error]


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_what_ends_the_process_passes(kind: type[BaseException]) -> None:
    with pytest.raises(kind), contained(lambda _: None):
        raise kind


def test_errors_declared_to_pass_are_raised() -> None:
    with pytest.raises(Misconfigured), contained(lambda _: None, passing=Misconfigured):
        raise Misconfigured("all tables")


def test_work_that_fails_has_the_treatments_answer() -> None:
    assert attempted(lambda: 1, lambda _: 2) == 1
    assert attempted(lambda: int("x"), lambda _: 2) == 2


def test_a_fault_is_reported_with_its_class_and_what_it_is_about() -> None:
    with pytest.raises(OverflowError) as raised, about("table t"), about("version 3"):
        raise OverflowError("too large")
    assert is_fault(raised.value)
    assert class_of(raised.value) == "OverflowError"
    assert reason_of(raised.value) == "OverflowError: too large (version 3) (table t)"
    assert reason_of(KeyError()) == "KeyError"
    assert len(reason_of(ValueError("x" * 10**6))) < REASON_CHARS_MAX + 100


def test_an_error_of_ours_is_reported_with_its_own_message() -> None:
    error = BrokenLog("version 3 is torn", error_class="CorruptCommit")
    with pytest.raises(BrokenLog), about("version 4"):
        raise error
    assert (is_fault(error), class_of(error)) == (False, "CorruptCommit")
    assert reason_of(error) == "version 3 is torn"


def test_a_reason_can_stand_in_any_record() -> None:
    assert reason_of(ValueError("\ud800")) == "ValueError: \\ud800"


def test_pauses_double_up_to_a_bound_and_begin_anew_after_a_long_peace() -> None:
    faults, now_s = Faults(), 0.0
    pauses = []
    for _ in range(20):
        pauses.append(faults.add(now_s))
        now_s += pauses[-1]
    assert pauses[:3] == [PAUSE_MIN_S, 2 * PAUSE_MIN_S, 4 * PAUSE_MIN_S]
    assert pauses[-1] == PAUSE_MAX_S
    assert faults.add(now_s + 3 * PAUSE_MAX_S) == PAUSE_MIN_S
    faults.count = 10**9
    assert faults.add(now_s) == PAUSE_MAX_S
