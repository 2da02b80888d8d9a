"""The rows of a checkpoint as columns: each row has one action, and its other columns are null.

Files stay columns from the snapshot to the Parquet writer: a table with a million files costs their
bytes, not a million objects.

A V2 checkpoint has a small top-level file, with its own actions and its sidecars, and sidecars of
file actions. The checkpointer decides which files go into which sidecar and which older sidecars
are reused; this module makes the rows of each.

Spec: "Checkpoint Schema"
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from tidegate_delta.checkpoints.parsed_stats import columns, fields, parsed_of
from tidegate_delta.errors import BrokenLog
from tidegate_delta.log.actions import CheckpointMetadata, Metadata, Protocol, Sidecar, Txn
from tidegate_delta.log.file_names import LogFile, LogFileKind, in_sidecars
from tidegate_delta.log.file_paths import decode_path
from tidegate_delta.log.json_lines import read_bodies
from tidegate_delta.properties import table_properties
from tidegate_delta.snapshots.chunked_arrays import flat
from tidegate_delta.snapshots.file_action_columns import ADD_SCHEMA, REMOVE_SCHEMA
from tidegate_delta.snapshots.raw_stats import PARSED, with_texts
from tidegate_delta.snapshots.replay import LogPart, part_of
from tidegate_delta.snapshots.snapshot import Snapshot

ROWS_MAX: Final = 65_536
"""Rows of a batch at most."""

FEATURES_READER: Final = 3
FEATURES_WRITER: Final = 7
"""Feature lists exist at exactly these protocol versions."""

_STRINGS: Final = pa.map_(pa.string(), pa.string())
_LIST: Final = pa.list_(pa.field("element", pa.string()))

_TXN: Final = pa.struct(
    [("appId", pa.string()), ("version", pa.int64()), ("lastUpdated", pa.int64())]
)
_METADATA: Final = pa.struct(
    [
        pa.field("id", pa.string()),
        pa.field("name", pa.string()),
        pa.field("description", pa.string()),
        pa.field(
            "format",
            pa.struct([pa.field("provider", pa.string()), pa.field("options", _STRINGS)]),
        ),
        pa.field("schemaString", pa.string()),
        pa.field("partitionColumns", _LIST),
        pa.field("configuration", _STRINGS),
        pa.field("createdTime", pa.int64()),
    ]
)
_PROTOCOL: Final = pa.struct(
    [
        pa.field("minReaderVersion", pa.int32()),
        pa.field("minWriterVersion", pa.int32()),
        pa.field("readerFeatures", _LIST),
        pa.field("writerFeatures", _LIST),
    ]
)
_DOMAIN: Final = pa.struct(
    [
        pa.field("domain", pa.string()),
        pa.field("configuration", pa.string()),
        pa.field("removed", pa.bool_()),
    ]
)


def classic_schema(metadata: Metadata) -> pa.Schema:
    """Return the columns of a table's V1 checkpoint; every field is nullable."""
    add = [field for field in ADD_SCHEMA if field.name != "stats" or _keeps_json(metadata)]
    parsed = parsed_of(metadata)
    return pa.schema(
        [
            pa.field("txn", _TXN),
            pa.field("add", pa.struct([*add, *(fields(parsed) if parsed else ())])),
            pa.field("remove", pa.struct(list(REMOVE_SCHEMA))),
            pa.field("metaData", _METADATA),
            pa.field("protocol", _PROTOCOL),
            pa.field("domainMetadata", _DOMAIN),
        ]
    )


