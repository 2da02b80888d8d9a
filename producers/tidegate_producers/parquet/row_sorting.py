"""Sorts the rows of files along a curve through some columns, in this process.

Each column's values become the numbers of ranges of about equally many rows. The bits of a row's
numbers are interleaved: rows that are near in all columns are near on the curve.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tidegate_delta.log.actions import Add, Metadata
from tidegate_delta.schema.field_paths import FieldPath
from tidegate_producers.parquet.data_file_encoding import as_it_is, keeping_row_ids, layout_of
from tidegate_producers.parquet.data_file_writer import FileWriter
from tidegate_producers.parquet.file_rewrite import UNBOUNDED, CompactionResult, kept_rows
from tidegate_runtime.clock import Clock
from tidegate_runtime.storage.log_store import LogStore

BITS: Final = 8
"""Bits of a column's range on the curve: 256 ranges, or fewer with many columns."""

CURVE_BITS: Final = 62


@dataclass(frozen=True)
class Sorter:
    """Sorts files of one table by some columns. The rows of all files are in memory at once."""

    store: LogStore
    metadata: Metadata
    order: Sequence[FieldPath]
    clock: Clock

    def sort(self, files: Sequence[Mapping[str, Any]], count: int) -> CompactionResult:
        """Write the rows of some files of one partition, given as rows of ADD_SCHEMA, into `count`
        files of about as many rows.

        Raises: BrokenLog (`DataFileMissing`, `DeletionVectorMissing`); Unavailable.
        """
        layout = keeping_row_ids(as_it_is(layout_of(self.metadata)), self.metadata)
        parts = [part for file in files for part in kept_rows(*self._of(file), layout)]
        if not parts:
            return CompactionResult((), ())
        rows = pa.concat_tables(parts)
        ordered = rows.take(pc.sort_indices(curve_of(rows, self.order)))
        adds: list[Add] = []
        for part in _cut(ordered, count):
            writer = FileWriter(self.store, layout, self.clock, buffered_bytes_max=UNBOUNDED)
            writer.write(part)
            adds += writer.finish()
        return CompactionResult((), tuple(adds))

    def _of(self, file: Mapping[str, Any]) -> tuple[LogStore, Mapping[str, Any], Metadata]:
        return self.store, file, self.metadata


def curve_of(rows: pa.Table, paths: Sequence[FieldPath]) -> pa.Array:
    """Return where on the curve through some columns each row lies; nulls come last."""
    bits = min(BITS, CURVE_BITS // len(paths))
    if len(paths) == 1:
        return _ranks(rows, paths[0])
    ranges = [_ranges(rows, path, 1 << bits) for path in paths]
    parts = [
        pc.shift_left(pc.bit_wise_and(pc.shift_right(numbers, bit), 1), bit * len(paths) + index)
        for bit in range(bits)
        for index, numbers in enumerate(ranges)
    ]
    return reduce(pc.bit_wise_or, parts)


def _ranges(rows: pa.Table, path: FieldPath, count: int) -> pa.Array:
    """Return the number of the range, of `count`, in which each row's value of a column lies."""
    return pc.divide(pc.multiply(_ranks(rows, path), count), max(1, rows.num_rows))


def _ranks(rows: pa.Table, path: FieldPath) -> pa.Array:
    """Return of each row how many have a lower value in a column."""
    column = rows[path[0]]
    for name in path[1:]:
        column = pc.struct_field(column, name)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    ranks = pc.rank(column, "ascending", tiebreaker="min")
    return pc.subtract(ranks.cast(pa.int64()), 1)


def _cut(rows: pa.Table, count: int) -> Iterator[pa.Table]:
    size = max(1, -(-rows.num_rows // count))
    for start in range(0, rows.num_rows, size):
        yield rows.slice(start, size)
