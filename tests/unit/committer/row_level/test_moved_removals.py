"""Changes of whole files beside compactions: no writer loses because rows were moved."""

import json
from typing import Any

import pytest

from tests.builders import (
    Gate,
    Row,
    add,
    compact,
    create,
    metadata,
    proposal,
    protocol,
    remove,
    row_delete,
    rows_of,
)
from tests.support.decisions import state_of
from tests.support.outcomes import rejection_of, rules_of
from tests.support.row_deletes import FEATURE, IN_THE_LOG, ON, gone, last, vector
from tests.support.tables import creating
from tidegate_messages.proposal import Operation, Proposal, ReadSet

AB = {"a": 10, "b": 10}
ON_AND_FED = {**ON, "enableChangeDataFeed": "true"}


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


def test_a_delete_beside_a_compaction_passes_deletes_of_rows_that_it_never_read(
    gate: Gate,
) -> None:
    gate.ask(compact(AB, "g", read_version=1))
    gate.ask(row_delete(rows_of("g", [3], num_records=20), read_version=2))
    condition: Row = {"op": "=", "column": "x", "value": 1, "type": "long"}
    read = ReadSet(files=("wide",), predicates=(condition,), delete_insensitive=True)
    own = row_delete(rows_of("wide", [3], num_records=200_000), read_version=1, reads=read)
    assert rules_of(gate.ask(own)) == ["committed"]


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


def test_a_file_whose_rows_were_moved_is_not_added_again(gate: Gate) -> None:
    again = proposal(add("b"), read_version=1, reads=ReadSet(files=("b",)))
    result = gate.ask(compact(AB, "g", read_version=1), again)
    assert rules_of(result) == ["committed", "concurrent_delete_read"]


def test_a_vector_that_a_writer_made_itself_is_followed(gate: Gate) -> None:
    stats = json.dumps({"numRecords": 10, "tightBounds": False})
    own = proposal(
        *(remove("b"), add("b", deletionVector=vector(1, 2), stats=stats)),
        read_version=1,
        reads=ReadSet(files=("b",)),
        operation=Operation(name="DELETE"),
    )
    result = gate.ask(compact(AB, "g", read_version=1), own)
    assert rules_of(result) == ["committed", "committed"]
    assert gone(gate, "g") == [11, 12]
    assert result[1].assigned["moved"] == ["b"]


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


@pytest.fixture
def plain() -> Gate:
    """Return a committer with a table without deletion vectors that holds a, b and c."""
    gate = Gate(IN_THE_LOG)
    gate.ask(create())
    tagged = add("b", tags={"k": "v"}, modificationTime=5)
    assert rules_of(gate.ask(proposal(add("a"), tagged, add("c")))) == ["committed"]
    return gate


def live(gate: Gate) -> set[str]:
    """Return the live files."""
    files: set[str] = set()
    for rows in gate.entries():
        files -= {row["remove"]["path"] for row in rows if "remove" in row}
        files |= {row["add"]["path"] for row in rows if "add" in row}
    return files


def test_without_vectors_the_compaction_gives_way(plain: Gate) -> None:
    result = plain.ask(compact(AB, "g", read_version=1), rewrite("a", "a2"))
    assert rules_of(result) == ["committed", "committed"]
    assert live(plain) == {"a2", "b", "c"}
    assert [(row["path"], row["dataChange"]) for row in last(plain, "remove")] == [("g", True)]
    [back] = [row for row in last(plain, "add") if row["path"] == "b"]
    before = add("b", tags={"k": "v"}, modificationTime=5, dataChange=False)
    assert back == before["add"]
    [accepted] = last(plain, "commitInfo")[0]["tidegate"]["accepted"]
    assert accepted["returned"] == ["b"]


