"""Conforms rows to the table: orders and casts columns, fills missing ones with null.

The columns were checked before any row arrived (`writing.column_checks`). Rows can still violate
NOT NULL and the length of a CHAR or VARCHAR, which are checked here.
"""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tidegate_delta.errors import InvalidRequest
from tidegate_delta.schema.arrow_types import arrow_type, to_arrow
from tidegate_delta.schema.char_varchar import LengthLimit, limits
from tidegate_delta.schema.field_paths import KEY, FieldPath, dotted
from tidegate_delta.schema.types import ArrayType, DataType, MapType, StructField, StructType


def conform(batch: pa.RecordBatch | pa.Table, schema: StructType) -> pa.Table:
    """Return rows with exactly the table's columns and types.

    Raises: InvalidRequest, for a value that does not fit, or a null where the schema says NOT NULL.
    """
    index_by_name = {name.lower(): index for index, name in enumerate(batch.schema.names)}
    columns = [
        _column(batch, index_by_name.get(field.name.lower()), field) for field in schema.fields
    ]
    return pa.table(columns, schema=to_arrow(schema))


def _column(batch: pa.RecordBatch | pa.Table, index: int | None, field: StructField) -> pa.Array:
    if index is None:
        values = pa.nulls(batch.num_rows, arrow_type(field.kind))
    else:
        values = _cast(_one_chunk(batch.column(index)), field.kind, field.name)
    _check_nulls(values, field, field.name)
    for path, limit in limits(field).items():
        _check_length(_inside(values, field.kind, path), limit, dotted((field.name, *path)))
    return values


def _cast(values: pa.Array, kind: DataType, column: str) -> pa.Array:
    target = arrow_type(kind)
    if values.type == target:
        return values
    if pa.types.is_null(values.type):
        return pa.nulls(len(values), target)
    if isinstance(kind, StructType) and pa.types.is_struct(values.type):
        return _cast_struct(values, kind, column)
    if isinstance(kind, ArrayType) and _is_list(values.type):
        return _cast_list(values, kind, column)
    if isinstance(kind, MapType) and pa.types.is_map(values.type):
        return _cast_map(values, kind, column)
    try:
        return values.cast(target)
    except pa.ArrowException as error:
        raise InvalidRequest(
            f"column {column!r} has type {kind}, and a value of type {values.type} does not fit "
            f"({error}): cast it first; nothing was proposed",
            error_class="DELTA_FAILED_TO_MERGE_FIELDS",
        ) from error


def _cast_struct(values: pa.Array, kind: StructType, column: str) -> pa.Array:
    index_by_name = {field.name.lower(): index for index, field in enumerate(values.type.fields)}
    children = [
        pa.nulls(len(values), arrow_type(field.kind))
        if (index := index_by_name.get(field.name.lower())) is None
        else _cast(values.field(index), field.kind, f"{column}.{field.name}")
        for field in kind.fields
    ]
    fields = list(arrow_type(kind).fields)
    return pa.StructArray.from_arrays(children, fields=fields, mask=values.is_null())


def _cast_list(values: pa.Array, kind: ArrayType, column: str) -> pa.Array:
    is_plain = pa.types.is_list(values.type)
    plain = _unsliced(values if is_plain else values.cast(pa.list_(values.type.value_field)))
    elements = _cast(plain.values, kind.element, f"{column}.element")
    return pa.ListArray.from_arrays(
        plain.offsets, elements, type=arrow_type(kind), mask=_mask(plain)
    )


def _cast_map(values: pa.Array, kind: MapType, column: str) -> pa.Array:
    plain = _unsliced(values)
    keys = _cast(plain.keys, kind.key, f"{column}.key")
    items = _cast(plain.items, kind.value, f"{column}.value")
    return pa.MapArray.from_arrays(
        plain.offsets, keys, items, type=arrow_type(kind), mask=_mask(plain)
    )


