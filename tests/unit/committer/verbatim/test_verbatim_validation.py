"""Verbatim entries on tables that require more of every version, check by check."""

import json

import pytest

from tests import builders
from tests.builders import Gate, Row, add, info, metadata, proposal, protocol, remove
from tests.support.outcomes import rejection_of, rule_of
from tests.support.tables import creating
from tests.verbatim_proposals import verbatim
from tidegate_committer.verbatim.verbatim_validation import (
    AnsweredBytes,
    VerbatimPriority,
    after_answer,
    after_native_group,
)
from tidegate_messages.outcome import Status
from tidegate_messages.proposal import Operation

TRACKING = protocol(
    1, 7, writerFeatures=["domainMetadata", "rowTracking", "appendOnly", "invariants"]
)
VECTORS = protocol(3, 7, readerFeatures=["deletionVectors"], writerFeatures=["deletionVectors"])
VECTOR = {
    "storageType": "i",
    "pathOrInlineDv": "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L",
    "sizeInBytes": 40,
    "cardinality": 6,
}
MATERIALISED = {
    "rowTracking.materializedRowIdColumnName": "_ids",
    "rowTracking.materializedRowCommitVersionColumnName": "_versions",
}
NEW_IDS = {"baseRowId": 0, "defaultRowCommitVersion": 1}


MINE: Row = {"domainMetadata": {"domain": "mine", "configuration": "{}", "removed": False}}


def marked(mark: object) -> Row:
    """Return the domain with the high-water mark of row ids."""
    text = json.dumps({"rowIdHighWaterMark": mark})
    body = {"domain": "delta.rowTracking", "configuration": text, "removed": False}
    return {"domainMetadata": body}


def answer(rows: list[Row], *ready: Row) -> str:
    """Return the result of a verbatim entry for version 1 of a table created with `rows`."""
    gate = Gate()
    [begun] = gate.ask(
        proposal(*rows, read_version=-1, operation=Operation(name="CREATE TABLE AS SELECT"))
    )
    assert begun.status == "committed", begun
    outcome = gate.ask(verbatim(gate, 1, info(txnId="w"), *ready))[-1]
    return rule_of(outcome)


@pytest.mark.parametrize(
    ("numbers", "verdict"),
    [
        (NEW_IDS, "committed"),
        ({"baseRowId": 0}, "no_row_ids"),
        ({"defaultRowCommitVersion": 1}, "no_row_ids"),
        ({}, "no_row_ids"),
    ],
)
def test_where_rows_are_tracked_a_new_file_brings_both_its_numbers(
    numbers: dict[str, int], verdict: str
) -> None:
    rows = [TRACKING, metadata(enableRowTracking="true", **MATERIALISED)]
    assert answer(rows, add("a", **numbers), marked(99)) == verdict


@pytest.mark.parametrize(
    ("stats", "ready", "verdict"),
    [
        ('{"numRecords":5}', [marked(14)], "committed"),
        ('{"numRecords":5}', [marked(13)], "row_mark_behind"),
        ('{"numRecords":5}', [], "row_mark_behind"),
        ('{"numRecords":0}', [marked(9)], "committed"),
        (None, [marked(9)], "row_mark_behind"),
        (None, [marked("10")], "row_mark_behind"),
        (None, [marked(10)], "committed"),
        (None, [MINE, marked(10)], "committed"),
    ],
)
def test_the_mark_that_ready_bytes_leave_covers_the_row_ids_that_they_give(
    stats: str | None, ready: list[Row], verdict: str
) -> None:
    rows = [TRACKING, metadata(enableRowTracking="true", **MATERIALISED)]
    file = add("a", baseRowId=10, defaultRowCommitVersion=1, stats=stats)
    assert answer(rows, file, *ready) == verdict


def test_a_mark_is_never_taken_back() -> None:
    gate, rows = Gate(), [TRACKING, metadata(enableRowTracking="true", **MATERIALISED)]
    create = creating(*rows, add("a"))
    gate.ask(create)
    outcome = gate.ask(verbatim(gate, 1, info(txnId="w"), marked(-1)))[-1]
    assert rejection_of(outcome).rule == "row_mark_behind"


