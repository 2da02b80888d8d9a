"""Write V2 checkpoints, in any form the protocol allows: sidecars first, then the top-level file.

An unreferenced sidecar is harmless, while a checkpoint with a missing sidecar is damage. So a
failure in between leaves the table as it was.
"""

import io
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final
from uuid import UUID

import pyarrow as pa

from tidegate_delta.checkpoints.checkpoint_rows import live_tombstones
from tidegate_delta.checkpoints.last_checkpoint import LastCheckpoint
from tidegate_delta.checkpoints.v2_checkpoint_rows import (
    sidecar_rows,
    sidecar_schema,
    top_level,
    top_level_json,
    top_level_schema,
)
from tidegate_delta.errors import UnsupportedFeature
from tidegate_delta.log.actions import Sidecar
from tidegate_delta.log.file_names import (
    checkpoint_name,
    in_sidecars,
    sidecar_name,
    v2_checkpoint_name,
)
from tidegate_delta.log.protocol_versions import reader_features
from tidegate_delta.snapshots.snapshot import Snapshot
from tidegate_runtime.storage.log_store import LogStore
from tidegate_runtime.table_io.checkpoint_writer import checkpoint_file, put_checkpoint

SIDECAR_FILES: Final = 50_000
FEATURE: Final = "v2Checkpoint"


class Form(Enum):
    """The forms of a V2 checkpoint."""

    JSON = "json, with sidecars"
    PARQUET = "parquet, with sidecars"
    WHOLE = "parquet, without sidecars"
    CLASSIC = "classic name, with sidecars"
    CLASSIC_WHOLE = "classic name, without sidecars"


WITH_SIDECARS: Final = (Form.JSON, Form.PARQUET, Form.CLASSIC)


@dataclass(frozen=True)
class CheckpointLayout:
    """The form of a checkpoint to write, and the maximum number of files in a sidecar."""

    form: Form = Form.PARQUET
    sidecar_files: int = SIDECAR_FILES


def write_v2(
    store: LogStore,
    snapshot: Snapshot,
    layout: CheckpointLayout,
    now_ms: int,
    new_id: Callable[[], UUID],
) -> LastCheckpoint:
    """Write the V2 checkpoint of a snapshot, and return the hint to it.

    Writing it again gives the same content under other names; under a classic name another
    writer's checkpoint stays.
    Raises: UnsupportedFeature for a table whose protocol does not list the feature; OutcomeUnknown;
    Unavailable.
    """
    if FEATURE not in reader_features(snapshot.protocol):
        raise UnsupportedFeature(
            f"table {store.root} does not list the feature {FEATURE!r} at version "
            f"{snapshot.version}, so its readers may not know such checkpoints: write a classic "
            "one, or add the feature",
            feature=FEATURE,
        )
    sidecars: list[Sidecar] = []
    rows_below = 0
    if layout.form in WITH_SIDECARS:
        put = list(_put_sidecars(store, snapshot, layout.sidecar_files, now_ms, new_id))
        sidecars, rows_below = [sidecar for sidecar, _ in put], sum(rows for _, rows in put)
    name = _name(snapshot.version, layout.form, new_id)
    if layout.form is Form.JSON:
        content = top_level_json(snapshot, sidecars, now_ms, snapshot.files.num_rows)
        size = content.count(b"\n")
    else:
        shape = top_level_schema(snapshot.metadata)
        content, size = _encode(shape, top_level(snapshot, sidecars, now_ms))
    existing = put_checkpoint(store, name, content)
    return existing or LastCheckpoint(
        version=snapshot.version,
        size=size + rows_below,
        size_in_bytes=len(content) + sum(sidecar.size_in_bytes for sidecar in sidecars),
        num_of_add_files=snapshot.files.num_rows,
    )


def _name(version: int, form: Form, new_id: Callable[[], UUID]) -> str:
    if form in (Form.CLASSIC, Form.CLASSIC_WHOLE):
        return checkpoint_name(version)
    return v2_checkpoint_name(version, str(new_id()), "json" if form is Form.JSON else "parquet")


def _put_sidecars(
    store: LogStore, snapshot: Snapshot, files_max: int, now_ms: int, new_id: Callable[[], UUID]
) -> Iterator[tuple[Sidecar, int]]:
    """Write the sidecars of a snapshot; yield the action and the number of actions of each.

    The last one has the tombstones.
    """
    shape = sidecar_schema(snapshot.metadata)
    no_files, none = snapshot.files.slice(0, 0), snapshot.tombstones.slice(0, 0)
    parts = [
        (snapshot.files.slice(start, files_max), none)
        for start in range(0, snapshot.files.num_rows, files_max)
    ]
    live_removes = live_tombstones(snapshot, now_ms)
    if live_removes.num_rows or not parts:
        parts.append((no_files, live_removes))
    for files, tombstones in parts:
        name = sidecar_name(snapshot.version, str(new_id()))
        content, rows = _encode(shape, sidecar_rows(files, tombstones, snapshot.metadata))
        store.put(in_sidecars(name), content)
        yield Sidecar(path=name, size_in_bytes=len(content), modification_time=now_ms), rows


def _encode(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> tuple[bytes, int]:
    """Return batches as a Parquet file, one row group each, and the number of rows."""
    buffer, rows = io.BytesIO(), 0
    with checkpoint_file(buffer, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
            rows += batch.num_rows
    return buffer.getvalue(), rows
