"""An incremental snapshot: which files' rows are published beside the versions, and in which order.

Each part publishes rows of files as the version shows them at which the stream stands, so that no
older image follows a newer one. A file that was rewritten meanwhile is passed over: its changed
rows are in the stream, and the copied ones come in a later round, with the file that holds them.
"""

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, cast

from tidegate_cdc_publisher.change_batch import Batch
from tidegate_cdc_publisher.change_reader import Wanted
from tidegate_cdc_publisher.row_diff import images
from tidegate_delta.data_skipping.file_pruning import prune
from tidegate_delta.data_skipping.predicate_tree import Predicate
from tidegate_delta.log.actions import Metadata
from tidegate_delta.snapshots.snapshot import Snapshot
from tidegate_messages.stream_position import Incremental
from tidegate_runtime.storage.log_store import LogStore
from tidegate_runtime.table_io.data_file_reader import matching, read_file, rows_of, schema_of
from tidegate_runtime.table_io.open_table import open_snapshot, read_commit


def paths_of(store: LogStore, progress: Incremental) -> tuple[str, ...]:
    """Return the files of a round, in order.

    Law: the same at every call
    Raises: InvalidRequest, if the log of its base is gone.
    """
    paths = sorted(open_snapshot(store, progress.base).files["path"].to_pylist())
    if progress.since is None:
        return tuple(paths)
    rewritten = _added_by_rewrites(store, progress.since, progress.base)
    return tuple(path for path in paths if rewritten is None or path in rewritten)


def next_round(progress: Incremental, version: int) -> Incremental:
    """Return the round after a finished one: files that came by rewrites until `version`."""
    fresh = {"base": version, "since": progress.base, "files": 0, "rows": 0}
    return progress.model_copy(update=fresh)


def filter_of(text: str | None, metadata: Metadata) -> Predicate | None:
    """Return a signal's SQL condition as a predicate over a table's columns.

    Raises: InvalidRequest, UnsupportedFeature, if rows can't be chosen by it.
    """
    if text is None:
        return None
    # Loading the SQL parser is an eighth of the service's start, and few tables need it.
    sql_condition = import_module("tidegate_runtime.conditions.sql_condition")
    return cast("Predicate", sql_condition.predicate_of(text, schema_of(metadata)))


def live_files(snapshot: Snapshot, text: str | None) -> Mapping[str, Mapping[str, Any]]:
    """Return a snapshot's files by their paths, but for those that hold no row of the filter.

    Raises: as `filter_of`.
    """
    predicate = filter_of(text, snapshot.metadata)
    files = snapshot.files
    if predicate is not None:
        files = prune(predicate, files, snapshot.metadata)
    return {file["path"]: file for file in rows_of(files)}


def file_batches(
    store: LogStore,
    file: Mapping[str, Any],
    metadata: Metadata,
    wanted: Wanted,
    progress: Incremental,
) -> Iterator[Batch]:
    """Yield the rows of a live file that are not published yet and for which the filter is true."""
    predicate = filter_of(progress.filter, metadata)
    rows_read, number = 0, progress.told
    for batch in read_file(store, file, metadata):
        rows = batch if predicate is None else matching(batch, predicate)
        skipped = min(max(0, progress.rows - rows_read), rows.num_rows)
        rows_read += rows.num_rows
        if skipped < rows.num_rows:
            row_images = images(rows.slice(skipped), wanted.keys, wanted.form)
            yield Batch("r", number, after=row_images, is_incremental=True)
            number += rows.num_rows - skipped


def _added_by_rewrites(store: LogStore, since: int, until: int) -> set[str] | None:
    """Return the files that commits added which removed others; None if the commits are gone."""
    added: set[str] = set()
    for version in range(since + 1, until + 1):
        entry = read_commit(store, version)
        if entry is None:
            return None
        commit = entry[0]
        if commit.removes:
            added |= {add.path for add in commit.adds}
    return added
