"""The stream reader: what versions add to a table, in micro-batches with Delta's limits."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType as SparkSchema

from tidegate_delta.log.actions import Metadata
from tidegate_delta.schema.types import StructType, parse_schema
from tidegate_producers.cached_clients import store_for
from tidegate_producers.datasource.batch_reader import Bin, binned, check_schema
from tidegate_producers.datasource.plain_errors import plain_errors, plain_errors_of_rows
from tidegate_producers.datasource.spark_schema import arrow_of
from tidegate_producers.datasource.stream_source import Position, StreamSource
from tidegate_producers.options import StreamReadOptions
from tidegate_runtime.storage.log_store import LogStore


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a table as a stream of rows."""

    def __init__(self, options: StreamReadOptions, schema: SparkSchema) -> None:
        self._options = options
        self._arrow = arrow_of(schema)
        source = self._new_source(store_for(options.place), options)
        self._source: StreamSource | None = source
        self._metadata = source.metadata
        self._last: int | None = None
        check_schema(schema, self._columns(self._metadata), options.place.root)

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the reader without what only the driver needs."""
        return {**self.__dict__, "_source": None}

    @plain_errors
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 (Spark's name)
        """Return where a new query begins."""
        return self._reading.noted(self._reading.first()).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 (Spark's name)
        """Return the limit of a batch; latestOffset heeds the other one, too."""
        if self._options.bytes_max is not None and self._options.files_max is None:
            return ReadMaxBytes(self._options.bytes_max)
        return ReadMaxFiles(self._options.files_of_batch)

    @plain_errors
    def latestOffset(  # noqa: N802 (Spark's name)
        self, start: Mapping[str, Any], limit: ReadLimit
    ) -> dict[str, Any]:
        """Return the end of the next batch; `start` itself if there is nothing new.

        Raises: InvalidRequest, for a version that the stream may not pass; BrokenLog; Unavailable.
        """
        position = Position.from_json(start)
        head = self._reading.head(position.version - 1) if self._last is None else self._last
        self._reading.check(position, head)
        files_max, bytes_max = self._options.files_max, self._options.bytes_max
        if isinstance(limit, ReadMaxFiles):
            files_max = limit.max_files
        elif isinstance(limit, ReadMaxBytes):
            bytes_max = limit.max_bytes
        elif isinstance(limit, ReadAllAvailable):
            files_max, bytes_max = None, None
        if head < position.version and not position.is_snapshot:
            return dict(start)
        end = self._reading.up_to(position, head, files_max, bytes_max)
        return self._reading.noted(end).to_json()

    @plain_errors
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 (Spark's name)
        """Read no further than the version that is newest now."""
        self._last = self._reading.head()

    @plain_errors
    def partitions(
        self, start: Mapping[str, Any], end: Mapping[str, Any]
    ) -> Sequence[InputPartition]:
        """Return the files of a batch, in bins of about equal size."""
        first, last = Position.from_json(start), Position.from_json(end)
        self._reading.check(last, self._reading.head(last.version - 1))
        files = self._reading.between(first, last)
        return binned(iter(files)) or [Bin(())]

    @plain_errors_of_rows
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a bin, in exactly the schema that Spark expects."""
        assert isinstance(partition, Bin), "Spark hands back what `partitions` returned"
        yield from partition.read(store_for(self._options.place), self._metadata, self._arrow)

    def _new_source(self, store: LogStore, options: StreamReadOptions) -> StreamSource:
        return StreamSource(store, options)

    def _columns(self, metadata: Metadata) -> StructType:
        return parse_schema(metadata.schema_string)

    @property
    def _reading(self) -> StreamSource:
        if self._source is None:
            self._source = self._new_source(store_for(self._options.place), self._options)
        return self._source
