"""Decision steps where order or the committer matters: which proposals wait for another entry."""

import json

import pytest

from tests.builders import (
    Gate,
    Row,
    add,
    compact,
    metadata,
    proposal,
    protocol,
    remove,
    row_delete,
    rows_of,
)
from tests.property.conflict_strategies import vector
from tests.support.outcomes import rejection_of
from tests.support.tables import creating
from tidegate_messages.proposal import Operation, Proposal, ReadSet

NAMES = ["deletionVectors"]
FEATURE = protocol(3, 7, readerFeatures=NAMES, writerFeatures=NAMES)


@pytest.fixture
def first_proposals() -> list[Proposal]:
    """A table of the file a, at version 1."""
    properties = metadata(enableDeletionVectors="true")
    return [creating(FEATURE, properties), proposal(add("a"))]


def revision() -> Proposal:
    """Return a delete of the first row of a, by a deletion vector that the writer made."""
    stats = json.dumps({"numRecords": 10, "tightBounds": False})
    rows = remove("a"), add("a", stats=stats, deletionVector=vector(0))
    reads = ReadSet(files=("a",), delete_insensitive=True)
    return proposal(*rows, reads=reads, read_version=1, operation=Operation(name="DELETE"))


def outcomes(gate: Gate, *proposals: Proposal) -> list[tuple[str, int | None]]:
    return [(item.status, item.version) for item in gate.ask(*proposals)]


COMPACTS = compact({"a": 10}, "g", read_version=1)
DELETES = row_delete(rows_of("a", [3]), read_version=1)


@pytest.mark.parametrize(
    ("first", "second"),
    [(revision(), DELETES), (COMPACTS, DELETES), (DELETES, COMPACTS)],
    ids=["deletes after a revision", "deletes after a compaction", "compacts after a delete"],
)
def test_rows_of_a_file_wait_for_the_entry_of_a_member_that_changes_it(
    gate: Gate, first: Proposal, second: Proposal
) -> None:
    assert outcomes(gate, first, second) == [("committed", 2), ("committed", 3)]


def test_a_conflict_with_a_member_names_its_version(gate: Gate) -> None:
    """It waits for the entry, because row relocations are known only once the entry has landed."""
    away, again = remove("a", dataChange=False), add("h", dataChange=False)
    fields: Row = {"reads": ReadSet(files=("a",)), "operation": Operation(name="OPTIMIZE")}
    first = compact({"a": 10}, "g", read_version=1)
    result = gate.ask(first, proposal(away, again, read_version=1, **fields))
    assert [outcome.status for outcome in result] == ["committed", "rejected"]
    assert rejection_of(result[1]).winner_version == result[0].version
    assert rejection_of(result[1]).winner_proposal_id == str(first.proposal_id)


def test_rows_leave_the_files_that_a_table_was_created_with() -> None:
    gate = Gate()
    rows = FEATURE, metadata(enableDeletionVectors="true"), add("a")
    create = proposal(*rows, read_version=-1, operation=Operation(name="CREATE TABLE AS SELECT"))
    assert outcomes(gate, create) == [("committed", 0)]
    assert outcomes(gate, row_delete(rows_of("a", [3]))) == [("committed", 1)]


def test_what_does_not_follow_from_the_log_is_written_before_it_is_published(gate: Gate) -> None:
    change = {"op": "set_property", "key": "delta.appendOnly", "value": "true"}
    patch = {"base": "0" * 64, "changes": [change]}
    for refused in (
        row_delete(rows_of("nobody", [3]), read_version=1),
        row_delete(rows_of("a", [99]), read_version=1),
        proposal(metadata_patch=patch, read_version=1),
    ):
        before = len(gate.entries())
        assert [status for status, _ in outcomes(gate, refused)] == ["rejected"]
        assert len(gate.entries()) == before + 1
