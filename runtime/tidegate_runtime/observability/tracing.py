"""Traces: which trace this program's work belongs to, and its spans, for OpenTelemetry.

A client takes part in the trace of its program: it uses the tracer that the program has set up.
A service exports spans of its own, if `tracing.otlp_endpoint` is set, and only for work whose
trace is sampled: the writer decides. Nothing of OpenTelemetry is imported unless it is used.
"""

import os
import secrets
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final
from urllib.parse import urlsplit

from tidegate_delta.errors import Misconfigured
from tidegate_messages.record_headers import (
    SPAN_ID_BITS,
    TRACE_ID_BITS,
    compose_traceparent,
    is_traceparent,
)
from tidegate_runtime.release import RELEASE

VARIABLE: Final = "TRACEPARENT"
"""The environment variable that passes a trace to a started program."""

Attributes = Mapping[str, str | int | bool]

FLUSH_S: Final = 2.0
"""How long a service that ends waits for its last spans to be exported."""

_API: Final = "opentelemetry.trace"
_NS: Final = 1_000_000
_NO_ATTRIBUTES: Final[Attributes] = {}
_continued: ContextVar[str | None] = ContextVar("continued", default=None)


def traceparent() -> str:
    """Return the trace context that is continued here: given by `continued`, by the environment,
    or a new one.
    """
    return continued_traceparent() or compose_traceparent(
        _random_id(TRACE_ID_BITS), _random_id(SPAN_ID_BITS)
    )


def continued_traceparent() -> str | None:
    """Return the trace context that is continued here, or None without a valid one."""
    continued_context = _continued.get() or os.environ.get(VARIABLE, "")
    return continued_context if is_traceparent(continued_context) else None


@contextmanager
def continued(traceparent: str | None) -> Iterator[None]:
    """Continue a trace in the body; None changes nothing."""
    if traceparent is None:
        yield
        return
    former = _continued.set(traceparent)
    try:
        yield
    finally:
        _continued.reset(former)


def current() -> str | None:
    """Return the context of the span in which the program is, or None outside any."""
    api = sys.modules.get(_API)
    return None if api is None else _text_of(api.get_current_span().get_span_context())


@contextmanager
def client_span(name: str, attributes: Attributes) -> Iterator[str]:
    """Yield the context to send along, of a span around the body if the program records spans."""
    # A program that records spans has imported this; one that does not need not wait for it.
    api = sys.modules.get(_API)
    if api is None:
        yield traceparent()
        return
    is_within = api.get_current_span().get_span_context().is_valid
    parent = None if is_within else _remote(api, continued_traceparent())
    tracer = api.get_tracer("tidegate", RELEASE)
    with tracer.start_as_current_span(
        name, context=parent, kind=api.SpanKind.PRODUCER, attributes=attributes
    ) as span:
        yield _text_of(span.get_span_context()) or traceparent()


class Span:
    """A span of a service. Without a recorder it does nothing, and has no context."""

    def __init__(self, recorded: Any = None) -> None:
        self._recorded = recorded

    @property
    def traceparent(self) -> str | None:
        """The context by which others continue it, or None."""
        if self._recorded is None:
            return None
        return _text_of(self._recorded.get_span_context())

    def end(self, attributes: Attributes = _NO_ATTRIBUTES) -> None:
        """End it now, which exports it."""
        if self._recorded is not None:
            self._recorded.set_attributes(attributes)
            self._recorded.end()


NO_SPAN: Final = Span()


@dataclass
class _Recorder:
    """The tracer of this service, None while it exports no spans."""

    tracer: Any = None


_recorder: Final = _Recorder()


def is_exporting() -> bool:
    """Return whether this service exports spans."""
    return _recorder.tracer is not None


def start_span(
    name: str,
    parent: str | None,
    start_ms: int | None = None,
    attributes: Attributes = _NO_ATTRIBUTES,
) -> Span:
    """Return a span below another one, given its trace context; in a trace that is not sampled, or
    without a context, none.

    Units: `start_ms` in ms since the Unix epoch; now, if not given.
    """
    if parent is None or not is_exporting():
        return NO_SPAN
    api = sys.modules[_API]
    span = _recorder.tracer.start_span(
        name,
        context=_remote(api, parent),
        kind=api.SpanKind.CONSUMER,
        attributes=attributes,
        start_time=None if start_ms is None else start_ms * _NS,
    )
    return Span(span) if span.is_recording() else NO_SPAN


@contextmanager
def exporting(service: str, otlp_endpoint: str | None) -> Iterator[None]:
    """Export this service's spans by OTLP over HTTP while the body runs; without an address, none.

    Raises: Misconfigured, for an address that is none, or if the extra `otel` is not installed.
    """
    if otlp_endpoint is None:
        yield
        return
    if urlsplit(otlp_endpoint).scheme not in ("http", "https"):
        raise Misconfigured(
            f"tracing.otlp_endpoint {otlp_endpoint!r} is no address of a collector: write "
            "http://host:4318, or https://"
        )
    try:
        # Only a service that exports spans needs the extra.
        export = import_module("tidegate_runtime.observability.span_export")
    except ModuleNotFoundError as error:
        raise Misconfigured(
            f"tracing.otlp_endpoint needs {error.name}: install the extra, tidegate[otel], or "
            "leave the setting out"
        ) from error
    provider = export.exporting_provider(service, otlp_endpoint)
    _recorder.tracer = provider.get_tracer("tidegate", RELEASE)
    try:
        yield
    finally:
        _recorder.tracer = None
        # It exports the last spans, and tries for long where no collector answers.
        ending = threading.Thread(target=provider.shutdown, name="spans", daemon=True)
        ending.start()
        ending.join(FLUSH_S)


def _remote(api: Any, traceparent: str | None) -> Any:
    """Return OpenTelemetry's form of a context, or None for none."""
    if traceparent is None:
        return None
    _, trace_id, span_id, flags, *_ = traceparent.split("-")
    context = api.SpanContext(
        int(trace_id, 16),
        int(span_id, 16),
        is_remote=True,
        trace_flags=api.TraceFlags(int(flags, 16)),
    )
    return api.set_span_in_context(api.NonRecordingSpan(context))


def _text_of(context: Any) -> str | None:
    if not context.is_valid:
        return None
    return compose_traceparent(context.trace_id, context.span_id, int(context.trace_flags))


def _random_id(bits: int) -> int:
    return secrets.randbelow((1 << bits) - 1) + 1
