"""Rows of file actions, as JSON spells them, into columns: a list a column, no object a row."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from tidegate.delta.errors import BrokenLog

Row = Mapping[str, Any]


def to_columns(rows: Sequence[Row], schema: pa.Schema, where: str) -> pa.Table:
    """Return decoded file actions as a table of ADD_SCHEMA or REMOVE_SCHEMA.

    Raises: BrokenLog (`CorruptCommit`) for a missing path or a value of the wrong type.
    Spec: "Add File and Remove File"
    """
    if not rows:
        return schema.empty_table()
    try:
        return pa.Table.from_arrays([_column(rows, one) for one in schema], schema=schema)
    except (pa.ArrowException, AttributeError, TypeError, OverflowError) as error:
        raise BrokenLog(
            f"{where} holds a malformed file action ({error}): restore it from a backup, or the "
            "table to an earlier version",
            error_class="CorruptCommit",
        ) from error


def _column(rows: Sequence[Row], one: pa.Field) -> pa.Array:
    values = [row.get(one.name) for row in rows]
    if pa.types.is_map(one.type):
        values = [None if value is None else list(value.items()) for value in values]
    array = pa.array(values, one.type)
    if one.name == "path" and array.null_count:
        raise TypeError("a file action without a path")
    return array