def fitted(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return values as an Arrow type of the same shape: with its names, ids and nullability.

    The parts of a null variant become empty, since they can't be null.
    """
    if values.type == kind:
        return values
    if _is_variant(kind):
        is_null = values.is_null()
        parts = [pc.if_else(is_null, b"", values.field(part.name)) for part in kind]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=is_null)
    if pa.types.is_struct(kind) and kind.num_fields:
        children = [fitted(values.field(at), kind.field(at).type) for at in range(kind.num_fields)]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=values.is_null())
    if pa.types.is_list(kind):
        plain = _unsliced(values)
        elements = fitted(plain.values, kind.value_type)
        return pa.ListArray.from_arrays(plain.offsets, elements, type=kind, mask=_mask(plain))
    if pa.types.is_map(kind):
        plain = _unsliced(values)
        keys, items = fitted(plain.keys, kind.key_type), fitted(plain.items, kind.item_type)
        return pa.MapArray.from_arrays(plain.offsets, keys, items, type=kind, mask=_mask(plain))
    return values.cast(kind)


def _is_variant(kind: pa.DataType) -> bool:
    return (
        pa.types.is_struct(kind)
        and {part.name for part in kind} == {"metadata", "value"}
        and all(pa.types.is_binary(part.type) and not part.nullable for part in kind)
    )


def _unsliced(values: pa.Array) -> pa.Array:
    """Return the same values from offset 0: Arrow builds no list over a slice with nulls."""
    return values.take(pa.array(range(len(values)), pa.int64())) if values.offset else values


def _mask(values: pa.Array) -> pa.Array | None:
    return values.is_null() if values.null_count else None


def _check_nulls(
    values: pa.Array, field: StructField, column: str, *, in_element: bool = False
) -> None:
    if not field.nullable and values.null_count:
        raise InvalidRequest(
            f"column {column!r} is NOT NULL, and {values.null_count} of {len(values)} rows hold "
            "null there: fill or filter them; nothing was proposed",
            error_class="DELTA_NOT_NULL_CONSTRAINT_VIOLATED",
        )
    _check_inside(values, field.kind, column, in_element=in_element)


def _check_inside(values: pa.Array, kind: DataType, column: str, *, in_element: bool) -> None:
    """Check what is inside values. The rule is that of `row_constraints.NotNull`."""
    match kind:
        case StructType():
            # A null struct has null fields, but the null element of an array or map has none.
            present = values.filter(values.is_valid()) if in_element else values
            for index, field in enumerate(kind.fields):
                child = pc.struct_field(present, indices=index)
                _check_nulls(child, field, f"{column}.{field.name}", in_element=in_element)
        case ArrayType():
            element = StructField("element", kind.element, kind.contains_null)
            flat = pc.list_flatten(values)
            _check_nulls(flat, element, f"{column}.element", in_element=True)
        case MapType():
            item = StructField("value", kind.value, kind.value_contains_null)
            _check_nulls(_entries(values, 1), item, f"{column}.value", in_element=True)
        case _:
            return


def _check_length(values: pa.Array | None, limit: LengthLimit, column: str) -> None:
    if values is None or not pa.types.is_string(values.type):
        return  # the limit is older than the column's present type
    longest = pc.max(pc.utf8_length(values)).as_py() or 0
    if longest > limit.length:
        raise InvalidRequest(
            f"column {column!r} is a {limit}, and a row holds {longest} characters there: cut them "
            "first; nothing was proposed",
            error_class="DELTA_EXCEED_CHAR_VARCHAR_LIMIT",
        )


def _inside(values: pa.Array, kind: DataType, path: FieldPath) -> pa.Array | None:
    """Return the values at a path inside a column, or None; a row may hold any number of them."""
    if not path:
        return values
    head, rest = path[0], path[1:]
    match kind:
        case StructType() if head in kind.names:
            index = kind.names.index(head)
            return _inside(pc.struct_field(values, indices=index), kind.fields[index].kind, rest)
        case ArrayType():
            return _inside(pc.list_flatten(values), kind.element, rest)
        case MapType() if head == KEY:
            return _inside(_entries(values, 0), kind.key, rest)
        case MapType():
            return _inside(_entries(values, 1), kind.value, rest)
        case _:
            return None


def _entries(values: pa.Array, index: int) -> pa.Array:
    """Return the keys (0) or the values (1) of all maps."""
    entries = pa.field("entries", pa.struct([values.type.key_field, values.type.item_field]))
    return pc.struct_field(pc.list_flatten(values.cast(pa.list_(entries))), indices=index)


def _is_list(kind: pa.DataType) -> bool:
    is_ = pa.types
    return bool(is_.is_list(kind) or is_.is_large_list(kind) or is_.is_fixed_size_list(kind))


def _one_chunk(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    if isinstance(values, pa.ChunkedArray):
        chunks: Sequence[pa.Array] = values.chunks
        return chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks or [_empty(values)])
    return values


def _empty(values: pa.ChunkedArray) -> pa.Array:
    return pa.nulls(0, values.type)
