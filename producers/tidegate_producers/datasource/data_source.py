"""The data source: Spark calls it to make readers and writers from options.

Spark creates it in several Python processes, none of which has a session; readers and writers
are pickled and sent to the tasks.
"""

from collections.abc import Callable, MutableMapping
from functools import cache, wraps
from typing import Any

from pyspark.sql import DataFrameWriter, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StructType
from pyspark.sql.utils import is_remote

from tidegate_producers.datasource.batch_reader import (
    ChangeReader,
    TableReader,
    open_view,
    schema_of_changes,
)
from tidegate_producers.datasource.batch_writer import BatchWriter
from tidegate_producers.datasource.change_feed_stream import (
    ChangeStreamReader,
    newest_columns_of_changes,
)
from tidegate_producers.datasource.plain_errors import plain_errors
from tidegate_producers.datasource.spark_schema import from_spark, to_spark
from tidegate_producers.datasource.stream_source import StreamReader
from tidegate_producers.datasource.stream_writer import StreamWriter
from tidegate_producers.options import (
    for_changes,
    for_changes_of_any_kind,
    for_reading,
    for_schema,
    for_stream_reading,
    for_writing,
)
from tidegate_producers.writing.table_write import WriteMode


class TidegateSource(DataSource):
    """`format("tidegate")`: reads a Delta table, and writes it through the committer."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._version: int | None = None

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "tidegate"

    @plain_errors
    def schema(self) -> StructType:
        """Return the table's columns, and remember their version for `reader`."""
        of_newest = for_changes_of_any_kind(self.options)
        if of_newest is not None:
            return to_spark(newest_columns_of_changes(of_newest))
        changes = for_changes(self.options)
        if changes is not None:
            return schema_of_changes(changes)
        view = open_view(for_schema(self.options))
        self._version = int(view.snapshot.version)
        return to_spark(view.schema)

    @plain_errors
    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of the version whose columns `schema` returned, or of changes."""
        changes = for_changes(self.options)
        if changes is not None:
            return ChangeReader(changes, schema)
        return TableReader(for_reading(self.options), self._version, schema)

    @plain_errors
    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802 (Spark's name)
        """Return a reader of the table as a stream of rows, or of its changes as a stream."""
        options = for_stream_reading(self.options)
        return (ChangeStreamReader if options.of_changes else StreamReader)(options, schema)

    @plain_errors
    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """Return a writer of one batch, after every check that needs no row."""
        return BatchWriter(for_writing(self.options), from_spark(schema), _mode(overwrite))

    @plain_errors
    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802 (Spark's name)
        """Return a writer of micro-batches."""
        return StreamWriter(for_writing(self.options), from_spark(schema), _mode(overwrite))


def _mode(overwrite: bool) -> WriteMode:
    return "overwrite" if overwrite else "append"


def use_session(spark: SparkSession) -> None:
    """Let `format("tidegate")` write in this thread, in every other one, and after an interrupt.

    Spark looks for Python data sources in the active session of a thread only, and refuses to write
    with DATA_SOURCE_NOT_FOUND where there is none: in a thread that Python started, and in any
    after Ctrl-C. From the first call on, a writer of this format makes its own session the active
    one. Spark Connect needs no call.
    """
    if is_remote():
        return
    _activate(spark)
    _activate_at_each_write()


def _activate(spark: SparkSession) -> None:
    jvm = spark._jvm
    assert jvm is not None, "a classic session has a JVM"
    jvm.SparkSession.setActiveSession(spark._jsparkSession)


@cache
def _activate_at_each_write() -> None:
    """Let `format` of Spark's writers make their session active, once in a process."""
    for kind in (DataFrameWriter, DataStreamWriter):
        setattr(kind, "format", _activating(kind.format))  # noqa: B010 - mypy takes no assignment


def _activating(choose: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
    @wraps(choose)
    def chosen(writer: Any, source: str) -> Any:
        if source == TidegateSource.name():
            _activate(writer._spark)
        return choose(writer, source)

    return chosen
