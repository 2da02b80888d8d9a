"""Deletes and compactions of the same files: both commit, and no row reappears or is lost."""

import json
from typing import Any

import pytest

from tests.builders import (
    Gate,
    add,
    compact,
    metadata,
    proposal,
    protocol,
    remove,
    row_delete,
    rows_of,
)
from tests.support.decisions import state_of
from tests.support.other_engines import write
from tests.support.outcomes import rejection_of, rules_of
from tests.support.row_deletes import IN_THE_LOG, begun, gone, last, vector
from tests.support.tables import creating
from tidegate_committer.intake.row_intents import SOURCES_MAX
from tidegate_committer.state.table_state import bounded
from tidegate_delta.log.actions import DeletionVector
from tidegate_messages.proposal import Operation, ReadSet

AB = {"a": 10, "b": 10}


def files(gate: Gate) -> set[str]:
    """Return the live files."""
    live: set[str] = set()
    for rows in gate.entries():
        live -= {row["remove"]["path"] for row in rows if "remove" in row}
        live |= {row["add"]["path"] for row in rows if "add" in row}
    return live


def test_a_delete_finds_its_rows_where_a_compaction_moved_them(gate: Gate) -> None:
    result = gate.ask(
        compact(AB, "g", read_version=1),
        row_delete(rows_of("a", [1]), rows_of("b", [0, 9]), read_version=1),
    )
    assert rules_of(result) == ["committed", "committed"]
    assert files(gate) == {"g", "wide"}
    assert gone(gate, "g") == [1, 10, 19]
    assert result[1].assigned["moved"] == ["a", "b"]
    assert result[1].assigned["rows_deleted"] == 3
    assert result[1].assigned["deletion_vectors"] == {"g": vector(1, 10, 19)}
    [removed] = last(gate, "remove")
    assert (removed["path"], removed["dataChange"]) == ("g", True)


def test_a_compaction_brings_a_vector_for_rows_deleted_meanwhile(gate: Gate) -> None:
    gate.ask(row_delete(rows_of("a", [0]), read_version=1))
    result = gate.ask(
        row_delete(rows_of("a", [7]), read_version=1),
        row_delete(rows_of("b", [2]), read_version=1),
        compact({"a": 9, "b": 10}, "g", read_version=2, vectors={"a": vector(0)}),
    )
    assert rules_of(result) == ["committed"] * 3
    assert result[2].version == (result[0].version or 0) + 1
    assert gone(gate, "g") == [6, 11]
    [added] = last(gate, "add")
    assert added["dataChange"] is False
    assert json.loads(added["stats"]) == {"numRecords": 19, "tightBounds": False}
    vectors = {row["path"]: row.get("deletionVector") for row in last(gate, "remove")}
    assert vectors == {"a": vector(0, 7), "b": vector(2)}
    assert all(row["dataChange"] is False for row in last(gate, "remove"))
    assert result[2].assigned["deletion_vectors"] == {"g": vector(6, 11)}


def test_of_two_new_files_only_the_one_whose_rows_were_deleted_gets_a_vector(gate: Gate) -> None:
    one, other = compact({"a": 10}, "g"), compact({"b": 10}, "h")
    both = compact({"a": 10}, "g", read_version=1).model_copy(
        update={
            "actions": (*one.actions, *other.actions),
            "row_mapping": (*one.row_mapping, *other.row_mapping),
            "reads": ReadSet(files=("a", "b")),
        }
    )
    result = gate.ask(row_delete(rows_of("a", [7]), read_version=1), both)
    assert rules_of(result) == ["committed", "committed"]
    assert (gone(gate, "g"), gone(gate, "h")) == ([7], [])
    stats = {row["path"]: json.loads(row["stats"]) for row in last(gate, "add")}
    assert stats["h"] == {"numRecords": 10}


def test_rows_that_came_back_stop_a_compaction_of_their_file(gate: Gate) -> None:
    write(gate, 2, remove("a"), add("a", deletionVector=vector(1, 2)))
    both = {"a": vector(1, 2), "b": None}
    result: dict[str, Any] = {"read_version": 2, "vectors": both, "reads": ReadSet()}
    one = compact({"a": 8, "b": 10}, "g", **result)
    write(gate, 3, remove("a", deletionVector=vector(1, 2)), add("a", deletionVector=vector(2)))
    assert rules_of(gate.ask(one)) == ["concurrent_delete_delete"]


