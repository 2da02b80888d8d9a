import pyarrow as pa
import pytest

from tidegate.delta.schema.types import (
    DOUBLE,
    LONG,
    STRING,
    VOID,
    ArrayType,
    DecimalType,
    MapType,
    StructField,
    StructType,
)
from tidegate.runtime.logical_columns import WrongType, conform, find_name

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


def test_void_is_null_whatever_the_file_holds() -> None:
    assert conform(pa.array([1]), VOID).to_pylist() == [None]
    assert conform(pa.nulls(1), LONG).to_pylist() == [None]


@pytest.mark.parametrize("array", [pa.array(["1"]), pa.array([[1]]), pa.array([True])])
def test_another_kind_of_value_is_refused(array: pa.Array) -> None:
    with pytest.raises(WrongType):
        conform(array, LONG)
