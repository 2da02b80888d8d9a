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


def lacks_values(rows: pa.Table, schema: pa.Schema) -> pa.Array:
    """Return a mask of the rows that have a null where the columns of a schema allow none."""
    mask = pa.repeat(pa.scalar(False, pa.bool_()), rows.num_rows)
    for field in schema:
        if field.name in rows.column_names and _requires(field):
            mask = pc.or_(mask, _lacks(rows.column(field.name).combine_chunks(), field))
    return mask


def _requires(field: pa.Field) -> bool:
    """Return whether a field, or anything in it, may not be null."""
    kind = field.type
    inside = [kind.field(place) for place in range(kind.num_fields)]
    if pa.types.is_map(kind):
        inside = [kind.item_field]
    return not field.nullable or any(map(_requires, inside))


def _lacks(array: pa.Array, field: pa.Field) -> pa.Array:
    """Return a mask of the values that are null, or have a null inside, where none may be."""
    absent, kind = pc.is_null(array), field.type
    mask = pc.and_(absent, not field.nullable)
    inside: list[pa.Array] = []
    if pa.types.is_struct(kind):
        inside = [_lacks(*child) for child in zip(array.flatten(), kind.fields, strict=True)]
    elif pa.types.is_list(kind):
        inside = [_any_of(_offsets(array), _lacks(pc.list_flatten(array), kind.value_field))]
    elif pa.types.is_map(kind):
        offsets, _, values = map_parts(array)
        inside = [_any_of(offsets, _lacks(values, kind.item_field))]
    for lacking in inside:
        mask = pc.or_(mask, pc.and_not(lacking, absent))
    return mask


def _any_of(offsets: pa.Array, mask: pa.Array) -> pa.Array:
    """Return whether any value of each list is in a mask of the values of all."""
    if not pc.any(mask, min_count=0).as_py():
        return pa.repeat(pa.scalar(False, pa.bool_()), len(offsets) - 1)
    lists = pa.ListArray.from_arrays(offsets.cast(pa.int32()), mask)
    return pa.array([any(values) for values in lists.to_pylist()], pa.bool_())


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