def test_rows_are_followed_through_several_compactions(gate: Gate) -> None:
    gate.ask(proposal(add("c"), read_version=1))
    gate.ask(compact(AB, "g", read_version=2))
    gate.ask(row_delete(rows_of("g", [0, 1], num_records=20), read_version=3))
    gate.ask(compact({"c": 10, "g": 18}, "h", read_version=4, vectors={"g": vector(0, 1)}))
    result = gate.ask(row_delete(rows_of("a", [1, 2]), rows_of("b", [9]), read_version=1))
    assert rules_of(result) == ["committed"]
    assert gone(gate, "h") == [10, 27]


def test_reads_are_checked_at_the_new_place_of_moved_rows(gate: Gate) -> None:
    gate.ask(compact(AB, "g", read_version=1))
    write(gate, 3, {"remove": {"path": "g", "dataChange": True}}, add("rewritten"))
    reads = ReadSet(files=("a", "wide"), delete_insensitive=True)
    late = row_delete(rows_of("wide", [3], num_records=200_000), read_version=1, reads=reads)
    assert rules_of(gate.ask(late)) == ["concurrent_delete_read"]


def test_who_follows_his_rows_into_a_file_with_a_vector_of_a_members_waits_for_it(
    gate: Gate,
) -> None:
    gate.ask(compact(AB, "g", read_version=1))
    stats = json.dumps({"numRecords": 20, "tightBounds": False})
    result = gate.ask(
        proposal(
            remove("g"),
            add("g", deletionVector=vector(0), stats=stats),
            read_version=2,
            reads=ReadSet(files=("g",)),
            operation=Operation(name="DELETE"),
        ),
        row_delete(rows_of("a", [1]), rows_of("b", [9]), read_version=1),
    )
    assert [(item.status, item.version) for item in result] == [("committed", 3), ("committed", 4)]
    assert gone(gate, "g") == [0, 1, 19]


def test_without_a_mapping_the_two_are_a_conflict_as_ever(gate: Gate) -> None:
    result = gate.ask(
        compact(AB, "g", read_version=1, row_mapping=()),
        row_delete(rows_of("a", [1]), read_version=1),
        row_delete(rows_of("wide", [1], num_records=200_000), read_version=1),
        compact({"wide": 200_000}, "h", read_version=1, row_mapping=()),
    )
    assert rules_of(result) == [
        "committed",
        "concurrent_delete_read",
        "committed",
        "concurrent_delete_read",
    ]


def test_two_compactions_of_one_file_are_a_conflict(gate: Gate) -> None:
    result = gate.ask(compact(AB, "g", read_version=1), compact(AB, "h", read_version=1))
    assert rules_of(result) == ["committed", "concurrent_delete_delete"]


def test_a_deletes_statement_about_a_moved_file_is_checked(gate: Gate) -> None:
    gate.ask(row_delete(rows_of("a", [0]), read_version=1))
    gate.ask(compact({"a": 9}, "g", read_version=2, vectors={"a": vector(0)}))
    base = DeletionVector.model_validate(vector(0)).unique_id
    result = gate.ask(
        row_delete(rows_of("a", [1]), read_version=2),
        row_delete(rows_of("a", [0], base=base), read_version=2),
        row_delete(rows_of("a", [1], base=base, num_records=11), read_version=2),
        row_delete(rows_of("a", [1], base=base), read_version=2),
    )
    assert rules_of(result) == [
        "other_vector",
        "rows_deleted_before",
        "concurrent_row_delete",
        "committed",
    ]
    assert gone(gate, "g") == [0]


@pytest.mark.parametrize(
    "guess",
    [
        {"actions": (remove("g"),)},
        {"actions": (add("g", dataChange=False, stats=json.dumps({"numRecords": 20})),)},
        {"dv_intents": (rows_of("a", [1]), rows_of("g", [12], num_records=20))},
    ],
)
def test_nobody_names_the_file_that_his_rows_will_move_to(gate: Gate, guess: Any) -> None:
    gate.ask(compact(AB, "g", read_version=1))
    result = gate.ask(row_delete(rows_of("a", [1]), read_version=1).model_copy(update=guess))
    assert rules_of(result) == ["duplicate_action"]


