"""An incremental snapshot: which files' rows are published beside the versions, and in which order.

Each part publishes rows of files as the version shows them at which the stream stands, so that no
older image follows a newer one. A file that was rewritten meanwhile is passed over: its changed
rows are in the stream, and the copied ones come in a later round, with the file that holds them.
"""

import logging
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, cast

from tidegate_cdc_publisher.change_batch import Batch
from tidegate_cdc_publisher.change_reader import (
    Wanted,
)
from tidegate_cdc_publisher.machine import (
    IncrementalDue,
    VersionDue,
)
from tidegate_cdc_publisher.row_diff import images
from tidegate_cdc_publisher.schema_markers import (
    SchemaState,
)
from tidegate_cdc_publisher.stream_layouts import StreamSource, TableShape, VersionLayouts
from tidegate_cdc_publisher.stream_notices import Status
from tidegate_cdc_publisher.stream_sender import StreamSender
from tidegate_delta.data_skipping.file_pruning import prune
from tidegate_delta.data_skipping.predicate_tree import Predicate
from tidegate_delta.errors import (
    InvalidRequest,
    UnsupportedFeature,
)
from tidegate_delta.log.actions import Metadata
from tidegate_delta.snapshots.snapshot import Snapshot
from tidegate_messages.stream_position import Incremental, Position
from tidegate_runtime.observability.logs import log_event
from tidegate_runtime.storage.log_store import LogStore
from tidegate_runtime.table_io.data_file_reader import matching, read_file, rows_of, schema_of
from tidegate_runtime.table_io.open_table import open_snapshot, read_commit

_log = logging.getLogger(__name__)


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


class IncrementalSnapshots:
    """Publishes the parts of a table's incremental snapshots, in the chunks of its stream."""

    def __init__(
        self, source: StreamSource, store: LogStore, layouts: VersionLayouts, sender: StreamSender
    ) -> None:
        self._source = source
        self._store = store
        self._layouts = layouts
        self._sender = sender
        self._live: (
            tuple[tuple[int, str | None], TableShape, Mapping[str, Mapping[str, Any]]] | None
        ) = None
        self._round: tuple[Incremental, tuple[str, ...]] | None = None

    def begin(self, version: int, text: str | None) -> Incremental:
        """Return the begin of a snapshot of a version's rows for which a condition is true.

        Raises: as `filter_of`.
        """
        if text is not None:
            self._live_at(version, text)
        self._sender.notify("Incremental Snapshot", "STARTED", version)
        return Incremental(base=version, filter=text)

    def publish(self, due: IncrementalDue) -> Iterator[None]:
        """Publish a part of the incremental snapshot: about as many rows as a chunk takes."""
        position = self._sender.state.position
        if position is None or not position.complete or position.version != due.version:
            return  # The version before it was not published, or not whole.
        try:
            shape, live = self._live_at(due.version, due.progress.filter)
        except (InvalidRequest, UnsupportedFeature) as error:
            if due.progress.filter is None:
                raise
            self._abort(due, str(error))
            return
        progress, paths = due.progress, self._paths(due.progress)
        keys = self._layouts.keys(VersionDue(due.version), shape.metadata, shape.metadata)
        layout = SchemaState(shape.metadata, keys)
        origin = self._layouts.origin_at(due.version, layout)
        wanted = Wanted(keys, form=self._source.form)
        end = progress.told + self._source.chunk_rows
        while progress.files < len(paths) and progress.told < end:
            file = live.get(paths[progress.files])
            if file is not None:
                batches = file_batches(self._store, file, shape.metadata, wanted, progress)
                for batch in batches:
                    for part in self._sender.add_in_parts(origin, batch):
                        progress_update = {"rows": progress.rows + len(part)}
                        progress_update["told"] = progress.told + len(part)
                        progress = progress.model_copy(update=progress_update)
                        self._sender.move(self._beside(progress))
                        self._sender.send_if_full()
                        yield
                        if self._sender.is_interrupted:
                            return
            following = {"files": progress.files + 1, "rows": 0}
            progress = progress.model_copy(update=following)
        ended: Incremental | None = progress
        if progress.files >= len(paths):
            later = next_round(progress, due.version)
            ended = later if self._paths(later) else None
            if ended is None:
                name, rows = self._source.name, progress.told
                log_event(_log, "snapshot_completed", table=name, version=due.version, rows=rows)
        status: Status = "IN_PROGRESS" if ended is not None else "COMPLETED"
        self._sender.notify("Incremental Snapshot", status, due.version, progress.told)
        self._sender.move(self._beside(ended))
        yield

    def _beside(self, progress: Incremental | None) -> Position:
        position = self._sender.state.position
        assert position is not None, "an incremental snapshot has a position"
        return position.model_copy(update={"incremental": progress})

    def _abort(self, due: IncrementalDue, why: str) -> None:
        """End an incremental snapshot whose filter no longer fits the table's columns."""
        name = self._source.name
        log_event(_log, "snapshot_aborted", level=logging.WARNING, table=name, why=why)
        self._sender.notify("Incremental Snapshot", "ABORTED", due.version, due.progress.told)
        self._sender.move(self._beside(None))

    def _live_at(
        self, version: int, text: str | None
    ) -> tuple[TableShape, Mapping[str, Mapping[str, Any]]]:
        """Return the files of a version by their paths; those asked for last are kept.

        Files that hold no row of a filter are left out. Raises: as `live_files`.
        """
        if self._live is None or self._live[0] != (version, text):
            shape, snapshot = self._layouts.opened(version)
            self._live = (version, text), shape, live_files(snapshot, text)
        return self._live[1:]

    def _paths(self, progress: Incremental) -> tuple[str, ...]:
        """Return the files of a round; the last round's are kept."""
        number = progress.model_copy(update={"files": 0, "rows": 0, "told": 0, "paused": False})
        if self._round is None or self._round[0] != number:
            self._round = number, paths_of(self._store, number)
        return self._round[1]
