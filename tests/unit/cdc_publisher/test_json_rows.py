"""Rows as JSON text."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tidegate_cdc_publisher.json_rows import in_utf8, row_texts
from tidegate_delta.errors import UnsupportedFeature


def written(values: list[Any], kind: pa.DataType) -> list[Any]:
    texts = row_texts(pa.table({"c": pa.array(values, kind)})).to_pylist()
    return [json.loads(text)["c"] for text in texts]


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (pa.int8(), -128, -128),
        (pa.int64(), 2**63 - 1, 2**63 - 1),
        (pa.bool_(), True, True),
        (pa.float64(), 0.1, 0.1),
        (pa.float32(), 0.5, 0.5),
        (pa.float64(), 5e-324, 5e-324),
        (pa.float64(), float("nan"), "NaN"),
        (pa.float64(), float("inf"), "Infinity"),
        (pa.float64(), float("-inf"), "-Infinity"),
        (pa.decimal128(10, 2), Decimal("12.30"), "12.30"),
        (pa.decimal128(38, 18), Decimal("0.000000000000000001"), "0.000000000000000001"),
        (pa.decimal128(10, 7), Decimal("0"), "0.0000000"),
        (pa.string(), 'é "quoted" \\ \n\x01 𝄞', 'é "quoted" \\ \n\x01 𝄞'),
        (pa.string(), "", ""),
        (pa.binary(), b"\x00\xff", "AP8="),
        (pa.date32(), date(2013, 1, 31), "2013-01-31"),
        (pa.date32(), date(1, 1, 1), "0001-01-01"),
        (
            pa.timestamp("us", "UTC"),
            datetime(2013, 1, 1, 10, 0, 0, 1, UTC),
            "2013-01-01T10:00:00.000001Z",
        ),
        (
            pa.timestamp("us"),
            datetime(2013, 1, 1, 10, tzinfo=UTC).replace(tzinfo=None),
            "2013-01-01T10:00:00.000000",
        ),
        (pa.timestamp("ns", "UTC"), 1, "1970-01-01T00:00:00.000000001Z"),
        (pa.list_(pa.int32()), [1, None, 3], [1, None, 3]),
        (pa.list_(pa.list_(pa.string())), [["a"], [], None], [["a"], [], None]),
        (pa.struct({"a": pa.int32(), "b": pa.string()}), {"a": 1, "b": None}, {"a": 1, "b": None}),
        (pa.map_(pa.string(), pa.decimal128(4, 1)), [("k", Decimal("1.5"))], {"k": "1.5"}),
        (pa.map_(pa.int64(), pa.bool_()), [(7, False)], {"7": False}),
        (
            pa.map_(pa.struct({"a": pa.string()}), pa.int8()),
            [({"a": 'q"'}, 1)],
            {'{"a":"q\\""}': 1},
        ),
        (pa.map_(pa.list_(pa.string()), pa.int8()), [(["x"], 1)], {'["x"]': 1}),
        (pa.dictionary(pa.int32(), pa.string()), "again", "again"),
    ],
)
def test_a_value_is_written_as_the_schema_for_subscribers_has_it(
    kind: pa.DataType, value: Any, expected: Any
) -> None:
    assert written([None, value, None], kind) == [None, expected, None]


@pytest.mark.parametrize(
    ("kind", "count", "expected"),
    [
        (pa.timestamp("us", "UTC"), 2**63 - 1, "+294247-01-10T04:00:54.775807Z"),
        (pa.timestamp("us"), -(2**63), "-290308-12-21T19:59:05.224192"),
        (pa.timestamp("us", "UTC"), 253_402_300_800_000_000, "+10000-01-01T00:00:00.000000Z"),
        (pa.timestamp("us", "UTC"), 253_402_300_799_999_999, "9999-12-31T23:59:59.999999Z"),
        (pa.date32(), 2**31 - 1, "+5881580-07-11"),
        (pa.date32(), -(2**31), "-5877641-06-23"),
        (pa.date32(), -719_163, "0000-12-31"),
        (pa.date32(), -719_529, "-0001-12-31"),
    ],
)
def test_a_year_of_more_than_four_digits_is_published(
    kind: pa.DataType, count: int, expected: str
) -> None:
    whole = pa.int32() if pa.types.is_date(kind) else pa.int64()
    near = pa.array([None, 0, count], whole).cast(kind)
    texts = [json.loads(text)["c"] for text in row_texts(pa.table({"c": near})).to_pylist()]
    assert texts[0] is None
    assert texts[1].startswith("1970-01-01")
    assert texts[2] == expected


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_bytes_that_are_no_utf8_become_the_replacement_character(end: bytes) -> None:
    stored = pa.array([b"a\xffb" + end, None, b"c"])
    offsets, bytes_ = stored.buffers()[1:]
    text = pa.Array.from_buffers(pa.string(), 3, [stored.buffers()[0], offsets, bytes_])
    result = [json.loads(item)["c"] for item in in_utf8(row_texts(pa.table({"c": text})))]
    assert result == ["a\ufffdb" + end.decode(), None, "c"]


def test_a_whole_double_shows_that_it_is_no_integer() -> None:
    assert row_texts(pa.table({"c": [1.0, -0.0]})).to_pylist() == ['{"c":1.0}', '{"c":-0.0}']


def test_columns_are_written_in_the_order_requested() -> None:
    rows = pa.table({"a": [1], "b": [2], "c": [3]})
    assert row_texts(rows, ["c", "a"]).to_pylist() == ['{"c":3,"a":1}']


def test_a_column_name_is_quoted_as_json_asks() -> None:
    (text,) = row_texts(pa.table({'a "b"\n': [1]})).to_pylist()
    assert json.loads(text) == {'a "b"\n': 1}


def test_a_slice_of_nested_rows_is_written_as_the_slice() -> None:
    rows = pa.table({"l": [[1], [2, 3], None], "s": [{"x": 1}, None, {"x": 3}]})
    assert row_texts(rows.slice(1)).to_pylist() == [
        '{"l":[2,3],"s":null}',
        '{"l":null,"s":{"x":3}}',
    ]


def test_many_rows_keep_their_order() -> None:
    texts = row_texts(pa.table({"n": range(70_000)})).to_pylist()
    assert texts == [f'{{"n":{n}}}' for n in range(70_000)]


def test_no_rows_give_no_texts() -> None:
    assert len(row_texts(pa.table({"a": pa.array([], pa.int64())}))) == 0


def test_a_type_without_a_json_form_is_refused_by_column() -> None:
    with pytest.raises(UnsupportedFeature, match="'c'"):
        row_texts(pa.table({"c": pa.array([1], pa.duration("us"))}))


def test_texts_in_utf8_are_those_of_a_slice_alone() -> None:
    texts = pa.array(["", "é", "", "𝄞b", "c"], pa.large_string())
    expected = [text.encode() for text in texts.to_pylist()]
    for start in range(6):
        for end in range(start, 6):
            assert in_utf8(texts.slice(start, end - start)) == expected[start:end]


def test_a_null_in_a_map_may_be_of_a_struct_with_a_field_that_is_not_null() -> None:
    kind = pa.map_(pa.string(), pa.struct([pa.field("x", pa.int32(), nullable=False)]))
    maps = pa.array([[("a", None), ("b", {"x": 1})], None, [], [("c", {"x": 2})]], kind)
    table = pa.table({"m": maps})
    texts = ['{"m":{"a":null,"b":{"x":1}}}', '{"m":null}', '{"m":{}}', '{"m":{"c":{"x":2}}}']
    assert row_texts(table).to_pylist() == texts
    assert row_texts(table.slice(1, 3)).to_pylist() == texts[1:]
    assert row_texts(table.slice(4)).to_pylist() == []
