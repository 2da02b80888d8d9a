"""Write checkpoints to a store, in every form the protocol allows, from a whole snapshot.

The checkpointer's own are classic ones, and V2 ones with sidecars; readers meet all of them.
"""

import io
from collections.abc import Iterable, Iterator
from enum import Enum
from itertools import count
from typing import Final, NamedTuple
from uuid import UUID

import pyarrow as pa

from tidegate_delta.checkpoints.checkpoint_rows import (
    add_rows,
    classic_schema,
    few_actions,
    live_tombstones,
    object_rows,
    remove_rows,
    sidecar_schema,
    top_level,
    top_level_json,
    top_level_schema,
)
from tidegate_delta.checkpoints.last_checkpoint import LastCheckpoint
from tidegate_delta.checkpoints.rows_since_checkpoint import new_state
from tidegate_delta.log.actions import Sidecar
from tidegate_delta.log.file_names import (
    checkpoint_name,
    in_log,
    in_sidecars,
    sidecar_name,
    v2_checkpoint_name,
)
from tidegate_delta.snapshots.snapshot import Snapshot
from tidegate_runtime.storage.log_store import LogStore
from tidegate_runtime.table_io.checkpoint_writer import checkpoint_file, write_classic


class Form(Enum):
    """The forms of a V2 checkpoint."""

    JSON = "json, with sidecars"
    PARQUET = "parquet, with sidecars"
    WHOLE = "parquet, without sidecars"
    CLASSIC = "classic name, with sidecars"
    CLASSIC_WHOLE = "classic name, without sidecars"


WITH_SIDECARS: Final = (Form.JSON, Form.PARQUET, Form.CLASSIC)


def put_classic(store: LogStore, snapshot: Snapshot, now_ms: int) -> LastCheckpoint:
    """Write a snapshot's V1 checkpoint; return the hint to it, or to another's that was there."""
    return write_classic(store, new_state(snapshot), now_ms).hint


def classic_rows(snapshot: Snapshot, now_ms: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a snapshot's V1 checkpoint: the few actions, then files and tombstones."""
    schema = classic_schema(snapshot.metadata)
    yield from object_rows(schema, few_actions(snapshot, now_ms))
    yield from file_rows(schema, snapshot, now_ms)


def file_rows(schema: pa.Schema, snapshot: Snapshot, now_ms: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a snapshot's live files, then those of its tombstones."""
    yield from add_rows(schema, snapshot.files, snapshot.metadata)
    yield from remove_rows(schema, live_tombstones(snapshot, now_ms))


class PutCheckpoint(NamedTuple):
    """The name of a checkpoint, and the hint to it."""

    name: str
    hint: LastCheckpoint


def put_v2(
    store: LogStore, snapshot: Snapshot, form: Form, now_ms: int, files_a_sidecar: int = 3
) -> PutCheckpoint:
    """Write a snapshot's V2 checkpoint, its sidecars first; they are numbered from 0."""
    ids = map(UUID, map("{:032x}".format, count()))
    sidecars: list[Sidecar] = []
    size = 0
    if form in WITH_SIDECARS:
        for sidecar, rows in _put_sidecars(store, snapshot, files_a_sidecar, now_ms, ids):
            sidecars.append(sidecar)
            size += rows
    version, files = snapshot.version, snapshot.files.num_rows
    if form is Form.JSON:
        content = top_level_json(snapshot, sidecars, now_ms, files)
        size += content.count(b"\n")
    else:
        schema = top_level_schema(snapshot.metadata)
        batches = list(top_level(snapshot, sidecars, now_ms, files))
        if not sidecars:
            batches += file_rows(schema, snapshot, now_ms)
        content = _encoded(schema, batches)
        size += sum(batch.num_rows for batch in batches)
    kind = "json" if form is Form.JSON else "parquet"
    name = v2_checkpoint_name(version, str(next(ids)), kind)
    if form in (Form.CLASSIC, Form.CLASSIC_WHOLE):
        name = checkpoint_name(version)
    store.put(in_log(name), content)
    size_in_bytes = len(content) + sum(sidecar.size_in_bytes for sidecar in sidecars)
    return PutCheckpoint(name, LastCheckpoint(version, size, size_in_bytes=size_in_bytes))


def _put_sidecars(
    store: LogStore, snapshot: Snapshot, files_max: int, now_ms: int, ids: Iterator[UUID]
) -> Iterator[tuple[Sidecar, int]]:
    """Write sidecars; yield each, and its number of rows. The last one has the tombstones."""
    schema = sidecar_schema(snapshot.metadata)
    parts = [
        add_rows(schema, snapshot.files.slice(start, files_max), snapshot.metadata)
        for start in range(0, snapshot.files.num_rows, files_max)
    ]
    for part in (*parts, remove_rows(schema, live_tombstones(snapshot, now_ms))):
        batches = list(part)
        name, content = sidecar_name(snapshot.version, str(next(ids))), _encoded(schema, batches)
        store.put(in_sidecars(name), content)
        sidecar = Sidecar(path=name, size_in_bytes=len(content), modification_time=now_ms)
        yield sidecar, sum(batch.num_rows for batch in batches)


def _encoded(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> bytes:
    buffer = io.BytesIO()
    with checkpoint_file(buffer, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return buffer.getvalue()