@pytest.mark.parametrize(
    ("since_when", "verdict"),
    [
        ((1, 1_700_050_000_000), "committed"),
        ((1, 1_700_050_000_001), "bad_metadata"),
        ((2, 1_700_050_000_000), "bad_metadata"),
        ((), "bad_metadata"),
    ],
)
def test_enabling_in_commit_timestamps_records_since_when(
    since_when: tuple[int, ...], verdict: str
) -> None:
    names = ("inCommitTimestampEnablementVersion", "inCommitTimestampEnablementTimestamp")
    since = dict(zip(names, map(str, since_when), strict=False))
    timed = protocol(1, 7, writerFeatures=["inCommitTimestamp", "appendOnly", "invariants"])
    gate = Gate()
    gate.ask(builders.create())
    about = metadata(enableInCommitTimestamps="true", **since)
    own = info(txnId="w", inCommitTimestamp=1_700_050_000_000)
    assert rule_of(gate.ask(verbatim(gate, 1, own, timed, about))[-1]) == verdict


def test_rows_leave_no_table_that_only_takes_appends() -> None:
    rows = [protocol(), metadata(appendOnly="true"), add("old")]
    assert answer(rows, remove("old")) == "append_only"
    moved = (remove("old", dataChange=False), add("new", dataChange=False))
    assert answer(rows, *moved) == "committed"
    assert answer(rows, add("new")) == "committed"
    assert answer([*rows, add("other")], *moved, remove("other")) == "append_only"


def test_an_entry_without_commit_info_is_allowed_without_in_commit_timestamps() -> None:
    def rule_after(rows: list[Row], *ready: Row) -> str:
        gate = Gate()
        gate.ask(creating(*rows))
        outcome = gate.ask(verbatim(gate, 1, *ready))[-1]
        return rule_of(outcome)

    rows = [protocol(), metadata()]
    assert rule_after(rows, add("a")) == "committed"
    assert rule_after(rows, metadata(**{"logRetentionDuration": "interval 9 days"})) == "committed"
    features = ["inCommitTimestamp", "appendOnly", "invariants"]
    timed = [protocol(1, 7, writerFeatures=features), metadata(enableInCommitTimestamps="true")]
    assert rule_after(timed, add("a")) == "no_timestamp"


def test_the_work_that_is_named_is_the_one_of_the_bytes() -> None:
    gate = Gate()
    gate.ask(builders.create())
    other = gate.ask(verbatim(gate, 1, info(txnId="w"), add("a"), txn_id="v"))[-1]
    assert (rejection_of(other).rule, rejection_of(other).field) == ("malformed", "txn_id")
    same = gate.ask(verbatim(gate, 1, info(txnId="w"), add("a"), txn_id="w"))[-1]
    assert same.status == "committed"


def test_a_file_comes_again_in_the_partition_that_it_was_in() -> None:
    rows = [VECTORS, metadata(["p"], enableDeletionVectors="true"), add("p=1/old")]
    again = add("p=1/old", deletionVector=VECTOR)
    assert answer(rows, remove("p=1/old"), again) == "committed"
    again["add"]["partitionValues"] = {"p": "2"}
    assert answer(rows, remove("p=1/old"), again) == "partition_values"


def test_a_file_comes_again_only_as_it_is_or_after_it_left() -> None:
    rows = [VECTORS, metadata(enableDeletionVectors="true"), add("old")]
    marked = add("old", deletionVector=VECTOR)
    assert answer(rows, marked) == "added_file_live"
    assert answer(rows, remove("old"), marked) == "committed"
    assert answer(rows, add("old")) == "committed"


def test_a_change_of_the_table_is_checked_against_its_result() -> None:
    rows = [protocol(), builders.metadata()]
    assert answer(rows, metadata(enableRowTracking="true")) == "bad_protocol"
    assert answer(rows, TRACKING, add("a", **NEW_IDS), marked(99)) == "committed"
    assert answer(rows, TRACKING, add("a")) == "no_row_ids"


def test_a_file_that_lies_elsewhere_already_may_stay_there() -> None:
    gate = Gate()
    clone = "s3://other/table/a.parquet"
    store = builders.table_in_memory([info("CLONE"), protocol(), metadata(), add(clone)])
    gate.stores[builders.ROOT] = store
    assert gate.ask(proposal(kind="register", read_version=-1))[-1].status == "committed"
    again = add(clone, dataChange=False)
    taken = gate.ask(verbatim(gate, 1, info("COMPUTE STATS", txnId="v"), again))[-1]
    assert taken.status == "committed"
    left = gate.ask(verbatim(gate, 2, info("DELETE", txnId="w"), remove(clone)))[-1]
    assert left.status == "committed"


