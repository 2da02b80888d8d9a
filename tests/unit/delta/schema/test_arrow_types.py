import pyarrow as pa
import pytest

from tidegate_delta.schema import types
from tidegate_delta.schema.arrow_types import from_arrow, to_arrow
from tidegate_delta.schema.types import (
    ArrayType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    parse_type,
)

ONE_WAY = {"variant", *(kind.name for kind in types.NANOS)}
EVERY = StructType(
    (
        *(StructField(name, PrimitiveType(name)) for name in sorted(types.PRIMITIVES - ONE_WAY)),
        StructField("amount", DecimalType(12, 2), nullable=False),
        StructField("list", ArrayType(types.INTEGER, contains_null=False)),
        StructField("map", MapType(types.STRING, types.DOUBLE, value_contains_null=False)),
        StructField("struct", StructType((StructField("x", types.DATE, nullable=False),))),
    )
)


def test_every_type_survives_arrow() -> None:
    assert from_arrow(to_arrow(EVERY)) == EVERY


def test_a_variant_is_a_struct_of_bytes_and_such_a_struct_is_no_variant() -> None:
    arrow = to_arrow(StructType((StructField("v", types.VARIANT),)))
    assert str(arrow.field("v").type) == "struct<metadata: binary, value: binary>"
    assert str(from_arrow(arrow)) == "struct<v:struct<metadata:binary,value:binary>>"


def test_shapes_on_earth_are_bytes() -> None:
    fields = [StructField(kind, parse_type(kind)) for kind in ("geometry(SRID:0)", "geography")]
    assert to_arrow(StructType(tuple(fields))).types == [pa.binary(), pa.binary()]


def test_timestamps_are_in_microseconds() -> None:
    schema = to_arrow(EVERY)
    assert schema.field("timestamp").type == pa.timestamp("us", tz="UTC")
    assert schema.field("timestamp_ntz").type == pa.timestamp("us")


def test_nanoseconds_are_kept_where_the_type_has_them() -> None:
    fields = [StructField(kind.name, kind) for kind in types.NANOS]
    arrow = to_arrow(StructType(tuple(fields)))
    assert arrow.types == [pa.timestamp("ns", tz="UTC"), pa.timestamp("ns")]
    assert [item.kind for item in from_arrow(arrow)] == [types.TIMESTAMP, types.TIMESTAMP_NTZ]


@pytest.mark.parametrize(
    ("arrow", "delta"),
    [
        (pa.large_string(), types.STRING),
        (pa.dictionary(pa.int32(), pa.string()), types.STRING),
        (pa.timestamp("ns", tz="Europe/Rome"), types.TIMESTAMP),
        (pa.timestamp("s"), types.TIMESTAMP_NTZ),
        (pa.date64(), types.DATE),
        (pa.binary(16), types.BINARY),
        (pa.large_list(pa.int8()), ArrayType(types.BYTE)),
        (pa.decimal256(38, 2), DecimalType(38, 2)),
    ],
)
def test_arrow_has_more_spellings_than_delta(arrow: pa.DataType, delta: types.DataType) -> None:
    assert from_arrow(pa.schema([pa.field("x", arrow)])).fields[0].kind == delta


@pytest.mark.parametrize("arrow", [pa.uint8(), pa.time64("us"), pa.decimal256(40, 2), pa.float16()])
def test_a_type_without_a_home_is_refused_with_its_column(arrow: pa.DataType) -> None:
    schema = pa.schema([pa.field("s", pa.struct([pa.field("x", arrow)]))])
    with pytest.raises(ValueError, match=r"'s\.x'"):
        from_arrow(schema)
