from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tests.unit.delta.schema.partition_samples import READ, UNREAD
from tidegate_delta.log.actions import Metadata
from tidegate_delta.schema import partition_values, types
from tidegate_delta.schema.partition_value_checks import check, check_existing, check_readable
from tidegate_delta.schema.partition_values import (
    column,
    folder,
    lenient_cast,
    parse,
    partition_kinds,
    partition_of,
    serialize,
)
from tidegate_delta.schema.types import (
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    ArrayType,
    DataType,
    DecimalType,
    PrimitiveType,
    StructField,
    StructType,
    format_schema,
    parse_type,
)

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


@pytest.mark.parametrize(
    ("kind", "texts"),
    [
        (TIMESTAMP, ["2024-01-01 00:00:00", "2024-01-01 00:00:00.000000", "2024-01-01T00:00:00Z"]),
        (TIMESTAMP, ["2024-01-01T02:00:00.000000+02:00", "2024-01-01T00:00:00.000000Z"]),
        (TIMESTAMP_NTZ, ["2024-01-01 00:00:00.5", "2024-01-01 00:00:00.500000"]),
        (DATE, ["2024-01-01", "2024-1-1"]),
        (DATE, ["+12024-01-01", "12024-01-01"]),
        (DecimalType(5, 2), ["1.5", "1.50", "01.500"]),
        (INTEGER, ["7", "+7", "07"]),
        (DOUBLE, ["1", "1.0", "1E0"]),
        (DOUBLE, ["0.0", "-0.0"]),
        (FLOAT, ["NaN", "nan"]),
        (STRING, [None, ""]),
    ],
)
def test_spellings_of_one_value_are_one_partition(kind: DataType, texts: list[str | None]) -> None:
    assert len({partition_of({"p": text}, {"p": kind}) for text in texts}) == 1


@pytest.mark.parametrize(
    ("kind", "texts"),
    [
        (STRING, ["1", "01", " 1", "1 "]),
        (TIMESTAMP, ["2024-01-01 00:00:00", "2024-01-01 00:00:00.000001"]),
        (DATE, ["12024-01-01", "12024-01-02", "nonsense", "other nonsense"]),
        (INTEGER, ["0", None]),
    ],
)
def test_other_values_are_other_partitions(kind: DataType, texts: list[str | None]) -> None:
    partitions = {partition_of({"p": text}, {"p": kind}) for text in texts}
    assert len(partitions) == len(texts)


def test_values_are_found_under_the_physical_names_of_their_columns() -> None:
    names = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "col-1"}
    mapped = Metadata(
        id="t",
        schema_string=format_schema(StructType((StructField("p", DATE, True, names),))),
        partition_columns=("p",),
        configuration={"delta.columnMapping.mode": "name"},
    )
    kinds = partition_kinds(mapped)
    assert kinds == {"col-1": DATE}
    assert partition_of({"col-1": "2024-1-1"}, kinds) == partition_of(
        {"col-1": "2024-01-01", "p": "1999-01-01"}, kinds
    )
    assert partition_of(None, kinds) == (None,)


MOMENT, LOCAL = PrimitiveType("timestamp"), PrimitiveType("timestamp_ntz")
PRICE = DecimalType(10, 2)
NEW_YEAR = datetime(2024, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (BOOLEAN, "t", True),
        (BOOLEAN, "Yes", True),
        (BOOLEAN, " 1", True),
        (BOOLEAN, "n", False),
        (BOOLEAN, "0", False),
        (PRICE, "1.505", Decimal("1.51")),
        (PRICE, "1.515", Decimal("1.52")),
        (PRICE, "-0.005", Decimal("-0.01")),
        (PRICE, "99999999.994", Decimal("99999999.99")),
        (DOUBLE, "1d", 1.0),
        (DOUBLE, "-1.5E3F", -1500.0),
        (FLOAT, "0.5f", 0.5),
        (DATE, "2024", date(2024, 1, 1)),
        (DATE, "2024-02", date(2024, 2, 1)),
        (DATE, "2024-02-28T", date(2024, 2, 28)),
        (DATE, "2024-02-28T10", date(2024, 2, 28)),
        (DATE, "+2024-02-28", date(2024, 2, 28)),
        (MOMENT, "2024", NEW_YEAR),
        (MOMENT, "2024-01", NEW_YEAR),
        (MOMENT, "2024-01-01 00:00:00.", NEW_YEAR),
        (MOMENT, "2024-01-01 01:00:00+1:00", NEW_YEAR),
        (MOMENT, "2024-01-01 01:00:00 +01:00", NEW_YEAR),
        (LOCAL, "2024", NEW_YEAR.replace(tzinfo=None)),
    ],
)
def test_texts_mean_what_an_engine_casts_them_to(kind: DataType, text: str, value: Any) -> None:
    assert lenient_cast(text, kind) == value
    with pytest.raises(ValueError, match="is no"):
        parse(text, kind)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (BOOLEAN, "on"),
        (BOOLEAN, "10"),
        (PRICE, "99999999.995"),
        (PRICE, "1_0"),
        (PRICE, "1.5d"),
        (PRICE, "x"),
        (DOUBLE, "1_0"),
        (DOUBLE, "x"),
        (DATE, "2024-02-30"),
        (DATE, "2024/02/28"),
        (DATE, "20240228"),
        (MOMENT, "x"),
        (MOMENT, "2024-01-01 24:00:00"),
        (INTEGER, "1.0"),
        (INTEGER, "\uff11"),
        (INTEGER, "2147483648"),
    ],
)
def test_what_no_engine_casts_is_named(kind: DataType, text: str) -> None:
    with pytest.raises(ValueError, match=r"is no") as raised:
        lenient_cast(text, kind)
    assert repr(text) in str(raised.value)


