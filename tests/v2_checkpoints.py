"""V2 checkpoints in a store, in every form that the protocol allows."""

import io
from collections.abc import Iterable
from enum import Enum
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq

from tidegate.delta.actions import Sidecar
from tidegate.delta.checkpoints.rows import live_tombstones
from tidegate.delta.checkpoints.v2_rows import (
    sidecar_rows,
    sidecar_schema,
    top_level,
    top_level_json,
    top_level_schema,
)
from tidegate.delta.names import (
    checkpoint_name,
    in_log,
    in_sidecars,
    sidecar_name,
    v2_checkpoint_name,
)
from tidegate.delta.snapshot import Snapshot
from tidegate.runtime.log_store import LogStore


class Form(Enum):
    """How a V2 checkpoint may look."""

    JSON = "json, with sidecars"
    PARQUET = "parquet, with sidecars"
    WHOLE = "parquet, without sidecars"
    CLASSIC = "classic name, with sidecars"
    CLASSIC_WHOLE = "classic name, without sidecars"


WITH_SIDECARS = (Form.JSON, Form.PARQUET, Form.CLASSIC)


def put_v2(
    store: LogStore, snapshot: Snapshot, form: Form, now_ms: int, files_a_sidecar: int = 3
) -> str:
    """Write the V2 checkpoint of a snapshot and return its name."""
    sidecars = []
    if form in WITH_SIDECARS:
        sidecars = list(put_sidecars(store, snapshot, now_ms, files_a_sidecar))
    unique = str(UUID(int=snapshot.version))
    name = v2_checkpoint_name(snapshot.version, unique, "json" if form is Form.JSON else "parquet")
    if form in (Form.CLASSIC, Form.CLASSIC_WHOLE):
        name = checkpoint_name(snapshot.version)
    if form is Form.JSON:
        content = top_level_json(snapshot, sidecars, now_ms)
    else:
        shape = top_level_schema(snapshot.metadata)
        content = to_parquet(shape, top_level(snapshot, sidecars, now_ms))
    store.put(in_log(name), content)
    return name


def put_sidecars(
    store: LogStore, snapshot: Snapshot, now_ms: int, files_a_sidecar: int
) -> Iterable[Sidecar]:
    """Write the sidecars of a snapshot and yield what names them; the last has the tombstones."""
    shape = sidecar_schema(snapshot.metadata)
    none, gone = snapshot.tombstones.slice(0, 0), live_tombstones(snapshot, now_ms)
    starts = range(0, snapshot.files.num_rows, files_a_sidecar)
    parts = [(snapshot.files.slice(start, files_a_sidecar), none) for start in starts]
    for number, (files, tombstones) in enumerate([*parts, (snapshot.files.slice(0, 0), gone)]):
        name = sidecar_name(snapshot.version, str(UUID(int=number)))
        content = to_parquet(shape, sidecar_rows(files, tombstones, snapshot.metadata))
        store.put(in_sidecars(name), content)
        yield Sidecar(path=name, size_in_bytes=len(content), modification_time=now_ms)


def to_parquet(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> bytes:
    """Return batches as a Parquet file, a row group a batch."""
    buffer = io.BytesIO()
    with pq.ParquetWriter(buffer, schema, store_schema=False) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return buffer.getvalue()
