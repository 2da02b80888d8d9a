"""The columns of a data file: names, field ids and shapes, as other engines expect them."""

from typing import Final

import pyarrow as pa

from tidegate_delta.schema.arrow_types import arrow_type
from tidegate_delta.schema.column_mapping import ColumnMappingMode, field_id, physical_name
from tidegate_delta.schema.types import (
    VARIANT,
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
)

_FIELD_ID: Final = "PARQUET:field_id"
_VARIANT: Final = pa.struct(
    [pa.field(part.name, part.type, nullable=False) for part in arrow_type(VARIANT)]
)
"""Spark requires that neither part of a variant can be null."""


def parquet_schema(schema: StructType, mode: ColumnMappingMode) -> pa.Schema:
    """Return the Arrow schema by which a file with these columns is written.

    Under column mapping each field has its physical name and its id, in both modes, as in files of
    delta-spark.
    """
    return pa.schema([_field(field, mode) for field in schema.fields])


def _field(field: StructField, mode: ColumnMappingMode) -> pa.Field:
    number = None if mode is ColumnMappingMode.NONE else field_id(field)
    metadata = None if number is None else {_FIELD_ID: str(number)}
    kind = _type(field.kind, mode)
    nullable = field.nullable or pa.types.is_null(kind)
    return pa.field(physical_name(field, mode), kind, nullable, metadata)


def _type(kind: DataType, mode: ColumnMappingMode) -> pa.DataType:
    match kind:
        case StructType():
            return pa.struct([_field(field, mode) for field in kind.fields])
        case ArrayType():
            element = StructField("element", kind.element, kind.contains_null)
            return pa.list_(_field(element, mode))
        case MapType():
            item = StructField("value", kind.value, kind.value_contains_null)
            return pa.map_(_type(kind.key, mode), _field(item, mode))
        case _:
            return _VARIANT if kind == VARIANT else arrow_type(kind)
