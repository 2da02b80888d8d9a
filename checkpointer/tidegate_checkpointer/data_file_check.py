"""`fsck` of a table's files: what its newest version names, and what is there. Changes nothing.

The files are listed after the table was opened. A writer or a vacuum may be at work meanwhile, so a
file that the listing lacks is looked for again by its name.
"""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidegate_checkpointer.finding import CheckRequest, Finding, Progress
from tidegate_delta.errors import BrokenLog, UnsupportedFeature
from tidegate_delta.log.actions import DeletionVector
from tidegate_delta.log.file_names import checksum_name
from tidegate_delta.log.file_paths import canonical_paths
from tidegate_delta.properties.table_properties import tombstone_retention_ms
from tidegate_delta.schema.column_mapping import physical_partition_columns
from tidegate_delta.snapshots.checksum_verdict import Checked
from tidegate_delta.snapshots.raw_stats import row_counts
from tidegate_delta.snapshots.snapshot import Snapshot
from tidegate_runtime.storage.log_store import LogStore
from tidegate_runtime.table_io.deletion_vector_reader import read_vector
from tidegate_runtime.table_io.own_files import Listing, list_own_files, named_by_tables_below
from tidegate_runtime.table_io.parquet_footers import read_row_count
from tidegate_runtime.table_io.referenced_files import referenced, vector_files
from tidegate_runtime.table_io.table_files import open_table_file

_RESTORE = "restore the file from a backup, or the table to a version without it"
_CHANGES = "_change_data/"


def check_files(
    store: LogStore, snapshot: Snapshot, request: CheckRequest, progress: Progress
) -> Iterator[Finding]:
    """Yield what is wrong with the checksum, data files and deletion vectors of a snapshot.

    Raises: Unavailable; BrokenLog (`CorruptDeletionVector`) for a malformed descriptor.
    """
    if snapshot.checksum.is_doubtful:
        is_unreadable = snapshot.checksum.checked is Checked.UNREADABLE
        yield Finding(
            "lying_checksum",
            checksum_name(snapshot.version),
            f"it does not fit the log: {snapshot.checksum}",
            "delete it"
            if is_unreadable
            else "compare the table with a backup: the checksum may be the only trace of a lost "
            "change. If the log is right, delete the checksum file",
            "delete_checksum" if is_unreadable else None,
        )
    progress(f"{snapshot.files.num_rows} live files")
    listing = listed_files(store, snapshot)
    listed = listing.files
    yield from _live_files(store, snapshot, listed)
    yield from _orphans(store, snapshot, listing, request)
    opened = min(request.footers, snapshot.files.num_rows)
    if opened:
        progress(f"the contents of {opened} files")
        yield from _contents(store, snapshot, request.footers)


def listed_files(store: LogStore, snapshot: Snapshot) -> Listing:
    """Return the files below a table's root, without hidden ones and those of tables below it.

    Raises: Unavailable.
    """
    metadata = snapshot.metadata
    return list_own_files(
        store, {*metadata.partition_columns, *physical_partition_columns(metadata)}
    )


def orphans(store: LogStore, snapshot: Snapshot, listing: Listing, before_ms: int) -> pa.Table:
    """Return the listed files from before a time that no version or table below the root names.

    Change data is left out, as only commits name it. Raises: BrokenLog (`TableBelowUnreadable`).
    """
    listed = listing.files
    keys_named = [referenced(store.root, files) for files in (snapshot.files, snapshot.tombstones)]
    keys_named += named_by_tables_below(store, listing.tables_below).values()
    known_keys = pa.chunked_array(
        [chunk for keys in keys_named for chunk in keys.chunks], pa.string()
    )
    is_kept = pc.or_(pc.is_in(listed["path"], known_keys), pc.starts_with(listed["path"], _CHANGES))
    is_old = pc.less(listed["modified_ms"], before_ms)
    return listed.filter(pc.and_(pc.invert(is_kept), is_old))


