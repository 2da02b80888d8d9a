"""Chunked Arrow columns: join, slice and compare them without copying where possible.

Spec: "Action Reconciliation"
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tidegate_delta.value_limits import LONG_MAX

_STRING: Final = pa.string()
_HALF: Final = 32
_LOW: Final = (1 << _HALF) - 1

SHARED_NULLS: Final = 65_536
"""The most nulls of a type that are allocated; longer columns of nulls repeat this chunk.

Spec: "Action Reconciliation"
"""


def missing(count: int, kind: pa.DataType) -> pa.ChunkedArray:
    """Return a column of nulls; all such columns of a type share their memory."""
    full_pieces, rest = divmod(count, SHARED_NULLS)
    pieces = [_nulls(SHARED_NULLS, kind)] * full_pieces
    if rest:
        pieces.append(_nulls(1 << (rest - 1).bit_length(), kind).slice(0, rest))
    return pa.chunked_array(pieces, kind)


@lru_cache(maxsize=256)
def _nulls(count: int, kind: pa.DataType) -> pa.Array:
    return pa.nulls(count, kind)


def total(counts: pa.ChunkedArray) -> int | None:
    """Return the sum of the counts, or None if it exceeds a long.

    Null and negative counts are ignored.
    Spec: "Version Checksum File Schema"
    """
    known = pc.max_element_wise(counts, pa.scalar(0, pa.int64()))
    # A 64-bit sum wraps around without an error; the sum as a double is exact enough to detect it.
    if (pc.sum(known.cast(pa.float64(), safe=False)).as_py() or 0) >= LONG_MAX:
        return None
    return int(pc.sum(known).as_py() or 0)


def exact_sum(values: pa.ChunkedArray) -> int:
    """Return the sum of the values that are above 0, of any size.

    Spec: "Version Checksum File Schema"
    """
    known = pc.max_element_wise(values, pa.scalar(0, pa.int64()))
    # A sum of 64 bits wraps around without an error, so halves of the numbers are summed.
    high = pc.sum(pc.shift_right(known, _HALF)).as_py() or 0
    low = pc.sum(pc.bit_wise_and(known, _LOW)).as_py() or 0
    return int((high << _HALF) + low)


def stacked(tables: Sequence[pa.Table]) -> pa.Table:
    """Return the tables' rows one after the other; a column that a table lacks is null in its
    rows.
    """
    filled = [table for table in tables if table.num_rows] or list(tables[:1])
    if all(table.schema.equals(filled[0].schema) for table in filled):
        return pa.concat_tables(filled)
    return pa.concat_tables(filled, promote_options="default")


def joined(arrays: Sequence[pa.ChunkedArray], kind: pa.DataType = _STRING) -> pa.ChunkedArray:
    """Return the values of arrays of one type, one after the other."""
    return pa.chunked_array([c for array in arrays for c in array.chunks if len(c)], kind)


def flat(array: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Return the values of an array as one chunk."""
    if not isinstance(array, pa.ChunkedArray):
        return array
    # Arrow would copy a single chunk, too.
    return array.chunk(0) if array.num_chunks == 1 else array.combine_chunks()


def cut(array: pa.ChunkedArray, counts: Sequence[int]) -> list[pa.ChunkedArray]:
    """Return consecutive slices of an array, with the given number of values each."""
    starts = accumulate(counts, initial=0)
    return [array.slice(start, count) for start, count in zip(starts, counts, strict=False)]


def first_seen(values: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """Return a mask of the values that occur for the first time, or None where all of them do."""
    # All chunks share one dictionary, that of the last chunk.
    encoded = values.dictionary_encode()
    if not len(values) or len(encoded.chunks[-1].dictionary) == len(values):
        return None
    indices = pa.chunked_array([chunk.indices for chunk in encoded.chunks])
    # Codes are numbered by first occurrence, so a first occurrence has a code above all before it.
    highest = pc.cumulative_max(indices)
    before = joined(
        [pa.chunked_array([[-1]], highest.type), highest.slice(0, len(highest) - 1)], highest.type
    )
    return pc.greater(indices, before)
