"""Shredded variants as the Parquet specification of shredding defines them."""

import uuid
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tests.unit.delta.schema.variant_values import decoded
from tidegate_delta.schema import variant_encoding
from tidegate_delta.schema.arrow_types import arrow_type
from tidegate_delta.schema.types import VARIANT, ArrayType
from tidegate_delta.schema.variant_encoding import Dictionary
from tidegate_runtime.table_io.logical_columns import WrongType, conform

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
