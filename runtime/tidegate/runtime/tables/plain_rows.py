"""A few rows as plain values, for people and for JSON."""

from collections.abc import Iterable
from typing import Any

import pyarrow as pa


def first_rows(batches: Iterable[pa.RecordBatch], limit: int) -> list[tuple[Any, ...]]:
    """Return the first `limit` rows, and read no further batches.

    Dates and timestamps are returned as text, because Python's end with the year 9999.
    """
    found: list[tuple[Any, ...]] = []
    for batch in batches:
        part = batch.slice(0, limit - len(found))
        found += zip(*map(_values, part.columns), strict=True)
        if len(found) >= limit:
            break
    return found


def _values(column: pa.Array) -> list[Any]:
    is_moment = pa.types.is_temporal(column.type)
    values: list[Any] = (column.cast(pa.string()) if is_moment else column).to_pylist()
    return values
