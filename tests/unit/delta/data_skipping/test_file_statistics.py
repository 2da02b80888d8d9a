import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tidegate_delta.data_skipping.file_statistics import (
    compute,
    truncated_maximum,
    truncated_minimum,
)
from tidegate_delta.schema.arrow_types import from_arrow
from tidegate_delta.schema.types import STRING, StructField, StructType

NAN = float("nan")


def stats_of(rows: pa.Table, columns_max: int = 32, **more: Any) -> dict[str, Any]:
    result = json.loads(compute(rows, from_arrow(rows.schema), columns_max, **more))
    assert isinstance(result, dict)
    return result


def test_bounds_and_null_counts_of_plain_columns() -> None:
    rows = pa.table({"i": pa.array([3, None, 1]), "s": ["b", "a", None]})
    assert stats_of(rows) == {
        "numRecords": 3,
        "minValues": {"i": 1, "s": "a"},
        "maxValues": {"i": 3, "s": "b"},
        "nullCount": {"i": 1, "s": 1},
    }


def test_structs_are_mirrored_and_nulls_of_the_parent_count() -> None:
    rows = pa.table({"s": [{"a": 1, "t": {"b": "x"}}, None, {"a": None, "t": {"b": "y"}}]})
    result = stats_of(rows)
    assert result["minValues"] == {"s": {"a": 1, "t": {"b": "x"}}}
    assert result["nullCount"] == {"s": {"a": 2, "t": {"b": 1}}}


def test_some_types_get_a_null_count_alone() -> None:
    rows = pa.table(
        {
            "b": pa.array([True, None]),
            "raw": pa.array([b"x", b"y"]),
            "list": pa.array([[1], None]),
            "map": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())),
        }
    )
    result = stats_of(rows)
    assert result["minValues"] == result["maxValues"] == {}
    assert result["nullCount"] == {"b": 1, "raw": 0, "list": 1, "map": 1}


def test_a_column_of_nulls_has_no_bounds() -> None:
    rows = pa.table({"i": pa.array([None, None], pa.int64())})
    result = stats_of(rows)
    assert result["minValues"] == {}
    assert result["nullCount"] == {"i": 2}


def test_nan_takes_the_upper_bound_away_and_infinity_its_own() -> None:
    nan = stats_of(pa.table({"d": [1.0, NAN]}))
    assert nan["minValues"] == {"d": 1.0}
    assert nan["maxValues"] == {}
    endless = stats_of(pa.table({"d": [float("-inf"), 2.0]}))
    assert endless["minValues"] == {}
    assert endless["maxValues"] == {"d": 2.0}
    assert stats_of(pa.table({"d": [NAN]}))["minValues"] == {}


def test_zero_has_the_sign_that_bounds_both_zeros() -> None:
    text = compute(pa.table({"d": [0.0]}), from_arrow(pa.schema([("d", pa.float64())])))
    assert '"minValues":{"d":-0.0}' in text
    assert '"maxValues":{"d":0.0}' in text


def test_a_float_is_written_so_that_a_double_reads_the_same() -> None:
    result = stats_of(pa.table({"f": pa.array([0.1], pa.float32())}))
    assert result["minValues"]["f"] == 0.10000000149011612


def test_timestamps_are_cut_down_to_milliseconds_before_the_epoch_too() -> None:
    at = datetime(1969, 12, 31, 23, 59, 59, 999999, UTC)
    rows = pa.table({"at": pa.array([at], pa.timestamp("us", "UTC"))})
    assert stats_of(rows)["minValues"] == {"at": "1969-12-31T23:59:59.999Z"}
    naive = pa.table({"at": pa.array([at.replace(tzinfo=None)], pa.timestamp("us"))})
    assert stats_of(naive)["maxValues"] == {"at": "1969-12-31T23:59:59.999"}


def test_dates_are_iso_and_years_past_9999_have_no_bound() -> None:
    result = stats_of(pa.table({"d": pa.array([date(2024, 2, 29)])}))
    assert result["minValues"] == {"d": "2024-02-29"}
    far = pa.table({"d": pa.array([3_000_000, 0], pa.int32()).cast(pa.date32())})
    assert stats_of(far)["minValues"] == {"d": "1970-01-01"}
    assert stats_of(far)["maxValues"] == {}


def test_decimals_are_exact_numbers() -> None:
    value = Decimal("12345678901234567890123456789012345.678")
    rows = pa.table({"m": pa.array([value], pa.decimal128(38, 3))})
    assert f'"maxValues":{{"m":{value}}}' in compute(rows, from_arrow(rows.schema))


def test_the_first_leaves_get_statistics_or_those_that_are_named() -> None:
    rows = pa.table({"a": [1], "s": [{"b": 2, "c": 3}], "d": [4]})
    assert stats_of(rows, 2)["nullCount"] == {"a": 0, "s": {"b": 0}}
    assert stats_of(rows, 0)["nullCount"] == {}
    assert stats_of(rows, -1)["nullCount"] == {"a": 0, "s": {"b": 0, "c": 0}, "d": 0}
    assert stats_of(rows, named=[("s",)])["nullCount"] == {"s": {"b": 0, "c": 0}}
    assert stats_of(rows, named=[("s", "c"), ("d",)])["maxValues"] == {"s": {"c": 3}, "d": 4}


def test_columns_that_the_rows_lack_are_not_counted() -> None:
    schema = from_arrow(pa.schema([("p", pa.string()), ("a", pa.int64())]))
    result = json.loads(compute(pa.table({"a": [1]}), schema, 1))
    assert result["nullCount"] == {"a": 0}


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("a" * 32, "a" * 32, "a" * 32),
        ("a" * 33, "a" * 32, "a" * 32 + "\x7f"),
        ("a" * 32 + "\x7f", "a" * 32, "a" * 32 + "\U0010ffff"),
        ("a" * 32 + "\U0010ffffb", "a" * 32, "a" * 32 + "\U0010ffff\x7f"),
        ("a" * 31 + "\U0001f600b", "a" * 31 + "\U0001f600", "a" * 31 + "\U0001f600\x7f"),
        ("\U0010ffff" * 33 + "a", "\U0010ffff" * 16, None),
    ],
)
def test_strings_are_cut_as_delta_cuts_them(text: str, low: str, high: str | None) -> None:
    assert truncated_minimum(text) == low
    assert truncated_maximum(text) == high


def test_a_prefix_of_no_length_keeps_no_bound() -> None:
    result = stats_of(pa.table({"s": ["a"]}), prefix_units=0)
    assert result["minValues"] == {}
    assert result["nullCount"] == {"s": 0}


def test_bytes_that_are_not_utf8_are_no_bounds() -> None:
    """Spark writes them: `cast(X'FF' AS STRING)`."""
    texts = pa.array([b"\xff", b"b", b"a"], pa.binary()).view(pa.string())
    schema = StructType((StructField("s", STRING),))
    statistics = json.loads(compute(pa.table({"s": texts}), schema))
    assert statistics == {
        "numRecords": 3,
        "minValues": {"s": "a"},
        "maxValues": {},
        "nullCount": {"s": 0},
    }
