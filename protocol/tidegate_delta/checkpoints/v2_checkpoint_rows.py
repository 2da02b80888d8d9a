"""The rows of a V2 checkpoint as columns: a small top-level file, and sidecars of file actions.

The checkpointer decides which files go into which sidecar and which older sidecars are reused.
This module makes the rows of each.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import orjson
import pyarrow as pa

from tidegate_delta.checkpoints.checkpoint_rows import classic_schema, few_actions, object_rows
from tidegate_delta.log.actions import CheckpointMetadata, Metadata, Sidecar
from tidegate_delta.snapshots.snapshot import Snapshot

_STRINGS: Final = pa.map_(pa.string(), pa.string())
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
    """Return the columns of a V2 checkpoint's top-level file in Parquet.

    Spec: "Checkpoint Schema"
    """
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
