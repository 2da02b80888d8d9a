"""A proposal that passes the prefilter conflicts with no winner, and rebasing keeps it as it is."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests import builders
from tests.builders import NOW_MS, TABLE, Row, commit
from tests.property.conflict_strategies import (
    LEVELS,
    PLAIN,
    POLICY,
    PROPOSALS,
    TRACKED,
    WITH_VECTORS,
    begun,
    candidate_of,
    compactions,
    winners,
    writes,
)
from tests.property.test_machine import ORIGIN
from tidegate_committer.conflicts import conflict_rules as conflicts
from tidegate_committer.conflicts.conflict_rules import RULES, skips_rules
from tidegate_committer.conflicts.rebase import adopt, begin
from tidegate_committer.decision import steps
from tidegate_committer.decision.machine import DecisionTerms, VersionLanded, evolve, plan
from tidegate_committer.group_commit.entry_encoding import Attempt, encode
from tidegate_committer.group_commit.grouping import Group
from tidegate_committer.intake.candidate import Candidate
from tidegate_committer.policy import Level
from tidegate_committer.state.fetched_inputs import FetchedInputs
from tidegate_committer.state.log_entry import Entry
from tidegate_committer.state.table_definition import TableDefinition
from tidegate_committer.state.table_state import with_full_adds
from tidegate_committer.store_reads.read_cache import ReadCache
from tidegate_delta.log.actions import Add
from tidegate_delta.log.commit import Commit
from tidegate_delta.log.file_names import Version, commit_name, in_log
from tidegate_messages.proposal import Proposal

MEMBERS: Final = st.one_of(
    writes(),
    compactions(),
    st.just(builders.proposal(builders.metadata(["p"], note="x"))),
    st.just(builders.proposal(TRACKED)),
)
"""Possible members of a group, except row deletes, which need reads before they join."""

TABLES: Final = st.sampled_from(
    [
        (PLAIN, {}),
        (WITH_VECTORS, {"enableDeletionVectors": "true"}),
        (WITH_VECTORS, {"enableDeletionVectors": "true"}),
        (TRACKED, {"enableRowTracking": "true"}),
        (PLAIN, {"appendOnly": "true"}),
    ]
)


def table_definition(protocol: Row, *, without_x: bool = False) -> TableDefinition:
    row = builders.metadata(["p"])
    if without_x:
        row["metaData"]["schemaString"] = builders.schema(s="string", p="integer")
    made = commit(0, protocol, row)
    assert made.metadata is not None
    assert made.protocol is not None
    return TableDefinition(made.metadata, made.protocol)


@given(
    PROPOSALS,
    winners(),
    LEVELS,
    st.sampled_from([PLAIN, TRACKED, WITH_VECTORS]),
    st.sampled_from([False, False, True]),
)
@settings(max_examples=1_000, deadline=None)
def test_no_rule_fires_and_nothing_is_adopted(
    one: Proposal,
    met: tuple[Entry, Sequence[Add] | None],
    level: Level,
    protocol: Row,
    has_changed: bool,
) -> None:
    winner, adds = met
    candidate = candidate_of(one)
    known = FetchedInputs(adds={} if adds is None else {winner.version: adds})
    before = begin(candidate, table_definition(protocol), level, known)
    if has_changed:
        # An earlier winner dropped the column on which the predicate depends.
        before = replace(before, now=table_definition(protocol, without_x=True))
    if skips_rules(before, winner.write_summary, adds):
        assert [rule.__name__ for rule in RULES if rule(before, winner)] == []
        assert adopt(before, winner) == before


@given(PROPOSALS, st.lists(MEMBERS, min_size=1, max_size=2), LEVELS)
@settings(max_examples=600, deadline=None)
def test_who_passes_by_a_group_passes_by_each_member(
    one: Proposal, members: list[Proposal], level: Level
) -> None:
    group = Group(2)
    for offset, member in enumerate(members):
        group.take(candidate_of(member, offset))
    before = begin(candidate_of(one), table_definition(TRACKED), level)
    if skips_rules(before, group.write_summary, group.adds):
        for winner in group.winners:
            assert [rule.__name__ for rule in RULES if rule(before, winner)] == []
            assert adopt(before, winner) == before


@given(st.lists(PROPOSALS, min_size=2, max_size=6), TABLES)
@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_a_group_is_decided_as_if_each_step_and_each_rule_ran_on_each_member(
    monkeypatch: pytest.MonkeyPatch, batch: list[Proposal], table: tuple[Row, dict[str, str]]
) -> None:
    candidates = [candidate_of(one, offset) for offset, one in enumerate(batch)]
    quick = decided(candidates, table)
    with monkeypatch.context() as context:
        for module in (conflicts, steps):
            context.setattr(module, "skips_rules", lambda *asked: False)
        context.setattr(Group, "may_meet_rows_of", lambda *asked: True)
        assert decided(candidates, table) == quick


def decided(candidates: Sequence[Candidate], table: tuple[Row, dict[str, str]]) -> list[object]:
    """Return every verdict, and what was written."""
    store, state = begun(*table)
    read_cache, left, result = ReadCache(store), list(candidates), list[object]()
    while left:
        known = read_cache.learn(state, left, POLICY)
        done = plan(state, left, POLICY, DecisionTerms(NOW_MS, 100), known)
        left = left[len(done.verdicts) :]
        result += [
            (verdict.status, verdict.version, verdict.place, verdict.rejection)
            for verdict in done.verdicts
        ]
        if not done.group.is_empty:
            encoded = encode(state, done.group, ORIGIN, Attempt(TABLE, NOW_MS))
            version, content = encoded.entry.version, encoded.content
            state = evolve(state, VersionLanded(encoded.entry))
            state = with_full_adds(state, [Commit.decode(Version(version), content)])
            store.put(in_log(commit_name(version)), content)
            read_cache.landed(encoded)
            result.append(content)
    return result
