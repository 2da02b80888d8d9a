"""Scans against added files, as delta-spark 4.4.0 decided them (copied vectors `append_read`)."""

import json
from pathlib import Path
from typing import Any

import pytest

from tidegate_delta.data_skipping.partition_predicates import may_match_partition
from tidegate_delta.schema.types import StructType, parse_schema

COLUMNS = {"p": "integer", "lane": "integer", "s": "string", "x": "integer"}
SCHEMA = parse_schema(
    json.dumps(
        {
            "type": "struct",
            "fields": [
                {"name": name, "type": kind, "nullable": True, "metadata": {}}
                for name, kind in COLUMNS.items()
            ],
        }
    )
)


def is_(op: str, value: Any, column: str = "p", kind: str = "integer") -> dict[str, Any]:
    return {"op": op, "column": [column], "value": value, "type": kind}


def in_(*values: int | None) -> dict[str, Any]:
    return {"op": "in", "column": ["p"], "values": list(values), "type": "integer"}


def not_(arg: dict[str, Any]) -> dict[str, Any]:
    return {"op": "not", "arg": arg}


def and_(*args: dict[str, Any]) -> dict[str, Any]:
    return {"op": "and", "args": list(args)}


def or_(*args: dict[str, Any]) -> dict[str, Any]:
    return {"op": "or", "args": list(args)}


NULL = {"op": "is_null", "column": ["p"]}
NOT_NULL = {"op": "is_not_null", "column": ["p"]}
UDF = {"op": "opaque", "columns": [["p"]], "text": "udf(p)"}
DICE = {"op": "opaque", "columns": [], "text": "rand() < 0"}
DATA = is_(">", 140, "x")


def matches(predicate: dict[str, Any], value: str | None, *columns: str) -> bool:
    return may_match_partition(predicate, {"p": value}, SCHEMA, columns or ("p",))


@pytest.mark.parametrize(
    ("predicate", "value", "expected"),
    [
        (is_("=", 1), "1", True),
        (is_("=", 1), "2", False),
        (is_("=", 1), None, False),
        (is_("=", 1, "P"), "2", False),
        (is_("=", 1), "01", True),
        (NULL, None, True),
        (NULL, "1", False),
        (NOT_NULL, "1", True),
        (NOT_NULL, None, False),
        (is_("<=>", None), None, True),
        (is_("<=>", 1), None, False),
        (not_(is_("<=>", 1)), None, True),
        (is_("!=", 1), None, False),
        (not_(is_("=", 1)), None, False),
        (in_(1, 2), "2", True),
        (in_(1, None), "2", False),
        (not_(in_(1, None)), "2", False),
        (not_(in_(1, 2)), "3", True),
        (and_(is_(">=", 2), is_("<", 4)), "4", False),
        (not_(or_(is_("=", 1), is_("=", 2))), "3", True),
        (not_({"op": "true"}), "1", False),
    ],
)
def test_partition_values_are_evaluated_in_three_valued_logic(
    predicate: dict[str, Any], value: str | None, expected: bool
) -> None:
    assert matches(predicate, value) is expected


def at(op: str, value: str) -> dict[str, Any]:
    return is_(op, value, "at", "timestamp")


@pytest.mark.parametrize(
    ("predicate", "value", "expected"),
    [
        (at("=", "2024-01-01 05:30:00"), "2024-01-01 00:00:00", True),
        (at("=", "2024-01-01 05:30:00"), "2024-01-01 00:00:00Z", False),
        (at("=", "2024-01-01 05:30:00"), "2024-01-01T00:00:00+00:00", False),
        (at("=", "2023-12-31 18:00:00"), "2024-01-01", True),
        (at("=", "2024-01-01 18:00:01"), "2024-01-01 00:00:00", False),
        (at(">", "2024-01-01 12:00:00"), "2024-01-01 00:00:00", True),
        (not_(at("<=", "2024-01-01 12:00:00")), "2024-01-01 00:00:00", True),
        (at("<", "2023-12-31 00:00:00"), "2024-01-01 00:00:00", False),
        (at("!=", "2024-01-01 00:00:00"), "2024-01-01 00:00:00", True),
        (at("=", "2024-01-01 00:00:00"), None, False),
        (and_(at(">", "2024-01-01"), is_("=", 1)), "2024-01-01 00:00:00", False),
        (at("=", "0001-01-01 03:00:00"), "0001-01-01 00:00:00", True),
    ],
)
def test_a_moment_that_names_no_zone_matches_by_any_zone(
    predicate: dict[str, Any], value: str | None, expected: bool
) -> None:
    schema = parse_schema(
        '{"type":"struct","fields":[{"name":"at","type":"timestamp","nullable":true,"metadata":{}},'
        '{"name":"p","type":"integer","nullable":true,"metadata":{}}]}'
    )
    values = {"at": value, "p": "2"}
    assert may_match_partition(predicate, values, schema, ("at", "p")) is expected


