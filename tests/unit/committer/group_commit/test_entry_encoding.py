"""The bytes of an entry, and equal state in every committer that reads them."""

import json
from typing import Any

import pytest

from tests import builders
from tests.builders import NOW_MS, TABLE, Gate, add, creation, proposal
from tests.support.decisions import ORIGIN, planned, table
from tests.support.tables import creating
from tidegate_committer.conflicts.conflict_rules import RULES_VERSION
from tidegate_committer.decision.machine import DecisionTerms
from tidegate_committer.group_commit.entry_encoding import Attempt, EncodedEntry, encode
from tidegate_committer.state.table_state import TableState
from tidegate_messages.proposal import Operation, Proposal


def encoded(state: TableState, *proposals: Proposal) -> EncodedEntry:
    decided = planned(state, *proposals, terms=DecisionTerms(NOW_MS, 100))
    return encode(state, decided.group, ORIGIN, Attempt(TABLE, NOW_MS + 7))


def rows(one: EncodedEntry) -> list[dict[str, Any]]:
    return [json.loads(line) for line in one.content.splitlines()]


def info(one: EncodedEntry) -> dict[str, Any]:
    first: dict[str, Any] = rows(one)[0]["commitInfo"]
    return first


def test_creation_puts_commit_info_first_then_protocol_and_metadata() -> None:
    state = TableState(TABLE, builders.ROOT, 10)
    one = encoded(state, builders.create())
    kinds = [next(iter(row)) for row in rows(one)]
    assert kinds == ["commitInfo", "protocol", "metaData", "txn"]
    assert "readVersion" not in info(one)


def test_every_line_ends_and_none_is_empty() -> None:
    content = encoded(table(creation()), proposal(add("a"))).content
    assert content.endswith(b"\n")
    assert b"\n\n" not in content


def test_commit_info_tells_who_and_what() -> None:
    result = Operation(
        name="WRITE",
        parameters={"mode": "Append", "partitionBy": "[]", "auto": False, "list": ["a"]},
        metrics={"numFiles": "1", "numOutputRows": 10},
    )
    one = info(
        encoded(
            table(creation()),
            proposal(add("a"), operation=result, engine_info="Job/1", user_metadata="note"),
        )
    )
    assert one["operation"] == "WRITE"
    assert one["operationParameters"] == {
        "mode": "Append",
        "partitionBy": "[]",
        "auto": "false",
        "list": '["a"]',
    }
    assert one["operationMetrics"] == {"numFiles": "1", "numOutputRows": "10"}
    assert one["userMetadata"] == "note"
    assert one["engineInfo"] == "Job/1 Tidegate"
    assert one["isBlindAppend"] is True
    assert one["isolationLevel"] == "Serializable"
    assert one["readVersion"] == 0
    assert one["txnId"] == str(TABLE)
    assert one["tidegate"]["rules"] == RULES_VERSION


def test_a_group_adds_its_metrics_up_and_keeps_what_all_members_share() -> None:
    first = Operation(parameters={"mode": "Append"}, metrics={"numFiles": "1", "note": "x"})
    second = Operation(parameters={"mode": "Append"}, metrics={"numFiles": "2"})
    one = info(
        encoded(
            table(creation()),
            proposal(add("a"), operation=first),
            proposal(add("b"), operation=second),
        )
    )
    assert one["operationMetrics"] == {"numFiles": "3"}
    assert one["operationParameters"] == {"mode": "Append"}
    assert [member["metrics"] for member in one["tidegate"]["accepted"]] == [
        {"numFiles": "1", "note": "x"},
        {"numFiles": "2"},
    ]


@pytest.mark.parametrize(
    "text", ["9" * 19, "9" * 4_301, "9" * 10_000, "", "\u00b2", "many", "-1", "1.5"]
)
def test_a_metric_that_counts_nothing_is_left_out_of_the_sum(text: str) -> None:
    result = [{"numFiles": "1"}, {"numFiles": text}, {"numFiles": text}]
    proposals = [
        proposal(add(f"a{number}"), operation=Operation(metrics=metrics))
        for number, metrics in enumerate(result)
    ]
    one = info(encoded(table(creation()), *proposals))
    assert one["operationMetrics"] == {"numFiles": "1"}
    assert [member["metrics"] for member in one["tidegate"]["accepted"]] == result


