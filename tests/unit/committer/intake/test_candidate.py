from typing import Any

import pytest

from tests.builders import Row, add, delete, metadata, proposal, remove
from tests.support.decisions import considered
from tidegate_committer.policy import Level
from tidegate_messages.proposal import Operation, Proposal, ReadSet


def test_an_append_that_read_nothing_is_blind() -> None:
    assert considered(proposal(add("a"))).is_blind_append


@pytest.mark.parametrize(
    "one",
    [
        proposal(add("a"), reads=ReadSet(predicates=({"op": "true"},))),
        proposal(add("a"), reads=ReadSet(files=("b",))),
        proposal(add("a"), reads=ReadSet(whole_table=True)),
        proposal(add("a"), reads=None),
        delete("b"),
        proposal(remove("b")),
        proposal({"cdc": {"path": "c", "partitionValues": {}, "size": 1, "dataChange": False}}),
    ],
)
def test_proposals_that_read_or_removed_are_not(one: Proposal) -> None:
    assert not considered(one).is_blind_append


def test_reading_an_application_keeps_an_append_blind() -> None:
    assert considered(proposal(add("a"), reads=ReadSet(app_ids=("s",)))).is_blind_append


def compaction(**fields: Any) -> Proposal:
    rows = (remove("a", dataChange=False), add("b", dataChange=False))
    return proposal(*rows, operation=Operation(name="OPTIMIZE"), **fields)


def gone(domain: str) -> Row:
    return {"domainMetadata": {"domain": domain, "configuration": "", "removed": True}}


@pytest.mark.parametrize(
    ("one", "level", "applied"),
    [
        (proposal(add("a")), "Serializable", "Serializable"),
        (proposal(add("a")), "WriteSerializable", "WriteSerializable"),
        (proposal(add("a"), isolation="WriteSerializable"), "Serializable", "WriteSerializable"),
        (compaction(), "Serializable", "SnapshotIsolation"),
        (compaction(), "WriteSerializable", "SnapshotIsolation"),
        (proposal(), "Serializable", "SnapshotIsolation"),
        (proposal(), "WriteSerializable", "WriteSerializable"),
        (compaction(app_txn={"app_id": "a", "version": 1}), "Serializable", "Serializable"),
        (proposal(metadata()), "Serializable", "Serializable"),
        (proposal(gone("delta.rowTracking")), "Serializable", "SnapshotIsolation"),
        (proposal(gone("mine")), "Serializable", "Serializable"),
    ],
)
def test_the_level_is_lowered_where_no_row_changes(
    one: Proposal, level: Level, applied: Level
) -> None:
    assert considered(one).level(level) == applied


def test_an_absent_read_set_is_the_whole_table() -> None:
    assert considered(proposal(add("a"), reads=None)).reads.whole_table


def test_files_read_are_known_by_their_canonical_path() -> None:
    rows: tuple[Row, ...] = (add("a"),)
    one = considered(proposal(*rows, reads=ReadSet(files=("b%20c",))))
    assert one.files_read == {"b c"}
