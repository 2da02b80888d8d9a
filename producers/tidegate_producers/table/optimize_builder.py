"""`Table.optimize`: a builder like delta-spark's, whose files Spark's executors compact."""

from collections.abc import Callable, Iterator, Sequence
from math import ceil
from typing import Any, Final

import orjson
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from tidegate_delta.errors import InvalidRequest
from tidegate_delta.log.actions import Add
from tidegate_producers.parquet.file_compaction import Compacted
from tidegate_producers.table.reordering import reordered
from tidegate_producers.table.rewrite_runner import LOCAL_REWRITE_BYTES_MAX
from tidegate_producers.writing.optimize import (
    Bin,
    Compacting,
    Optimized,
    compact_files,
    compact_here,
)

_SIZES: Final = "struct<min: long, max: long, avg: double, totalFiles: long, totalSize: long>"
METRICS: Final = (
    "path string, metrics struct<numFilesAdded: long, numFilesRemoved: long, "
    f"filesAdded: {_SIZES}, filesRemoved: {_SIZES}, partitionsOptimized: long, "
    "numBatches: long, totalConsideredFiles: long, totalFilesSkipped: long>"
)
"""The columns of the result, by delta-spark's names."""


class OptimizeBuilder:
    """Chooses partitions, then compacts their files; the names are delta-spark's."""

    def __init__(self, run: Callable[[str | None, Sequence[str]], DataFrame]) -> None:
        self._run = run
        self._where: str | None = None

    def where(self, partitionFilter: str) -> "OptimizeBuilder":  # noqa: N803 - delta-spark's name
        """Compact only the partitions for which a condition over partition columns is true."""
        chosen = f"({self._where}) AND ({partitionFilter})" if self._where else partitionFilter
        self._where = chosen
        return self

    def executeCompaction(self) -> DataFrame:  # noqa: N802 - delta-spark's name
        """Pack small files of each partition into larger ones, and return one row with metrics.

        The files of a clustered table that are not yet clustered are sorted by its columns.
        Raises: as `optimize.optimize`.
        """
        return self._run(self._where, ())

    def executeZOrderBy(self, *cols: str | Sequence[str]) -> DataFrame:  # noqa: N802
        """Sort the rows of each partition by several columns at once, and return metrics.

        Files can then be skipped by each of the columns. Deletes of rows beside it conflict with
        it, because rows change their order: then it is planned anew.
        Raises: as `optimize.optimize`.
        """
        names = [
            name
            for names_given in cols
            for name in ([names_given] if isinstance(names_given, str) else names_given)
        ]
        if not names:
            raise InvalidRequest(
                "executeZOrderBy needs columns to sort by; nothing was proposed",
                error_class="DELTA_ZORDERING_COLUMN_DOES_NOT_EXIST",
            )
        return self._run(self._where, names)


class CompactionOnExecutors:
    """Compacts bins with a session's executors, or here if they are small: a `CompactionRunner`."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def __call__(self, compacting: Compacting, bins: Sequence[Bin]) -> Sequence[Compacted]:
        """Return the result of each bin, in order."""
        if compacting.order:
            return [self._sorted(compacting, file_bin) for file_bin in bins]
        if sum(file_bin.size for file_bin in bins) <= LOCAL_REWRITE_BYTES_MAX:
            return compact_here(compacting, bins)
        texts = [
            (place, orjson.dumps(file_bin.files).decode()) for place, file_bin in enumerate(bins)
        ]
        frame = self._spark.createDataFrame(texts, "place int, files string")

        def on_executor(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            task = TaskContext.get()
            number = task.partitionId() if task is not None else 0
            for batch in batches:
                for place, text in zip(
                    *(column.to_pylist() for column in batch.columns), strict=True
                ):
                    [compacted] = compact_files(compacting, [orjson.loads(text)], number)
                    columns = [pa.array([place], pa.int32()), pa.array([compacted.to_json()])]
                    yield pa.record_batch(columns, names=["place", "compacted"])

        spread = frame.repartition(len(bins))
        rows = spread.mapInArrow(on_executor, "place int, compacted binary").collect()
        results = {row["place"]: Compacted.from_json(bytes(row["compacted"])) for row in rows}
        return [results[place] for place in range(len(bins))]

    def _sorted(self, compacting: Compacting, file_bin: Bin) -> Compacted:
        count = max(1, ceil(file_bin.size / compacting.file_bytes))
        return Compacted((), tuple(reordered(self._spark, compacting, file_bin.adds, count)))


def metrics_of(root: str, optimized: Optimized) -> list[tuple[Any, ...]]:
    """Return the row of METRICS for what was done."""
    skipped = optimized.considered - len(optimized.removed)
    metrics = (
        len(optimized.added),
        len(optimized.removed),
        _sizes(optimized.added),
        _sizes(optimized.removed),
        len(optimized.partitions),
        len(optimized.versions),
        optimized.considered,
        skipped,
    )
    return [(root, metrics)]


def _sizes(files: Sequence[Add]) -> tuple[int, int, float, int, int]:
    sizes = [add.size for add in files]
    total = sum(sizes)
    mean = total / len(sizes) if sizes else 0.0
    return min(sizes, default=0), max(sizes, default=0), mean, len(sizes), total
