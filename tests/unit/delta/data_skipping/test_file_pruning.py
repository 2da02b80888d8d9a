"""Pruning against misleading statistics: one trap per test."""

import json
from datetime import date
from typing import Any

import pyarrow as pa
import pytest

from tests.definitions import one_file
from tidegate_delta.data_skipping import file_pruning
from tidegate_delta.data_skipping.file_pruning import StatsColumns, is_exact_bound, left_in, prune
from tidegate_delta.log.actions import Add, Metadata
from tidegate_delta.schema.types import DATE, DOUBLE, LONG, STRING
from tidegate_delta.snapshots.file_action_columns import adds_to_columns

KINDS = {
    "p": "integer",
    "i": "integer",
    "f": "float",
    "d": "double",
    "m": "decimal(38,2)",
    "s": "string",
    "day": "date",
    "at": "timestamp",
    "ntz": "timestamp_ntz",
    "b": "boolean",
}
NESTED = {"type": "struct", "fields": [{"name": "a", "type": "long", "nullable": True}]}
FIELDS = [
    *({"name": name, "type": kind, "nullable": True} for name, kind in KINDS.items()),
    {"name": "n", "type": NESTED, "nullable": True},
]


def table(*fields: dict[str, Any], **configuration: str) -> Metadata:
    schema = {"type": "struct", "fields": list(fields or FIELDS)}
    return Metadata(
        id="t",
        schema_string=json.dumps(schema),
        partition_columns=("p",),
        configuration={key.replace("_", "."): text for key, text in configuration.items()},
    )


TABLE = table()


def is_(op: str, value: Any, column: str, kind: str | None = None) -> dict[str, Any]:
    return {"op": op, "column": [column], "value": value, "type": kind or KINDS[column]}


def left_of(predicate: dict[str, Any], adds: list[Add], of: Metadata = TABLE) -> list[str]:
    """Return the paths of the files kept."""
    result: list[str] = prune(predicate, adds_to_columns(adds), of)["path"].to_pylist()
    return result


def kept(predicate: dict[str, Any], stats: Any, partition: str | None = None) -> bool:
    text = stats if isinstance(stats, str | None) else json.dumps(stats)
    add = one_file("a", partition_values={"p": partition}, stats=text)
    return bool(left_of(predicate, [add]))


def between(column: str, low: Any, high: Any, nulls: int = 0) -> dict[str, Any]:
    return {
        "numRecords": 10,
        "minValues": {column: low},
        "maxValues": {column: high},
        "nullCount": {column: nulls},
    }


def test_a_file_out_of_reach_is_left_out() -> None:
    stats = between("i", 10, 20)
    assert not kept(is_("=", 9, "i"), stats)
    assert not kept(is_(">", 20, "i"), stats)
    assert not kept(is_("<", 10, "I", "integer"), stats)
    assert kept(is_(">=", 20, "i"), stats)
    assert kept({"op": "not", "arg": is_("<", 20, "i")}, stats)
    assert not kept({"op": "not", "arg": is_("<=", 20, "i")}, stats)
    assert not kept({"op": "in", "column": ["i"], "values": [1, 30], "type": "integer"}, stats)


@pytest.mark.parametrize("stats", [None, "", "no json", "[]", "{}", '{"minValues":{"i":null}}'])
def test_a_file_without_usable_statistics_is_kept(stats: str | None) -> None:
    assert kept(is_("=", 9, "i"), stats)


@pytest.mark.parametrize("low", ["10", 10.5, True, {"x": 1}])
def test_a_bound_of_another_type_is_no_bound(low: Any) -> None:
    assert kept(is_("=", 9, "i"), between("i", low, 20))


