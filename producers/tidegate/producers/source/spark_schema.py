"""Spark's schema and Delta's: one JSON, so the text is the bridge."""

import json
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType as SparkSchema

from tidegate.delta.schema.types import StructType, format_schema, parse_schema


def from_spark(schema: SparkSchema) -> StructType:
    """Return Delta's schema for Spark's. Raises: UnsupportedFeature for a type we do not know."""
    return parse_schema(schema.json())


def to_spark(schema: StructType) -> SparkSchema:
    """Return Spark's schema for Delta's."""
    plain: dict[str, Any] = json.loads(format_schema(schema))
    return SparkSchema.fromJson(plain)


def arrow_of(schema: SparkSchema) -> pa.Schema:
    """Return the Arrow schema that Spark compares what a reader yields with, field by field."""
    return to_arrow_schema(schema, timezone="UTC")
