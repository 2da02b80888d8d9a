import json
from typing import Any

import pytest

from tidegate.delta.changes.plan import plan
from tidegate.delta.commit import Commit
from tidegate.delta.errors import BrokenLog, UnsupportedFeature

VECTOR = {"storageType": "i", "pathOrInlineDv": "x", "sizeInBytes": 1, "cardinality": 1}


def commit(*rows: dict[str, Any]) -> Commit:
    return Commit.decode(4, "\n".join(json.dumps(row) for row in rows).encode())


def add(path: str, **more: Any) -> dict[str, Any]:
    body = {"path": path, "partitionValues": {"p": "1"}, "size": 7, "modificationTime": 0}
    return {"add": {"dataChange": True, **body, **more}}


def remove(path: str, **more: Any) -> dict[str, Any]:
    return {"remove": {"path": path, "dataChange": True, "partitionValues": {"p": "2"}, **more}}


def cdc(path: str) -> dict[str, Any]:
    return {"cdc": {"path": path, "partitionValues": {}, "size": 3, "dataChange": False}}


def files(*rows: dict[str, Any]) -> list[tuple[str, str]]:
    return [(one.change, one.path) for one in plan(commit(*rows), 5).files]


def merge(**metrics: str) -> dict[str, Any]:
    return {"commitInfo": {"operation": "MERGE", "operationMetrics": metrics}}


def test_change_files_hide_everything_else() -> None:
    assert files(add("a"), remove("b"), cdc("c"), cdc("d")) == [("cdc", "c"), ("cdc", "d")]


def test_without_change_files_removes_are_deletions_and_adds_insertions() -> None:
    assert files(add("a"), remove("b", size=9)) == [("delete", "b"), ("insert", "a")]
    first, second = plan(commit(add("a"), remove("b", size=9)), 5).files
    assert first.partition_values == {"p": "2"}
    assert (first.size, second.size) == (9, 7)


def test_actions_that_change_no_data_hold_no_changes() -> None:
    assert files(add("a", dataChange=False), remove("b", dataChange=False)) == []


def test_a_merge_that_changed_no_row_holds_no_changes() -> None:
    zeros = {f"numTargetRows{what}": "0" for what in ("Inserted", "Updated", "Deleted")}
    assert files(merge(**zeros), add("a"), remove("b")) == []
    assert files(merge(**{**zeros, "numTargetRowsUpdated": "1"}), add("a")) == [("insert", "a")]
    assert files(merge(), add("a")) == [("insert", "a")]
    assert files(merge(**zeros), cdc("c")) == [("cdc", "c")]


def test_a_file_that_stays_with_other_deleted_rows_is_refused_by_name() -> None:
    for rows in (
        [remove("x%20y"), add("x y", deletionVector=VECTOR)],
        [remove("a", deletionVector=VECTOR)],
        [add("a", deletionVector=VECTOR)],
    ):
        with pytest.raises(UnsupportedFeature) as caught:
            files(*rows)
        assert caught.value.feature == "deletionVectors"


def test_a_file_that_is_removed_and_added_as_it_was_holds_no_changes() -> None:
    assert files(remove("a"), add("a")) == []


def test_a_remove_that_lacks_its_partition_values_cannot_be_told() -> None:
    with pytest.raises(BrokenLog, match="partition values"):
        files({"remove": {"path": "b", "dataChange": True}})


def test_the_plan_carries_version_and_time() -> None:
    found = plan(commit(), 5)
    assert (found.version, found.timestamp_ms, found.files) == (4, 5, ())
