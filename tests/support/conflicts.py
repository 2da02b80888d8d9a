"""A proposal that is checked against the commits that came before it."""

from tests.builders import Row, commit, metadata, protocol
from tests.support.decisions import flawless
from tidegate_committer.conflicts.conflict_rules import Conflict, check
from tidegate_committer.conflicts.rebase import RebaseState, begin
from tidegate_committer.policy import Level
from tidegate_committer.state.log_entry import Entry, entry_of
from tidegate_committer.state.table_definition import TableDefinition
from tidegate_messages.proposal import Proposal


def winner(version: int, *rows: Row) -> Entry:
    """Return the commit that a proposal has lost a version to."""
    return entry_of(commit(version, *rows), "0" * 64, 1)


def definition_of(*table: Row) -> TableDefinition:
    """Return the definition of a table (by default plain)."""
    made = commit(0, *(table or (protocol(), metadata())))
    assert made.metadata is not None
    assert made.protocol is not None
    return TableDefinition(made.metadata, made.protocol)


def rebase_state(one: Proposal, *table: Row, level: Level = "Serializable") -> RebaseState:
    """Return the rebase state of a proposal that read version 0 of a table (by default plain)."""
    candidate = flawless(one)
    return begin(candidate, definition_of(*table), candidate.level(level))


def conflict_of(one: RebaseState, *winners: Entry) -> Conflict:
    """Return the conflict of a proposal with the commits before it; fail where there is none."""
    result = check(one, winners)
    assert result is not None
    return result


def rule(one: RebaseState, *winners: Entry) -> str | None:
    """Return the rule by which a proposal conflicts with the commits before it."""
    result = check(one, winners)
    return result.rule if result else None
