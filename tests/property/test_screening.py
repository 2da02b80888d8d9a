"""Who passes by a winner is ruled out by none, and is not changed by following it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests import builders
from tests.builders import NOW_MS, TABLE, Row, commit
from tests.property.meetings import (
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
from tests.property.test_decide import ORIGIN
from tidegate.committer.conflicts import rules as conflicts
from tidegate.committer.conflicts.adoption import adopt
from tidegate.committer.conflicts.rules import RULES
from tidegate.committer.conflicts.screening import passes_by
from tidegate.committer.conflicts.standing import begin
from tidegate.committer.group_commit.grouping import Group
from tidegate.committer.group_commit.rebase import Attempt, encode
from tidegate.committer.judging import fast_path, steps
from tidegate.committer.judging.fast_path import FastPath
from tidegate.committer.judging.machine import Landed, Terms, evolve, plan
from tidegate.committer.proposals.basis import Basis
from tidegate.committer.proposals.candidate import Candidate
from tidegate.committer.proposals.known import Known
from tidegate.committer.proposals.policy import Level
from tidegate.committer.reading.read_cache import ReadCache
from tidegate.committer.tables.entries import Entry
from tidegate.committer.tables.state import in_full
from tidegate.delta.actions import Add
from tidegate.delta.commit import Commit
from tidegate.delta.names import Version, commit_name, in_log
from tidegate.pipeline.proposal import Proposal

MEMBERS: Final = st.one_of(
    writes(),
    compactions(),
    st.just(builders.proposal(builders.metadata(["p"], note="x"))),
    st.just(builders.proposal(TRACKED)),
)
"""Who may be in a group, deletes of rows apart: these are read before they join."""

TABLES: Final = st.sampled_from(
    [
        (PLAIN, {}),
        (WITH_VECTORS, {"enableDeletionVectors": "true"}),
        (WITH_VECTORS, {"enableDeletionVectors": "true"}),
        (TRACKED, {"enableRowTracking": "true"}),
        (PLAIN, {"appendOnly": "true"}),
    ]
)


def basis(protocol: Row, *, without_x: bool = False) -> Basis:
    row = builders.metadata(["p"])
    if without_x:
        row["metaData"]["schemaString"] = builders.schema(s="string", p="integer")
    made = commit(0, protocol, row)
    assert made.metadata is not None
    assert made.protocol is not None
    return Basis(made.metadata, made.protocol)


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
    known = Known(adds={} if adds is None else {winner.version: adds})
    before = begin(candidate, basis(protocol), level, known)
    if has_changed:
        # An earlier winner took a column away, without which nothing tells rows apart.
        before = replace(before, now=basis(protocol, without_x=True))
    if passes_by(before, winner.footprint, adds):
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
    before = begin(candidate_of(one), basis(TRACKED), level)
    if passes_by(before, group.footprint, group.adds):
        for winner in group.winners:
            assert [rule.__name__ for rule in RULES if rule(before, winner)] == []
            assert adopt(before, winner) == before


@given(st.lists(PROPOSALS, min_size=2, max_size=6), TABLES)
@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_a_group_is_judged_as_if_each_step_and_each_rule_had_been_asked_of_each_member(
    monkeypatch: pytest.MonkeyPatch, batch: list[Proposal], table: tuple[Row, dict[str, str]]
) -> None:
    candidates = [candidate_of(one, offset) for offset, one in enumerate(batch)]
    quick = decided(candidates, table)
    with monkeypatch.context() as context:
        context.setattr(FastPath, "is_clear", lambda *asked: False)
        assert decided(candidates, table) == quick
        for module in (conflicts, steps, fast_path):
            context.setattr(module, "passes_by", lambda *asked: False)
        context.setattr(Group, "may_meet_rows_of", lambda *asked: True)
        assert decided(candidates, table) == quick


def decided(candidates: Sequence[Candidate], table: tuple[Row, dict[str, str]]) -> list[object]:
    """Return every verdict, and what was written."""
    store, state = begun(*table)
    read_cache, left, found = ReadCache(store), list(candidates), list[object]()
    while left:
        known = read_cache.learn(state, left, POLICY)
        done = plan(state, left, POLICY, Terms(NOW_MS, 100), known)
        left = left[len(done.verdicts) :]
        found += [(one.status, one.version, one.place, one.rejection) for one in done.verdicts]
        if not done.group.is_empty:
            encoded = encode(state, done.group, ORIGIN, Attempt(TABLE, NOW_MS))
            version, content = encoded.entry.version, encoded.content
            state = evolve(state, Landed(encoded.entry))
            state = in_full(state, [Commit.decode(Version(version), content)])
            store.put(in_log(commit_name(version)), content)
            read_cache.landed(encoded)
            found.append(content)
    return found
