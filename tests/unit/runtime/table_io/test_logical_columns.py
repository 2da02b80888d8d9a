import uuid
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tests.unit.delta.schema.variant_values import decoded
from tidegate_delta.schema import variant_encoding
from tidegate_delta.schema.arrow_types import arrow_type
from tidegate_delta.schema.column_mapping import ColumnMappingMode
from tidegate_delta.schema.types import (
    DATE,
    DOUBLE,
    INTEGER,
    LONG,
    NANOS,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VARIANT,
    VOID,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    StructField,
    StructType,
)
from tidegate_delta.schema.variant_encoding import Dictionary
from tidegate_runtime.table_io.logical_columns import WrongType, conform, find_name, sources_of

POINT = StructType((StructField("y", STRING), StructField("x", LONG)))


def test_a_name_is_found_exactly_or_else_in_another_case_if_only_one_is_there() -> None:
    assert find_name(["A", "a"], "a") == "a"
    assert find_name(["A", "b"], "a") == "A"
    assert find_name(["A", "aA", "AA"], "aa") is None
    assert find_name([], "a") is None


def test_slices_of_nested_arrays_keep_their_own_rows() -> None:
    lists = pa.array([[1], None, [2, 3], []], pa.list_(pa.int32())).slice(1, 3)
    assert conform(lists, ArrayType(LONG)).to_pylist() == [None, [2, 3], []]
    kind = pa.map_(pa.string(), pa.int32())
    maps = pa.array([[("a", 1)], None, [("b", 2)]], kind).slice(1, 2)
    assert conform(maps, MapType(STRING, LONG)).to_pylist() == [None, [("b", 2)]]
    structs = pa.array([{"x": 1}, None, {"x": 3}], pa.struct({"x": pa.int32()})).slice(1, 2)
    assert conform(structs, POINT).to_pylist() == [None, {"y": None, "x": 3}]


def test_every_kind_of_list_becomes_a_list() -> None:
    for kind in (pa.large_list(pa.int32()), pa.list_(pa.int32(), 1)):
        array = pa.array([[1], [2]], kind)
        assert conform(array, ArrayType(LONG)).to_pylist() == [[1], [2]]


def test_numbers_widen() -> None:
    narrow = pa.array([1, None], pa.int8())
    assert conform(narrow, LONG).to_pylist() == [1, None]
    assert conform(narrow, DOUBLE).to_pylist() == [1.0, None]
    assert str(conform(narrow, DecimalType(5, 1))[0].as_py()) == "1.0"


def test_nanoseconds_are_kept_or_cut_as_the_columns_type_requires() -> None:
    fine = pa.array([1_999], pa.timestamp("ns", "UTC"))
    assert conform(fine, NANOS[0]) == fine
    assert conform(fine, TIMESTAMP).cast(pa.int64()).to_pylist() == [1]
    coarse = pa.array([1], pa.timestamp("us"))
    assert conform(coarse, NANOS[1]).cast(pa.int64()).to_pylist() == [1_000]
    with pytest.raises(WrongType):
        conform(pa.array([1 << 62], pa.timestamp("us")), NANOS[1])


def test_void_is_null_whatever_the_file_holds() -> None:
    assert conform(pa.array([1]), VOID).to_pylist() == [None]
    assert conform(pa.nulls(1), LONG).to_pylist() == [None]


@pytest.mark.parametrize("array", [pa.array(["1"]), pa.array([[1]]), pa.array([True])])
def test_another_kind_of_value_is_refused(array: pa.Array) -> None:
    with pytest.raises(WrongType):
        conform(array, LONG)


def mapped(name: str, kind: DataType, number: int, physical: str) -> StructField:
    about = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": physical}
    return StructField(name, kind, metadata=about)


def in_file(name: str, kind: pa.DataType, number: int) -> pa.Field:
    return pa.field(name, kind, metadata={"PARQUET:field_id": str(number)})


PAIR = StructType((mapped("a", LONG, 1, "b"), mapped("b", LONG, 2, "a")))
"""Columns that swapped names after the files were written."""


@pytest.mark.parametrize("mode", [ColumnMappingMode.NAME, ColumnMappingMode.ID])
def test_columns_are_found_by_what_files_call_them(mode: ColumnMappingMode) -> None:
    there = pa.schema([in_file("a", pa.int64(), 2), in_file("b", pa.int64(), 1)])
    assert sources_of(there, PAIR.fields, mode) == {"a": "b", "b": "a"}
    assert sources_of(there, PAIR.fields, ColumnMappingMode.NONE) == {"a": "a", "b": "b"}


def test_ids_count_and_names_do_not_where_columns_are_found_by_id() -> None:
    there = pa.schema([in_file("b", pa.int64(), 2), in_file("x", pa.int64(), 1)])
    assert sources_of(there, PAIR.fields, ColumnMappingMode.ID) == {"a": "x", "b": "b"}
    gone = pa.schema([in_file("b", pa.int64(), 7)])
    assert sources_of(gone, PAIR.fields, ColumnMappingMode.ID) == {"a": None, "b": None}
    assert sources_of(gone, PAIR.fields, ColumnMappingMode.NAME) == {"a": "b", "b": None}


