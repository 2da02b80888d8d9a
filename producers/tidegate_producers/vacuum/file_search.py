"""Finds the files that may go, in the table's root or in its log, and what versions name."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tidegate_delta.errors import BrokenLog
from tidegate_delta.log.actions import Cdc, CommitInfo, Metadata
from tidegate_delta.log.commit import Commit
from tidegate_delta.log.file_names import commit_name
from tidegate_delta.log.hidden_folders import is_hidden
from tidegate_delta.schema.column_mapping import physical_partition_columns
from tidegate_delta.snapshots.replay import LogPart, read_part
from tidegate_producers.vacuum.vacuum_plan import FOUND_SCHEMA
from tidegate_runtime.storage.log_store import LogStore
from tidegate_runtime.table_io.log_reader import of_table, read_content
from tidegate_runtime.table_io.referenced_files import data_files, referenced, vector_files

END: Final = "VACUUM END"
DONE_THROUGH: Final = "latestCommitVersionOutsideOfRetentionWindow"
"""The parameter of VACUUM END, named as delta-spark's, with the version that LITE goes on after."""

_BATCH: Final = 65_536
_CDC: Final = b'"cdc"'


def listed(store: LogStore, metadata: Metadata) -> pa.Table:
    """Return the files below a table's root that are not hidden: FOUND_SCHEMA.

    Raises: Unavailable.
    """
    columns = {*metadata.partition_columns, *physical_partition_columns(metadata)}

    def is_wanted(folder: str) -> bool:
        return not is_hidden(folder.rpartition("/")[2], columns)

    batches: list[pa.RecordBatch] = []
    rows: list[tuple[str, int, int, int]] = []
    for stat in store.list_tree(is_wanted):
        if not is_hidden(stat.path.rpartition("/")[2], columns):
            rows.append((stat.path, stat.size, stat.modified_ms, -1))
        if len(rows) == _BATCH:
            batches.append(_batch(rows))
            rows = []
    return pa.Table.from_batches([*batches, _batch(rows)])


def removed_in_log(store: LogStore, version: int) -> tuple[pa.Table, int]:
    """Return the files that versions up to this one removed, and change data: FOUND_SCHEMA.

    Also return the oldest version that was read. Versions that an earlier VACUUM LITE has dealt
    with are left out, and so are those of which the commit is gone.
    Raises: BrokenLog; Unavailable.
    """
    found: dict[str, tuple[str, int, int, int]] = {}
    first, oldest = 0, version + 1
    for number in range(version, -1, -1):
        content = read_content(store, commit_name(number)) if number >= first else None
        if content is None:
            break
        oldest = number
        part = _part(store, number, content)
        for row in _rows(store.root, number, part, content):
            found.setdefault(row[0], row)
        first = max(first, _done_through(part.info) + 1)
    return pa.Table.from_batches([_batch(list(found.values()))]), oldest


def named_since(store: LogStore, version: int, head: int) -> pa.ChunkedArray:
    """Return the files that the commits of these versions name, both ends included.

    Raises: BrokenLog (`LogGap`, `CorruptCommit`); Unavailable.
    """
    chunks: list[pa.Array] = []
    for number in range(version, head + 1):
        content = read_content(store, commit_name(number))
        if content is None:
            raise BrokenLog(
                f"{commit_name(number)} of table {store.root} is gone, so it is not known which "
                "files its readers need: give back the lease or the position that needs it",
                error_class="LogGap",
            )
        part = _part(store, number, content)
        for files in (part.files, part.tombstones):
            chunks += referenced(store.root, files).chunks
        paths = [one.path for one in _changes(number, content)]
        chunks += data_files(store.root, pa.chunked_array([paths], pa.string())).chunks
    return pa.chunked_array(chunks, pa.string())


def _part(store: LogStore, version: int, content: bytes) -> LogPart:
    with of_table(store.root):
        return read_part(commit_name(version), content)


def _changes(version: int, content: bytes) -> list[Cdc]:
    # Most commits have no change files, and reading all actions as objects takes long.
    return list(Commit.decode(version, content).of(Cdc)) if _CDC in content else []


def _rows(
    root: str, version: int, part: LogPart, content: bytes
) -> Iterator[tuple[str, int, int, int]]:
    tombstones = part.tombstones
    for row in tombstones.select(["path", "size", "deletionTimestamp"]).to_pylist():
        for key in data_files(root, pa.chunked_array([[row["path"]]], pa.string())).to_pylist():
            yield key, row["size"] or 0, row["deletionTimestamp"] or 0, version
    newest = pc.max(tombstones["deletionTimestamp"]).as_py() or 0
    for key in vector_files(root, tombstones["deletionVector"]).to_pylist():
        yield key, 0, newest, version
    stamp = (part.info.timestamp if part.info else None) or 0
    for one in _changes(version, content):
        paths = pa.chunked_array([[one.path]], pa.string())
        for key in data_files(root, paths).to_pylist():
            yield key, one.size, stamp, version


def _done_through(info: CommitInfo | None) -> int:
    """Return the version up to which a VACUUM LITE that this commit records is done, or -1."""
    if info is None or info.operation != END:
        return -1
    parameters: Mapping[str, Any] = info.operation_parameters or {}
    told = str(parameters.get(DONE_THROUGH, ""))
    is_complete = parameters.get("status") == "COMPLETED"
    return int(told) if is_complete and told.isascii() and told.isdigit() else -1


def _batch(rows: list[tuple[str, int, int, int]]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True) if rows else ((),) * len(FOUND_SCHEMA)
    arrays = [
        pa.array(column, field.type) for column, field in zip(columns, FOUND_SCHEMA, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=FOUND_SCHEMA)