def object_rows(
    schema: pa.Schema, rows: Mapping[str, Sequence[Mapping[str, Any]]]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the few actions, given by action name, in the columns of a checkpoint."""
    for name, bodies in rows.items():
        if bodies:
            yield from _batches(schema, name, pa.array(bodies, schema.field(name).type))


def add_rows(schema: pa.Schema, files: pa.Table, metadata: Metadata) -> Iterator[pa.RecordBatch]:
    """Yield rows of live files in the columns of a checkpoint or of a sidecar."""
    for chunk in _chunks(files):
        yield from _batches(schema, "add", _adds(chunk, metadata))


def remove_rows(schema: pa.Schema, tombstones: pa.Table) -> Iterator[pa.RecordBatch]:
    """Yield rows of tombstones in the columns of a checkpoint or of a sidecar."""
    for chunk in _chunks(tombstones):
        kept = _unchanged(chunk, REMOVE_SCHEMA)
        yield from _batches(schema, "remove", _struct(kept.columns, list(kept.schema)))


def live_tombstones(snapshot: Snapshot, now_ms: int) -> pa.Table:
    """Return the tombstones that are still within the table's retention.

    One without a deletion time has expired.
    Spec: "Action Reconciliation"
    """
    held = unexpired(snapshot.tombstones, snapshot.metadata, now_ms)
    return snapshot.tombstones.filter(held)


def unexpired(tombstones: pa.Table, metadata: Metadata, now_ms: int) -> pa.ChunkedArray:
    """Return which tombstones are still within the table's retention.

    Spec: "Action Reconciliation"
    """
    horizon = now_ms - table_properties.tombstone_retention_ms(metadata)
    return pc.fill_null(pc.greater(tombstones["deletionTimestamp"], horizon), False)


def live_txns(snapshot: Snapshot, now_ms: int) -> list[Txn]:
    """Return the app transactions that are still within the table's retention, if it has one.

    Spec: "Transaction Identifiers"
    """
    retention_ms = table_properties.txn_retention_ms(snapshot.metadata)
    txns = snapshot.app_transactions.values()
    if retention_ms is None:
        return list(txns)
    horizon = now_ms - retention_ms
    return [txn for txn in txns if txn.last_updated is not None and txn.last_updated > horizon]


def few_actions(snapshot: Snapshot, now_ms: int) -> dict[str, list[Any]]:
    """Return a checkpoint's actions that are not about files, by name, without expired ones.

    Spec: "Checkpoints"
    """
    domains = [domain for domain in snapshot.domains.values() if not domain.removed]
    return {
        "protocol": [_protocol(snapshot.protocol)],
        "metaData": [_metadata(snapshot.metadata)],
        "txn": [live_txn.to_row()["txn"] for live_txn in live_txns(snapshot, now_ms)],
        "domainMetadata": [domain.to_row()["domainMetadata"] for domain in domains],
    }


def _protocol(protocol: Protocol) -> dict[str, Any]:
    named_readers = protocol.min_reader_version >= FEATURES_READER
    named_writers = protocol.min_writer_version >= FEATURES_WRITER
    return {
        "minReaderVersion": protocol.min_reader_version,
        "minWriterVersion": protocol.min_writer_version,
        "readerFeatures": list(protocol.reader_features or ()) if named_readers else None,
        "writerFeatures": list(protocol.writer_features or ()) if named_writers else None,
    }


def _metadata(metadata: Metadata) -> dict[str, Any]:
    return {
        "id": metadata.id,
        "name": metadata.name,
        "description": metadata.description,
        "format": {
            "provider": metadata.format.provider,
            "options": list(metadata.format.options.items()),
        },
        "schemaString": metadata.schema_string,
        "partitionColumns": list(metadata.partition_columns),
        "configuration": list(metadata.configuration.items()),
        "createdTime": metadata.created_time,
    }


def _unchanged(files: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return files in the checkpoint's columns, with `dataChange` false."""
    unchanged = pa.repeat(pa.scalar(False), files.num_rows)
    index = schema.get_field_index("dataChange")
    return files.select(schema.names).set_column(index, schema.field(index), unchanged)


def _adds(files: pa.Table, metadata: Metadata) -> pa.Array:
    """Return live files as the checkpoint's `add`, with the typed columns that the table wants."""
    kept = _unchanged(with_texts(files), ADD_SCHEMA)
    if not _keeps_json(metadata):
        kept = kept.drop_columns(["stats"])
    parsed = parsed_of(metadata)
    if parsed is None:
        return _struct(kept.columns, list(kept.schema))
    return _struct([*kept.columns, *columns(parsed, files)], [*kept.schema, *fields(parsed)])


def _keeps_json(metadata: Metadata) -> bool:
    return table_properties.checkpoint_stats_as_json(metadata)


def _struct(parts: Sequence[Any], struct_fields: Sequence[pa.Field]) -> pa.Array:
    return pa.StructArray.from_arrays(list(map(flat, parts)), fields=list(struct_fields))


def _chunks(files: pa.Table) -> Iterator[pa.Table]:
    yield from (files.slice(start, ROWS_MAX) for start in range(0, files.num_rows, ROWS_MAX))


def _batches(schema: pa.Schema, name: str, column: pa.Array) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(column), ROWS_MAX):
        part = column.slice(start, ROWS_MAX)
        yield pa.RecordBatch.from_arrays(
            [
                part.cast(field.type) if field.name == name else pa.nulls(len(part), field.type)
                for field in schema
            ],
            schema=schema,
        )


_CHECKPOINT: Final = pa.struct([("version", pa.int64()), ("tags", _STRINGS)])
_SIDECAR: Final = pa.struct(
    [
        ("path", pa.string()),
        ("sizeInBytes", pa.int64()),
        ("modificationTime", pa.int64()),
        ("tags", _STRINGS),
    ]
)
_OF_FILES: Final = ("add", "remove")


def top_level_schema(metadata: Metadata) -> pa.Schema:
    """Return the columns of a V2 checkpoint's top-level file in Parquet."""
    further = [pa.field("checkpointMetadata", _CHECKPOINT), pa.field("sidecar", _SIDECAR)]
    return pa.schema([*classic_schema(metadata), *further])


def sidecar_schema(metadata: Metadata) -> pa.Schema:
    """Return the columns of a sidecar.

    Spec: "Sidecar Files"
    """
    classic = classic_schema(metadata)
    return pa.schema([classic.field(name) for name in _OF_FILES])


