"""Read a checkpoint for the state between checkpoints: the keys and sizes of its rows, by file.

The rows themselves are read again, file by file, when some of them are written into the next one.

Build the state between checkpoints from a table's log, and advance it by commits.
"""

import io
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import BinaryIO, Final, Self

import pyarrow as pa

from tidegate_delta.checkpoints.checkpoint_rows import check_top_level, sidecar_path
from tidegate_delta.checkpoints.rows_since_checkpoint import (
    STORED_SCHEMA,
    STORED_TOMBSTONE_SCHEMA,
    WHOLE_ROWS_MAX,
    CheckpointState,
    StoredPart,
    StoredRows,
    advanced,
    new_state,
    whole_rows,
)
from tidegate_delta.features.supported_features import check_readable
from tidegate_delta.log.actions import Sidecar
from tidegate_delta.log.file_names import LogFile, commit_name, in_log
from tidegate_delta.properties.table_properties import in_commit_timestamps_enabled
from tidegate_delta.snapshots.chunked_arrays import stacked
from tidegate_delta.snapshots.file_action_columns import ADD_SCHEMA, KEY_SCHEMA, REMOVE_SCHEMA
from tidegate_delta.snapshots.replay import LogPart, defining, parse_log_files, replay
from tidegate_delta.snapshots.snapshot import Snapshot, from_replay
from tidegate_runtime import gc_control
from tidegate_runtime.containment import about
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
from tidegate_runtime.table_io.log_reader import defined_in, of_table
from tidegate_runtime.table_io.open_table import check_vectors, info_of, read_segment
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
                check_top_level(file, top)
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


def load_state(store: LogStore, version: int | None = None) -> CheckpointState:
    """Return the state of a table at a version, by default its newest.

    Raises: InvalidRequest (`NotADeltaTable`, `VersionNotFound`); BrokenLog (`LogGap`,
    `CorruptCommit`, `CorruptCheckpoint`, `MissingProtocol`, `MissingMetadata`);
    UnsupportedFeature; Unavailable.
    """
    segment, deltas, below = read_segment(
        store, version, lambda parts: read_stored(store, parts), ADD_SCHEMA
    )
    with of_table(store.root):
        state = _replayed(segment.checkpoint_version, deltas, below)
    every = [*([below.part] if below else []), *deltas]
    _check(store, state, every)
    info = info_of(store, segment, deltas)
    timestamp = info.in_commit_timestamp if info else None
    if not in_commit_timestamps_enabled(state.fresh.metadata):
        timestamp = None
    fresh = replace(state.fresh, version=segment.version, in_commit_timestamp=timestamp)
    return replace(
        state, fresh=_same_keys(fresh, state.fresh), txn_id=info.txn_id if info else None
    )


def follow(store: LogStore, state: CheckpointState, contents: Sequence[bytes]) -> CheckpointState:
    """Return the state after the commits that follow its version, given as their files' bytes.

    Raises: BrokenLog (`CorruptCommit`); UnsupportedFeature.
    """
    first = state.version + 1
    named_contents = [
        (commit_name(first + index), content) for index, content in enumerate(contents)
    ]
    span = " to ".join(dict.fromkeys((named_contents[0][0], named_contents[-1][0])))
    with gc_control.paused(), of_table(store.root), about(span):
        parts = parse_log_files(named_contents)
    after = advanced(state, parts)
    _check(store, after, parts)
    return after


def _replayed(
    version: int, deltas: Sequence[LogPart], below: StoredCheckpoint | None
) -> CheckpointState:
    """Return the state after a checkpoint, if there is one, and what follows it."""
    if below is None:
        return new_state(from_replay(version, replay(deltas, None), None))
    part = below.part
    later = [part_of_log for part_of_log in deltas if part_of_log.protocol or part_of_log.metadata]
    # A checkpoint without a definition is read, too, if commits after it have one.
    part = replace(
        part,
        protocol=part.protocol
        or next((part_of_log.protocol for part_of_log in later if part_of_log.protocol), None),
        metadata=part.metadata
        or next((part_of_log.metadata for part_of_log in later if part_of_log.metadata), None),
    )
    state = new_state(from_replay(version, replay([], part), None), below.stored, version)
    return advanced(state, deltas) if deltas else state


def _check(store: LogStore, state: CheckpointState, parts: Sequence[LogPart]) -> None:
    """Refuse a table that these parts may have made unreadable. Raises: UnsupportedFeature."""
    fresh = state.fresh
    if changed := defining(parts):
        with defined_in(changed):
            check_readable(fresh.protocol, fresh.metadata, store.root)
        for stored in state.stored:
            check_vectors(store, fresh.protocol, fresh.version, stored.files.rows)
    check_vectors(store, fresh.protocol, fresh.version, fresh.files)


def _same_keys(after: Snapshot, before: Snapshot) -> Snapshot:
    """Return a snapshot with the keys of one that has the same files."""
    vars(after)["file_keys"] = before.file_keys
    return after
