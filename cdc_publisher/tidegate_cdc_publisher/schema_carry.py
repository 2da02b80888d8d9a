"""Carries Arrow rows from one schema of a table into the next, as its readers see them after it."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidegate_cdc_publisher.json_rows import map_parts
from tidegate_messages.schema_change import Column


def carried_table(rows: pa.Table, columns: Sequence[Column], schema: pa.Schema) -> pa.Table:
    """Return rows of the schema before a change as rows of `schema`, the one after it.

    Law: as texts they are what `carried_row` makes of the texts before
    """
    arrays = [
        _carried(_array(rows, column), column, field.type, rows.num_rows)
        for column, field in zip(columns, schema, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def _array(rows: pa.Table, column: Column) -> pa.Array | None:
    if column.before is None:
        return None
    chunked = rows.column(column.before)
    return pa.concat_arrays(chunked.chunks) if chunked.num_chunks else pa.array([], chunked.type)


def _carried(array: pa.Array | None, column: Column, kind: pa.DataType, rows: int) -> pa.Array:
    if array is None:
        return pa.nulls(rows, kind)
    inside = (column.fields, column.element, column.key, column.value)
    if all(part is None for part in inside):
        return array if array.type == kind else array.cast(kind)
    if column.fields is not None:
        return _struct(array, column.fields, kind)
    if column.element is not None:
        offsets = _offsets(array)
        values = pc.list_flatten(array)
        elements = _carried(values, column.element, kind.value_type, len(values))
        return pa.ListArray.from_arrays(offsets, elements, type=kind, mask=pc.is_null(array))
    return _map(array, column, kind)


def _struct(array: pa.Array, fields: Sequence[Column], kind: pa.DataType) -> pa.Array:
    flat = dict(zip([field.name for field in array.type.fields], array.flatten(), strict=True))
    children = [
        _carried(
            None if column.before is None else flat[column.before], column, field.type, len(array)
        )
        for column, field in zip(fields, kind.fields, strict=True)
    ]
    return pa.StructArray.from_arrays(children, fields=list(kind.fields), mask=pc.is_null(array))


def _map(array: pa.Array, column: Column, kind: pa.DataType) -> pa.Array:
    assert column.key is not None, "a map"
    assert column.value is not None, "a map"
    offsets, keys, values = map_parts(array)
    entry_columns: list[Any] = [
        _carried(keys, column.key, kind.key_type, len(keys)),
        _carried(values, column.value, kind.item_type, len(values)),
    ]
    return pa.MapArray.from_arrays(offsets, *entry_columns, type=kind, mask=pc.is_null(array))


def _offsets(lists: pa.Array) -> pa.Array:
    lengths = pc.fill_null(pc.list_value_length(lists), 0).cast(pa.int32())
    return pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths)])
