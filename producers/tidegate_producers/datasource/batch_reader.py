"""The batch reader: a snapshot's files are divided among tasks, which yield Arrow batches.

Files are packed into bins of about equal size, one bin per task, so that many small files need
few tasks. A large file is read by several, by its row groups.

The batch reader of the change data feed: `readChangeFeed`, with delta-spark's options.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType as SparkSchema

from tidegate_delta.change_feed import ChangeFile, ChangePlan
from tidegate_delta.errors import InvalidRequest
from tidegate_delta.log.actions import Metadata
from tidegate_delta.schema.types import StructType, parse_schema
from tidegate_delta.snapshots.snapshot import Snapshot
from tidegate_producers.cached_clients import store_for
from tidegate_producers.datasource.plain_errors import plain_errors, plain_errors_of_rows
from tidegate_producers.datasource.spark_schema import arrow_of, shaped, to_spark
from tidegate_producers.options import ChangeReadOptions, ReadOptions
from tidegate_runtime.storage.log_store import LogStore
from tidegate_runtime.table_io.change_row_reader import (
    ChangeRange,
    change_fields,
    plan_changes,
    read_change_file,
)
from tidegate_runtime.table_io.data_file_reader import read_file, rows_of
from tidegate_runtime.table_io.open_table import open_keys, open_snapshot
from tidegate_runtime.table_io.time_travel import find_version, versions_between

BIN_BYTES: Final = 32 * 1024 * 1024
"""Total size at which a bin is full; a larger file gets a bin of its own."""

PART_BYTES: Final = 128 * 1024 * 1024
"""Size of a file above which several tasks read it."""


@dataclass(frozen=True)
class SnapshotView:
    """A snapshot and its columns."""

    snapshot: Snapshot
    schema: StructType


@dataclass(frozen=True)
class FilePart:
    """Part `number` of `count` of a file, which is a row of ADD_SCHEMA; cut between row groups."""

    file: Mapping[str, Any]
    number: int = 0
    count: int = 1


@dataclass(frozen=True)
class TaskFiles(InputPartition):
    """The files of one task, or a part of one."""

    parts: tuple[FilePart, ...]

    def read(
        self, store: LogStore, metadata: Metadata, shape: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the files, in a shape. Raises: as `read_file`."""
        for file_part in self.parts:
            part = (file_part.number, file_part.count)
            for batch in read_file(store, file_part.file, metadata, shape.names, part):
                yield shaped(batch.columns, shape)


class TableReader(DataSourceReader):
    """Reads one version of a table."""

    def __init__(self, options: ReadOptions, version: int | None, schema: SparkSchema) -> None:
        self._options = options
        self._arrow = arrow_of(schema)
        view = open_view(options, version)
        self._metadata: Metadata = view.snapshot.metadata
        self._bins = binned(rows_of(view.snapshot.files))
        check_schema(schema, view.schema, options.place.root)

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the reader without its bins: Spark sends each task its own."""
        return {**self.__dict__, "_bins": []}

    @plain_errors
    def partitions(self) -> Sequence[InputPartition]:
        """Return the bins; an empty table has one without files."""
        return self._bins or [TaskFiles(())]

    @plain_errors_of_rows
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a bin, in exactly the schema that Spark expects."""
        assert isinstance(partition, TaskFiles), "Spark hands back what `partitions` returned"
        yield from partition.read(store_for(self._options.place), self._metadata, self._arrow)


def open_view(options: ReadOptions, version: int | None = None) -> SnapshotView:
    """Return the table at `version`, or by default at the version or time that the options name.

    Raises: InvalidRequest (`NotADeltaTable`, `VersionNotFound`, ...); UnsupportedFeature;
    BrokenLog; Unavailable.
    """
    store = store_for(options.place)
    chosen = options.version if version is None else version
    timestamp_ms = None if chosen is not None else options.timestamp_ms
    snapshot = open_snapshot(store, chosen, timestamp_ms)
    return SnapshotView(snapshot, parse_schema(snapshot.metadata.schema_string))


def binned(files: Iterator[Mapping[str, Any]]) -> list[TaskFiles]:
    """Return files, rows of ADD_SCHEMA, in bins of at most BIN_BYTES, of one file or its parts."""
    bins: list[TaskFiles] = []
    waiting: list[FilePart] = []
    size = 0
    for file in files:
        if (count := file["size"] // PART_BYTES + 1) > 1:
            bins += [TaskFiles((FilePart(file, number, count),)) for number in range(count)]
            continue
        if waiting and size + file["size"] > BIN_BYTES:
            bins.append(TaskFiles(tuple(waiting)))
            waiting, size = [], 0
        waiting.append(FilePart(file))
        size += file["size"]
    return [*bins, TaskFiles(tuple(waiting))] if waiting else bins


def check_schema(spark_schema: SparkSchema, schema: StructType, root: str) -> None:
    """Refuse a schema given by the user that is not the table's own."""
    if spark_schema != to_spark(schema):
        raise InvalidRequest(
            f"{root} has its own schema, {schema}: leave .schema(...) out, or write the table "
            f"again, whose columns changed since the DataFrame was made",
            error_class="DELTA_SCHEMA_CHANGE_SINCE_ANALYSIS",
        )


@dataclass(frozen=True)
class ChangeBin(InputPartition):
    """The changes of one task: files, each with the version that it is of."""

    files: tuple[tuple[ChangePlan, ChangeFile], ...]


class ChangeReader(DataSourceReader):
    """Reads the changed rows of some versions, a version's files by one task."""

    def __init__(self, options: ChangeReadOptions, schema: SparkSchema) -> None:
        self._options = options
        self._arrow = arrow_of(schema)
        changes = changes_of(options)
        self._metadata = changes.metadata
        self._bins = [
            ChangeBin(tuple((plan, file) for file in plan.files))
            for plan in changes.plans
            if plan.files
        ]

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the reader without its bins: Spark sends each task its own."""
        return {**self.__dict__, "_bins": []}

    def partitions(self) -> Sequence[InputPartition]:
        """Return the bins; without changes there is one without files."""
        return self._bins or [ChangeBin(())]

    @plain_errors_of_rows
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the changes of a bin."""
        assert isinstance(partition, ChangeBin), "Spark hands back what `partitions` returned"
        store = store_for(self._options.place)
        for plan, file in partition.files:
            for batch in read_change_file(store, plan, file, self._metadata):
                yield shaped(batch.columns, self._arrow)


def changes_of(options: ChangeReadOptions) -> ChangeRange:
    """Return the changes that the options choose.

    Raises: InvalidRequest (`InvalidVersionRange`, `VersionNotFound`, `CdfNotEnabled`,
    `TimestampAfterLatest`); UnsupportedFeature; BrokenLog; Unavailable.
    """
    store, start, end = store_for(options.place), options.start, options.end
    if options.start_ms is not None:
        start, _ = versions_between(store, open_keys(store), options.start_ms)
    if options.end_ms is not None:
        end = find_version(store, open_keys(store), options.end_ms)
    return plan_changes(store, start, end)


def schema_of_changes(options: ChangeReadOptions) -> SparkSchema:
    """Return the columns of the changes: the table's, `_change_type`, `_commit_version` and
    `_commit_timestamp`. Raises: as `changes_of`.
    """
    return to_spark(change_fields(changes_of(options).metadata))
