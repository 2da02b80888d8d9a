"""The envelopes of changes: Debezium's, flat, or as Delta's change feed has them.

An `EnvelopeForm` says what the values of an envelope hold, and their schema. Another
envelope is a name with its fields in `record_form`, and a form in ENVELOPES. docs/changes.md
describes them for subscribers.

Values are made a column at a time. Everything that all changes of a version share is one constant
text; records differ only in their images and index. A flat row is an image with a few fields in
front of it.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version as version_of
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tidegate_cdc_publisher.change_batch import Batch, InlineSchemas, Op, SourceBlock
from tidegate_cdc_publisher.connect_schema import (
    Layout,
    Schema,
    add_field_ids,
    key_schema,
    plain_field,
    row_schema,
    schema_text,
)
from tidegate_cdc_publisher.json_rows import TEXT, instant_text, join
from tidegate_cdc_publisher.record_form import ADDED_FIELDS, Envelope, RecordForm, ValueTypes
from tidegate_cdc_publisher.row_diff import Images

CONNECTOR: Final = "tidegate"
_RELEASE: Final = version_of("tidegate")

_REQUIRED_IN_SOURCE: Final = {
    "version": "string",
    "connector": "string",
    "name": "string",
    "ts_ms": "int64",
    "db": "string",
    "schema": "string",
    "table": "string",
    "txId": "int64",
    "snapshot": "string",
    "sequence": "string",
}
_OPTIONAL_IN_SOURCE: Final = {
    "table_id": "string",
    "operation": "string",
    "proposal_id": "string",
    "txn_app_id": "string",
    "txn_version": "int64",
}


def _debezium_values(
    origin: SourceBlock, batch: Batch, numbers: pa.Array, now_ms: int
) -> tuple[pa.Array, ...]:
    version, count = origin.version, len(batch)
    index = pc.cast(numbers, TEXT)
    parts: list[pa.Array | str] = ['{"before":', _image(batch.before), ',"after":']
    parts += [_image(batch.after), f',"source":{{{_source(origin)},"snapshot":']
    parts += [_snapshot_marks(batch), f',"sequence":"[\\"{version}\\",\\"', index, '\\"]"}']
    parts += [f',"op":"{batch.op}","ts_ms":{now_ms}']
    if batch.op == "r":
        return (join([*parts, pa.repeat(pa.scalar(',"transaction":null}', TEXT), count)]),)
    order = pc.cast(pc.add(numbers, 1), TEXT)
    parts += [f',"transaction":{{"id":"{origin.table}:{version}","total_order":', order]
    parts += [',"data_collection_order":', order, "}}"]
    return (join(parts),)


def _source(origin: SourceBlock) -> str:
    """Return the constant fields of the source block, without its braces."""
    *above, table = origin.table_name.split(".")
    schema, database = [*reversed(above), "", ""][:2]
    constant = {
        "version": _RELEASE,
        "connector": CONNECTOR,
        "name": origin.logical_name,
        "ts_ms": origin.timestamp_ms,
        "db": database,
        "schema": schema,
        "table": table,
        "txId": origin.version,
        **origin.more,
    }
    return json.dumps(constant, ensure_ascii=False, separators=(",", ":"))[1:-1]


def _snapshot_marks(batch: Batch) -> pa.Array | str:
    """Return each row's place in a snapshot, as JSON: first, true, last, incremental; or false."""
    if batch.op != "r":
        return '"false"'
    if batch.is_incremental:
        return '"incremental"'
    marks = ['"true"'] * len(batch)
    if batch.start == 0 and marks:
        marks[0] = '"first"'
    if batch.ends and marks:
        marks[-1] = '"last"'
    return pa.array(marks, TEXT)


def _image(images: Images | None) -> pa.Array | str:
    return "null" if images is None else images.texts


_CHANGE_TYPES: Final[dict[Op, str]] = {"r": "insert", "c": "insert", "d": "delete"}


def _flat_values(
    origin: SourceBlock, batch: Batch, numbers: pa.Array, now_ms: int
) -> tuple[pa.Array, ...]:
    """Return each change as one row: the image after it, or the last one of a deleted row."""
    images = batch.before if batch.after is None else batch.after
    deleted = "true" if batch.op == "d" else "false"
    first = f'{{"__op":"{batch.op}","__deleted":"{deleted}","__version":{origin.version}'
    parts = [f'{first},"__index":', pc.cast(numbers, TEXT)]
    parts += [f',"__commit_ts":{origin.timestamp_ms},"__snapshot":', _snapshot_marks(batch)]
    return (join([*parts, _rest(images)]),)


def _feed_values(
    origin: SourceBlock, batch: Batch, numbers: pa.Array, now_ms: int
) -> tuple[pa.Array, ...]:
    """Return the changes as rows of Delta's change feed; an update has two, before and after."""
    if batch.op == "u":
        sides = ((batch.before, "update_preimage"), (batch.after, "update_postimage"))
        return tuple(_feed_rows(origin, images, kind) for images, kind in sides)
    images = batch.before if batch.after is None else batch.after
    return (_feed_rows(origin, images, _CHANGE_TYPES[batch.op]),)


