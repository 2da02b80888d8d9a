from collections.abc import Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tidegate_delta.errors import Misconfigured
from tidegate_messages.record_headers import compose_traceparent, is_traceparent
from tidegate_runtime.observability import tracing
from tidegate_runtime.observability.span_export import provider_of
from tidegate_runtime.observability.tracing import (
    NO_SPAN,
    VARIABLE,
    client_span,
    continued,
    current,
    exporting,
    is_exporting,
    start_span,
    traceparent,
)

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


SAMPLED, UNSAMPLED = compose_traceparent(0xAB, 0xCD, 1), compose_traceparent(0xAB, 0xCD)


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """Set up a program that records its spans in memory."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    yield exporter
    provider.shutdown()


def test_a_program_without_spans_passes_on_what_it_was_given() -> None:
    with continued(SAMPLED), client_span("propose", {}) as sent:
        assert sent == SAMPLED


def test_a_clients_span_lies_within_its_programs(spans: InMemorySpanExporter) -> None:
    with trace.get_tracer("job").start_as_current_span("job"), continued(SAMPLED):
        job = current()
        with client_span("propose", {"tidegate.kind": "commit"}) as sent:
            assert sent == current() != job
    inner, outer = spans.get_finished_spans()
    assert (inner.name, outer.name) == ("propose", "job")
    assert inner.parent == outer.get_span_context()
    assert inner.attributes == {"tidegate.kind": "commit"}


def test_outside_of_spans_it_continues_what_the_program_was_given(
    spans: InMemorySpanExporter,
) -> None:
    with continued(SAMPLED), client_span("propose", {}) as sent:
        assert sent.split("-")[1] == SAMPLED.split("-")[1]
        assert sent != SAMPLED
    [span] = spans.get_finished_spans()
    assert span.parent is not None
    assert span.parent.span_id == 0xCD


@pytest.fixture
def service(spans: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """Let a service record its spans in memory."""
    provider = provider_of("test")
    provider.add_span_processor(SimpleSpanProcessor(spans))
    monkeypatch.setattr(tracing._recorder, "tracer", provider.get_tracer("tidegate"))
    return spans


def test_a_service_records_sampled_traces_only(service: InMemorySpanExporter) -> None:
    assert is_exporting()
    assert start_span("decide", UNSAMPLED) is NO_SPAN
    assert start_span("decide", None) is NO_SPAN
    span = start_span("decide", SAMPLED, start_ms=5)
    result = span.traceparent
    span.end({"tidegate.version": 3})
    [found] = service.get_finished_spans()
    assert (found.start_time, found.attributes) == (5_000_000, {"tidegate.version": 3})
    assert result is not None
    assert found.context is not None
    assert result == compose_traceparent(0xAB, found.context.span_id, 1)


def test_a_service_exports_no_spans_unless_configured() -> None:
    with exporting("committer", None):
        assert not is_exporting()
        assert start_span("decide", SAMPLED) is NO_SPAN
    with exporting("committer", "http://127.0.0.1:9"):
        assert is_exporting()
    assert not is_exporting()


def test_what_is_no_address_of_a_collector_is_refused() -> None:
    with pytest.raises(Misconfigured, match="write http://host:4318"), exporting("c", "collector"):
        raise AssertionError("not reached")
