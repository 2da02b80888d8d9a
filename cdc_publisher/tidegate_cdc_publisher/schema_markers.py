"""Announces changes of a table's schema: markers on its change topic, and a topic of their own.

A marker has a null value, which Debezium's sinks, Flink and consumers by key pass over as the
tombstone of a key that no row has. Its headers hold the whole change.
"""

import json
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tidegate_cdc_publisher.change_batch import SourceBlock
from tidegate_cdc_publisher.change_records import (
    CONTENT_TYPE,
    EVERY_PARTITION,
    Headers,
    RecordPlace,
    Records,
)
from tidegate_cdc_publisher.connect_schema import null_key
from tidegate_cdc_publisher.key_columns import KeyColumns
from tidegate_cdc_publisher.record_form import RecordForm
from tidegate_cdc_publisher.row_diff import SchemaShift
from tidegate_delta.errors import InvalidRequest
from tidegate_delta.log.actions import Metadata
from tidegate_delta.schema.arrow_types import to_arrow
from tidegate_delta.schema.types import parse_schema
from tidegate_messages import codec
from tidegate_messages.schema_announcement import (
    CONTENT,
    END,
    GAP,
    MARKER,
    SCHEMA,
    SNAPSHOT_ENDS,
    SchemaChange,
    SchemaStep,
    StreamGap,
    ValueForm,
    columns_between,
    steps_between,
)

OnSchemaChange = Literal["marker", "topic", "resnapshot", "fail"]
"""`marker` announces it in the order of the changes and on the topic of schema changes, `topic`
only there; `resnapshot` publishes all rows anew after the marker; `fail` stops the stream before.
"""


@dataclass(frozen=True)
class Streams:
    """The topics on which a change is announced; `changes` is None if markers are not wanted."""

    changes: str | None
    schema_changes: str


@dataclass(frozen=True)
class SchemaState:
    """A table's metadata at a version, and the key columns of its changes."""

    metadata: Metadata
    keys: KeyColumns


def schema_steps(before: SchemaState, after: SchemaState) -> tuple[SchemaStep, ...]:
    """Return what changed from one version to the next; a change of comments alone is none."""
    steps: tuple[SchemaStep, ...] = ()
    if before.metadata.schema_string != after.metadata.schema_string:
        steps = steps_between(before.metadata, after.metadata)
    if before.keys != after.keys:
        steps += (SchemaStep(change="key", before=before.keys, after=after.keys),)
    return steps


def shift_between(before: SchemaState, after: SchemaState) -> SchemaShift | None:
    """Return how the rows of one version become rows of the next; None if they are as they were."""
    is_same = before.metadata.schema_string == after.metadata.schema_string
    if is_same and before.keys == after.keys:
        return None
    columns = columns_between(before.metadata, after.metadata)
    old, new = (parse_schema(shape.metadata.schema_string) for shape in (before, after))
    is_same = old.names == new.names and all(column.is_as_before for column in columns)
    if is_same and before.keys == after.keys:
        return None
    return SchemaShift(columns, to_arrow(new), before.keys)


def check_may_change(change: SchemaChange, policy: OnSchemaChange) -> None:
    """Refuse a change of the schema where the settings say so.

    Raises: InvalidRequest (`SchemaChanged`).
    """
    if policy == "fail" and change.is_followed_by_rows:
        steps_text = "; ".join(in_words(step) for step in change.steps)
        raise InvalidRequest(
            f"version {change.version} of table {change.name} changes its schema ({steps_text}), "
            f"and the publisher's setting cdc.tables.{change.name}.on_schema_change (or "
            "cdc.on_schema_change) is `fail`: prepare the subscribers, then set it to `marker` or "
            "`resnapshot` and start the publisher again; the stream goes on with this version",
            error_class="SchemaChanged",
        )


def in_words(step: SchemaStep) -> str:
    """Return a step as a line for people."""
    path = ".".join(step.column)
    match step.change:
        case "key":
            return f"key columns {_listed(step.before)} become {_listed(step.after)}"
        case "add":
            return f"add {path} {step.after}"
        case "drop":
            return f"drop {path}"
        case _:
            return f"{step.change} {path} from {step.before} to {step.after}"


def _listed(names: object) -> str:
    return ", ".join(names) if isinstance(names, tuple) else "none"


def value_form(form: RecordForm) -> ValueForm:
    """Return how values are written, as subscribers need it to follow a change."""
    types = form.in_values
    return ValueForm(types=types.types, decimals=types.decimals, structs=types.structs)


def announced(
    change: SchemaChange, streams: Streams, after: SchemaState, form: RecordForm
) -> Records:
    """Return the records that announce a change: a marker in every topic partition, if it goes into
    the stream, and one record on the topic of schema changes.
    """
    content = codec.encode(change)
    table, version = str(change.table).encode(), str(change.version).encode()
    shared: Headers = [
        ("table", table),
        ("delta_version", version),
        ("content-type", CONTENT_TYPE),
    ]
    records = Records()
    if streams.changes is not None:
        key = marker_key(form, streams.changes, after, f"{SCHEMA}:{change.version}")
        marked: Headers = [*shared, (MARKER, SCHEMA.encode()), (CONTENT, b64encode(content))]
        records.append(key, None, marked, RecordPlace(streams.changes, EVERY_PARTITION))
    topic_headers: Headers = [*shared, (codec.FORMAT, codec.FORMATS[SchemaChange].encode())]
    records.append(table, content, topic_headers, RecordPlace(streams.schema_changes, 0))
    return records


def empty_snapshot(origin: SourceBlock, topic: str, shape: SchemaState) -> Records:
    """Return the marker that ends the snapshot of a table without rows: no row can say so."""
    return _marker(origin, topic, shape, SNAPSHOT_ENDS)


def end_marker(origin: SourceBlock, topic: str, shape: SchemaState) -> Records:
    """Return the marker behind the last change of a version."""
    return _marker(origin, topic, shape, END)


def gap_marker(origin: SourceBlock, topic: str, shape: SchemaState, gap: StreamGap) -> Records:
    """Return the marker that says which versions are not in the stream."""
    return _marker(origin, topic, shape, GAP, ((GAP, b64encode(codec.encode(gap))),))


def _marker(
    origin: SourceBlock,
    topic: str,
    shape: SchemaState,
    kind: str,
    extra_headers: Sequence[tuple[str, bytes]] = (),
) -> Records:
    """Return a marker in every topic partition; none where clients of a registry read."""
    if origin.form.is_registered:
        return Records()
    headers: Headers = [
        ("table", str(origin.table).encode()),
        ("delta_version", str(origin.version).encode()),
        (MARKER, kind.encode()),
        *extra_headers,
    ]
    records = Records()
    key = marker_key(origin.form, topic, shape, f"{kind}:{origin.version}")
    records.append(key, None, headers, RecordPlace(topic, EVERY_PARTITION))
    return records


def marker_key(form: RecordForm, topic: str, shape: SchemaState, name: str) -> bytes | None:
    """Return a key that no row has: consumers by key may forget it without effect.

    With an inline schema it has the key columns, all null, because sinks look for these; the
    schema's `doc` makes its bytes differ from the key of a row of nulls.
    """
    if shape.keys is None:
        return None
    assert not form.is_registered, "no marker can be read by clients of a registry"
    if form.key_format == "json":
        field = "tidegate_marker"
        while field in shape.keys:
            field += "_"
        return json.dumps({field: name}, separators=(",", ":")).encode()
    rows = to_arrow(parse_schema(shape.metadata.schema_string))
    return null_key(form, topic, rows, shape.keys, f"tidegate marker {name}")
