from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

import pyarrow as pa
import pytest

from tidegate_delta.schema import types
from tidegate_delta.schema.partition_values import column, folder, parse, serialize
from tidegate_delta.schema.types import ArrayType, DataType, DecimalType, parse_type

NOON = datetime(2024, 6, 15, 12, 30, 45, tzinfo=UTC)
LOCAL_NOON = NOON.replace(tzinfo=None)


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        ("US/East", types.STRING, "US/East"),
        (-1, types.LONG, "-1"),
        (127, types.BYTE, "127"),
        (True, types.BOOLEAN, "true"),
        (0.1, types.DOUBLE, "0.1"),
        (1e-7, types.DOUBLE, "1E-07"),
        (float("inf"), types.DOUBLE, "Infinity"),
        (3.4028234663852886e38, types.FLOAT, "3.4028234663852886E+38"),
        (0.10000000149011612, types.FLOAT, "0.1"),
        (Decimal("1.2"), DecimalType(5, 3), "1.200"),
        (date(1, 2, 3), types.DATE, "0001-02-03"),
        (NOON, types.TIMESTAMP, "2024-06-15T12:30:45.000000Z"),
        (
            datetime(2024, 6, 15, 14, 30, 45, 5, timezone(timedelta(hours=2))),
            types.TIMESTAMP,
            "2024-06-15T12:30:45.000005Z",
        ),
        (LOCAL_NOON, types.TIMESTAMP_NTZ, "2024-06-15 12:30:45"),
        (LOCAL_NOON.replace(microsecond=1), types.TIMESTAMP_NTZ, "2024-06-15 12:30:45.000001"),
        (123, types.NANOS[0], "1970-01-01T00:00:00.000000123Z"),
        (-1, types.NANOS[1], "1969-12-31 23:59:59.999999999"),
        (b"\x01\x02", types.BINARY, "\x01\x02"),
    ],
)
def test_a_value_has_one_text(value: object, kind: DataType, text: str) -> None:
    assert serialize(value, kind) == text
    again = parse(text, kind)
    assert serialize(again, kind) == text


@pytest.mark.parametrize("kind", [types.STRING, types.LONG, types.DATE, types.BINARY])
def test_the_empty_string_is_null(kind: DataType) -> None:
    assert parse("", kind) is None
    assert parse(None, kind) is None
    assert serialize("", kind) is None
    assert serialize(None, kind) is None


@pytest.mark.parametrize(
    "text",
    [
        "2024-06-15 12:30:45",
        "2024-06-15 12:30:45.0",
        "2024-06-15T12:30:45Z",
        "2024-06-15T12:30:45.000000Z",
        "2024-06-15T14:30:45+02:00",
    ],
)
def test_both_forms_of_a_timestamp_are_read(text: str) -> None:
    assert parse(text, types.TIMESTAMP) == NOON


def test_digits_below_a_microsecond_are_cut() -> None:
    cut = parse("2024-06-15 12:30:45.1234569", types.TIMESTAMP_NTZ)
    assert cut == LOCAL_NOON.replace(microsecond=123456)


def test_a_decimal_in_the_scale_of_an_older_type_is_read() -> None:
    assert parse("1.1", DecimalType(10, 3)) == Decimal("1.100")


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("x", types.INTEGER),
        ("1.5", types.INTEGER),
        ("128", types.BYTE),
        ("1_000", types.LONG),
        ("yes", types.BOOLEAN),
        ("2024-13-01", types.DATE),
        ("today", types.TIMESTAMP),
        ("1.2345", DecimalType(5, 3)),
        ("123.456", DecimalType(5, 3)),
        ("one", DecimalType(5, 3)),
        ("1", ArrayType(types.LONG)),
    ],
)
def test_a_text_that_is_no_value_is_named(text: str, kind: DataType) -> None:
    with pytest.raises(ValueError, match=text):
        parse(text, kind)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (1, types.STRING),
        (True, types.LONG),
        (300, types.BYTE),
        ("1", types.LONG),
        (b"\xff", types.BINARY),
        (Decimal("1.23456"), DecimalType(5, 3)),
        ([1], ArrayType(types.LONG)),
    ],
)
def test_a_value_without_a_text_is_refused(value: object, kind: DataType) -> None:
    with pytest.raises(ValueError, match=r"partition|range|fit"):
        serialize(value, kind)


def test_a_column_is_its_values_one_by_one() -> None:
    texts = ["2024-06-15", None, "", "2024-06-15", "1582-10-15"]
    values = column(texts, types.DATE)
    assert values.type == pa.date32()
    assert values.to_pylist() == [parse(text, types.DATE) for text in texts]
    assert column(pa.chunked_array([["1"], ["2"]]), types.SHORT).to_pylist() == [1, 2]
    assert column([], types.LONG).to_pylist() == []


def test_a_folder_is_escaped_as_hive_does() -> None:
    values = {"p": "US/East:1", "q": None, "r": "a b", "s": "{x}[y]^"}
    assert folder(values, ["p", "q", "r", "s"]) == (
        "p=US%2FEast%3A1/q=__HIVE_DEFAULT_PARTITION__/r=a b/s=%7Bx}%5By%5D%5E"
    )


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("float", "3.5e38", float("inf")),
        ("float", "-3.5e38", float("-inf")),
        ("timestamp", "2024-01-01 10:00", datetime(2024, 1, 1, 10, tzinfo=UTC)),
        ("timestamp", "2024-01-01 10:00:00 UTC", datetime(2024, 1, 1, 10, tzinfo=UTC)),
        ("timestamp", "2024-01-01 10:00:00+02", datetime(2024, 1, 1, 8, tzinfo=UTC)),
    ],
)
def test_spellings_of_other_writers_are_understood(name: str, text: str, value: object) -> None:
    assert parse(text, parse_type(name)) == value


@pytest.mark.parametrize(("name", "text"), [("double", "1_000"), ("float", "1_0"), ("long", "1_0")])
def test_what_only_python_takes_for_a_number_is_refused(name: str, text: str) -> None:
    with pytest.raises(ValueError, match="the partition value"):
        parse(text, parse_type(name))
