"""Decisions of the committer on proposals for a table, and the entries that they become."""

import json
from dataclasses import replace
from typing import Any

from tests.builders import NOW_MS, ROOT, TABLE, Gate, Row, an_id, commit, value_of
from tests.support.outcomes import rejection_of, rules_of
from tidegate_committer.conflicts.conflict_rules import RULES_VERSION
from tidegate_committer.decision.machine import (
    BatchPlan,
    DecisionTerms,
    VersionLanded,
    evolve,
    plan,
)
from tidegate_committer.group_commit.entry_encoding import (
    Attempt,
    EncodedEntry,
    EntryWriter,
    encode,
)
from tidegate_committer.intake.candidate import Candidate
from tidegate_committer.intake.proposal_reader import read_record
from tidegate_committer.policy import Policy
from tidegate_committer.state.log_entry import entry_of
from tidegate_committer.state.table_state import TableState
from tidegate_delta.log.commit import Commit, sha256
from tidegate_messages.outcome import Rejection
from tidegate_messages.proposal import Proposal

ORIGIN = EntryWriter(an_id(), "c/t/0", "tidegate/t/0", "Tidegate")
TERMS = DecisionTerms(NOW_MS + 1_000, 100)


def table(*versions: list[Row]) -> TableState:
    """Return a table whose log is known from version 0 on, under the current rules version."""
    state = TableState(TABLE, ROOT, 1_000)
    for version, rows in enumerate(versions):
        state = evolve(state, VersionLanded(entry_of(commit(version, *rows), "0" * 64, 1)))
    return replace(state, rules=RULES_VERSION)


def state_of(gate: Gate) -> TableState:
    """Return what a committer knows of its table."""
    state = gate.table_committer().cache.state
    assert state is not None
    return state


def considered(one: Proposal, offset: int = 0) -> Candidate:
    """Return a proposal as the committer reads it from its topic."""
    candidate = read_record(value_of(one), offset, Policy())
    assert isinstance(candidate, Candidate)
    return candidate


def flawless(one: Proposal) -> Candidate:
    """Return a proposal as the committer reads it; fail where it is wrong in itself."""
    candidate = considered(one)
    assert candidate.flaw is None, candidate.flaw
    return candidate


def planned(state: TableState, *proposals: Proposal, terms: DecisionTerms = TERMS) -> BatchPlan:
    """Return the decision on a batch of proposals."""
    batch = [considered(one, offset) for offset, one in enumerate(proposals)]
    return plan(state, batch, Policy(), terms)


def rules(decided: BatchPlan) -> list[str]:
    """Return the rule that each verdict of a batch rejects by, or its status."""
    return rules_of(decided.verdicts)


def refusal_of(state: TableState, one: Proposal) -> Rejection | None:
    """Return why a proposal is refused; None where it is not."""
    [verdict] = planned(state, one).verdicts
    return verdict.rejection


def refused(state: TableState, one: Proposal) -> Rejection:
    """Return why a proposal is refused; fail where it is not."""
    [verdict] = planned(state, one).verdicts
    return rejection_of(verdict)


def encoded_of(state: TableState, *proposals: Proposal) -> EncodedEntry:
    """Return the entry of these proposals."""
    return encode(state, planned(state, *proposals).group, ORIGIN, Attempt(TABLE, NOW_MS))


def landed(state: TableState, *proposals: Proposal) -> TableState:
    """Return the table after an entry of these proposals."""
    return evolve(state, VersionLanded(encoded_of(state, *proposals).entry))


def written(state: TableState, *proposals: Proposal) -> tuple[TableState, list[Row]]:
    """Return the state after one entry that holds all these proposals, and the entry's rows."""
    decided = planned(state, *proposals, terms=TERMS)
    assert [verdict.status for verdict in decided.verdicts] == ["committed"] * len(proposals)
    one = encode(state, decided.group, ORIGIN, Attempt(ORIGIN.epoch, NOW_MS + 7))
    read = Commit.decode(one.entry.version, one.content)
    assert one.entry == entry_of(read, sha256(one.content), len(one.content))
    after = evolve(state, VersionLanded(one.entry))
    return after, [json.loads(line) for line in one.content.splitlines()]


def bodies(rows: list[Row], kind: str) -> list[dict[str, Any]]:
    """Return the actions of one kind."""
    return [row[kind] for row in rows if kind in row]
