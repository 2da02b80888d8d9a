"""A proposal that is checked against the commits that came before it."""

from tests.builders import Row, commit, metadata, protocol
from tests.support.decisions import flawless
from tidegate_committer.conflicts.rebase import RebaseState, begin
from tidegate_committer.state.log_entry import Entry, entry_of
from tidegate_committer.state.table_definition import TableDefinition
from tidegate_messages.proposal import Proposal


def winner(version: int, *rows: Row) -> Entry:
    """Return the commit that a proposal has lost a version to."""
    return entry_of(commit(version, *rows), "0" * 64, 1)


def rebase_state(one: Proposal, *table: Row) -> RebaseState:
    """Return the rebase state of a proposal that read version 0 of a table (by default plain)."""
    candidate = flawless(one)
    made = commit(0, *(table or (protocol(), metadata())))
    assert made.metadata is not None
    assert made.protocol is not None
    return begin(
        candidate, TableDefinition(made.metadata, made.protocol), candidate.level("Serializable")
    )
