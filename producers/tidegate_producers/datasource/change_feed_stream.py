"""The change data feed as a stream: the table as it is as inserts, then each version's changes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from tidegate_delta.change_feed import ChangeFile, ChangePlan, plan
from tidegate_delta.errors import InvalidRequest
from tidegate_delta.log.actions import Metadata
from tidegate_delta.log.commit import Commit
from tidegate_delta.properties.table_properties import change_feed_enabled
from tidegate_delta.schema.types import StructType
from tidegate_producers.cached_clients import store_for
from tidegate_producers.datasource.batch_reader import BIN_BYTES, ChangeBin
from tidegate_producers.datasource.plain_errors import plain_errors, plain_errors_of_rows
from tidegate_producers.datasource.spark_schema import shaped
from tidegate_producers.datasource.stream_source import (
    FilePosition,
    Files,
    StreamReader,
    StreamSource,
)
from tidegate_producers.options import StreamReadOptions
from tidegate_runtime.storage.log_store import LogStore
from tidegate_runtime.table_io.change_row_reader import change_fields, read_change_file
from tidegate_runtime.table_io.data_file_reader import rows_of
from tidegate_runtime.table_io.deletion_vector_reader import live_rows
from tidegate_runtime.table_io.open_table import open_keys, open_snapshot
from tidegate_runtime.table_io.time_travel import commit_timestamps


@dataclass(frozen=True)
class ChangeItem:
    """A file of changes, and the version that it is of, whose `files` are left out."""

    of: ChangePlan
    file: ChangeFile


class ChangeFeedSource(StreamSource):
    """The changes of a table in the order of a stream; a version's are never in two batches."""

    splits_versions = False

    def first(self) -> FilePosition:
        """Return where a new stream begins, which must be recorded. Raises: as StreamSource."""
        first = super().first()
        version = min(first.version, self.head())
        self._check_recorded(version, open_keys(self._store, version).metadata)
        return first

    def _live(self, version: int) -> Files:
        snapshot = open_snapshot(self._store, version)
        of = ChangePlan(snapshot.version, self._timestamp_ms(version), ())
        return [
            _as_row(
                of,
                ChangeFile(
                    "insert",
                    file["path"],
                    dict(file["partitionValues"] or {}),
                    live_rows(self._store, file),
                    file["size"],
                ),
            )
            for file in rows_of(snapshot.files.sort_by("path"))
        ]

    def _added(self, version: int) -> Files:
        commit = self._commit(version)
        if commit is None:
            return []
        if commit.metadata is not None:
            self._check_recorded(version, commit.metadata)
        # A table without partition columns may have had some: then the log states the values.
        version_plan = plan(commit, self._time_of(commit))
        without_files = replace(version_plan, files=())
        return [_as_row(without_files, file) for file in version_plan.files]

    def _time_of(self, commit: Commit) -> int:
        stamp = commit.info.in_commit_timestamp if commit.info else None
        return self._timestamp_ms(commit.version) if stamp is None else stamp

    def _timestamp_ms(self, version: int) -> int:
        head = open_keys(self._store)
        return commit_timestamps(self._store, head, version, version).get(version, 0)

    def _check_recorded(self, version: int, metadata: Metadata) -> None:
        if not change_feed_enabled(metadata):
            raise InvalidRequest(
                f"version {version} of {self._store.root} does not record its changes: set the "
                "table property delta.enableChangeDataFeed=true, and start the stream at a later "
                "version (option startingVersion)",
                error_class="DELTA_MISSING_CHANGE_DATA",
            )


def _as_row(of: ChangePlan, file: ChangeFile) -> Mapping[str, Any]:
    return {"path": file.path, "size": file.size, "item": ChangeItem(of, file)}


class ChangeStreamReader(StreamReader):
    """Reads the changes of a table as a stream."""

    def _new_source(self, store: LogStore, options: StreamReadOptions) -> StreamSource:
        return ChangeFeedSource(store, options)

    def _columns(self, metadata: Metadata) -> StructType:
        return change_fields(metadata)

    @plain_errors
    def partitions(
        self, start: Mapping[str, Any], end: Mapping[str, Any]
    ) -> Sequence[InputPartition]:
        """Return the files of a batch, in bins of about equal size."""
        files = self._reading.between(FilePosition.from_json(start), FilePosition.from_json(end))
        bins: list[ChangeBin] = []
        waiting: list[tuple[ChangePlan, ChangeFile]] = []
        size = 0
        for file in files:
            if waiting and size + int(file["size"] or 0) > BIN_BYTES:
                bins.append(ChangeBin(tuple(waiting)))
                waiting, size = [], 0
            item: ChangeItem = file["item"]
            waiting.append((item.of, item.file))
            size += int(file["size"] or 0)
        return [*bins, ChangeBin(tuple(waiting))]

    @plain_errors_of_rows
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the changes of a bin."""
        assert isinstance(partition, ChangeBin), "Spark hands back what `partitions` returned"
        store = store_for(self._options.place)
        for of, file in partition.files:
            for batch in read_change_file(store, of, file, self._metadata):
                yield shaped(batch.columns, self._arrow)


def newest_columns_of_changes(options: StreamReadOptions) -> StructType:
    """Return the columns of the changes of the newest version. Raises: as `open_keys`."""
    return change_fields(open_keys(store_for(options.place)).metadata)
