"""Years outside the range of Python's dates."""

import pyarrow as pa
import pytest

from tidegate_delta.schema import partition_values
from tidegate_delta.schema.types import DATE, TIMESTAMP, TIMESTAMP_NTZ, DataType


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
