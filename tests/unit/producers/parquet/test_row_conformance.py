"""Rows are converted to the table's schema, or the error names the column that does not fit."""

import pyarrow as pa
import pytest

from tidegate_delta.errors import InvalidRequest
from tidegate_delta.schema.types import (
    BYTE,
    DATE,
    DOUBLE,
    INTEGER,
    LONG,
    STRING,
    TIMESTAMP,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    StructField,
    StructType,
)
from tidegate_producers.parquet.row_conformance import conform


def schema(*fields: StructField) -> StructType:
    return StructType(fields)


def test_columns_come_in_the_tables_order_under_the_tables_names() -> None:
    rows = pa.table({"B": ["x"], "a": pa.array([1], pa.int32())})
    shaped = conform(rows, schema(StructField("a", LONG), StructField("b", STRING)))
    assert shaped.column_names == ["a", "b"]
    assert shaped.to_pylist() == [{"a": 1, "b": "x"}]
    assert shaped.schema.field("a").type == pa.int64()


def test_a_missing_nullable_column_is_null() -> None:
    shaped = conform(pa.table({"a": [1]}), schema(StructField("a", LONG), StructField("b", DATE)))
    assert shaped.to_pylist() == [{"a": 1, "b": None}]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (BYTE, pa.array([300], pa.int32())),
        (DecimalType(4, 2), pa.array([12345], pa.int64())),
        (INTEGER, pa.array(["x"])),
    ],
    ids=["overflow", "digits", "text"],
)
def test_a_value_that_does_not_fit_is_an_error_that_names_the_column(
    kind: object, values: pa.Array
) -> None:
    with pytest.raises(InvalidRequest, match="'n'"):
        conform(pa.table({"n": values}), schema(StructField("n", kind)))  # type: ignore[arg-type]  # parametrized


def test_a_null_in_a_not_null_column_is_an_error_that_names_it() -> None:
    table = schema(StructField("a", LONG), StructField("k", STRING, nullable=False))
    with pytest.raises(InvalidRequest, match="'k' is NOT NULL, and 1 of 2") as raised:
        conform(pa.table({"a": [1, 2], "k": ["x", None]}), table)
    assert raised.value.error_class == "DELTA_NOT_NULL_CONSTRAINT_VIOLATED"


def test_a_missing_not_null_column_is_an_error_even_if_no_check_came_before() -> None:
    with pytest.raises(InvalidRequest, match="'k'"):
        conform(pa.table({"a": [1]}), schema(StructField("k", STRING, nullable=False)))


def test_not_null_holds_inside_structs_arrays_and_maps() -> None:
    inner = StructType((StructField("y", LONG, nullable=False),))
    cases: list[tuple[DataType, pa.Array, str]] = [
        (inner, pa.array([None, {"y": None}], pa.struct([("y", pa.int64())])), "s.y"),
        (ArrayType(LONG, False), pa.array([[1], [None]], pa.list_(pa.int64())), "s.element"),
        (
            MapType(STRING, LONG, False),
            pa.array([[("a", None)]], pa.map_(pa.string(), pa.int64())),
            "s.value",
        ),
    ]
    for kind, values, where in cases:
        with pytest.raises(InvalidRequest, match=where):
            conform(pa.table({"s": values}), schema(StructField("s", kind)))


def test_a_null_struct_has_null_fields() -> None:
    inner = StructType((StructField("y", LONG, nullable=False),))
    values = pa.array([None, {"y": 1}], pa.struct([("y", pa.int64())]))
    with pytest.raises(InvalidRequest, match=r"'s\.y' is NOT NULL, and 1 of 2 rows"):
        conform(pa.table({"s": values}), schema(StructField("s", inner)))


def test_a_null_element_breaks_no_promise_of_its_fields() -> None:
    inner = StructType((StructField("y", LONG, nullable=False),))
    values = pa.array([[None, {"y": 1}], None], pa.list_(pa.struct([("y", pa.int64())])))
    shaped = conform(pa.table({"l": values}), schema(StructField("l", ArrayType(inner))))
    assert shaped.to_pylist() == [{"l": [None, {"y": 1}]}, {"l": None}]


