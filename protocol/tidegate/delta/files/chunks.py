"""Columns in chunks: joined, cut and compared without a copy where none is needed."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

_STRING: Final = pa.string()


def stacked(tables: Sequence[pa.Table]) -> pa.Table:
    """Return the rows of some tables, one after the other; a column that one lacks is null there.

    Spec: "Action Reconciliation"
    """
    filled = [table for table in tables if table.num_rows] or list(tables[:1])
    if all(table.schema.equals(filled[0].schema) for table in filled):
        return pa.concat_tables(filled)
    return pa.concat_tables(filled, promote_options="default")


def joined(arrays: Sequence[pa.ChunkedArray], kind: pa.DataType = _STRING) -> pa.ChunkedArray:
    """Return the values of some arrays of one type, one after the other.

    Spec: "Action Reconciliation"
    """
    return pa.chunked_array([c for array in arrays for c in array.chunks if len(c)], kind)


def flat(array: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Return the values of an array in one piece.

    Spec: "Action Reconciliation"
    """
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def cut(array: pa.ChunkedArray | pa.Array, counts: Sequence[int]) -> list[pa.ChunkedArray]:
    """Return consecutive slices of an array, so many values each.

    Spec: "Action Reconciliation"
    """
    whole = pa.chunked_array([flat(array)], array.type)
    starts = accumulate(counts, initial=0)
    return [whole.slice(start, count) for start, count in zip(starts, counts, strict=False)]


def first_seen(found: pa.ChunkedArray) -> pa.Array | None:
    """Return which values are there for the first time, or None where all of them are.

    Spec: "Action Reconciliation"
    """
    encoded = flat(found).dictionary_encode()
    if len(encoded.dictionary) == len(found):
        return None
    # Codes are given in the order of first sight, so a first sight is a code above all before it.
    highest = pc.cumulative_max(encoded.indices)
    before = pa.concat_arrays([pa.array([-1], highest.type), highest.slice(0, len(highest) - 1)])
    return pc.greater(encoded.indices, before)
