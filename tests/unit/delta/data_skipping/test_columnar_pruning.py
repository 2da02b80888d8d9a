"""What columnar pruning leaves out by statistics, and when it decides nothing."""

import json
from datetime import date
from typing import Any

import pyarrow as pa
import pytest

from tidegate_delta.data_skipping import file_pruning
from tidegate_delta.data_skipping.file_pruning import StatsColumns, is_exact_bound, left_in
from tidegate_delta.schema.types import DATE, DOUBLE, LONG, STRING

COLUMNS: StatsColumns = {
    ("id",): (("id",), LONG),
    ("name",): (("name",), STRING),
    ("day",): (("day",), DATE),
    ("x",): (("x",), DOUBLE),
}

COLUMNS_THERE: StatsColumns = {path: COLUMNS[path] for path in (("id",), ("day",))}


def kept_by(predicate: dict[str, Any], *stats: object) -> list[bool] | None:
    texts = [stat if isinstance(stat, str | None) else json.dumps(stat) for stat in stats]
    result = left_in(predicate, pa.table({"stats": pa.array(texts, pa.string())}), COLUMNS)
    return None if result is None else result.to_pylist()


def span(column: str, lower: Any, upper: Any) -> dict[str, Any]:
    return {"numRecords": 1, "minValues": {column: lower}, "maxValues": {column: upper}}


def is_(op: str, column: str, value: Any) -> dict[str, Any]:
    kinds = {"id": "long", "name": "string", "day": "date", "x": "double"}
    return {"op": op, "column": column, "value": value, "type": kinds[column]}


@pytest.fixture(autouse=True)
def _however_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_pruning, "ROWS_MIN", 1)


def test_files_out_of_reach_are_left_out_and_the_unknown_stay() -> None:
    stats = [span("id", 1, 5), span("id", 6, 9), None, {"numRecords": 1}]

    assert kept_by(is_("=", "id", 6), *stats) == [False, True, True, True]
    assert kept_by(is_("<", "id", 6), *stats) == [True, False, True, True]
    assert kept_by({"op": "not", "arg": is_("<=", "id", 5)}, *stats) == [False, True, True, True]


def test_a_date_is_compared_as_a_date() -> None:
    stats = [span("day", "2024-01-01", "2024-01-31"), span("day", "2024-02-01", "2024-02-29")]

    assert kept_by(is_(">=", "day", "2024-02-01"), *stats) == [False, True]


def test_a_maximum_that_may_be_cut_reaches_all_that_begins_with_it() -> None:
    stats = [span("name", "a", "x" * 32), span("name", "a", "b"), span("name", "a", "ab\ufffd")]

    assert kept_by(is_("=", "name", "x" * 40), *stats) == [True, False, True]


def test_one_unparseable_text_makes_the_result_unknown() -> None:
    assert kept_by(is_("=", "id", 6), span("id", 1, 5), span("id", "1", "5")) is None
    assert kept_by(is_("=", "id", 6), span("id", 1, 5), "") is None
    assert kept_by(is_("=", "id", 6), span("id", 1, 5), "{}{}", " ") is None


@pytest.mark.parametrize(
    "predicate",
    [
        is_("!=", "id", 1),
        is_("=", "x", 1.0),
        is_("=", "id", None),
        {"op": "is_null", "column": "id"},
        {"op": "or", "args": [is_("=", "id", 1), is_("=", "x", 1.0)]},
        {"op": "in", "column": "id", "values": [], "type": "long"},
    ],
)
def test_predicates_that_need_the_exact_evaluation_are_left_to_it(
    predicate: dict[str, Any],
) -> None:
    assert kept_by(predicate, span("id", 7, 9)) is None


def test_the_decidable_part_of_a_conjunction_is_evaluated() -> None:
    both = {"op": "and", "args": [is_("=", "id", 1), is_("=", "x", 1.0)]}

    assert kept_by(both, span("id", 7, 9), span("id", 1, 1)) == [False, True]


def test_typed_statistics_are_compared_as_they_are() -> None:
    bounds = [
        {"id": 1, "day": date(2024, 1, 1)},
        {"id": 7, "day": date(2024, 2, 1)},
        None,
    ]
    sides = [{"minValues": bound, "maxValues": bound} for bound in bounds]
    files = pa.table({"stats": pa.nulls(3, pa.string()), "stats_parsed": sides})

    for wanted in (is_("<", "id", 7), is_("<", "day", "2024-02-01")):
        result = left_in(wanted, files, COLUMNS_THERE)
        assert result is not None
        assert result.to_pylist() == [True, False, True]
    assert left_in(is_("=", "name", "x"), files, COLUMNS) is None


def test_statistics_of_another_type_than_the_column_are_ignored() -> None:
    sides = [{"minValues": {"id": "1"}, "maxValues": {"id": "2"}}]
    files = pa.table({"stats": pa.nulls(1, pa.string()), "stats_parsed": sides})

    assert left_in(is_("=", "id", 7), files, {("id",): (("id",), LONG)}) is None


def test_a_file_of_nothing_but_nulls_is_left_out_whatever_its_bounds() -> None:
    nulls = {**span("id", 1, 9), "numRecords": 3, "nullCount": {"id": 3}}
    some = {**span("id", 1, 9), "numRecords": 3, "nullCount": {"id": 2}}
    below_zero = {**span("id", 1, 9), "numRecords": -1, "nullCount": {"id": -1}}

    assert kept_by(is_("=", "id", 5), nulls, some, below_zero) == [False, True, True]


def test_it_is_the_last_word_where_every_part_needs_no_thought() -> None:
    whole, date_ = is_("<", "id", 6), is_(">=", "day", "2024-02-01")

    assert is_exact_bound({"op": "and", "args": [whole, date_]}, COLUMNS)
    assert is_exact_bound({"op": "not", "arg": {"op": "or", "args": [whole, date_]}}, COLUMNS)
    assert not is_exact_bound({"op": "and", "args": [whole, is_("=", "name", "x")]}, COLUMNS)
    assert not is_exact_bound({"op": "and", "args": [whole, is_("=", "x", 1.0)]}, COLUMNS)
