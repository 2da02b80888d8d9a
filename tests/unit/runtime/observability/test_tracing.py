import pytest

from tidegate_messages.record_headers import is_traceparent
from tidegate_runtime.observability.tracing import VARIABLE, traceparent

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def test_the_callers_trace_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, TRACE)
    assert traceparent() == TRACE


@pytest.mark.parametrize("given", ["", "no trace", TRACE.upper()])
def test_without_a_valid_one_a_new_trace_begins(
    given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, given)
    made = {traceparent(), traceparent()}
    assert len(made) == 2
    assert all(map(is_traceparent, made))
