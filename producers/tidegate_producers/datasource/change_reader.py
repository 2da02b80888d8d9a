"""The batch reader of the change data feed: `readChangeFeed`, with delta-spark's options."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType as SparkSchema

from tidegate_delta.change_feed import ChangeFile, ChangePlan
from tidegate_producers.cached_clients import store_for
from tidegate_producers.datasource.batch_reader import shaped
from tidegate_producers.datasource.plain_errors import plain_errors_of_rows
from tidegate_producers.datasource.spark_schema import arrow_of, to_spark
from tidegate_producers.options import ChangeReadOptions
from tidegate_runtime.table_io.change_row_reader import (
    ChangeRange,
    change_fields,
    plan_changes,
    read_change_file,
)
from tidegate_runtime.table_io.open_table import open_keys
from tidegate_runtime.table_io.time_travel import find_version, versions_between


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
                yield shaped(batch, self._arrow)


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