def test_nulls_are_counted_before_bounds_are_compared() -> None:
    null, some = {"op": "is_null", "column": ["i"]}, {"op": "is_not_null", "column": ["i"]}
    everything_null = {"numRecords": 10, "nullCount": {"i": 10}}
    assert not kept(null, between("i", 1, 2, nulls=0))
    assert kept(null, between("i", 1, 2, nulls=1))
    assert not kept(some, everything_null)
    assert not kept(is_("=", 1, "i"), everything_null)
    assert kept(is_("<=>", None, "i"), everything_null)
    assert not kept(is_("=", None, "i"), between("i", 1, 2))


def test_a_null_count_under_wide_bounds_means_only_all_or_none() -> None:
    wide = {**between("i", 1, 2, nulls=3), "tightBounds": False}
    assert kept({"op": "is_null", "column": ["i"]}, wide)
    assert kept({"op": "is_not_null", "column": ["i"]}, wide)


def test_nested_null_counts_are_not_believed() -> None:
    stats = {"numRecords": 10, "nullCount": {"n": {"a": 0}}}
    assert kept({"op": "is_null", "column": ["n", "a"]}, stats)
    bounds = {"minValues": {"n": {"a": 5}}, "maxValues": {"n": {"a": 6}}}
    assert not kept({**is_("=", 4, "n", "long"), "column": ["n", "a"]}, bounds)


def test_bounds_that_leave_nan_out_do_not_hide_it() -> None:
    stats = between("d", 1.0, 2.0)
    assert kept(is_(">", 5.0, "d"), stats)
    assert kept(is_("!=", 1.0, "d"), between("d", 1.0, 1.0))
    assert kept(is_("=", "NaN", "d"), stats)
    assert kept({"op": "not", "arg": is_("<", 5.0, "d")}, stats)
    assert not kept(is_("=", 5.0, "d"), stats)
    assert not kept(is_("<", 1.0, "d"), stats)


def test_bounds_of_a_float_are_rounded_as_the_column_rounds() -> None:
    assert kept(is_("=", 0.10000000149011612, "f", "double"), between("f", 0.1, 0.1))


def test_the_maximum_of_a_timestamp_may_have_lost_a_millisecond() -> None:
    stats = between("at", "2024-01-01T00:00:00.000Z", "2024-01-01T00:00:00.123Z")
    assert kept(is_(">", "2024-01-01 00:00:00.123456", "at"), stats)
    assert not kept(is_(">", "2024-01-01 00:00:00.124456", "at"), stats)
    offset = between("at", "2024-01-01T01:00:00+01:00", "2024-01-01T01:00:00+01:00")
    assert kept(is_("=", "2024-01-01 00:00:00", "at"), offset)
    assert not kept(is_("=", "2024-01-01 01:00:00", "at"), offset)


def test_an_offset_of_local_mean_time_is_no_bound_for_it_lacks_its_seconds() -> None:
    # 1900-01-01 00:00:00 in Shanghai, whose offset then was 8:05:43.
    stats = between("at", "1900-01-01T00:00:00.000+08:05", "1900-01-01T00:00:00.000+08:05")
    assert kept(is_("=", "1899-12-31 15:54:17", "at"), stats)
    assert kept(is_("<", "1899-12-31 15:54:30", "at"), stats)
    utc = between("at", "1900-01-01T00:00:00.000Z", "1900-01-01T00:00:00+00:00")
    assert not kept(is_("=", "1899-12-31 15:54:17", "at"), utc)


def test_a_timestamp_without_its_zone_is_no_bound() -> None:
    stats = between("at", "2024-01-01T00:00:00", "2024-01-01T00:00:00")
    assert kept(is_("=", "2024-01-01 05:00:00", "at"), stats)
    ntz = between("ntz", "2024-01-01T00:00:00.000", "2024-01-01T00:00:00.000")
    assert not kept(is_("=", "2024-01-01 05:00:00", "ntz"), ntz)


def test_a_partition_whose_moment_names_no_zone_is_left_out_only_past_every_zone() -> None:
    of = TABLE.with_(partition_columns=("at",))
    texts = ("2024-01-01 00:00:00", "2024-01-01T00:00:00Z", None)
    adds = [one_file(str(text), partition_values={"at": text}) for text in texts]
    assert left_of(is_("=", "2024-01-01 05:00:00", "at"), adds, of) == [texts[0]]
    assert left_of(is_("=", "2024-01-02 05:00:00", "at"), adds, of) == []
    assert left_of(is_("!=", "2024-01-01 00:00:00", "at"), adds, of) == [texts[0]]


