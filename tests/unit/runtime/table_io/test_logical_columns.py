from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

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
    VOID,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    StructField,
    StructType,
)
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
