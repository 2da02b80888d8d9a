"""Encodes changes as Kafka records: key, value and headers, in the form of their stream."""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Final, Literal

import pyarrow as pa
import pyarrow.compute as pc

from tidegate_cdc_publisher.change_batch import Batch, Op, SourceBlock
from tidegate_cdc_publisher.change_records import CONTENT_TYPE, EVENT_ID, Headers, Records
from tidegate_cdc_publisher.envelopes import ENVELOPES
from tidegate_cdc_publisher.json_rows import TEXT, in_utf8, instant_text, join
from tidegate_cdc_publisher.record_form import REGISTERED, Format
from tidegate_messages.record_headers import TRACEPARENT

Tombstones = Literal["with", "without"]
CONTENT_TYPES: Final[Mapping[Format, bytes]] = {
    "json": CONTENT_TYPE,
    "json_schema": CONTENT_TYPE,
    "json_schema_registry": b"application/vnd.confluent.json",
    "avro": b"application/vnd.confluent.avro",
    "protobuf": b"application/vnd.confluent.protobuf",
}
_Column = list[bytes | None]


def records(origin: SourceBlock, batch: Batch, now_ms: int, tombstones: Tombstones) -> Records:
    """Return the records of some changes, in order; a tombstone may follow a delete.

    Law: the same changes give the same records, except for the top-level `ts_ms`.
    """
    numbers = pa.array(range(batch.start, batch.start + len(batch)), pa.int64())
    schemas = origin.schemas
    value_schema = schemas.value_of_deletes if batch.op == "d" else schemas.value
    values = [
        _encoded(origin, "value", value_schema, texts)
        for texts in ENVELOPES[origin.form.envelope].values(origin, batch, numbers, now_ms)
    ]
    keys: _Column = [None] * len(batch)
    if batch.keys is not None:
        key_schema = schemas.key_of_deletes if batch.op == "d" else schemas.key
        keys = _encoded(origin, "key", key_schema, batch.keys)
    ids: list[_Column] = [[*in_utf8(_event_ids(origin, batch, numbers))]]
    if len(values) > 1:
        # The image before an update is a record of its own, which needs an id of its own.
        ids = [[(event_id or b"") + b":before" for event_id in ids[0]], ids[0]]
    if batch.op == "d" and tombstones == "with" and batch.keys is not None:
        values, ids = [*values, [None] * len(batch)], [*ids, [None] * len(batch)]
    all_values = _interleaved(values)
    count = len(all_values)
    return Records(
        _interleaved([keys] * len(values)),
        all_values,
        _interleaved(ids),
        [_shared_headers(origin, batch.op)] * count,
        [None] * count,
        (EVENT_ID, "ce_id") if origin.form.cloud_events else (EVENT_ID,),
    )


def _encoded(
    origin: SourceBlock, of: Literal["key", "value"], schema: str | None, payloads: pa.Array
) -> _Column:
    """Return payloads in the format of keys or values."""
    record_format = origin.form.key_format if of == "key" else origin.form.value_format
    if schema is None:
        return [*in_utf8(payloads)]
    if record_format not in REGISTERED:
        return [*in_utf8(join([f'{{"schema":{schema},"payload":', payloads, "}"]))]
    assert origin.registry is not None, "the settings refuse such a format without a registry"
    subject = f"{origin.topic}-{of}"
    return origin.registry.encoded(subject, record_format, schema, in_utf8(payloads))


def _interleaved(columns: Sequence[_Column]) -> _Column:
    """Return the values of columns change by change."""
    if len(columns) == 1:
        return columns[0]
    return list(chain.from_iterable(zip(*columns, strict=True)))


def _event_ids(origin: SourceBlock, batch: Batch, numbers: pa.Array) -> pa.Array:
    """Return an id for each change that never changes.

    A snapshot row and a change of the same version have different ids.
    """
    mark = "" if batch.op != "r" else "i" if batch.is_incremental else "r"
    return join([f"{origin.table}:{origin.version}:{mark}", pc.cast(numbers, TEXT)])


def _shared_headers(origin: SourceBlock, op: Op) -> Headers:
    headers: Headers = [
        ("table", str(origin.table).encode()),
        ("delta_version", str(origin.version).encode()),
        ("op", op.encode()),
        ("content-type", CONTENT_TYPES[origin.form.value_format]),
    ]
    if origin.form.cloud_events:
        source = f"/tidegate/{origin.logical_name}/{origin.table_name}"
        headers += [
            ("ce_specversion", b"1.0"),
            ("ce_source", source.encode()),
            ("ce_type", b"tidegate.datachangeevent"),
            ("ce_time", instant_text(origin.timestamp_ms).encode()),
        ]
    if origin.traceparent is not None:
        headers.append((TRACEPARENT, origin.traceparent.encode()))
    return headers
