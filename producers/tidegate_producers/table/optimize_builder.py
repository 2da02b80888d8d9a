"""`Table.optimize`: a builder like delta-spark's, whose files Spark's executors compact.

Sorts the rows of files along a curve through several columns, so that files can be skipped by
any of them: Z-order, as `executeZOrderBy` and clustered tables ask for.

Each column is cut into ranges of about equally many rows. The bits of the numbers of a row's ranges
are interleaved: rows that are near in all columns are near on the curve.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from math import ceil
from typing import Any, Final

import orjson
import pyarrow as pa
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from tidegate_delta.errors import InvalidRequest, Misconfigured
from tidegate_delta.log.actions import Add
from tidegate_delta.schema.field_paths import FieldPath
from tidegate_delta.snapshots.file_action_columns import adds_to_columns
from tidegate_producers.cached_clients import clock, store_for
from tidegate_producers.parquet.data_file_encoding import as_it_is, keeping_row_ids, layout_of
from tidegate_producers.parquet.data_file_writer import FileWriter, actions_of
from tidegate_producers.parquet.file_rewrite import CompactionResult
from tidegate_producers.table.spark_jobs import LOCAL_REWRITE_BYTES_MAX
from tidegate_producers.table.target_frame import (
    FILE,
    POSITION,
    ROW_ID,
    ROW_VERSION,
    quoted,
    target_frame,
)
from tidegate_producers.writing.optimize import (
    Bin,
    Compacting,
    CompactionRunner,
    Optimized,
    compact_files,
    compact_here,
)

BITS: Final = 8
"""Bits of a column's range on the curve: 256 ranges, or fewer with many columns."""

CURVE_BITS: Final = 63
SAMPLE_ROWS: Final = 20_000
"""Rows of which the ranges of columns are taken."""

_CURVE: Final = "__tidegate_curve"
_NOISE: Final = "__tidegate_noise"


def reordered(
    spark: SparkSession,
    compacting: Compacting,
    files: Sequence[Add],
    count: int,
) -> Sequence[Add]:
    """Write the rows of some files along the curve into about `count` files; return their actions.

    Raises: as `target_frame` and `FileWriter`.
    """
    place, metadata = compacting.place, compacting.metadata
    rows = target_frame(spark, place, metadata, adds_to_columns(list(files)))
    layout = keeping_row_ids(as_it_is(layout_of(metadata)), metadata)
    names = [*layout.schema.names, *layout.row_ids]
    sources = [*layout.schema.names, *((ROW_ID, ROW_VERSION) if layout.row_ids else ())]
    by = [F.col(quoted(name)) for name in metadata.partition_columns]
    # The noise parts rows at one place of the curve among several files.
    noise = F.xxhash64(FILE, POSITION)
    placed = rows.select("*", curve_of(rows, compacting.order).alias(_CURVE), noise.alias(_NOISE))
    spread = placed.repartitionByRange(count, *by, _CURVE, _NOISE)
    ordered = spread.sortWithinPartitions(*by, _CURVE)

    def on_executor(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = TaskContext.get()
        number = task.partitionId() if task is not None else 0
        writer = FileWriter(store_for(place), layout, clock(), number)
        for batch in batches:
            writer.write(pa.RecordBatch.from_arrays(batch.columns, names=names))
        added_rows = orjson.dumps([add.to_row() for add in writer.finish()])
        yield pa.record_batch([pa.array([added_rows], pa.binary())], names=["added"])

    plain = (F.col(quoted(name)).alias(f"_{index}") for index, name in enumerate(sources))
    added_rows = ordered.select(*plain).mapInArrow(on_executor, "added binary").collect()
    return [add for row in added_rows for add in actions_of(orjson.loads(bytes(row["added"])))]


def curve_of(rows: DataFrame, paths: Sequence[FieldPath]) -> Column:
    """Return where on the curve through some columns a row lies."""
    bits = min(BITS, CURVE_BITS // len(paths))
    columns = [reduce(Column.getField, path[1:], F.col(quoted(path[0]))) for path in paths]
    numbered_columns = (column.alias(f"_{index}") for index, column in enumerate(columns))
    sample = rows.select(*numbered_columns).orderBy(F.rand(seed=0)).limit(SAMPLE_ROWS).collect()
    ranges = [
        range_of(column, bounds_of([row[index] for row in sample], 1 << bits))
        for index, column in enumerate(columns)
    ]
    parts = [
        F.shiftleft(F.shiftright(number, bit).bitwiseAND(1).cast("long"), bit * len(paths) + index)
        for bit in range(bits)
        for index, number in enumerate(ranges)
    ]
    return reduce(Column.bitwiseOR, parts)


def range_of(column: Column, bounds: Sequence[Any]) -> Column:
    """Return the number of bounds that are not above a value, by binary search; 0 for null."""

    def found(low: int, high: int) -> Column:
        if low == high:
            return F.lit(low)
        middle = (low + high) // 2
        above = found(middle + 1, high)
        return F.when(column >= F.lit(bounds[middle]), above).otherwise(found(low, middle))

    return found(0, len(bounds))


def bounds_of(sample: Sequence[Any], count: int) -> list[Any]:
    """Return the values that part a column into at most `count` ranges of about as many rows."""
    values = sorted(value for value in sample if value is not None and value == value)
    cuts = (values[len(values) * cut // count] for cut in range(1, count)) if values else ()
    return list(dict.fromkeys(cuts))


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

    def __call__(self, compacting: Compacting, bins: Sequence[Bin]) -> Sequence[CompactionResult]:
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
        results = {
            row["place"]: CompactionResult.from_json(bytes(row["compacted"])) for row in rows
        }
        return [results[place] for place in range(len(bins))]

    def _sorted(self, compacting: Compacting, file_bin: Bin) -> CompactionResult:
        count = max(1, ceil(file_bin.size / compacting.file_bytes))
        return CompactionResult((), tuple(reordered(self._spark, compacting, file_bin.adds, count)))


def on_session(given: Mapping[str, str]) -> CompactionRunner:
    """Return a `CompactionRunner` on a session of these settings of Spark, such as `spark.remote`,
    which starts with the first files.

    Raises, when it is called: Misconfigured, for settings of which Spark makes no session.
    """

    def compact(compacting: Compacting, bins: Sequence[Bin]) -> Sequence[CompactionResult]:
        builder = SparkSession.builder.appName("tidegate-maintain")
        for name, value in given.items():
            builder = builder.config(name, value)
        try:
            session = builder.getOrCreate()
        except PySparkException as error:
            raise Misconfigured(
                f"maintain.spark: Spark makes no session of these settings ({error}); correct them"
            ) from error
        return CompactionOnExecutors(session)(compacting, bins)

    return compact


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