def _live_files(store: LogStore, snapshot: Snapshot, listed: pa.Table) -> Iterator[Finding]:
    paths, sizes = snapshot.files["path"], snapshot.files["size"]
    places = pc.index_in(canonical_paths(paths), listed["path"])
    for path in paths.filter(pc.is_null(places)).to_pylist():
        if not _exists(store, path):
            yield Finding(
                "missing_file",
                path,
                "the log names it as live, and it is not there: readers fail, its rows are lost",
                f"{_RESTORE}; --repair takes it out of the table, its rows with it",
                "remove_file",
            )
    sizes_found = listed["size_bytes"].take(places.combine_chunks())
    is_wrong = pc.fill_null(pc.not_equal(sizes_found, sizes), False)
    wrong = pa.table({"path": paths, "stated": sizes, "found": sizes_found}).filter(is_wrong)
    for row in wrong.to_pylist():
        yield Finding(
            "wrong_size",
            row["path"],
            f"it has {row['found']} bytes, the log states {row['stated']}: it was replaced, torn, "
            "or stated wrongly",
            f"{_RESTORE}; if it can be read, rewrite its rows",
        )
    stored = vector_files(store.root, snapshot.files["deletionVector"])
    for key in stored.filter(pc.invert(pc.is_in(stored, listed["path"]))).to_pylist():
        if not _exists(store, key, is_key=True):
            yield Finding(
                "broken_vector",
                key,
                "it holds deletion vectors of live files, and it is not there: readers fail",
                f"{_RESTORE}. Nothing else tells which rows were deleted",
            )


def _orphans(
    store: LogStore, snapshot: Snapshot, listing: Listing, request: CheckRequest
) -> Iterator[Finding]:
    before_ms = request.now_ms - tombstone_retention_ms(snapshot.metadata)
    try:
        orphan_files = orphans(store, snapshot, listing, before_ms)
    except BrokenLog as error:
        if error.error_class != "TableBelowUnreadable":
            raise
        yield Finding("orphans", "not counted", str(error), "repair that table, or move it away")
        return
    if orphan_files.num_rows:
        size_bytes = pc.sum(orphan_files["size_bytes"]).as_py()
        yield Finding(
            "orphans",
            f"{orphan_files.num_rows} files",
            f"{size_bytes} bytes that no version names, older than the retention, "
            f"{orphan_files['path'][0].as_py()} for one; readers do not see them",
            "delete them with `tidegate table vacuum`",
        )


def _contents(store: LogStore, snapshot: Snapshot, limit: int) -> Iterator[Finding]:
    newest = pc.array_sort_indices(snapshot.files["modificationTime"], order="descending")
    chosen = snapshot.files.take(newest.slice(0, limit))
    rows = row_counts(chosen).to_pylist()
    for file, stated_rows in zip(
        chosen.select(["path", "deletionVector"]).to_pylist(), rows, strict=True
    ):
        yield from _content(store, file, stated_rows)


def _content(store: LogStore, file: dict[str, Any], stated_rows: int | None) -> Iterator[Finding]:
    path = file["path"]
    try:
        with open_table_file(store, path) as opened:
            rows = read_row_count(opened)
    except FileNotFoundError:
        return
    except UnsupportedFeature as error:
        yield Finding("unreadable_file", path, str(error), "read it with another engine")
        return
    except (ValueError, OSError, pa.ArrowException) as error:
        yield Finding("unreadable_file", path, f"it is no whole Parquet file: {error}", _RESTORE)
        return
    if stated_rows is not None and stated_rows != rows:
        yield Finding(
            "wrong_row_count",
            path,
            f"it has {rows} rows, its statistics state {stated_rows}: queries may count or skip "
            "wrong",
            "rewrite its rows; see which writer states wrong statistics",
        )
    if file["deletionVector"] is not None:
        yield from _vector(store, file, rows)


def _vector(store: LogStore, file: dict[str, Any], rows: int) -> Iterator[Finding]:
    vector = DeletionVector.model_validate(file["deletionVector"])
    try:
        deleted_rows = read_vector(store, vector, file["path"])
    except (BrokenLog, UnsupportedFeature) as error:
        if getattr(error, "error_class", "") != "DeletionVectorMissing":
            yield Finding("broken_vector", file["path"], str(error), _RESTORE)
        return
    if len(deleted_rows) != vector.cardinality:
        problem = (
            f"its deletion vector deletes {len(deleted_rows)} rows, and states {vector.cardinality}"
        )
        yield Finding("broken_vector", file["path"], problem, _RESTORE)


def _exists(store: LogStore, path: str, *, is_key: bool = False) -> bool:
    try:
        (store.open(path) if is_key else open_table_file(store, path)).close()
    except FileNotFoundError:
        return False
    except UnsupportedFeature:
        return True
    return True
