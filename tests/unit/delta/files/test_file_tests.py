"""Predicates against a few files: what is kept of a file is right for every predicate."""

import json
from typing import Any

import pytest

from tests.unit.delta.files.test_pruning import TABLE, between, is_
from tidegate.delta.actions import Add
from tidegate.delta.files import file_tests
from tidegate.delta.files.file_tests import FileTests


def file(part: str | None = "1", **stats: Any) -> Add:
    return Add(
        path="a",
        partition_values={"p": part},
        size=1,
        modification_time=0,
        data_change=True,
        stats=json.dumps(stats) if stats else None,
    )


def both(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"op": "and", "args": list(parts)}


def test_a_file_is_judged_anew_by_each_predicate() -> None:
    tests, one = FileTests(TABLE), file(**between("i", 10, 20))
    asked = [is_("=", 9, "i"), is_("=", 10, "i"), is_("!=", 10, "i"), is_("in", 0, "i")]
    asked[3] = {**asked[3], "values": [9, 20]}
    assert [tests.of(predicate)(one) for predicate in asked] == [False, True, True, True]


def test_of_partitions_nothing_is_asked_again() -> None:
    tests, away = FileTests(TABLE), file("2", **between("i", 10, 20))
    near, far = is_("=", 15, "i"), is_("=", 21, "i")
    named = {**is_("=", 1, "p"), "column": "P"}
    assert not tests.of(both(named, near))(away)
    assert tests.beyond_partitions(both(named, near))(away)
    assert not tests.beyond_partitions(both(named, far))(away)
    assert tests.beyond_partitions(both(named))(away)
    assert not tests.beyond_partitions(named)(away)
    assert not tests.beyond_partitions(both(is_("=", 1, "p"), near))(away), "a path is a path"


def test_more_files_and_columns_than_are_kept_are_judged_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(file_tests, "FEW", 2)
    monkeypatch.setattr(file_tests, "COLUMNS_MAX", 1)
    tests = FileTests(TABLE)
    for number in [*range(5), *range(5)]:
        one = file(str(number), **between("i", number, number))
        assert tests.of(both(is_("=", number, "i"), is_("=", number, "p")))(one)
        assert not tests.of(both(is_("=", number, "i"), is_("=", number + 1, "p")))(one)
        assert not tests.of(is_("=", number + 1, "i"))(one)