@pytest.mark.parametrize(
    ("kind", "text"), [(STRING, " a"), (INTEGER, "007"), (PRICE, "1.5"), (DATE, "2024-2-9")]
)
def test_what_is_spelled_well_is_read_as_ever(kind: DataType, text: str) -> None:
    assert lenient_cast(text, kind) == parse(text, kind)


def numbers(kind: DataType, *texts: str | None) -> list[int | None]:
    width = pa.int32() if kind == DATE else pa.int64()
    result: list[int | None] = partition_values.column(texts, kind).cast(width).to_pylist()
    return result


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("+10000-01-01", 2_932_897),
        ("10000-01-01", 2_932_897),
        ("0000-12-31", -719_163),
        ("-0001-12-31", -719_529),
        ("+12024-02-29", 3_672_207),
    ],
)
def test_a_day_in_any_year_is_counted(text: str, days: int) -> None:
    assert numbers(DATE, text, "1970-01-02", None, "") == [days, 1, None, None]


def test_years_on_both_sides_of_the_border_follow_one_another() -> None:
    assert numbers(DATE, "9999-12-31", "10000-01-01") == [2_932_896, 2_932_897]
    assert numbers(DATE, "0000-12-31", "0001-01-01") == [-719_163, -719_162]


@pytest.mark.parametrize("kind", [TIMESTAMP, TIMESTAMP_NTZ])
def test_a_moment_in_any_year_is_counted(kind: DataType) -> None:
    result = numbers(kind, "+10000-01-01 00:00:00.000001", "9999-12-31 23:59:59.999999")
    assert result == [253_402_300_800_000_001, 253_402_300_799_999_999]


def test_a_timestamp_with_a_zone_is_converted_to_utc() -> None:
    [here, there] = numbers(TIMESTAMP, "+10000-01-01T00:30:00+01:00", "9999-12-31 23:30:00")
    assert here == there


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (DATE, "+10000-02-30"),
        (DATE, "+99999999-01-01"),
        (TIMESTAMP, "+999999-01-01 00:00:00"),
        (DATE, "soon"),
        (TIMESTAMP, "+10000-01-01 25:00:00"),
    ],
)
def test_what_is_no_day_in_any_year_is_refused(kind: DataType, text: str) -> None:
    with pytest.raises(ValueError, match="the partition value"):
        partition_values.column([text], kind)


@pytest.mark.parametrize(("kind", "text"), [(kind, item) for kind in READ for item in READ[kind]])
def test_what_writers_write_is_taken(kind: str, text: str) -> None:
    check(text, parse_type(kind))
    check_readable(text, parse_type(kind))


@pytest.mark.parametrize(
    ("kind", "text"), [(kind, item) for kind in UNREAD for item in UNREAD[kind]]
)
def test_what_we_alone_would_read_is_not(kind: str, text: str) -> None:
    with pytest.raises(ValueError, match="partition value"):
        check(text, parse_type(kind))
    check_readable(text, parse_type(kind))
    assert partition_values.column([text], parse_type(kind)).null_count == 0


@pytest.mark.parametrize("kind", READ)
def test_what_is_no_value_is_neither(kind: str) -> None:
    for text in ("no value", "2024-02-30", "1.2.3"):
        if kind in ("string", "binary"):
            check(text, parse_type(kind))
            continue
        for item in (check, check_readable, check_existing):
            with pytest.raises(ValueError, match="partition value"):
                item(text, parse_type(kind))


@pytest.mark.parametrize(("kind", "text"), [("boolean", "yes"), ("date", "2024-02")])
def test_what_a_cast_makes_a_value_of_may_stay_and_may_not_come(kind: str, text: str) -> None:
    check_existing(text, parse_type(kind))
    for item in (check, check_readable):
        with pytest.raises(ValueError, match="partition value"):
            item(text, parse_type(kind))


def test_null_is_a_value_of_each_type() -> None:
    for kind in READ:
        check(None, parse_type(kind))


def test_an_empty_text_is_one_thing_to_some_readers_and_another_to_others() -> None:
    """delta-rs reads null; delta-spark an empty string, or for other types nothing."""
    for kind in READ:
        check_readable("", parse_type(kind))
        with pytest.raises(ValueError, match="write null"):
            check("", parse_type(kind))


@pytest.mark.parametrize("text", ["+10000-01-01", "-0001-12-31", "+10000-01-01 00:00:00"])
def test_years_have_no_end(text: str) -> None:
    check(text, parse_type("timestamp" if ":" in text else "date"))