def test_a_date_in_a_widened_column_is_its_midnight() -> None:
    stats = between("ntz", "2024-01-01", "2024-01-01")
    assert kept(is_("=", "2024-01-01 00:00:00", "ntz"), stats)
    assert not kept(is_("=", "2024-01-02 00:00:00", "ntz"), stats)


def test_a_cut_maximum_does_not_hide_longer_strings() -> None:
    cut = "x" * 32
    assert kept(is_(">", cut + "zzz", "s"), between("s", "a", cut))
    assert kept(is_("=", "ab\U0001f600", "s"), between("s", "a", "ab\ufffd"))
    assert not kept(is_(">", "y", "s"), between("s", "a", cut))


def test_a_decimal_that_went_through_a_double_is_not_taken_by_its_word() -> None:
    stats = between("m", 0, 12345678901234567000.0)
    assert kept(is_("=", "12345678901234567890.12", "m"), stats)
    exact = '{"minValues":{"m":0.10},"maxValues":{"m":0.20}}'
    assert kept(is_("=", "0.20", "m"), exact)
    assert not kept(is_("=", "0.21", "m"), exact)


def test_booleans_have_no_bounds() -> None:
    assert kept(is_("=", True, "b"), between("b", False, False))


@pytest.mark.parametrize(
    ("predicate", "is_kept"),
    [
        ({"op": "is_null", "column": ["p"]}, True),
        ({"op": "is_not_null", "column": ["p"]}, True),
        (is_("=", "", "p", "string"), True),
        (is_("=", "a", "p", "string"), False),
    ],
)
def test_an_empty_partition_text_is_null_or_none_as_its_reader_has_it(
    predicate: dict[str, Any], is_kept: bool
) -> None:
    of = table({"name": "p", "type": "string", "nullable": True})
    add = one_file("a", partition_values={"p": ""})
    assert left_of(predicate, [add], of) == (["a"] if is_kept else [])


def test_partition_values_are_exact_and_null_is_known() -> None:
    assert not kept(is_("=", 1, "p"), None, "2")
    assert kept(is_("=", 1, "p"), None, "01")
    assert not kept({"op": "is_null", "column": ["p"]}, None, "1")
    assert kept({"op": "is_null", "column": ["p"]}, None, None)
    assert not kept(is_("!=", 1, "p"), None, "1")
    assert kept(is_("=", 1, "p"), None, "unreadable")


def test_what_cannot_be_evaluated_matches_on_both_sides_of_a_not() -> None:
    opaque = {"op": "opaque", "columns": [["i"]], "text": "udf(i)"}
    assert kept(opaque, between("i", 1, 2))
    assert kept({"op": "not", "arg": opaque}, between("i", 1, 2))
    assert kept(is_("=", 1, "gone", "integer"), between("i", 1, 2))
    assert not kept({"op": "and", "args": [opaque, is_("=", 9, "i")]}, between("i", 1, 2))


def test_files_keep_their_order_and_columns() -> None:
    adds = [one_file(str(at), partition_values={"p": str(at)}) for at in range(5)]
    files = adds_to_columns(adds)
    result = prune(is_(">=", 2, "p"), files, TABLE)
    assert result.schema == files.schema
    assert result.column("path").to_pylist() == ["2", "3", "4"]
    assert prune(is_("=", 1, "p"), files.slice(0, 0), TABLE).num_rows == 0