def test_a_member_without_data_change_does_not_speak_for_the_group() -> None:
    counted = ("Inserted", "Updated", "Deleted")
    nothing = {f"numTargetRows{name}": "0" for name in counted}
    idle = Operation(name="MERGE", metrics={**nothing, "numTargetFilesAdded": "1"})
    busy = Operation(name="MERGE", metrics={"numTargetFilesAdded": "2"})
    one = info(
        encoded(
            table(creation()),
            proposal(add("a"), operation=idle),
            proposal(add("b"), operation=busy),
        )
    )
    assert (one["operation"], one["operationMetrics"]) == ("MERGE", {"numTargetFilesAdded": "3"})


def test_a_group_of_different_operations_has_a_name_of_its_own() -> None:
    one = info(
        encoded(
            table(creation()),
            proposal(add("a")),
            proposal(add("b"), operation=Operation(name="STREAMING UPDATE")),
        )
    )
    assert one["operation"] == "TIDEGATE GROUP"
    assert one["operationParameters"] == {}


def test_a_group_is_blind_only_where_all_its_members_are() -> None:
    state = table(creation(["p"]), [add("p=1/old")])
    reader = proposal(add("p=2/b"), read_version=1, reads={"files": ["p=1/old"]})
    one = info(encoded(state, proposal(add("p=2/a"), read_version=1), reader))
    assert len(one["tidegate"]["accepted"]) == 2
    assert one["isBlindAppend"] is False


def test_an_entry_of_refusals_is_an_ordinary_commit() -> None:
    one = encoded(table(creation()), builders.late(add("a")), builders.late(add("b")))
    assert info(one)["operation"] == "TIDEGATE REFUSALS"
    assert [next(iter(row)) for row in rows(one)] == ["commitInfo", "txn"]
    refused = info(one)["tidegate"]["refused"]
    assert [member["reason"]["rule"] for member in refused] == [
        "deadline_passed",
        "deadline_passed",
    ]
    assert info(one)["tidegate"]["offsets"] == [0, 1]


def test_the_watermark_is_the_last_offset() -> None:
    one = encoded(table(creation()), proposal(add("a")), proposal(add("b")))
    assert rows(one)[-1] == {
        "txn": {"appId": ORIGIN.app_id, "version": 1, "lastUpdated": NOW_MS + 7}
    }


def test_an_application_gets_its_time() -> None:
    one = encoded(table(creation()), proposal(add("a"), app_txn={"app_id": "s", "version": 3}))
    assert rows(one)[-2]["txn"] == {"appId": "s", "version": 3, "lastUpdated": NOW_MS + 7}


def test_an_application_among_the_actions_stays_as_it_came() -> None:
    result = {"txn": {"appId": "s", "version": 3}}
    assert rows(encoded(table(creation()), proposal(add("a"), result)))[-2] == result


def test_in_commit_timestamps_where_the_table_has_them() -> None:
    state = table(creation(enableInCommitTimestamps="true"))
    plain = table(creation())
    assert "inCommitTimestamp" not in info(encoded(plain, proposal(add("a"))))
    assert info(encoded(state, builders.late(add("a"))))["inCommitTimestamp"] == NOW_MS + 7


def test_the_same_group_at_another_try_is_other_bytes() -> None:
    state = table(creation())
    group = planned(state, proposal(add("a"))).group
    tokens = (builders.an_id(), builders.an_id())
    first, second = (encode(state, group, ORIGIN, Attempt(token, NOW_MS)) for token in tokens)
    assert first.content != second.content


@pytest.mark.parametrize(
    ("told", "written"),
    [
        (None, "Tidegate"),
        ("Job/1", "Job/1 Tidegate"),
        ("Tidegate", "Tidegate"),
        ("Spark/4 Tidegate", "Spark/4 Tidegate"),
    ],
)
def test_our_own_name_is_written_once(told: str | None, written: str) -> None:
    one = encoded(table(creation()), proposal(add("a"), engine_info=told))
    assert info(one)["engineInfo"] == written


def test_writers_get_the_row_ids_of_their_files_and_not_again() -> None:
    gate = Gate()
    tracked = builders.protocol(1, 7, writerFeatures=["domainMetadata", "rowTracking"])
    gate.ask(creating(tracked, builders.metadata()))
    one, two = proposal(add("a"), add("b")), proposal(add("c"))
    result = gate.ask(one, two)
    assert [outcome.assigned for outcome in result] == [
        {"base_row_ids": {"a": 0, "b": 10}},
        {"base_row_ids": {"c": 20}},
    ]
    [again] = gate.ask(one)
    assert (again.repeat, again.assigned) == (True, {})
