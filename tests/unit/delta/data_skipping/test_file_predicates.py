"""Predicates against a few files: the precomputed tests are right for every predicate."""

import json
from itertools import combinations, product
from typing import Any

import pytest

from tests.definitions import one_file
from tests.unit.delta.data_skipping.test_file_pruning import TABLE, between, is_
from tidegate_delta.data_skipping import file_predicates
from tidegate_delta.data_skipping.file_predicates import FileTests
from tidegate_delta.data_skipping.predicate_tree import size_of, weight_of
from tidegate_delta.log.actions import Add


def file(part: str | None = "1", **stats: Any) -> Add:
    return one_file("a", partition_values={"p": part}, stats=json.dumps(stats) if stats else None)


def both(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"op": "and", "args": list(parts)}


def test_each_predicate_evaluates_a_file_for_itself() -> None:
    tests, one = FileTests(TABLE), file(**between("i", 10, 20))
    asked = [is_("=", 9, "i"), is_("=", 10, "i"), is_("!=", 10, "i"), is_("in", 0, "i")]
    asked[3] = {**asked[3], "values": [9, 20]}
    assert [tests.of(predicate)(one) for predicate in asked] == [False, True, True, True]


def test_conditions_on_partitions_are_not_evaluated_again() -> None:
    tests, away = FileTests(TABLE), file("2", **between("i", 10, 20))
    near, far = is_("=", 15, "i"), is_("=", 21, "i")
    named = {**is_("=", 1, "p"), "column": "P"}
    assert not tests.of(both(named, near))(away)
    assert tests.beyond_partitions(both(named, near))(away)
    assert not tests.beyond_partitions(both(named, far))(away)
    assert tests.beyond_partitions(both(named))(away)
    assert not tests.beyond_partitions(named)(away)
    assert not tests.beyond_partitions(both(is_("=", 1, "p"), near))(away), "a path is a path"


VALUES: dict[str, list[Any]] = {
    "i": [None, 3, 7, 12],
    "f": [None, 0.5, 3.0, "NaN", "-Infinity"],
    "m": [None, "1.50", "3.00", "7.25"],
    "s": [None, "a", "b", "b" * 40],
    "day": [None, "2024-02-28", "2024-02-29"],
    "at": [None, "2024-02-29T00:00:00.000000Z", "2024-02-29T00:00:00.000500Z"],
}
BOUNDS: dict[str, list[Any]] = {
    "i": [None, 2, 3, 7, 8],
    "f": [None, 0, 0.5, 3, 4],
    "m": [None, 1.5, 3, 7.25, 8],
    "s": [None, "a", "ab", "b", "b" * 32],
    "day": [None, "2024-02-28", "2024-03-01"],
    "at": [None, "2024-02-29T00:00:00.000Z", "2024-03-01T00:00:00.000Z"],
}


@pytest.mark.parametrize("column", VALUES)
@pytest.mark.parametrize("op", ["in", "or", "not in", "not or"])
def test_a_list_of_values_is_what_its_values_are_one_by_one(column: str, op: str) -> None:
    """Lookup in a sorted list gives the same result per file as a test of each value."""
    tests = FileTests(TABLE)
    for size in range(4):
        for values in combinations(VALUES[column], size):
            equal = [is_("=", value, column) for value in values]
            listed = {**is_("in", None, column), "values": list(values)}
            if op.endswith("or") and not values:
                continue
            predicate = {
                "in": listed,
                "or": {"op": "or", "args": equal},
                "not in": {"op": "not", "arg": listed},
                "not or": {"op": "not", "arg": {"op": "or", "args": equal}},
            }[op]
            fold = all if op.startswith("not") else any
            single = "!=" if op.startswith("not") else "="
            each = [tests.of(is_(single, value, column)) for value in values]
            for low, high, nulls in product(BOUNDS[column], BOUNDS[column], (0, 10)):
                one = file(**between(column, low, high, nulls))
                assert tests.of(predicate)(one) is fold(test(one) for test in each)


def test_a_list_is_one_question_and_so_are_the_equalities_of_a_column() -> None:
    some = [is_("=", at, "i") for at in range(50)]
    assert weight_of({"op": "or", "args": [*some, is_("=", "a", "s"), is_("<", 3, "i")]}) == 3
    assert weight_of({"op": "not", "arg": {"op": "or", "args": some}}) == 1
    assert weight_of({"op": "and", "args": some}) == 50
    assert weight_of({"op": "true"}) == 1
    listed = {"op": "in", "column": ["i"], "values": [1, 2, 3], "type": "integer"}
    assert (weight_of(listed), size_of({"op": "and", "args": [listed, *some]})) == (1, 55)


def test_more_files_and_columns_than_are_cached_are_evaluated_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(file_predicates, "FEW", 2)
    monkeypatch.setattr(file_predicates, "COLUMNS_MAX", 1)
    tests = FileTests(TABLE)
    for number in [*range(5), *range(5)]:
        one = file(str(number), **between("i", number, number))
        assert tests.of(both(is_("=", number, "i"), is_("=", number, "p")))(one)
        assert not tests.of(both(is_("=", number, "i"), is_("=", number + 1, "p")))(one)
        assert not tests.of(is_("=", number + 1, "i"))(one)