def test_a_column_that_readers_add_is_found_by_its_name_in_every_mode() -> None:
    there = pa.schema([in_file("b", pa.int64(), 1), pa.field("_change_type", pa.string())])
    added = StructField("_change_type", STRING)
    for mode in ColumnMappingMode:
        assert sources_of(there, [added], mode) == {"_change_type": "_change_type"}


def test_a_file_without_ids_is_refused_where_columns_are_found_by_them() -> None:
    without = pa.schema([pa.field("b", pa.int64())])
    with pytest.raises(WrongType, match="field ids"):
        sources_of(without, PAIR.fields, ColumnMappingMode.ID)
    assert sources_of(without, [], ColumnMappingMode.ID) == {}
    assert sources_of(pa.schema([]), PAIR.fields, ColumnMappingMode.ID) == {"a": None, "b": None}


@pytest.mark.parametrize("mode", [ColumnMappingMode.NAME, ColumnMappingMode.ID])
def test_fields_of_nested_structs_are_found_likewise(mode: ColumnMappingMode) -> None:
    shape = pa.struct([in_file("a", pa.int64(), 2), in_file("b", pa.int64(), 1)])
    rows = [{"a": 2, "b": 1}, None]
    expected = [{"a": 1, "b": 2}, None]
    assert conform(pa.array(rows, shape), PAIR, mode).to_pylist() == expected
    lists = pa.array([rows, None], pa.list_(shape))
    assert conform(lists, ArrayType(PAIR), mode).to_pylist() == [expected, None]
    maps = pa.array([[("k", rows[0])]], pa.map_(pa.string(), shape))
    assert conform(maps, MapType(STRING, PAIR), mode).to_pylist() == [[("k", expected[0])]]


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        (pa.array([-128], pa.int8()), INTEGER, -128),
        (pa.array([2**31 - 1], pa.int32()), LONG, 2**31 - 1),
        (pa.array([1.1], pa.float32()), DOUBLE, 1.10000002384185791015625),
        (pa.array([-(2**31)], pa.int32()), DOUBLE, -(2.0**31)),
        (pa.array([2**31 - 1], pa.int32()), DecimalType(10, 0), Decimal(2**31 - 1)),
        (pa.array([-5], pa.int16()), DecimalType(38, 28), Decimal(-5)),
        (pa.array([2**63 - 1], pa.int64()), DecimalType(20, 0), Decimal(2**63 - 1)),
        (pa.array([Decimal("1.5")], pa.decimal128(2, 1)), DecimalType(38, 37), Decimal("1.5")),
        (pa.array([date(1, 1, 1)]), TIMESTAMP_NTZ, datetime.fromisoformat("0001-01-01")),
        (pa.array([date(9999, 12, 31)]), TIMESTAMP_NTZ, datetime.fromisoformat("9999-12-31")),
    ],
)
def test_values_of_every_type_are_read_in_the_types_it_may_be_widened_to(
    values: pa.Array, kind: DataType, expected: Any
) -> None:
    for mode in ColumnMappingMode:
        assert conform(values, kind, mode).to_pylist() == [expected]
    nested = pa.array([{"x": [values[0]]}], pa.struct([("x", pa.list_(values.type))]))
    struct = StructType((StructField("x", ArrayType(kind)),))
    assert conform(nested, struct).to_pylist() == [{"x": [expected]}]


def test_a_struct_is_not_made_of_what_is_none() -> None:
    with pytest.raises(WrongType, match="struct<x:date>"):
        conform(pa.array([1]), StructType((StructField("x", DATE),)))


EMPTY = b"\x01\x00\x00"


def group(typed: pa.DataType) -> pa.DataType:
    return pa.struct([("value", pa.binary()), ("typed_value", typed)])


def column(typed: pa.DataType, *rows: Any) -> pa.Array:
    """Return a shredded column; a row is its `value` and `typed_value`, or None."""
    shape = pa.struct([("metadata", pa.binary()), ("value", pa.binary()), ("typed_value", typed)])
    plain = [
        None if row is None else {"metadata": EMPTY, "value": row[0], "typed_value": row[1]}
        for row in rows
    ]
    return pa.array(plain, shape)


def meanings(array: pa.Array) -> list[Any]:
    result = conform(array, VARIANT)
    assert result.type == arrow_type(VARIANT)
    return [
        None if row is None else decoded(row["metadata"], row["value"])
        for row in result.to_pylist()
    ]


def test_an_unshredded_variant_is_its_bytes() -> None:
    shape = pa.struct([("value", pa.binary()), ("metadata", pa.binary())])
    rows = [{"value": variant_encoding.string("x"), "metadata": EMPTY}, None]
    result = conform(pa.array(rows, shape), VARIANT)
    assert result.to_pylist() == rows
    assert [item.name for item in result.type] == ["metadata", "value"]