def test_mapped_columns_are_looked_up_by_their_physical_names() -> None:
    """Two columns have swapped names, so a lookup by display name finds the other's bounds."""

    def mapped(name: str, kind: Any, physical: str) -> dict[str, Any]:
        about = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": physical}
        return {"name": name, "type": kind, "nullable": True, "metadata": about}

    inner = {"type": "struct", "fields": [mapped("x", "long", "y"), mapped("y", "long", "x")]}
    of = table(
        mapped("i", "integer", "j"),
        mapped("j", "integer", "i"),
        mapped("s", inner, "c"),
        mapped("p", "integer", "q"),
        delta_columnMapping_mode="name",
    )
    stats = {
        "numRecords": 1,
        "minValues": {"i": 1, "j": 2, "c": {"x": 3, "y": 4}},
        "maxValues": {"i": 1, "j": 2, "c": {"x": 3, "y": 4}},
        "nullCount": {"i": 0, "j": 0},
    }
    values = {"q": "5", "p": "6"}
    add = one_file("a", partition_values=values, stats=json.dumps(stats))
    for column, value, other in (
        (["i"], 2, 1),
        (["j"], 1, 2),
        (["s", "x"], 4, 3),
        (["s", "y"], 3, 4),
        (["p"], 5, 6),
    ):
        leaf = {"op": "=", "column": column, "type": "integer"}
        assert left_of({**leaf, "value": value}, [add], of)
        assert not left_of({**leaf, "value": other}, [add], of)


def test_bounds_of_a_float_hold_after_it_became_a_double() -> None:
    """The file's 1.1 is a float, which as a double is 1.10000002384185791015625."""
    record = [{"fromType": "float", "toType": "double"}]
    about = {"metadata": {"delta.typeChanges": record}}
    widened = table({"name": "d", "type": "double", "nullable": True, **about})
    single = 1.10000002384185791015625
    add = one_file("a", stats=json.dumps(between("d", 1.1, 1.1)))
    for value in (single, 1.1):
        assert left_of(is_("=", value, "d"), [add], widened)
    assert not left_of(is_("=", 1.2, "d"), [add], widened)


@pytest.mark.parametrize(
    ("before", "after", "low", "high", "value"),
    [
        ("integer", "long", 1, 5, 3),
        ("integer", "double", 1, 5, 3.0),
        ("integer", "decimal(12,2)", 1, 5, "3.00"),
        ("decimal(4,1)", "decimal(12,3)", 1.5, 5.5, "5.500"),
        ("date", "timestamp_ntz", "2024-02-28", "2024-02-29", "2024-02-29 00:00:00"),
    ],
)
def test_bounds_in_the_text_of_the_old_type_hold_in_the_new_one(
    before: str, after: str, low: Any, high: Any, value: Any
) -> None:
    record = [{"fromType": before, "toType": after}]
    about = {"metadata": {"delta.typeChanges": record}}
    widened = table({"name": "w", "type": after, "nullable": True, **about})
    add = one_file("a", stats=json.dumps(between("w", low, high)))
    assert left_of(is_("=", value, "w", after), [add], widened)
    assert left_of(is_("<", value, "w", after), [add], widened)
    far = {"date": "2030-01-01 00:00:00"}.get(before, 99 if after != "double" else 99.0)
    far = str(far) if after.startswith("decimal") else far
    assert not left_of(is_("=", far, "w", after), [add], widened)


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


def typed(op: str, column: str, value: Any) -> dict[str, Any]:
    kinds = {"id": "long", "name": "string", "day": "date", "x": "double"}
    return {"op": op, "column": column, "value": value, "type": kinds[column]}


@pytest.fixture(autouse=True)
def _however_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_pruning, "ROWS_MIN", 1)


def test_files_out_of_reach_are_left_out_and_the_unknown_stay() -> None:
    stats = [span("id", 1, 5), span("id", 6, 9), None, {"numRecords": 1}]

    assert kept_by(typed("=", "id", 6), *stats) == [False, True, True, True]
    assert kept_by(typed("<", "id", 6), *stats) == [True, False, True, True]
    assert kept_by({"op": "not", "arg": typed("<=", "id", 5)}, *stats) == [False, True, True, True]