def test_a_mapping_holds_after_a_restart(gate: Gate) -> None:
    gate.ask(row_delete(rows_of("a", [0]), read_version=1), compact(AB, "g", read_version=1))
    gate.restart()
    assert rules_of(gate.ask(row_delete(rows_of("a", [2]), read_version=1))) == ["committed"]
    assert gone(gate, "g") == [0, 2]


def test_a_compaction_that_met_too_many_deletes_is_run_again() -> None:
    gate = begun()
    every_other = rows_of("wide", range(0, 200_000, 3), num_records=200_000)
    result = gate.ask(
        row_delete(every_other, read_version=1), compact({"wide": 200_000}, "g", read_version=1)
    )
    assert rules_of(result) == ["committed", "concurrent_delete_delete"]


@pytest.mark.parametrize(
    ("mapping", "field"),
    [
        ({"path": "h", "sources": [{"path": "a", "offset": 0, "rows": 20}]}, "path"),
        ({"path": "g", "sources": [{"path": "c", "offset": 0, "rows": 20}]}, "sources[0].path"),
        ({"path": "g", "sources": [{"path": "a", "offset": 1, "rows": 20}]}, "sources[0].offset"),
        ({"path": "g", "sources": [{"path": "a", "offset": 0, "rows": 9}]}, "sources"),
        (
            {"path": "g", "sources": [{"path": "a", "offset": 0, "rows": 20, "base": {}}]},
            "sources[0].path",
        ),
    ],
)
def test_a_mapping_that_can_not_be_is_refused(gate: Gate, mapping: Any, field: str) -> None:
    [result] = gate.ask(compact(AB, "g", read_version=1, row_mapping=(mapping,)))
    assert rejection_of(result).rule == "malformed"
    assert rejection_of(result).field == f"row_mapping[0].{field}"


def test_rows_that_change_are_not_mapped(gate: Gate) -> None:
    one = {"path": "g", "sources": [{"path": "a", "offset": 0, "rows": 10}]}
    rewrite = (remove("a"), add("g"))
    changing = proposal(*rewrite, read_version=1, row_mapping=(one,), reads=ReadSet(files=("a",)))
    many = [{"path": f"f{n}", "offset": 0, "rows": 0} for n in range(SOURCES_MAX + 1)]
    large = compact(AB, "g", read_version=1, row_mapping=({"path": "g", "sources": many},))
    twice = [{"path": "a", "offset": 0, "rows": 10}, {"path": "a", "offset": 10, "rows": 10}]
    double = compact(AB, "g", read_version=1, row_mapping=({"path": "g", "sources": twice},))
    result = gate.ask(changing, large, double)
    assert rules_of(result) == ["malformed", "too_large", "duplicate_action"]
    assert rejection_of(result[0]).field == "row_mapping"


def test_rows_keep_their_ids_where_the_table_tracks_rows() -> None:
    names = ["rowTracking", "domainMetadata", "deletionVectors"]
    on = {
        "enableRowTracking": "true",
        "enableDeletionVectors": "true",
        "rowTracking.materializedRowIdColumnName": "_id",
        "rowTracking.materializedRowCommitVersionColumnName": "_version",
    }
    gate = Gate(IN_THE_LOG)
    listed = protocol(3, 7, readerFeatures=["deletionVectors"], writerFeatures=names)
    gate.ask(creating(listed, metadata(**on)))
    gate.ask(proposal(add("a"), add("b")))
    silent = compact(AB, "g", read_version=1)
    [mapping] = silent.model_dump(mode="json")["row_mapping"]
    keeping = ({**mapping, "keeps_row_ids": True},)
    result = gate.ask(silent, compact(AB, "g", read_version=1, row_mapping=keeping))
    assert rules_of(result) == ["row_ids_not_kept", "committed"]


def test_moves_are_kept_up_to_a_bound(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate_committer.state.table_state.MOVES_MAX", 2)
    gate.ask(compact(AB, "g", read_version=1))
    gate.ask(compact({"wide": 200_000}, "h", read_version=2))
    state = state_of(gate)
    assert [len(state.entries[version].moved) for version in (2, 3)] == [0, 1]
    assert bounded(state) is state
    late = row_delete(rows_of("a", [1]), read_version=1)
    assert rules_of(gate.ask(late)) == ["concurrent_delete_read"]
