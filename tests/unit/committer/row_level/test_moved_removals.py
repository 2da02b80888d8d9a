"""Changes of whole files beside compactions: no writer loses because rows were moved."""

import json
from typing import Any

import pytest

from tests.builders import Gate, Row, add, compact, metadata, proposal, remove, row_delete, rows_of
from tests.support.outcomes import rejection_of, rules_of
from tests.support.row_deletes import FEATURE, IN_THE_LOG, ON, gone, opening, vector
from tests.support.tables import creating
from tidegate_messages.proposal import Operation, Proposal, ReadSet

AB = {"a": 10, "b": 10}
ON_AND_FED = {**ON, "enableChangeDataFeed": "true"}


@pytest.fixture
def new_gate() -> Gate:
    return Gate(IN_THE_LOG)


@pytest.fixture
def first_proposals() -> list[Proposal]:
    return opening()


def last(gate: Gate, kind: str) -> list[Any]:
    return [row[kind] for row in gate.entries()[-1] if kind in row]


def rewrite(path: str, to: str, **fields: Any) -> Proposal:
    """Return a change of a whole file, which is read and replaced."""
    rows = (remove(path), add(to, stats=json.dumps({"numRecords": 9})))
    stated = {"reads": ReadSet(files=(path,)), "operation": Operation(name="DELETE"), **fields}
    return proposal(*rows, read_version=1, **stated)


def test_what_was_read_of_files_that_were_compacted_has_not_changed(gate: Gate) -> None:
    asked: Row = {"op": "=", "column": "x", "value": 1, "type": "long"}
    read = ReadSet(files=("a", "b"), predicates=(asked,))
    result = gate.ask(
        compact(AB, "g", read_version=1),
        proposal(add("c"), read_version=1, reads=read),
        proposal(add("d"), read_version=1, reads=ReadSet(whole_table=True)),
    )
    assert rules_of(result) == ["committed", "committed", "concurrent_append"]
    assert rejection_of(result[2]).winner_version == 3, "the append, not the compaction"


def test_the_whole_table_is_read_beside_a_compaction(gate: Gate) -> None:
    result = gate.ask(
        compact(AB, "g", read_version=1),
        proposal(add("d"), read_version=1, reads=ReadSet(whole_table=True)),
    )
    assert rules_of(result) == ["committed", "committed"]


def test_a_change_of_a_whole_file_leaves_the_other_rows_where_they_are(gate: Gate) -> None:
    result = gate.ask(compact(AB, "g", read_version=1), rewrite("b", "b2"))
    assert rules_of(result) == ["committed", "committed"]
    assert gone(gate, "g") == list(range(10, 20))
    assert {row["path"] for row in last(gate, "add")} == {"b2", "g"}
    assert [(row["path"], row["dataChange"]) for row in last(gate, "remove")] == [("g", True)]
    assert result[1].assigned["moved"] == ["b"]
    assert result[1].assigned["rows_deleted"] == 10


def test_both_writers_of_files_that_were_compacted_into_one_are_committed(gate: Gate) -> None:
    result = gate.ask(compact(AB, "g", read_version=1), rewrite("b", "b2"), rewrite("a", "a2"))
    assert rules_of(result) == ["committed"] * 3
    assert gone(gate, "g") is None, "no row of it is left"


def test_a_compacted_file_leaves_whole_where_all_its_rows_leave(gate: Gate) -> None:
    rows = (remove("a"), remove("b"), add("n"))
    own = proposal(*rows, read_version=1, reads=ReadSet(whole_table=True))
    result = gate.ask(compact(AB, "g", read_version=1), own)
    assert rules_of(result) == ["committed", "committed"]
    assert gone(gate, "g") is None
    assert {row["path"] for row in last(gate, "add")} == {"n"}


def test_rows_are_found_after_several_compactions(gate: Gate) -> None:
    gate.ask(proposal(add("c"), read_version=1))
    gate.ask(compact(AB, "g", read_version=2))
    gate.ask(row_delete(rows_of("g", [0, 1], num_records=20), read_version=3))
    gate.ask(compact({"c": 10, "g": 18}, "h", read_version=4, vectors={"g": vector(0, 1)}))
    assert rules_of(gate.ask(rewrite("b", "b2"))) == ["committed"]
    assert gone(gate, "h") == list(range(18, 28))


