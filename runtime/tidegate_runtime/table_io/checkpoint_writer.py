"""Write checkpoint files as whole Parquet files, then move `_last_checkpoint`, only forward."""

import io
from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from tidegate_delta.checkpoints import last_checkpoint as hints
from tidegate_delta.checkpoints.checkpoint_rows import ROWS_MAX, classic, classic_schema
from tidegate_delta.checkpoints.last_checkpoint import LastCheckpoint
from tidegate_delta.log.file_names import (
    LAST_CHECKPOINT,
    LOG_FOLDER,
    checkpoint_name,
    in_log,
    parse,
)
from tidegate_delta.snapshots.snapshot import Snapshot
from tidegate_runtime.storage.log_store import LogStore

CODEC: Final = "snappy"


def write_classic(store: LogStore, snapshot: Snapshot, now_ms: int) -> LastCheckpoint:
    """Write the V1 checkpoint of a snapshot, whole or not at all, and return the hint to it.

    Writing it again is harmless: the same snapshot gives the same table. Raises: Unavailable.
    """
    content, size = encode_classic(snapshot, now_ms)
    store.put(in_log(checkpoint_name(snapshot.version)), content)
    return LastCheckpoint(
        version=snapshot.version,
        size=size,
        size_in_bytes=len(content),
        num_of_add_files=snapshot.files.num_rows,
    )


def encode_classic(snapshot: Snapshot, now_ms: int) -> tuple[bytes, int]:
    """Return the bytes of the V1 checkpoint of a snapshot, and how many actions it holds."""
    size = 0
    buffer = io.BytesIO()
    with pq.ParquetWriter(
        buffer, classic_schema(snapshot.metadata), compression=CODEC, store_schema=False
    ) as writer:
        for group in _groups(classic(snapshot, now_ms)):
            writer.write_table(group, row_group_size=group.num_rows)
            size += group.num_rows
    return buffer.getvalue(), size


def move_hint_forward(store: LogStore, hint: LastCheckpoint) -> bool:
    """Point `_last_checkpoint` to a checkpoint, and return True, unless it points to one as new.

    A hint that is unreadable, or whose checkpoint is gone, is replaced.
    Raises: Unavailable.
    """
    if hinted_version(store) >= hint.version:
        return False
    store.put(in_log(LAST_CHECKPOINT), hints.encode(hint))
    return True


def hinted_version(store: LogStore) -> int:
    """Return the version of the checkpoint to which `_last_checkpoint` points, or -1.

    Raises: Unavailable.
    """
    there = store.read(in_log(LAST_CHECKPOINT))
    known = None if there is None else hints.decode(there)
    return -1 if known is None or not _is_there(store, known.version) else known.version


def _is_there(store: LogStore, version: int) -> bool:
    prefix = f"{version:020d}.checkpoint"
    stat = next(iter(store.list_from(LOG_FOLDER, prefix)), None)
    found = None if stat is None else parse(stat.path.rpartition("/")[2])
    return found is not None and found.is_checkpoint and found.version == version


def _groups(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield tables of about ROWS_MAX rows, one for each row group."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        if rows >= ROWS_MAX:
            yield pa.Table.from_batches(waiting)
            waiting, rows = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting)
