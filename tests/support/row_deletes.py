"""A table with deletion vectors, and which rows of its files are deleted."""

from tests.builders import ROOT, Gate, Row, add, metadata, proposal, protocol
from tests.support.tables import creating
from tidegate_committer.settings import CommitterSection
from tidegate_delta.deletion_vectors.descriptors import inline
from tidegate_delta.deletion_vectors.roaring_bitmap import of_rows
from tidegate_delta.log.actions import DeletionVector
from tidegate_messages.proposal import Proposal
from tidegate_runtime.table_io.deletion_vector_reader import read_vector

NAMES = ["deletionVectors"]
FEATURE = protocol(3, 7, readerFeatures=NAMES, writerFeatures=NAMES)
ON = {"enableDeletionVectors": "true"}
WIDE = '{"numRecords":200000}'
IN_THE_LOG = CommitterSection(
    roots=("memory://tables",), audit_s=1e9, inline_vector_bytes_max=1_024
)
"""Inline vectors, so that tests read them from the log."""


def opening() -> list[Proposal]:
    """Return the proposals of a table at version 1: a and b have ten rows, wide has 200,000."""
    return [
        creating(FEATURE, metadata(**ON)),
        proposal(add("a"), add("b"), add("wide", stats=WIDE)),
    ]


def begun(gate: Gate | None = None) -> Gate:
    """Return a committer with such a table."""
    gate = gate or Gate(IN_THE_LOG)
    result = gate.ask(*opening())
    assert [outcome.status for outcome in result] == ["committed", "committed"]
    return gate


def vector(*rows: int) -> Row:
    """Return the descriptor of a deletion vector that is inline."""
    return inline(of_rows(rows)).model_dump(by_alias=True, exclude_none=True)


def last(gate: Gate, kind: str) -> list[Row]:
    """Return the actions of a kind in a table's newest version."""
    return [row[kind] for row in gate.entries()[-1] if kind in row]


def gone(gate: Gate, path: str) -> list[int] | None:
    """Return a file's deleted rows according to the log; None where the file is removed."""
    found: list[int] | None = None
    for rows in gate.entries():
        for row in rows:
            if row.get("remove", {}).get("path") == path:
                found = None
        for row in rows:
            if row.get("add", {}).get("path") == path:
                result = row["add"].get("deletionVector")
                store = gate.stores[ROOT]
                found = (
                    list(read_vector(store, DeletionVector.model_validate(result)))
                    if result
                    else []
                )
    return found
