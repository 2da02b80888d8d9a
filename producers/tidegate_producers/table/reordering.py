"""Sorts the rows of files along a curve through several columns, so that files can be skipped by
any of them: Z-order, as `executeZOrderBy` and clustered tables ask for.

Each column is cut into ranges of about equally many rows. The bits of the numbers of a row's ranges
are interleaved: rows that are near in all columns are near on the curve.
"""

from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Any, Final

import orjson
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from tidegate_delta.log.actions import Add
from tidegate_delta.schema.field_paths import FieldPath
from tidegate_delta.snapshots.file_action_columns import adds_to_columns
from tidegate_producers.cached_clients import clock, store_for
from tidegate_producers.parquet.data_file_encoding import as_it_is, keeping_row_ids, layout_of
from tidegate_producers.parquet.data_file_writer import FileWriter, actions_of
from tidegate_producers.table.target_frame import (
    FILE,
    POSITION,
    ROW_ID,
    ROW_VERSION,
    quoted,
    target_frame,
)
from tidegate_producers.writing.optimize import Compacting

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