def test_a_feature_is_dropped_on_request_and_where_no_trace_of_it_is_left() -> None:
    rows = [VECTORS, metadata(enableDeletionVectors="true"), add("old")]
    without = protocol(1, 7, writerFeatures=["checkpointProtection"])
    off = metadata()
    dropping = info("DROP FEATURE", txnId="w")

    def rule_for(*ready: Row, marked: bool = False) -> str:
        gate = Gate()
        start = [*rows[:2], add("old", deletionVector=VECTOR) if marked else rows[2]]
        gate.stores[builders.ROOT] = builders.table_in_memory([info("CREATE TABLE"), *start])
        gate.ask(proposal(kind="register", read_version=-1))
        outcome = gate.ask(verbatim(gate, 1, *ready))[-1]
        return rule_of(outcome)

    assert rule_for(dropping, without, off) == "committed"
    assert rule_for(info("SET TBLPROPERTIES", txnId="w"), without, off) == "bad_protocol"
    assert rule_for(dropping, without) == "bad_protocol"
    assert rule_for(dropping, without, off, marked=True) == "feature_in_use"
    rows[0] = protocol(
        *(3, 7),
        readerFeatures=["deletionVectors"],
        writerFeatures=["deletionVectors", "appendOnly"],
    )
    kept = protocol(1, 7, writerFeatures=["checkpointProtection", "appendOnly"])
    assert rule_for(dropping, kept, off) == "committed", "whatever else the table has"
    assert rule_for(dropping, without, off) == "bad_protocol", "two features at once"


def test_files_of_vectors_may_be_removed_for_vacuums_sake() -> None:
    rows = [VECTORS, metadata(enableDeletionVectors="true"), add("old")]
    file = "ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"
    tombstone = {"remove": {"path": file, "deletionTimestamp": 5, "dataChange": False}}
    assert answer(rows, tombstone) == "committed"
    assert answer(rows, {"remove": {**tombstone["remove"], "dataChange": True}}) == (
        "removed_file_not_live"
    )
    assert answer(rows, {"remove": {**tombstone["remove"], "path": "x.bin"}}) == (
        "removed_file_not_live"
    )


FREE = VerbatimPriority(1.0)


def answered(
    way: VerbatimPriority, writer: str, sha256: str, status: Status, now_s: float
) -> VerbatimPriority:
    return after_answer(way, AnsweredBytes(writer, sha256, status), now_s)


def test_a_refusal_holds_native_groups_until_a_deadline() -> None:
    way = answered(FREE, "a", "1", "rejected", 10.0)
    assert way.holds(10.0)
    assert way.holds(10.999)
    assert not way.holds(11.0)


def test_other_bytes_with_any_answer_but_a_refusal_end_the_hold() -> None:
    held = answered(FREE, "a", "1", "rejected", 10.0)
    assert not answered(held, "a", "2", "committed", 10.1).holds(10.1)
    assert not answered(held, "a", "2", "denied", 10.1).holds(10.1)
    assert not answered(held, "a", "2", "expired", 10.1).holds(10.1)


def test_a_repeat_neither_ends_nor_prolongs() -> None:
    held = answered(FREE, "a", "1", "rejected", 10.0)
    assert answered(held, "a", "1", "rejected", 10.5) == held
    assert answered(held, "a", "1", "denied", 10.5) == held


def test_who_joins_does_not_prolong_and_is_waited_for() -> None:
    both = answered(answered(FREE, "a", "1", "rejected", 10.0), "b", "9", "rejected", 10.9)
    assert both.until_s == 11.0
    one = answered(both, "a", "2", "committed", 10.95)
    assert one.holds(10.95)
    assert not answered(one, "b", "8", "committed", 10.96).holds(10.96)


def test_who_is_refused_again_with_other_bytes_is_waited_for_no_longer_than_before() -> None:
    held = answered(FREE, "a", "1", "rejected", 10.0)
    again = answered(held, "a", "2", "rejected", 10.5)
    assert (again.holds(10.9), again.until_s) == (True, 11.0)


def test_between_two_holds_a_native_group_is_committed() -> None:
    over = answered(answered(FREE, "a", "1", "rejected", 10.0), "a", "2", "committed", 10.1)
    assert not answered(over, "b", "7", "rejected", 10.2).holds(10.2)
    assert answered(after_native_group(over), "b", "7", "rejected", 10.3).holds(10.3)


def test_a_hold_that_ran_out_is_not_joined() -> None:
    late = answered(answered(FREE, "a", "1", "rejected", 10.0), "b", "9", "rejected", 12.0)
    assert not late.holds(12.0)
    assert late.owed == {}


def test_without_a_grace_nobody_waits() -> None:
    never = VerbatimPriority(0.0)
    assert answered(never, "a", "1", "rejected", 10.0) == never
    assert not never.holds(0.0)
