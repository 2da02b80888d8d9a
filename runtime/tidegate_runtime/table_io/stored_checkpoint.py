"""Read a checkpoint for the state between checkpoints: the keys and sizes of its rows, by file.

The rows themselves are read again, file by file, when some of them are written into the next one.
"""

import io
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import BinaryIO, Final, Self

import pyarrow as pa

from tidegate_delta.checkpoints.checkpoint_state import (
    STORED_SCHEMA,
    STORED_TOMBSTONE_SCHEMA,
    WHOLE_ROWS_MAX,
    StoredPart,
    StoredRows,
    whole_rows,
)
from tidegate_delta.checkpoints.v2_top_level_file import check, sidecar_path
from tidegate_delta.log.actions import Sidecar
from tidegate_delta.log.file_names import LogFile, in_log
from tidegate_delta.snapshots.chunked_arrays import stacked
from tidegate_delta.snapshots.file_action_columns import KEY_SCHEMA, REMOVE_SCHEMA
from tidegate_delta.snapshots.replay import LogPart
from tidegate_runtime.storage.log_store import LogStore
from tidegate_runtime.table_io.checkpoint_reader import (
    WHOLE,
    CheckpointFile,
    FileColumns,
    corrupt,
    opened,
    read_top,
    reading,
    top_level_of,
    without_needless_stats,
)
from tidegate_runtime.table_io.log_reader import of_table
from tidegate_runtime.table_io.parquet_footers import read_row_count
from tidegate_runtime.table_io.row_group_copying import (
    RowGroup,
    RowGroups,
    append_row_groups,
    read_row_groups,
)

_SLIM: Final = FileColumns(STORED_SCHEMA, STORED_TOMBSTONE_SCHEMA)
_TOMBSTONES: Final = FileColumns(KEY_SCHEMA, REMOVE_SCHEMA)


@dataclass(frozen=True)
class StoredCheckpoint:
    """The few actions of a checkpoint, and its rows: whole in `part` if no file can give them
    again, as those of a JSON file, and else in `stored`.
    """

    part: LogPart
    stored: tuple[StoredPart, ...]


def read_stored(store: LogStore, parts: Sequence[LogFile]) -> StoredCheckpoint:
    """Return what a state keeps of a checkpoint.

    Raises: BrokenLog (`CorruptCheckpoint`) for a missing, torn or malformed file; Unavailable.
    """
    tops = []
    stored: list[StoredPart] = []
    for file in parts:
        if file.name.endswith(".json"):
            top = read_top(store, file, WHOLE)
        else:
            with opened(store, in_log(file.name)) as source:
                groups = CheckpointFile(source, _columns(source, stored))
                read = [groups.read(group) for group in range(groups.groups)]
                none = REMOVE_SCHEMA.empty_table()
                top = top_level_of(read, LogPart().files, none)
            with of_table(store.root):
                check(file, top)
            stored += [
                StoredPart(
                    in_log(file.name),
                    number,
                    StoredRows.of(group.files),
                    StoredRows.of(group.tombstones),
                    groups.schema,
                )
                for number, group in enumerate(read)
                if group.files.num_rows or group.tombstones.num_rows
            ]
        tops.append(top)
    sidecars = {sidecar_path(sidecar): sidecar for top in tops for sidecar in top.sidecars}
    for path, sidecar in sidecars.items():
        stored.append(_read_sidecar(store, path, sidecar, stored))
    part = LogPart(
        files=stacked([top.part.files for top in tops]),
        tombstones=stacked([top.part.tombstones for top in tops]),
        protocol=next((top.part.protocol for top in tops if top.part.protocol), None),
        metadata=next((top.part.metadata for top in tops if top.part.metadata), None),
        txns=tuple(txn for top in tops for txn in top.part.txns),
        domains=tuple(domain for top in tops for domain in top.part.domains),
        name=parts[0].name,
    )
    return StoredCheckpoint(part, tuple(stored))


def _columns(source: BinaryIO, before: Sequence[StoredPart]) -> FileColumns:
    """Return the columns to keep of a file: all, until there are many rows."""
    rows = whole_rows(before) + read_row_count(source)
    return WHOLE if rows <= WHOLE_ROWS_MAX else _SLIM


def _read_sidecar(
    store: LogStore, path: str, sidecar: Sidecar, before: Sequence[StoredPart]
) -> StoredPart:
    with opened(store, path) as source:
        columns = _columns(source, before)
        file = CheckpointFile(source, columns)
        read = [file.read(group) for group in range(file.groups)]
    assert columns.tombstones is not None, "both kinds are read"
    files = without_needless_stats(
        stacked([file.of_files.empty_table(), *(group.files for group in read)])
    )
    tombstones = stacked([columns.tombstones.empty_table(), *(group.tombstones for group in read)])
    return StoredPart(
        path, None, StoredRows.of(files), StoredRows.of(tombstones), file.schema, sidecar
    )


class StoredReader:
    """Reads the rows of stored parts again, in all their columns.

    The last file is kept open, with its footer: to read that of a large file takes a while.
    """

    def __init__(self, store: LogStore) -> None:
        self._store = store
        self._stack = ExitStack()
        self._path: str | None = None
        self._source: BinaryIO
        self._files: dict[bool, CheckpointFile] = {}
        self._groups: RowGroups | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def rows(self, part: StoredPart, *, is_tombstones: bool) -> pa.Table:
        """Return the rows of one kind that hold.

        Raises: BrokenLog (`CorruptCheckpoint`), if the file is gone or has other rows by now;
        Unavailable.
        """
        stored = part.tombstones if is_tombstones else part.files
        if stored.is_whole:
            return stored.holding()
        with reading(self._store, part.path):
            file = self._file(part.path, is_tombstones)
            numbers = range(file.groups) if part.group is None else [part.group]
            read = [file.read(number) for number in numbers]
        rows = without_needless_stats(
            stacked([group.tombstones if is_tombstones else group.files for group in read])
        )
        if rows.num_rows != stored.rows.num_rows:
            name = part.path.partition("/")[2]
            raise corrupt(self._store.root, name, "was replaced while it was in use")
        return rows if stored.mask is None else rows.filter(stored.mask)

    def row_group(self, part: StoredPart, shape: bytes) -> RowGroup | None:
        """Return the row group of a part, or None if no file of this shape may take it over.

        Raises: BrokenLog (`CorruptCheckpoint`), if the file is gone by now; Unavailable.
        """
        with reading(self._store, part.path):
            self._open(part.path)
            if self._groups is None:
                self._groups = read_row_groups(self._source)
        number, groups = part.group, self._groups.groups
        if number is None or number >= len(groups) or self._groups.shape != shape:
            return None
        return groups[number]

    def copy(self, path: str, groups: Sequence[RowGroup], target: io.BytesIO) -> None:
        """Append row groups of a file to a whole file of their shape.

        Raises: as `rows`.
        """
        with reading(self._store, path):
            self._open(path)
            append_row_groups(target, self._source, groups)

    def _file(self, path: str, is_tombstones: bool) -> CheckpointFile:
        """Return an open file, whose footer has been read for rows of one kind."""
        self._open(path)
        if is_tombstones not in self._files:
            columns = _TOMBSTONES if is_tombstones else WHOLE
            self._files[is_tombstones] = CheckpointFile(self._source, columns)
        return self._files[is_tombstones]

    def _open(self, path: str) -> None:
        if self._path == path:
            return
        self._stack.close()
        self._path, self._files, self._groups = None, {}, None
        self._source = self._stack.enter_context(self._store.open(path))
        self._path = path
