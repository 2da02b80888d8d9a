"""One trace from the writing program to the change record, received by a collector (OTLP)."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from tests.integration.conftest import Line
from tests.integration.proposers import CLOCK, create_table, read_topic, write_file
from tests.integration.waiting import until
from tidegate_messages.published_records import TableRecord
from tidegate_messages.record_headers import traceparent_of
from tidegate_runtime.client import proposal_builders
from tidegate_runtime.client.client import Client
from tidegate_runtime.clock import new_id
from tidegate_runtime.kafka.confluent_bus import KafkaBus

pytestmark = pytest.mark.broker


class Collector:
    """A collector: it receives spans by OTLP over HTTP, and keeps them by name."""

    def __init__(self) -> None:
        self.spans: dict[str, list[Any]] = {}
        self.services: dict[str, str] = {}

    def take(self, body: bytes) -> None:
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            named = {
                attribute.key: attribute.value.string_value
                for attribute in resource.resource.attributes
            }
            for scope in resource.scope_spans:
                for span in scope.spans:
                    self.spans.setdefault(span.name, []).append(span)
                    self.services[span.name] = named["service.name"]

    def of(self, name: str, trace_id: int) -> list[Any]:
        """Return the spans of a name in a trace."""
        return [
            span for span in self.spans.get(name, ()) if int.from_bytes(span.trace_id) == trace_id
        ]


@contextmanager
def receiving(collector: Collector) -> Iterator[str]:
    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/traces"
            collector.take(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


@contextmanager
def program_that_records(to: str) -> Iterator[trace.Tracer]:
    """Set up OpenTelemetry as a writing program, such as a Spark driver, does."""
    provider = TracerProvider(resource=Resource.create({"service.name": "nightly-job"}))
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(f"{to}/v1/traces")))
    with pytest.MonkeyPatch.context() as patch:
        # A process has one provider for ever; this test's ends with it.
        patch.setattr(trace, "_TRACER_PROVIDER", provider)
        yield provider.get_tracer("job")
    provider.shutdown()


def append(line: Line, table: TableRecord) -> int:
    """Append a row, and return its version."""
    target = proposal_builders.Target(table.table, table.table_root, 0, table.table_id)
    stamp = proposal_builders.Stamp(new_id(CLOCK), CLOCK.now_ms())
    add = write_file(line.tables / "t", "w", 1)
    with Client(KafkaBus(line.kafka, "test"), line.kafka.topics) as client:
        outcome = client.propose(proposal_builders.append(target, stamp, [add]))
    assert outcome.version is not None, outcome
    return outcome.version


def attributes(span: Any) -> Mapping[str, Any]:
    return {
        attribute.key: attribute.value.string_value or attribute.value.int_value
        for attribute in span.attributes
    }


def test_a_trace_leads_from_the_writing_program_to_the_change_record(line: Line) -> None:
    collector = Collector()
    with receiving(collector) as address, program_that_records(address) as tracer:
        traced = {"otlp_endpoint": address}
        line.started("committer", tracing=traced)
        keys = {"tidegate.cdc.keyColumns": "number"}
        table = create_table(line.kafka, line.tables / "t", keys)
        # It learns of versions by their records on `commits` alone.
        line.started("cdc_publisher", "cdc", tracing=traced, cdc={"look_s": "600"})
        topic = line.kafka.topics.changes("t")
        with tracer.start_as_current_span("job") as job:
            version = append(line, table)
        trace_id = job.get_span_context().trace_id
        names = ["job", "tidegate.propose", "tidegate.decide", "tidegate.publish_changes"]
        until(lambda: all(collector.of(name, trace_id) for name in names), "the spans")

    [root], [sent], [decided], [published] = (collector.of(name, trace_id) for name in names)
    assert sent.parent_span_id == root.span_id
    assert decided.parent_span_id == published.parent_span_id == sent.span_id
    assert collector.services["tidegate.decide"] == "tidegate-committer"
    assert collector.services["tidegate.publish_changes"] == "tidegate-cdc-publisher"
    result = attributes(decided)
    assert (result["tidegate.status"], result["tidegate.version"]) == ("committed", version)
    sent_along = [traceparent_of(change.headers) for change in read_topic(line.kafka, topic)]
    own = [result.split("-")[1:3] for result in sent_along if result is not None]
    assert own == [[f"{trace_id:032x}", published.span_id.hex()]]