def top_level(
    definition: Snapshot, sidecars: Sequence[Sidecar], now_ms: int, files: int
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a V2 checkpoint's top-level file, less those of files.

    Of `definition` only what is not about files is used; `files` is the number of live files.
    Shape: `top_level_schema` of the table.
    Spec: "V2 Spec"
    """
    schema = top_level_schema(definition.metadata)
    yield from object_rows(schema, _bodies(definition, sidecars, now_ms, files, as_json=False))


def top_level_json(
    definition: Snapshot, sidecars: Sequence[Sidecar], now_ms: int, files: int
) -> bytes:
    """Return the bytes of a V2 checkpoint in JSON, whose live files and tombstones are in sidecars.

    Of `definition` only what is not about files is used; `files` is the number of live files.
    Spec: "UUID-named checkpoint"
    """
    bodies = _bodies(definition, sidecars, now_ms, files, as_json=True)
    rows = (
        {name: _without_nulls(row_body)}
        for name, kind_rows in bodies.items()
        for row_body in kind_rows
    )
    return b"".join(orjson.dumps(row) + b"\n" for row in rows)


def _bodies(
    definition: Snapshot, sidecars: Sequence[Sidecar], now_ms: int, files: int, *, as_json: bool
) -> Mapping[str, list[dict[str, Any]]]:
    checkpoint_metadata = CheckpointMetadata(
        version=int(definition.version), tags=_totals(files, sidecars)
    )
    metadata_rows = {
        "checkpointMetadata": [checkpoint_metadata.to_row()["checkpointMetadata"]],
        "sidecar": [sidecar.to_row()["sidecar"] for sidecar in sidecars],
    }
    actions = few_actions(definition, now_ms)
    if as_json:
        actions["metaData"] = [definition.metadata.to_row()["metaData"]]
        return {**metadata_rows, **actions}
    return {
        **{name: [_with_pairs(row) for row in rows] for name, rows in metadata_rows.items()},
        **actions,
    }


def _totals(files: int, sidecars: Sequence[Sidecar]) -> dict[str, str | None]:
    """Return the tags that tell a reader the number of files and the bytes of the sidecars."""
    total = sum(sidecar.size_in_bytes for sidecar in sidecars)
    return {"numOfAddFiles": str(files), "sidecarSizeInBytes": str(total)}


def _with_pairs(body: Any) -> dict[str, Any]:
    tags = body.get("tags")
    return {**body, "tags": None if tags is None else list(tags.items())}


def _without_nulls(body: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in body.items() if value is not None}


@dataclass(frozen=True)
class TopLevelFile:
    """The content of a checkpoint's top-level file; a V1 checkpoint has no metadata or sidecars.

    Spec: "V2 Spec"
    """

    part: LogPart
    metadata: tuple[CheckpointMetadata, ...] = ()
    sidecars: tuple[Sidecar, ...] = ()


def read_top_level_json(name: str, content: bytes, files: pa.Schema = ADD_SCHEMA) -> TopLevelFile:
    """Return the content of a V2 checkpoint in JSON; live files have the columns of `files`.

    Raises: BrokenLog (`CorruptCommit`) for a line that is no JSON object or a malformed action;
    ValueError for malformed metadata or sidecars.
    Spec: "UUID-named checkpoint"
    """
    bodies = read_bodies(name, content)
    bodies["add"] = [_with_stats_text(body) for body in bodies["add"]]
    return TopLevelFile(
        part_of(name, bodies, files),
        tuple(CheckpointMetadata.model_validate(body) for body in bodies["checkpointMetadata"]),
        tuple(Sidecar.model_validate(body) for body in bodies["sidecar"]),
    )


def check_top_level(file: LogFile, top: TopLevelFile) -> None:
    """Refuse a checkpoint that lacks what its kind must hold, which reveals a torn file.

    Raises: BrokenLog (`CorruptCheckpoint`).
    Spec: "V2 Spec"
    """
    is_v2 = file.kind is LogFileKind.CHECKPOINT_V2 or bool(top.sidecars)
    if len(top.metadata) > 1 or (is_v2 and not top.metadata):
        raise _corrupt(file, f"holds {len(top.metadata)} checkpointMetadata instead of one")
    versions = {metadata.version for metadata in top.metadata}
    if not versions <= {int(file.version)}:
        raise _corrupt(file, f"says that it is of version {max(versions)}")
    if top.metadata and (top.part.protocol is None or top.part.metadata is None):
        raise _corrupt(file, "lacks protocol or metaData")


def sidecar_path(sidecar: Sidecar) -> str:
    """Return the path of a sidecar, relative to the table root.

    However its path is written, a sidecar is in the table's own `_sidecars` folder.
    Spec: "Sidecar File Information"
    """
    return in_sidecars(decode_path(sidecar.path.rpartition("/")[2]))


def _with_stats_text(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an add with its statistics as text, converted from an object where it has no text."""
    parsed = body.get(PARSED)
    if parsed is None or body.get("stats") is not None:
        return body
    return {**body, "stats": orjson.dumps(parsed).decode()}


def _corrupt(file: LogFile, problem: str) -> BrokenLog:
    return BrokenLog(
        f"checkpoint {file.name} {problem}: remove it if the commits before it are still there, or "
        "restore it from a backup",
        error_class="CorruptCheckpoint",
    )
