"""The export of a service's spans by OTLP over HTTP. It needs the extra `otel`."""

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased

from tidegate_runtime.release import RELEASE


def provider_of(service: str) -> TracerProvider:
    """Return OpenTelemetry's provider for a service: it records only what is sampled already."""
    named = {"service.name": f"tidegate-{service}", "service.version": RELEASE}
    return TracerProvider(
        resource=Resource.create(named), sampler=ParentBased(ALWAYS_OFF), shutdown_on_exit=False
    )


def exporting_provider(service: str, otlp_endpoint: str) -> TracerProvider:
    """Return a provider whose spans go to a collector, from a thread of its own."""
    provider = provider_of(service)
    exporter = OTLPSpanExporter(endpoint=f"{otlp_endpoint.rstrip('/')}/v1/traces")
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider
