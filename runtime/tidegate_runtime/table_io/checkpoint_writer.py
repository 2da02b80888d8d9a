"""Write a checkpoint from the state between checkpoints, then move `_last_checkpoint` forward.

What names a sidecar is written after it, so that a failure in between leaves no checkpoint.

While all its rows hold, a sidecar of the last checkpoint is named again, and a row group of one
without sidecars is copied. Other rows are read again, part by part, so that the memory does not
grow with the table.

Write files of the log that follow from its commits: any writer's file will do.
"""

import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq

from tidegate_delta.checkpoints import last_checkpoint as hints
from tidegate_delta.checkpoints.checkpoint_plan import (
    RowsToWrite,
    after_writing,
    plan_checkpoint,
)
from tidegate_delta.checkpoints.checkpoint_rows import (
    ROWS_MAX,
    add_rows,
    classic_schema,
    few_actions,
    object_rows,
    remove_rows,
    sidecar_schema,
    top_level,
    top_level_json,
    top_level_schema,
)
from tidegate_delta.checkpoints.last_checkpoint import LastCheckpoint
from tidegate_delta.checkpoints.rows_since_checkpoint import (
    STORED_SCHEMA,
    STORED_TOMBSTONE_SCHEMA,
    WHOLE_ROWS_MAX,
    CheckpointState,
    StoredPart,
    StoredRows,
    row_count,
    whole_rows,
)
from tidegate_delta.errors import OutcomeUnknown
from tidegate_delta.log.actions import Metadata, Sidecar
from tidegate_delta.log.file_names import (
    LAST_CHECKPOINT,
    SIDECAR_FOLDER,
    checkpoint_name,
    in_log,
    in_sidecars,
    own_v2_checkpoint_name,
    parse,
    sidecar_name,
)
from tidegate_delta.snapshots.chunked_arrays import stacked
from tidegate_delta.snapshots.snapshot import Snapshot
from tidegate_runtime.storage.log_store import LogStore, Put
from tidegate_runtime.table_io.checkpoint_reader import (
    newest_whole_checkpoint,
    stacked_files,
    whole_checkpoint,
)
from tidegate_runtime.table_io.row_group_copying import RowGroup, read_row_groups
from tidegate_runtime.table_io.stored_checkpoint import StoredReader

_PUT_S: Final = 30.0
_SLOWEST_BYTES_PER_S: Final = 256 * 1024


def put_derived(store: LogStore, name: str, content: bytes) -> bool:
    """Write a file of the log unless it exists; return whether ours is there.

    Raises: OutcomeUnknown, when it is not known whether the file exists; Unavailable.
    """
    deadline_s = _PUT_S + len(content) / _SLOWEST_BYTES_PER_S
    result = store.put_if_absent(in_log(name), content, deadline_s)
    if result is Put.UNKNOWN:
        raise OutcomeUnknown(
            f"the store did not say whether {name} of table {store.root} was written; the log is "
            "read again and what is missing is written then"
        )
    return result is Put.WON


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

SIDECAR_FILES: Final = 50_000
"""Live files, or tombstones, of a sidecar at most."""

TOP_LEVEL_JSON_MAX: Final = 4 << 20
"""Bytes of a V2 checkpoint's top-level file above which it is written in Parquet."""

COPIED_ROWS_MIN: Final = 4_096
"""Row groups with fewer rows are written anew, with the others and the few actions."""

_NO_FILES: Final = StoredRows.of(STORED_SCHEMA.empty_table())
_NO_TOMBSTONES: Final = StoredRows.of(STORED_TOMBSTONE_SCHEMA.empty_table())


@dataclass(frozen=True)
class WrittenCheckpoint:
    """The hint to a checkpoint, and the state that goes on from it.

    `written_bytes` are those of the files that were written. `is_ours` is false where another
    writer's checkpoint was there before.
    """

    hint: LastCheckpoint
    state: CheckpointState
    written_bytes: int
    is_ours: bool = True


def write_classic(store: LogStore, state: CheckpointState, now_ms: int) -> WrittenCheckpoint:
    """Write the V1 checkpoint of a state. If another writer was first, its checkpoint stays.

    Raises: BrokenLog (`CorruptCheckpoint`), if a file of the last checkpoint is gone by now;
    OutcomeUnknown; Unavailable.
    """
    fresh, name = state.fresh, checkpoint_name(state.version)
    schema, buffer = classic_schema(fresh.metadata), io.BytesIO()
    with StoredReader(store) as reader:
        copyable = _copyable(reader, state.stored, schema)
        plan = plan_checkpoint(
            state, lambda part: (part.path, part.group) in copyable, ROWS_MAX, now_ms
        )
        rows = sum(group.count for group in plan.written) + sum(map(row_count, plan.kept))
        with checkpoint_file(buffer, schema) as writer:
            file = _RowGroups(writer, in_log(name), schema)
            for batch in object_rows(schema, few_actions(fresh, now_ms)):
                file.add(batch)
            for group in plan.written:
                file.add_group(reader, group, fresh.metadata, is_small=rows <= WHOLE_ROWS_MAX)
            file.flush()
        for path, parts in groupby(plan.kept, key=lambda part: part.path):
            reader.copy(path, [copyable[path, part.group] for part in parts], buffer)
    copied = [
        replace(part, path=in_log(name), group=number)
        for number, part in enumerate(plan.kept, file.groups)
    ]
    after = after_writing(state, replace(plan, kept=tuple(copied)), file.parts)
    content = buffer.getvalue()
    existing = _put_checkpoint(store, name, content)
    if existing is not None:
        return WrittenCheckpoint(existing, state, 0, is_ours=False)
    hint = LastCheckpoint(
        version=state.version,
        size=file.rows + sum(map(row_count, copied)),
        size_in_bytes=len(content),
        num_of_add_files=state.totals.files,
    )
    return WrittenCheckpoint(hint, after, len(content))


def write_v2(
    store: LogStore, state: CheckpointState, now_ms: int, new_id: Callable[[], UUID]
) -> WrittenCheckpoint:
    """Write the V2 checkpoint of a state: the sidecars that it needs, then its JSON file.

    Raises: BrokenLog (`CorruptCheckpoint`), if a file of the last checkpoint is gone by now;
    OutcomeUnknown; Unavailable.
    """
    fresh = state.fresh
    schema = sidecar_schema(fresh.metadata)
    stored_sizes = {stat.path: stat.size for stat in store.list_from(in_log(SIDECAR_FOLDER), "")}

    def may_stay(part: StoredPart) -> bool:
        if part.sidecar is None or part.schema != schema:
            return False
        return stored_sizes.get(part.path) == part.sidecar.size_in_bytes

    plan = plan_checkpoint(state, may_stay, SIDECAR_FILES, now_ms)
    written: list[StoredPart] = []
    with StoredReader(store) as reader:
        for group in plan.written:
            rows = _rows(reader, group)
            whole = whole_rows((*plan.kept, *written)) + rows.num_rows
            kept = rows if whole <= WHOLE_ROWS_MAX else group.kept()
            name = sidecar_name(state.version, str(new_id()))
            written.append(_put_sidecar(store, name, _NewRows(group, rows, kept), fresh, now_ms))
    after = after_writing(state, plan, written)
    sidecars = [part.sidecar for part in after.stored if part.sidecar is not None]
    content = top_level_json(fresh, sidecars, now_ms, state.totals.files)
    actions = content.count(b"\n")
    is_json = len(content) <= TOP_LEVEL_JSON_MAX
    if not is_json:
        # Some hundred thousand app transactions are read and written by column.
        content = _top_level_parquet(after, sidecars, now_ms)
    name = own_v2_checkpoint_name(state.version, fresh.metadata.id, is_json=is_json)
    existing = _put_checkpoint(store, name, content)
    below = sum(map(row_count, after.stored))
    hint = existing or LastCheckpoint(
        version=state.version,
        size=actions + below,
        size_in_bytes=len(content) + sum(sidecar.size_in_bytes for sidecar in sidecars),
        num_of_add_files=state.totals.files,
    )
    new = sum(part.sidecar.size_in_bytes for part in written if part.sidecar)
    return WrittenCheckpoint(hint, after, len(content) + new, is_ours=existing is None)


def checkpoint_file(buffer: io.BytesIO, schema: pa.Schema) -> pq.ParquetWriter:
    """Return a writer of a checkpoint's file or sidecar, to be used as a context manager."""
    return pq.ParquetWriter(
        buffer, schema, compression=CODEC, store_schema=False, use_dictionary=_REPEATED
    )


def _put_checkpoint(store: LogStore, name: str, content: bytes) -> LastCheckpoint | None:
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


def _top_level_parquet(after: CheckpointState, sidecars: Sequence[Sidecar], now_ms: int) -> bytes:
    buffer = io.BytesIO()
    with checkpoint_file(buffer, top_level_schema(after.fresh.metadata)) as writer:
        for batch in top_level(after.fresh, sidecars, now_ms, after.totals.files):
            writer.write_batch(batch)
    return buffer.getvalue()


@dataclass(frozen=True)
class _NewRows:
    """The rows of a sidecar, and what is kept of them."""

    group: RowsToWrite
    rows: pa.Table
    kept: pa.Table


def _put_sidecar(
    store: LogStore, name: str, new: _NewRows, fresh: Snapshot, now_ms: int
) -> StoredPart:
    schema, buffer, group = sidecar_schema(fresh.metadata), io.BytesIO(), new.group
    with checkpoint_file(buffer, schema) as writer:
        for batch, _ in _batches(group, new.rows, new.kept, fresh.metadata, schema):
            writer.write_batch(batch)
    content = buffer.getvalue()
    store.put(in_sidecars(name), content)
    rows = StoredRows.of(new.kept)
    return StoredPart(
        in_sidecars(name),
        None,
        _NO_FILES if group.is_tombstones else rows,
        rows if group.is_tombstones else _NO_TOMBSTONES,
        schema,
        Sidecar(path=name, size_in_bytes=len(content), modification_time=now_ms),
    )


def _rows(reader: StoredReader, group: RowsToWrite) -> pa.Table:
    """Return the rows of a group in all their columns."""
    tables = [reader.rows(part, is_tombstones=group.is_tombstones) for part in group.parts]
    if group.fresh is not None:
        tables.append(group.fresh)
    return stacked(tables) if group.is_tombstones else stacked_files(tables)


def _batches(
    group: RowsToWrite, rows: pa.Table, kept: pa.Table, metadata: Metadata, schema: pa.Schema
) -> Iterator[tuple[pa.RecordBatch, pa.Table]]:
    """Yield rows as a checkpoint of these columns has them, each batch with what is kept of it."""
    make = remove_rows(schema, rows) if group.is_tombstones else add_rows(schema, rows, metadata)
    start = 0
    for batch in make:
        yield batch, kept.slice(start, batch.num_rows)
        start += batch.num_rows


def _copyable(
    reader: StoredReader, parts: Sequence[StoredPart], schema: pa.Schema
) -> dict[tuple[str, int | None], RowGroup]:
    """Return the row groups, by file and number, that a file of these columns may take over.

    They are those that have the rows of a part and no others. Rows that are kept whole need no
    look at a file.
    """
    empty = io.BytesIO()
    checkpoint_file(empty, schema).close()
    shape = read_row_groups(empty).shape
    copyable: dict[tuple[str, int | None], RowGroup] = {}
    for part in parts:
        rows = row_count(part)
        if part.group is None or rows < COPIED_ROWS_MIN or rows == whole_rows([part]):
            continue
        group = reader.row_group(part, shape)
        if group is not None and group.rows == rows:
            copyable[part.path, part.group] = group
    return copyable


class _RowGroups:
    """Writes the row groups of a checkpoint file, and says which rows are in which."""

    def __init__(self, writer: pq.ParquetWriter, path: str, schema: pa.Schema) -> None:
        self._writer, self._path, self._schema = writer, path, schema
        self._waiting: list[pa.RecordBatch] = []
        self._files: list[pa.Table] = []
        self._tombstones: list[pa.Table] = []
        self.groups = 0
        self.rows = 0
        self.parts: list[StoredPart] = []

    def add_group(
        self, reader: StoredReader, group: RowsToWrite, metadata: Metadata, *, is_small: bool
    ) -> None:
        """Add the rows of a group: as row groups of their own if there are many of them."""
        is_alone = group.count >= COPIED_ROWS_MIN
        if is_alone:
            self.flush()
        rows = _rows(reader, group)
        kept = rows if is_small else group.kept()
        for batch, stored in _batches(group, rows, kept, metadata, self._schema):
            self.add(batch, **{"tombstones" if group.is_tombstones else "files": stored})
        if is_alone:
            self.flush()

    def add(
        self,
        batch: pa.RecordBatch,
        files: pa.Table | None = None,
        tombstones: pa.Table | None = None,
    ) -> None:
        """Add rows, with what is kept of them."""
        self._waiting.append(batch)
        self._files += [files] if files is not None else []
        self._tombstones += [tombstones] if tombstones is not None else []
        if sum(waiting.num_rows for waiting in self._waiting) >= ROWS_MAX:
            self.flush()

    def flush(self) -> None:
        """Write the rows that wait as one row group."""
        if not self._waiting:
            return
        group = pa.Table.from_batches(self._waiting)
        self._writer.write_table(group, row_group_size=group.num_rows)
        if self._files or self._tombstones:
            rows = (
                StoredRows.of(stacked_files(self._files)) if self._files else _NO_FILES,
                StoredRows.of(stacked(self._tombstones)) if self._tombstones else _NO_TOMBSTONES,
            )
            self.parts.append(StoredPart(self._path, self.groups, *rows, self._schema))
        self.rows += group.num_rows
        self.groups += 1
        self._waiting, self._files, self._tombstones = [], [], []
