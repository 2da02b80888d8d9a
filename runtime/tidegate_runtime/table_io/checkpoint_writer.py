"""Write checkpoint files as whole Parquet files, then move `_last_checkpoint`, only forward."""

import io
from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from tidegate_delta.checkpoints import last_checkpoint as hints
from tidegate_delta.checkpoints.checkpoint_rows import ROWS_MAX, classic, classic_schema
from tidegate_delta.checkpoints.last_checkpoint import LastCheckpoint
from tidegate_delta.log.file_names import LAST_CHECKPOINT, checkpoint_name, in_log, parse
from tidegate_delta.snapshots.snapshot import Snapshot
from tidegate_runtime.storage.log_store import LogStore
from tidegate_runtime.table_io.checkpoint_presence import newest_whole_checkpoint, whole_checkpoint
from tidegate_runtime.table_io.derived_files import put_derived

CODEC: Final = "snappy"

_REPEATED: Final = [
    f"{action}.{column}.key_value.{part}"
    for action in ("add", "remove")
    for column in ("partitionValues", "tags")
    for part in ("key", "value")
]
"""The columns with a dictionary of their values. Paths and statistics differ from row to row: for
them a dictionary would cost a tenth of the time and of the bytes.
"""


def checkpoint_file(buffer: io.BytesIO, schema: pa.Schema) -> pq.ParquetWriter:
    """Return a writer of a checkpoint's file or sidecar, to be used as a context manager."""
    return pq.ParquetWriter(
        buffer, schema, compression=CODEC, store_schema=False, use_dictionary=_REPEATED
    )


def write_classic(store: LogStore, snapshot: Snapshot, now_ms: int) -> LastCheckpoint:
    """Write the V1 checkpoint of a snapshot, whole or not at all, and return the hint to it.

    If another writer was first, its checkpoint stays. Raises: OutcomeUnknown; Unavailable.
    """
    content, size = encode_classic(snapshot, now_ms)
    existing = put_checkpoint(store, checkpoint_name(snapshot.version), content)
    return existing or LastCheckpoint(
        version=snapshot.version,
        size=size,
        size_in_bytes=len(content),
        num_of_add_files=snapshot.files.num_rows,
    )


def encode_classic(snapshot: Snapshot, now_ms: int) -> tuple[bytes, int]:
    """Return the bytes of the V1 checkpoint of a snapshot, and how many actions it holds."""
    size = 0
    buffer = io.BytesIO()
    with checkpoint_file(buffer, classic_schema(snapshot.metadata)) as writer:
        for group in _groups(classic(snapshot, now_ms)):
            writer.write_table(group, row_group_size=group.num_rows)
            size += group.num_rows
    return buffer.getvalue(), size


def put_checkpoint(store: LogStore, name: str, content: bytes) -> LastCheckpoint | None:
    """Write a checkpoint under a name that others may use, too; return the hint to another's.

    A whole checkpoint of another writer is never replaced, as readers may be reading it; a torn one
    is. None says that ours is there.
    Raises: OutcomeUnknown; Unavailable.
    """
    if put_derived(store, name, content):
        return None
    file = parse(name)
    assert file is not None, "the name of a checkpoint"
    existing = whole_checkpoint(store, file.version)
    if existing is None:
        store.put(in_log(name), content)
    return existing


def move_hint_forward(store: LogStore, hint: LastCheckpoint) -> bool:
    """Point `_last_checkpoint` to a checkpoint, and return True, unless it points to one as new.

    A hint that is unreadable, or whose checkpoint is torn or gone, is replaced. Another writer may
    move it between our look and our write, so a newer checkpoint is looked for after the write:
    the hint then moves on to it, instead of staying where it went back to.
    Raises: Unavailable.
    """
    if hinted_version(store, hint.version) >= hint.version:
        return False
    put_hint(store, hint)
    return True


def put_hint(store: LogStore, hint: LastCheckpoint) -> int:
    """Point `_last_checkpoint` to a checkpoint, or to a newer one that is there after the write.

    Return the version to which it points then. Unlike `move_hint_forward` it does not look first,
    so it is for a writer that has met no other.
    Raises: Unavailable.
    """
    following: LastCheckpoint | None = hint
    reached = hint.version
    while following is not None:
        reached = following.version
        store.put(in_log(LAST_CHECKPOINT), hints.encode(following))
        following = newest_whole_checkpoint(store, following.version)
    return reached


def hinted_version(store: LogStore, at_least: int = 0) -> int:
    """Return the version of the whole checkpoint to which `_last_checkpoint` points, or -1.

    Return -1 without a look at the checkpoint if its version is below `at_least`.
    Raises: Unavailable.
    """
    content = store.read(in_log(LAST_CHECKPOINT))
    known = None if content is None else hints.decode(content)
    if known is None or known.version < at_least:
        return -1
    return -1 if whole_checkpoint(store, known.version) is None else known.version


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
