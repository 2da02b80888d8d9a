"""Spark's schema and Delta's: one JSON, so the text is the bridge."""

import json
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType as SparkSchema

from tidegate.delta.errors import UnsupportedFeature
from tidegate.delta.schema.mapping import FIELD_ID, NESTED_IDS, PHYSICAL_NAME
from tidegate.delta.schema.types import (
    StructType,
    format_schema,
    holds,
    is_geospatial,
    parse_schema,
)
from tidegate.delta.schema.widening import TYPE_CHANGES

_OF_THE_TABLE: Final = frozenset({PHYSICAL_NAME, FIELD_ID, NESTED_IDS, TYPE_CHANGES})
"""What a field's metadata says of the table's own files, and not of the rows."""


def from_spark(schema: SparkSchema) -> StructType:
    """Return Delta's schema for Spark's. Raises: UnsupportedFeature for a type we do not know."""
    return parse_schema(schema.json())


def to_spark(schema: StructType) -> SparkSchema:
    """Return Spark's schema for Delta's.

    Raises: UnsupportedFeature for a column whose rows Spark would not take from us.
    """
    for one in schema:
        if holds(one.kind, is_geospatial):
            raise UnsupportedFeature(
                f"column {one.name!r} is of type {one.kind}, which this release does not hand to "
                "Spark: read the table with format('delta')",
                feature="geospatial",
            )
    plain: dict[str, Any] = json.loads(format_schema(schema), object_hook=_of_rows)
    return SparkSchema.fromJson(plain)


def _of_rows(plain: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in plain.items() if key not in _OF_THE_TABLE}


def arrow_of(schema: SparkSchema) -> pa.Schema:
    """Return the Arrow schema that Spark compares what a reader yields with, field by field."""
    return to_arrow_schema(schema, timezone="UTC")