@pytest.mark.parametrize("restarts", [False, True])
def test_both_writers_of_files_whose_compaction_gave_way_are_committed(
    plain: Gate, restarts: bool
) -> None:
    read = ReadSet(files=("a", "b", "c"))
    plain.ask(compact(AB, "g", read_version=1), rewrite("a", "a2"))
    if restarts:
        plain.restart()
    result = plain.ask(
        rewrite("b", "b2"),
        rewrite("a", "a3"),
        proposal(add("d"), read_version=1, reads=ReadSet(files=("b", "c"))),
        proposal(add("e"), read_version=1, reads=read),
    )
    assert rules_of(result)[0] == "committed"
    assert rules_of(result)[1:] == ["concurrent_delete_read"] * 3
    assert [rejection_of(one).winner_version for one in result[1:]] == [3, 4, 3]
    assert live(plain) == {"a2", "b2", "c"}


def test_a_compaction_of_a_compaction_gives_way_to_its_sources(plain: Gate) -> None:
    plain.ask(compact(AB, "g", read_version=1))
    plain.ask(compact({"c": 10, "g": 20}, "h", read_version=2))
    assert rules_of(plain.ask(rewrite("b", "b2"))) == ["committed"]
    assert live(plain) == {"a", "b2", "c"}
    assert rules_of(plain.ask(rewrite("c", "c2"), rewrite("a", "a2"))) == ["committed"] * 2
    assert live(plain) == {"a2", "b2", "c2"}


def test_a_predicate_of_a_reader_finds_no_rows_in_files_that_came_back(plain: Gate) -> None:
    asked: Row = {"op": "=", "column": "x", "value": 1, "type": "long"}
    own = rewrite("a", "a2").model_copy(update={"actions": (remove("a"),)})
    read = ReadSet(files=("c",), predicates=(asked,))
    result = plain.ask(
        compact(AB, "g", read_version=1), own, proposal(add("d"), read_version=1, reads=read)
    )
    assert rules_of(result) == ["committed"] * 3


def test_files_that_a_vacuum_may_have_deleted_do_not_come_back(plain: Gate) -> None:
    plain.ask(compact(AB, "g", read_version=1))
    plain.clock.boot += 4 * 24 * 3600
    result = plain.ask(rewrite("a", "a2"), proposal(remove("a"), remove("b"), read_version=1))
    assert rules_of(result) == ["removed_file_not_live", "committed"]
    assert rejection_of(result[0]).advice == "rerun"
    assert live(plain) == {"c"}


def test_files_come_back_from_before_the_window(plain: Gate) -> None:
    plain.ask(compact(AB, "g", read_version=1))
    plain.restart()
    assert rules_of(plain.ask(rewrite("a", "a2"))) == ["committed"]
    assert state_of(plain).window_start > 1
    assert live(plain) == {"a2", "b", "c"}


def test_without_change_files_readers_of_changes_see_rows_leave_and_come_back() -> None:
    gate = Gate(IN_THE_LOG)
    gate.ask(creating(protocol(1, 4), metadata(enableChangeDataFeed="true")))
    gate.ask(proposal(add("a"), add("b")))
    gate.ask(compact(AB, "g", read_version=1))
    assert rules_of(gate.ask(proposal(remove("a"), read_version=1))) == ["committed"]
    assert [(row["path"], row["dataChange"]) for row in last(gate, "add")] == [("b", True)]


def test_a_compaction_is_decided_after_what_waits_beside_it(gate: Gate) -> None:
    own = [proposal(add("c"), read_version=1), compact(AB, "g", read_version=1), rewrite("b", "b2")]
    result = {outcome.proposal_id: outcome for outcome in gate.ask(*own)}
    first, packing, last_sent = (result[one.proposal_id] for one in own)
    assert (first.status, last_sent.status) == ("committed", "committed")
    assert rejection_of(packing).winner_version == last_sent.version


def test_a_delete_of_any_size_follows_a_file_that_was_whole(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate_committer.row_level.row_deletes.ROWS_MAX", 3)
    gate.ask(compact(AB, "g", read_version=1))
    large = row_delete(rows_of("b", range(5)), read_version=1)
    assert rules_of(gate.ask(large)) == ["committed"]
    assert gone(gate, "g") == [10, 11, 12, 13, 14]