def test_a_date_is_compared_as_a_date() -> None:
    stats = [span("day", "2024-01-01", "2024-01-31"), span("day", "2024-02-01", "2024-02-29")]

    assert kept_by(typed(">=", "day", "2024-02-01"), *stats) == [False, True]


def test_a_maximum_that_may_be_cut_reaches_all_that_begins_with_it() -> None:
    stats = [span("name", "a", "x" * 32), span("name", "a", "b"), span("name", "a", "ab\ufffd")]

    assert kept_by(typed("=", "name", "x" * 40), *stats) == [True, False, True]


def test_one_unparseable_text_makes_the_result_unknown() -> None:
    assert kept_by(typed("=", "id", 6), span("id", 1, 5), span("id", "1", "5")) is None
    assert kept_by(typed("=", "id", 6), span("id", 1, 5), "") is None
    assert kept_by(typed("=", "id", 6), span("id", 1, 5), "{}{}", " ") is None


@pytest.mark.parametrize(
    "predicate",
    [
        typed("!=", "id", 1),
        typed("=", "x", 1.0),
        typed("=", "id", None),
        {"op": "is_null", "column": "id"},
        {"op": "or", "args": [typed("=", "id", 1), typed("=", "x", 1.0)]},
        {"op": "in", "column": "id", "values": [], "type": "long"},
    ],
)
def test_predicates_that_need_the_exact_evaluation_are_left_to_it(
    predicate: dict[str, Any],
) -> None:
    assert kept_by(predicate, span("id", 7, 9)) is None


def test_the_decidable_part_of_a_conjunction_is_evaluated() -> None:
    both = {"op": "and", "args": [typed("=", "id", 1), typed("=", "x", 1.0)]}

    assert kept_by(both, span("id", 7, 9), span("id", 1, 1)) == [False, True]


def test_typed_statistics_are_compared_as_they_are() -> None:
    bounds = [{"id": 1, "day": date(2024, 1, 1)}, {"id": 7, "day": date(2024, 2, 1)}, None]
    sides = [{"minValues": bound, "maxValues": bound} for bound in bounds]
    files = pa.table({"stats": pa.nulls(3, pa.string()), "stats_parsed": sides})

    for wanted in (typed("<", "id", 7), typed("<", "day", "2024-02-01")):
        result = left_in(wanted, files, COLUMNS_THERE)
        assert result is not None
        assert result.to_pylist() == [True, False, True]
    assert left_in(typed("=", "name", "x"), files, COLUMNS) is None


def test_statistics_of_another_type_than_the_column_are_ignored() -> None:
    sides = [{"minValues": {"id": "1"}, "maxValues": {"id": "2"}}]
    files = pa.table({"stats": pa.nulls(1, pa.string()), "stats_parsed": sides})

    assert left_in(typed("=", "id", 7), files, {("id",): (("id",), LONG)}) is None


def test_a_file_of_nothing_but_nulls_is_left_out_whatever_its_bounds() -> None:
    nulls = {**span("id", 1, 9), "numRecords": 3, "nullCount": {"id": 3}}
    some = {**span("id", 1, 9), "numRecords": 3, "nullCount": {"id": 2}}
    below_zero = {**span("id", 1, 9), "numRecords": -1, "nullCount": {"id": -1}}

    assert kept_by(typed("=", "id", 5), nulls, some, below_zero) == [False, True, True]


def test_it_is_the_last_word_where_every_part_needs_no_thought() -> None:
    whole, date_ = typed("<", "id", 6), typed(">=", "day", "2024-02-01")

    assert is_exact_bound({"op": "and", "args": [whole, date_]}, COLUMNS)
    assert is_exact_bound({"op": "not", "arg": {"op": "or", "args": [whole, date_]}}, COLUMNS)
    assert not is_exact_bound({"op": "and", "args": [whole, typed("=", "name", "x")]}, COLUMNS)
    assert not is_exact_bound({"op": "and", "args": [whole, typed("=", "x", 1.0)]}, COLUMNS)
