"""Delta schemas as Spark schemas."""

import pyarrow as pa
import pytest
from pyspark.sql.types import ArrayType as SparkArray
from pyspark.sql.types import CharType, StringType, VarcharType
from pyspark.sql.types import StructField as SparkField
from pyspark.sql.types import StructType as SparkSchema

from tidegate_delta.errors import UnsupportedFeature
from tidegate_delta.schema.char_varchar import LengthLimit, limits
from tidegate_delta.schema.types import (
    LONG,
    STRING,
    VARIANT,
    ArrayType,
    StructField,
    StructType,
    parse_type,
)
from tidegate_producers.datasource.spark_schema import arrow_of, from_spark, shaped, to_spark


def test_a_fields_metadata_about_the_tables_own_files_stays_with_the_table() -> None:
    about = {
        "comment": "kept",
        "delta.columnMapping.id": 1,
        "delta.columnMapping.physicalName": "c1",
        "delta.columnMapping.nested.ids": {"c1.element": 2},
        "delta.typeChanges": [{"fromType": "integer", "toType": "long"}],
        "delta.generationExpression": "y + 1",
        "delta.identity.start": 1,
        "delta.identity.step": 1,
        "delta.identity.highWaterMark": 7,
        "delta.identity.allowExplicitInsert": False,
    }
    inner = StructType((StructField("x", LONG, metadata=about),))
    schema = to_spark(StructType((StructField("a", ArrayType(inner), metadata=about),)))
    assert schema["a"].metadata == {"comment": "kept"}
    assert schema["a"].dataType.elementType["x"].metadata == {"comment": "kept"}  # type: ignore[attr-defined]  # an array


def test_a_variant_is_the_struct_of_bytes_that_spark_expects() -> None:
    schema = arrow_of(to_spark(StructType((StructField("v", VARIANT),))))
    assert {item.name for item in schema.field("v").type} == {"metadata", "value"}


def test_a_null_variant_is_handed_to_spark_though_its_parts_are_null() -> None:
    schema = arrow_of(to_spark(StructType((StructField("v", VARIANT),))))
    rows = pa.StructArray.from_arrays(
        [pa.array([b"\x01\x00\x00", None]), pa.array([b"\x0c\x01", None])],
        names=["metadata", "value"],
        mask=pa.array([False, True]),
    )
    batch = shaped([rows], schema)
    batch.validate(full=True)
    assert batch.schema == schema
    assert batch["v"].to_pylist() == [{"metadata": b"\x01\x00\x00", "value": b"\x0c\x01"}, None]


def test_shapes_on_earth_are_not_handed_to_spark() -> None:
    shapes = ArrayType(parse_type("geometry(SRID:0)"))
    with pytest.raises(UnsupportedFeature, match="'a'") as refused:
        to_spark(StructType((StructField("a", shapes),)))
    assert refused.value.feature == "geospatial"


def test_nanoseconds_are_not_handed_to_spark() -> None:
    with pytest.raises(UnsupportedFeature, match="timestamp_nanos") as refused:
        to_spark(StructType((StructField("a", parse_type("timestamp_nanos")),)))
    assert refused.value.feature == "timestampNanos"


def test_a_char_or_varchar_is_a_string_with_a_limit() -> None:
    inner = SparkSchema([SparkField("b", SparkArray(VarcharType(7)))])
    given = SparkSchema([SparkField("a", CharType(3)), SparkField("s", inner)])
    schema = from_spark(given)
    assert schema.fields[0].kind == STRING
    assert limits(schema.fields[0]) == {(): LengthLimit(3, is_char=True)}
    assert limits(schema.fields[1]) == {("b", "element"): LengthLimit(7)}
    assert to_spark(schema)["a"].dataType == StringType()