def test_conjuncts_about_data_are_left_out() -> None:
    assert matches(and_(is_("=", 1), DATA), "1")
    assert not matches(and_(is_("=", 1), DATA), "2")
    assert matches(DATA, "2")


def test_a_mixed_or_and_a_mixed_not_are_left_out_whole() -> None:
    assert matches(or_(is_("=", 1), DATA), "2")
    assert matches(not_(and_(is_("=", 1), DATA)), "1")


def test_what_is_opaque_counts_as_true_and_widens_what_holds_it() -> None:
    assert matches(UDF, "2")
    assert matches(not_(UDF), "2")
    assert matches(or_(is_("=", 1), UDF), "2")
    assert not matches(and_(is_("=", 1), UDF), "2")
    assert not matches(and_(is_("=", 1), DICE), "2")
    assert matches(not_(and_(is_("=", 1), UDF)), "1")


def test_every_file_of_an_unpartitioned_table_matches() -> None:
    assert may_match_partition(not_({"op": "true"}), {}, SCHEMA, ())


@pytest.mark.parametrize("value", ["abc", "", "1.0"])
def test_a_partition_value_of_another_type_is_an_error(value: str) -> None:
    with pytest.raises(ValueError, match="integer"):
        matches(is_("=", 1), value)


def test_a_value_is_parsed_only_where_it_is_used() -> None:
    broken = {"p": "1", "lane": "broken"}
    decided = and_(is_("=", 2), is_("=", 1, "lane"))
    assert not may_match_partition(decided, broken, SCHEMA, ("p", "lane"))


@pytest.mark.parametrize(
    ("predicate", "matches"),
    [
        (is_("=", "", "s", "string"), True),
        ({"op": "is_null", "column": ["s"]}, True),
        ({"op": "is_not_null", "column": ["s"]}, True),
        (is_("<=>", None, "s", "string"), True),
        (is_("<", "a", "s", "string"), True),
        (is_("=", "a", "s", "string"), False),
        (is_(">", "a", "s", "string"), False),
    ],
)
def test_an_empty_string_is_null_to_some_readers_and_none_to_others(
    predicate: dict[str, Any], matches: bool
) -> None:
    assert may_match_partition(predicate, {"s": ""}, SCHEMA, ("s",)) is matches


def test_a_partition_value_that_the_log_leaves_out_is_null() -> None:
    assert may_match_partition(NULL, {}, SCHEMA, ("p",))


def test_values_of_another_family_are_widened_rather_than_guessed() -> None:
    assert matches(is_("=", "1", "p", "string"), "2")


def test_the_corpus_agrees(own_corpus: Path) -> None:
    wrong = []
    for group in ("append_read", "partition_types"):
        for case in json.loads((own_corpus / "conflicts" / f"{group}.json").read_text())["cases"]:
            if case["reads"]["predicates"] and not case.get("stricter_allowed"):
                verdict = _verdict(case)
                if verdict != case["expected"]["verdict"]:
                    wrong.append((case["name"], verdict))
    assert wrong == []


def _verdict(case: dict[str, Any]) -> str:
    metadata = case["table"]["metaData"]
    schema: StructType = parse_schema(metadata["schemaString"])
    trees = [item["ast"] for item in case["reads"]["predicates"]]
    adds = [row["add"] for winner in case["winners"] for row in winner if "add" in row]
    try:
        hit = any(
            may_match_partition(
                tree, add.get("partitionValues") or {}, schema, metadata["partitionColumns"]
            )
            for add in adds
            for tree in trees
        )
    except ValueError:
        return "invalid"
    return "conflict" if hit else "committed"
