"""Delta types <-> Arrow types: the shape of rows in memory.

Spec: "Delta Data Type to Parquet Type Mappings"
"""

from typing import Final

import pyarrow as pa

from tidegate_delta.schema import types
from tidegate_delta.schema.types import (
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
)

_PLAIN: Final = {
    types.STRING: pa.string(),
    types.LONG: pa.int64(),
    types.INTEGER: pa.int32(),
    types.SHORT: pa.int16(),
    types.BYTE: pa.int8(),
    types.FLOAT: pa.float32(),
    types.DOUBLE: pa.float64(),
    types.BOOLEAN: pa.bool_(),
    types.BINARY: pa.binary(),
    types.DATE: pa.date32(),
    types.TIMESTAMP: pa.timestamp("us", tz="UTC"),
    types.TIMESTAMP_NTZ: pa.timestamp("us"),
    types.NANOS[0]: pa.timestamp("ns", tz="UTC"),
    types.NANOS[1]: pa.timestamp("ns"),
    types.VOID: pa.null(),
    types.VARIANT: pa.struct([pa.field("metadata", pa.binary()), pa.field("value", pa.binary())]),
}

_ONE_WAY: Final = (types.VARIANT, *types.NANOS)
"""Types that `from_arrow` never returns."""

_BACK: Final = {
    **{arrow: delta for delta, arrow in _PLAIN.items() if delta not in _ONE_WAY},
    pa.large_string(): types.STRING,
    pa.string_view(): types.STRING,
    pa.large_binary(): types.BINARY,
    pa.binary_view(): types.BINARY,
    pa.date64(): types.DATE,
}


def to_arrow(schema: StructType) -> pa.Schema:
    """Return the Arrow schema of a table's rows.

    Shape: timestamps in microseconds, or nanoseconds where their type says so, in UTC or without a
    zone; decimals of 128 bits; a variant as a struct of its `metadata` and its `value`, both
    binary; geospatial values as Well-Known Binary.
    """
    return pa.schema(
        [_field(field.name, field.kind, nullable=field.nullable) for field in schema.fields]
    )


def arrow_type(kind: DataType) -> pa.DataType:
    """Return the Arrow type of a Delta type."""
    match kind:
        case PrimitiveType():
            return pa.binary() if types.is_geospatial(kind) else _PLAIN[kind]
        case DecimalType():
            return pa.decimal128(kind.precision, kind.scale)
        case ArrayType():
            return pa.list_(_field("element", kind.element, nullable=kind.contains_null))
        case MapType():
            item = _field("value", kind.value, nullable=kind.value_contains_null)
            return pa.map_(arrow_type(kind.key), item)
        case StructType():
            return pa.struct(
                [_field(field.name, field.kind, nullable=field.nullable) for field in kind.fields]
            )


def is_nanos(arrow: pa.DataType) -> bool:
    """Return whether an Arrow type is a timestamp in nanoseconds.

    Spec: "Delta Data Type to Parquet Type Mappings", except that it does not list these yet.
    """
    return bool(pa.types.is_timestamp(arrow) and arrow.unit == "ns")


def from_arrow(schema: pa.Schema) -> StructType:
    """Return the table schema that holds rows of an Arrow schema.

    Raises: ValueError for an Arrow type without a Delta type, naming the column.
    """
    return StructType(tuple(_delta_field(field, field.name) for field in schema))


def _field(name: str, kind: DataType, *, nullable: bool) -> pa.Field:
    """Arrow requires a column of the null type to be nullable."""
    return pa.field(name, arrow_type(kind), nullable or kind == types.VOID)


def _delta_field(field: pa.Field, path: str) -> StructField:
    return StructField(field.name, _delta_type(field.type, path), field.nullable)


def _delta_type(arrow: pa.DataType, path: str) -> DataType:
    arrow_types = pa.types
    if arrow in _BACK:
        return _BACK[arrow]
    if arrow_types.is_dictionary(arrow) or arrow_types.is_run_end_encoded(arrow):
        return _delta_type(arrow.value_type, path)
    if isinstance(arrow, pa.BaseExtensionType):
        # Text in JSON, and UUIDs, are annotations of what is stored.
        return _delta_type(arrow.storage_type, path)
    if arrow_types.is_timestamp(arrow):
        return types.TIMESTAMP if arrow.tz else types.TIMESTAMP_NTZ
    if arrow_types.is_decimal(arrow) and arrow.precision <= types.DECIMAL_PRECISION_MAX:
        return DecimalType(arrow.precision, arrow.scale)
    if arrow_types.is_fixed_size_binary(arrow):
        return types.BINARY
    if arrow_types.is_struct(arrow):
        return StructType(
            tuple(_delta_field(field, f"{path}.{field.name}") for field in arrow.fields)
        )
    if arrow_types.is_map(arrow):
        key = _delta_type(arrow.key_type, f"{path}.key")
        value = _delta_type(arrow.item_type, f"{path}.value")
        return MapType(key, value, arrow.item_field.nullable)
    if _is_list(arrow):
        element = _delta_type(arrow.value_type, f"{path}.element")
        return ArrayType(element, arrow.value_field.nullable)
    raise ValueError(
        f"column {path!r} has the Arrow type {arrow}, which Delta has no type for; "
        "cast it to a signed integer, a string or another Delta type first"
    )


def _is_list(arrow: pa.DataType) -> bool:
    arrow_types = pa.types
    return bool(
        arrow_types.is_list(arrow)
        or arrow_types.is_large_list(arrow)
        or arrow_types.is_fixed_size_list(arrow)
        or arrow_types.is_list_view(arrow)
        or arrow_types.is_large_list_view(arrow)
    )
