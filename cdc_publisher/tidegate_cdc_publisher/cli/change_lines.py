"""A record of a change topic as a line for people, in whatever envelope and format it is."""

from typing import Any, Final

import orjson

from tidegate_cdc_publisher.record_encoding import CONTENT_TYPES
from tidegate_cdc_publisher.record_form import DELTA_FIELDS, FLAT_FIELDS, PayloadEncoder
from tidegate_cdc_publisher.schema_markers import in_words
from tidegate_delta.errors import InvalidRequest, Misconfigured
from tidegate_messages.codec import encode
from tidegate_runtime.client.change_stream import payload_of, schema_change_of
from tidegate_runtime.kafka.client_protocols import Record

_SCHEMA_ID_BYTES: Final = 5
"""The size of what stands before a value whose schema is in a registry: a zero byte and an id."""


def change_line(change: Record, registry: PayloadEncoder | None, *, as_json: bool) -> str:
    """Return a change in a line: version and place in it, operation, row; or what a marker says.

    Raises: Misconfigured, for a value that only a registry's schema explains, without a registry;
    InvalidRequest (`NoChange`), for a record that no publisher wrote; as `PayloadEncoder.decoded`.
    """
    schema = schema_change_of(change)
    if schema is not None:
        steps_text = "; ".join(in_words(step) for step in schema.steps)
        return encode(schema).decode() if as_json else f"{schema.version} schema: {steps_text}"
    headers = dict(change.headers)
    if change.value is None or not {"event_id", "op"} <= headers.keys():
        raise InvalidRequest(
            f"{change.at}, offset {change.offset}: no publisher of changes wrote this record; look "
            "who else writes to the topic",
            error_class="NoChange",
        )
    content = _json(change, headers.get("content-type"), registry)
    if as_json:
        return content.decode()
    value = payload_of(content)
    _, version, index = (headers["event_id"] or b"").decode().removesuffix(":before").split(":")
    op = value.get("_change_type", (headers["op"] or b"").decode())
    return f"{version}:{index.lstrip('ri')} {op} {orjson.dumps(_row(value)).decode()}"


def _json(change: Record, content_type: bytes | None, registry: PayloadEncoder | None) -> bytes:
    """Return a record's value as JSON."""
    value = change.value or b""
    if content_type == CONTENT_TYPES["json_schema_registry"]:
        return value[_SCHEMA_ID_BYTES:]
    if content_type not in (CONTENT_TYPES["avro"], CONTENT_TYPES["protobuf"]):
        return value
    if registry is None:
        raise Misconfigured(
            f"the values on {change.at.topic} are {content_type.decode()}, which is read with the "
            "schemas in its registry: give the publisher's settings with --config, or "
            "--set cdc.registry.url=URL"
        )
    return registry.decoded(value)


def _row(value: dict[str, Any]) -> Any:
    """Return the row of a change: the image after it, or the last one."""
    for extra_fields in (FLAT_FIELDS, DELTA_FIELDS):
        if value.keys() >= extra_fields.keys():
            return {name: cell for name, cell in value.items() if name not in extra_fields}
    after = value.get("after")
    return value.get("before") if after is None else after