def _feed_rows(origin: SourceBlock, images: Images | None, kind: str) -> pa.Array:
    timestamp_json = json.dumps(instant_text(origin.timestamp_ms))
    constant = f'{{"_change_type":"{kind}","_commit_version":{origin.version}'
    return join([f'{constant},"_commit_timestamp":{timestamp_json}', _rest(images)])


def _rest(images: Images | None) -> pa.Array:
    """Return the text of each image after its opening brace, led by a comma if it has fields."""
    assert images is not None, "a change has an image"
    text = images.texts.cast(pa.large_binary())
    rest = pc.binary_replace_slice(text, start=0, stop=1, replacement=b"").cast(TEXT)
    return pc.if_else(pc.equal(rest, "}"), rest, join([",", rest]))


def _debezium_schema(topic: str, rows: pa.Schema, types: ValueTypes) -> Schema:
    image = {**row_schema(f"{topic}.Value", rows, types), "optional": True}
    fields = [
        {**image, "field": "before"},
        {**image, "field": "after"},
        {**_source_schema(topic), "field": "source"},
        plain_field("op", "string"),
        plain_field("ts_ms", "int64", optional=True),
        {**_transaction_schema(), "field": "transaction"},
    ]
    name = f"{topic}.Envelope"
    return {"type": "struct", "fields": fields, "optional": False, "name": name, "version": 1}


def _row_schema_with(
    added_fields: Mapping[str, str],
) -> Callable[[str, pa.Schema, ValueTypes], Schema]:
    """Return what gives the schema of a row with some fields in front of it."""

    def schema(topic: str, rows: pa.Schema, types: ValueTypes) -> Schema:
        row = row_schema(f"{topic}.Value", rows, types)
        fields = [plain_field(name, kind, optional=True) for name, kind in added_fields.items()]
        return {**row, "fields": [*fields, *row["fields"]], "optional": False, "version": 1}

    return schema


def _source_schema(topic: str) -> Schema:
    fields = [plain_field(name, kind) for name, kind in _REQUIRED_IN_SOURCE.items()]
    fields += [plain_field(name, kind, optional=True) for name, kind in _OPTIONAL_IN_SOURCE.items()]
    return {"type": "struct", "fields": fields, "optional": False, "name": f"{topic}.Source"}


def _transaction_schema() -> Schema:
    numbers = ("total_order", "data_collection_order")
    fields = [plain_field("id", "string"), *(plain_field(name, "int64") for name in numbers)]
    name = "event.block"
    return {"type": "struct", "fields": fields, "optional": True, "name": name, "version": 1}


@dataclass(frozen=True)
class EnvelopeForm:
    """What the values of an envelope hold.

    `values` gives the values of some changes as JSON texts, in as many columns as each change has
    records, by the places of the changes in their version and the time in ms. `schema` gives the
    Connect schema of a topic's values. `image_fields` are those of a value's fields that hold a
    row; none, if the value is a row itself.
    """

    values: Callable[[SourceBlock, Batch, pa.Array, int], tuple[pa.Array, ...]]
    schema: Callable[[str, pa.Schema, ValueTypes], Schema]
    image_fields: tuple[str, ...] = ()

    def images(self, value: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the rows in a value."""
        if not self.image_fields:
            return [value]
        return [value[name] for name in self.image_fields if value[name] is not None]


ENVELOPES: Final[Mapping[Envelope, EnvelopeForm]] = {
    "debezium": EnvelopeForm(_debezium_values, _debezium_schema, ("before", "after")),
    "flat": EnvelopeForm(_flat_values, _row_schema_with(ADDED_FIELDS["flat"])),
    "delta": EnvelopeForm(_feed_values, _row_schema_with(ADDED_FIELDS["delta"])),
}


def inline_schemas(form: RecordForm, topic: str, before: Layout, after: Layout) -> InlineSchemas:
    """Return the schemas for the records of a version, given the table's layouts around it.

    Raises: UnsupportedFeature, for a column type without a Connect type.
    """
    value, key = _of_records(form, topic, after)
    value_of_deletes, key_of_deletes = _of_records(form, topic, before)
    return InlineSchemas(value, key, value_of_deletes, key_of_deletes)


def _of_records(form: RecordForm, topic: str, of: Layout) -> tuple[str | None, str | None]:
    value = key = None
    if form.value_format != "json":
        rows = form.columns.schema(of.rows)
        schema = ENVELOPES[form.envelope].schema(topic, rows, form.in_values)
        if form.value_format == "protobuf":
            add_field_ids(schema, f"{topic}.Value", of.field_ids)
        value = schema_text(schema)
    has_keys = of.keys is not None and set(of.keys) <= set(of.rows.names)
    if form.key_format != "json" and of.keys is not None and has_keys:
        schema = key_schema(topic, of.rows, of.keys, form.in_keys)
        if form.key_format == "protobuf":
            add_field_ids(schema, f"{topic}.Key", of.field_ids)
        key = schema_text(schema)
    return value, key
