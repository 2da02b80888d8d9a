"""Converts between Spark's schemas and Delta's, which share one JSON form."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType as SparkArray
from pyspark.sql.types import CharType, StringType, VarcharType
from pyspark.sql.types import DataType as SparkType
from pyspark.sql.types import MapType as SparkMap
from pyspark.sql.types import StructField as SparkField
from pyspark.sql.types import StructType as SparkSchema

from tidegate_delta.constraints.generated_columns import EXPRESSION
from tidegate_delta.constraints.identity_columns import EXPLICIT, MARK, START, STEP
from tidegate_delta.errors import InvalidRequest, UnsupportedFeature
from tidegate_delta.schema.char_varchar import TYPE_STRING
from tidegate_delta.schema.column_mapping import FIELD_ID, NESTED_IDS, PHYSICAL_NAME
from tidegate_delta.schema.type_widening import TYPE_CHANGES
from tidegate_delta.schema.types import (
    NANOS,
    DataType,
    StructType,
    format_schema,
    holds,
    is_geospatial,
    parse_schema,
)
from tidegate_producers.parquet.row_conformance import fitted

_OF_THE_TABLE: Final = frozenset(
    {PHYSICAL_NAME, FIELD_ID, NESTED_IDS, TYPE_CHANGES, EXPRESSION, START, STEP, MARK, EXPLICIT}
)
"""Metadata keys of a field that concern the table's files, or those who write to it.

They are hidden from DataFrames, of which another table may be made.
"""

_FOREIGN: Final[Mapping[str, Callable[[DataType], bool]]] = {
    "geospatial": is_geospatial,
    "timestampNanos": lambda kind: kind in NANOS,
}
"""Types that Spark can't receive from a Python data source, by table feature."""


def from_spark(schema: SparkSchema) -> StructType:
    """Return Delta's schema for Spark's; a CHAR or VARCHAR is a string with a limit, as in Spark.

    Raises: UnsupportedFeature for a type we do not know.
    """
    return parse_schema(SparkSchema([_limited(field) for field in schema.fields]).json())


def type_of(text: str, column: str) -> SparkType:
    """Return the type that a text names, such as `decimal(10,2)`.

    Raises: InvalidRequest, naming the column.
    """
    try:
        return SparkType.fromDDL(text)
    except PySparkException as error:
        raise InvalidRequest(
            f"column {column!r}: {text!r} is no type of Spark SQL: write one such as int, "
            "decimal(10,2) or array<string>; nothing was proposed",
            error_class="UNSUPPORTED_DATATYPE",
        ) from error


def _limited(field: SparkField) -> SparkField:
    kind = _without_limits(field.dataType)
    if kind == field.dataType:
        return field
    metadata = {**(field.metadata or {}), TYPE_STRING: field.dataType.simpleString()}
    return SparkField(field.name, kind, field.nullable, metadata)


def _without_limits(kind: SparkType) -> SparkType:
    match kind:
        case CharType() | VarcharType():
            return StringType()
        case SparkArray():
            return SparkArray(_without_limits(kind.elementType), kind.containsNull)
        case SparkMap():
            key, value = _without_limits(kind.keyType), _without_limits(kind.valueType)
            return SparkMap(key, value, kind.valueContainsNull)
        case SparkSchema():
            inner = (
                SparkField(
                    field.name, _without_limits(field.dataType), field.nullable, field.metadata
                )
                for field in kind.fields
            )
            return SparkSchema(list(inner))
        case _:
            return kind


def to_spark(schema: StructType) -> SparkSchema:
    """Return Spark's schema for Delta's.

    Raises: UnsupportedFeature, for a column type that Spark does not take from a Python source.
    """
    for column in schema:
        for feature, is_foreign in _FOREIGN.items():
            if holds(column.kind, is_foreign):
                raise UnsupportedFeature(
                    f"column {column.name!r} is of type {column.kind}, which this release does not "
                    "hand to Spark: read the table with another engine",
                    feature=feature,
                )
    plain: dict[str, Any] = json.loads(format_schema(schema), object_hook=_of_rows)
    return SparkSchema.fromJson(plain)


def _of_rows(plain: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in plain.items() if key not in _OF_THE_TABLE}


def arrow_of(schema: SparkSchema) -> pa.Schema:
    """Return the Arrow schema that a reader's batches must have: Spark compares field by field."""
    return to_arrow_schema(schema, timezone="UTC")


def shaped(columns: Sequence[pa.Array], wanted: pa.Schema) -> pa.RecordBatch:
    """Return rows in exactly the types of `arrow_of`."""
    fitting = [fitted(column, field.type) for column, field in zip(columns, wanted, strict=True)]
    return pa.RecordBatch.from_arrays(fitting, schema=wanted)
