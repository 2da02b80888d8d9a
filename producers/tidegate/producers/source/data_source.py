"""The data source: Spark calls it to make readers and writers from options.

Spark makes it anew in several Python processes, none of which has a session; readers and writers
are pickled to get to the tasks.
"""

from collections.abc import MutableMapping
from typing import NoReturn

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from tidegate.delta.errors import UnsupportedFeature
from tidegate.producers.options import for_reading, for_writing
from tidegate.producers.source.batch import BatchWriter
from tidegate.producers.source.reader import TableReader, open_view
from tidegate.producers.source.spark_schema import from_spark, to_spark
from tidegate.producers.source.stream import StreamWriter
from tidegate.producers.writing import Mode


class TidegateSource(DataSource):
    """`format("tidegate")`: reads a Delta table, and writes it through the gate."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._version: int | None = None

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "tidegate"

    def schema(self) -> StructType:
        """Return the table's columns, and remember the version, which `reader` will read."""
        view = open_view(for_reading(self.options))
        self._version = int(view.snapshot.version)
        return to_spark(view.schema)

    def reader(self, schema: StructType) -> TableReader:
        """Return a reader of the version whose columns `schema` returned."""
        return TableReader(for_reading(self.options), self._version, schema)

    def streamReader(self, schema: StructType) -> NoReturn:  # noqa: N802 (Spark's name)
        """Refuse to read a table as a stream. Raises: UnsupportedFeature."""
        raise UnsupportedFeature(
            "this release can't read a table as a stream: follow the table's change topic with "
            "Spark's own source for Kafka, or read its versions, one by one, with versionAsOf",
            feature="readStream",
        )

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """Return a writer of one batch, after every check that needs no row."""
        return BatchWriter(for_writing(self.options), from_spark(schema), _mode(overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802 (Spark's name)
        """Return a writer of micro-batches."""
        return StreamWriter(for_writing(self.options), from_spark(schema), _mode(overwrite))


def _mode(overwrite: bool) -> Mode:
    return "overwrite" if overwrite else "append"