@pytest.mark.parametrize(
    ("typed", "value"),
    [
        (pa.bool_(), True),
        (pa.int8(), -3),
        (pa.int16(), 300),
        (pa.int32(), 2**31 - 1),
        (pa.int64(), -(2**63)),
        (pa.float32(), 0.25),
        (pa.float64(), float("inf")),
        (pa.decimal128(9, 2), Decimal("1.25")),
        (pa.decimal128(38, 3), Decimal("-1.250")),
        (pa.date32(), date(1, 1, 1)),
        (pa.string(), "é"),
        (pa.binary(), b"\x00"),
    ],
)
def test_a_typed_value_is_a_variant_and_what_does_not_fit_is_beside_it(
    typed: pa.DataType, value: Any
) -> None:
    other = variant_encoding.array([])
    result = meanings(column(typed, (None, value), (other, None), (None, None), None))
    assert result == [value, [], None, None]


def test_moments_keep_their_units() -> None:
    for typed, kind in (
        (pa.timestamp("us", "UTC"), "timestamp_us"),
        (pa.timestamp("us"), "ntz_us"),
        (pa.timestamp("ns", "UTC"), "timestamp_ns"),
        (pa.timestamp("ns"), "ntz_ns"),
    ):
        at = pa.array([1_000], pa.int64()).cast(typed)
        parts = [pa.array([EMPTY], pa.binary()), at]
        shredded = pa.StructArray.from_arrays(parts, ["metadata", "typed_value"])
        assert conform(shredded, VARIANT)[0]["value"].as_py() == variant_encoding.moment(
            1_000, kind
        )
    clock = pa.array([5], pa.int64()).cast(pa.time64("us"))
    shredded = pa.StructArray.from_arrays(
        [pa.array([EMPTY], pa.binary()), clock], ["metadata", "typed_value"]
    )
    assert conform(shredded, VARIANT)[0]["value"].as_py() == variant_encoding.moment(5, "time")


def test_ids_are_ids() -> None:
    one = uuid.UUID(int=7)
    assert meanings(column(pa.binary(16), (None, one.bytes))) == [one]
    ids = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([one.bytes], pa.binary(16)))
    parts = [pa.array([EMPTY], pa.binary()), ids]
    array = pa.StructArray.from_arrays(parts, ["metadata", "typed_value"])
    assert meanings(array) == [one]


def test_an_object_is_its_columns_and_what_is_left() -> None:
    typed = pa.struct([("a", group(pa.int32())), ("b", group(pa.string()))])
    dictionary = Dictionary(EMPTY)
    rest = variant_encoding.object_({"z": variant_encoding.boolean(True)}, dictionary)
    a, b = {"value": None, "typed_value": 1}, {"value": None, "typed_value": None}
    odd = {"value": variant_encoding.string("not a number"), "typed_value": None}
    null = {"value": variant_encoding.NULL, "typed_value": None}
    array = column(
        typed,
        (None, {"a": a, "b": b}),
        (rest, {"a": odd, "b": null}),
        (variant_encoding.string("no object"), None),
        (None, {"a": b, "b": b}),
        None,
    )
    shape = array.type
    rows = array.to_pylist()
    rows[1]["metadata"] = dictionary.encode()
    assert meanings(pa.array(rows, shape)) == [
        {"a": 1},
        {"a": "not a number", "b": None, "z": True},
        "no object",
        {},
        None,
    ]


def test_arrays_of_objects_of_arrays_come_together() -> None:
    inner = pa.struct([("n", group(pa.list_(group(pa.int64()))))])
    typed = pa.list_(group(inner))
    numbers = [
        {"value": None, "typed_value": 1},
        {"value": variant_encoding.string("x")},
        {"value": None},
    ]
    item = {"value": None, "typed_value": {"n": {"value": None, "typed_value": numbers}}}
    array = column(
        typed, None, (None, []), (None, [item, {"value": variant_encoding.NULL}]), (None, [item])
    )
    expected = {"n": [1, "x", None]}
    assert meanings(array) == [None, [], [expected, None], [expected]]
    assert meanings(array.slice(2)) == [[expected, None], [expected]]


def test_variants_inside_lists_are_variants() -> None:
    items = column(pa.int32(), (None, 1), None, (variant_encoding.string("x"), None))
    lists = pa.ListArray.from_arrays(pa.array([0, 2, 2, 3], pa.int32()), items)
    result = conform(lists, ArrayType(VARIANT)).to_pylist()
    assert [[item and decoded(**item) for item in row] for row in result] == [[1, None], [], ["x"]]


@pytest.mark.parametrize(
    "array",
    [
        pa.array([{"value": b"\x00"}]),
        pa.array([{"metadata": EMPTY}]),
        pa.array([b"\x00"]),
        column(pa.month_day_nano_interval(), (None, None)),
        column(pa.struct([("a", group(pa.int32()))]), (b"\x00", {"a": {"typed_value": 1}})),
    ],
)
def test_what_holds_no_variants_is_refused(array: pa.Array) -> None:
    with pytest.raises((WrongType, ValueError), match="variant"):
        conform(array, VARIANT)