@pytest.mark.parametrize(("deleted", "rule"), [(3, "committed"), (13, "concurrent_delete_read")])
def test_only_rows_of_the_file_itself_are_in_the_way(gate: Gate, deleted: int, rule: str) -> None:
    gate.ask(compact(AB, "g", read_version=1))
    gate.ask(row_delete(rows_of("g", [deleted], num_records=20), read_version=2))
    assert rules_of(gate.ask(rewrite("b", "b2"))) == [rule]
    unread = rewrite("b", "b3", reads=ReadSet())
    assert rules_of(gate.ask(unread))[0] in ("concurrent_delete_delete", "concurrent_append")


def test_members_of_a_group_are_in_the_way_by_rows_too(gate: Gate) -> None:
    gate.ask(compact(AB, "g", read_version=1))
    result = gate.ask(
        row_delete(rows_of("g", [3, 19], num_records=20), read_version=2),
        rewrite("b", "b2"),
        rewrite("a", "a2", reads=ReadSet()),
    )
    assert rules_of(result) == ["committed", "concurrent_delete_read", "concurrent_delete_delete"]


def test_rows_and_a_file_of_one_compaction_leave_together(gate: Gate) -> None:
    own = row_delete(rows_of("a", [2]), read_version=1)
    own = own.model_copy(update={"actions": (remove("b"),), "reads": ReadSet(files=("a", "b"))})
    result = gate.ask(compact(AB, "g", read_version=1), own)
    assert rules_of(result) == ["committed", "committed"]
    assert gone(gate, "g") == [2, *range(10, 20)]


def test_a_reader_of_one_file_minds_no_rows_of_the_others(gate: Gate) -> None:
    gate.ask(compact(AB, "g", read_version=1))
    gate.ask(row_delete(rows_of("g", [3], num_records=20), read_version=2))
    result = gate.ask(
        proposal(add("c"), read_version=1, reads=ReadSet(files=("b",))),
        proposal(add("d"), read_version=1, reads=ReadSet(files=("a",))),
    )
    assert rules_of(result) == ["committed", "concurrent_delete_read"]


def test_a_compaction_gives_way_to_no_other(gate: Gate) -> None:
    again = compact(AB, "h", read_version=1, row_mapping=())
    result = gate.ask(compact(AB, "g", read_version=1), again)
    assert rules_of(result) == ["committed", "concurrent_delete_delete"]


def test_a_file_with_another_vector_does_not_follow(gate: Gate) -> None:
    own = proposal(remove("b", deletionVector=vector(1)), read_version=1)
    result = gate.ask(compact(AB, "g", read_version=1), own)
    assert rules_of(result) == ["committed", "concurrent_delete_delete"]


def test_nobody_names_the_file_that_holds_the_rows_of_another_that_he_removes(gate: Gate) -> None:
    gate.ask(compact(AB, "g", read_version=1))
    own = rewrite("b", "b2").model_copy(update={"actions": (remove("b"), remove("g"))})
    assert rules_of(gate.ask(own)) == ["duplicate_action"]


def test_it_holds_after_a_restart(gate: Gate) -> None:
    gate.ask(row_delete(rows_of("a", [0]), read_version=1), compact(AB, "g", read_version=1))
    gate.restart()
    assert rules_of(gate.ask(rewrite("b", "b2"))) == ["committed"]
    assert gone(gate, "g") == [0, *range(10, 20)]


def test_change_files_are_all_that_readers_of_changes_see() -> None:
    gate = Gate(IN_THE_LOG)
    names = ["deletionVectors"]
    fed = {**FEATURE["protocol"], "writerFeatures": [*names, "changeDataFeed"]}
    gate.ask(creating({"protocol": fed}, metadata(**ON_AND_FED)))
    gate.ask(proposal(add("a"), add("b"), read_version=0))
    change = {"cdc": {"path": "_change_data/c", "partitionValues": {}, "size": 1}}
    own = rewrite("b", "b2")
    own = own.model_copy(update={"actions": (*own.actions, change)})
    result = gate.ask(compact(AB, "g", read_version=1), own, proposal(remove("a"), read_version=1))
    assert rules_of(result) == ["committed"] * 3
    assert gone(gate, "g") is None