def test_structs_lists_and_maps_are_cast_inside_also_where_they_are_slices() -> None:
    struct = StructType((StructField("x", LONG), StructField("y", STRING)))
    table = schema(
        StructField("s", struct),
        StructField("l", ArrayType(LONG)),
        StructField("m", MapType(STRING, DOUBLE)),
    )
    rows = pa.table(
        {
            "s": pa.array([{"Y": "q"}, None, {"Y": "z"}], pa.struct([("Y", pa.string())])),
            "l": pa.array([[9], None, [1, 2]], pa.list_(pa.int32())),
            "m": pa.array([[("k", 9.0)], [("a", 1.5)], None], pa.map_(pa.string(), pa.float32())),
        }
    )
    expected = [
        {"s": {"x": None, "y": "q"}, "l": [9], "m": [("k", 9.0)]},
        {"s": None, "l": None, "m": [("a", 1.5)]},
        {"s": {"x": None, "y": "z"}, "l": [1, 2], "m": None},
    ]
    assert conform(rows, table).to_pylist() == expected
    assert conform(rows.slice(1), table).to_pylist() == expected[1:]


def test_timestamps_are_utc_microseconds() -> None:
    values = pa.array([0], pa.timestamp("us", "Europe/Berlin"))
    shaped = conform(pa.table({"t": values}), schema(StructField("t", TIMESTAMP)))
    assert shaped.schema.field("t").type == pa.timestamp("us", "UTC")


SHORT: dict[str, tuple[DataType, str, pa.Array, str]] = {
    "itself": (STRING, "char(3)", pa.array(["abc", None, "a\U0001f600c"]), "c"),
    "element": (ArrayType(STRING), "array<varchar(3)>", pa.array([["abc"], None]), "c.element"),
    "key": (
        MapType(STRING, LONG),
        "map<varchar(3),bigint>",
        pa.array([[("abc", 1)]], pa.map_(pa.string(), pa.int64())),
        "c.key",
    ),
    "field": (
        ArrayType(StructType((StructField("q", STRING),))),
        "array<struct<q:varchar(3)>>",
        pa.array([[{"q": "abc"}, None]]),
        "c.element.q",
    ),
}


@pytest.mark.parametrize("name", SHORT)
def test_strings_are_held_to_the_length_of_their_column(name: str) -> None:
    kind, text, values, where = SHORT[name]
    rows = pa.table({"c": values})
    for limit, is_right in (("(3)", True), ("(2)", False)):
        spelled = text.replace("(3)", limit)
        field = StructField("c", kind, metadata={"__CHAR_VARCHAR_TYPE_STRING": spelled})
        if is_right:
            assert conform(rows, schema(field)).num_rows == len(values)
            continue
        with pytest.raises(InvalidRequest, match=f"'{where}' is a .*3 characters") as refused:
            conform(rows, schema(field))
        assert refused.value.error_class == "DELTA_EXCEED_CHAR_VARCHAR_LIMIT"


def test_a_length_that_no_longer_belongs_to_the_columns_type_is_ignored() -> None:
    for kind, values, text in (
        (LONG, [1], "varchar(1)"),
        (LONG, [1], "array<varchar(1)>"),
        (StructType((StructField("q", STRING),)), [{"q": "abc"}], "struct<r:varchar(1)>"),
    ):
        field = StructField("c", kind, metadata={"__CHAR_VARCHAR_TYPE_STRING": text})
        assert conform(pa.table({"c": values}), schema(field)).num_rows == 1


def test_a_slice_of_nothing_is_cast_too() -> None:
    maps = pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int32())).slice(1)
    shaped = conform(pa.table({"m": maps}), schema(StructField("m", MapType(STRING, LONG))))
    assert shaped.to_pylist() == []
