"""Who passes by a winner is ruled out by none, and is not changed by following it."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests import builders
from tests.builders import NOW_MS, ROOT, TABLE, Row, commit, info, value_of
from tests.property.test_decide import ORIGIN
from tidegate.committer import conflicts, steps
from tidegate.committer.adoption import adopt
from tidegate.committer.candidate import Candidate
from tidegate.committer.conflicts import RULES
from tidegate.committer.entries import Entry, entry_of
from tidegate.committer.intake import read_record
from tidegate.committer.known import Known
from tidegate.committer.machine import Landed, Terms, evolve, plan
from tidegate.committer.passing import passes_by
from tidegate.committer.policy import Level, Policy
from tidegate.committer.rebase import Attempt, encode
from tidegate.committer.standing import Basis, begin
from tidegate.committer.state import TableState
from tidegate.delta.actions import Add
from tidegate.pipeline.proposal import Operation, Proposal
from tidegate.pipeline.read_set import Predicate, ReadSet

POLICY = Policy(weakest_isolation="SnapshotIsolation")
TRACKED = builders.protocol(
    3, 7, readerFeatures=[], writerFeatures=["rowTracking", "domainMetadata"]
)
NAMES = st.sampled_from([f"p={p}/{name}" for p in (1, 2, 3) for name in "abcd"])
LEVELS: st.SearchStrategy[Level] = st.sampled_from(
    ["Serializable", "WriteSerializable", "SnapshotIsolation"]
)
LEAVES: st.SearchStrategy[Predicate] = st.one_of(
    st.builds(
        lambda op, value: {"op": op, "column": ["p"], "value": value, "type": "integer"},
        st.sampled_from(["=", "<", "!="]),
        st.integers(1, 3),
    ),
    st.builds(
        lambda op, value: {"op": op, "column": "x", "value": value, "type": "long"},
        st.sampled_from(["=", ">=", "<"]),
        st.integers(0, 9),
    ),
    st.just({"op": "opaque", "columns": ["x"], "text": "f(x)"}),
)
PREDICATES = st.one_of(
    LEAVES,
    st.builds(
        lambda op, args: {"op": op, "args": args},
        st.sampled_from(["and", "or"]),
        st.lists(LEAVES, min_size=1, max_size=3),
    ),
)
OPERATIONS = st.sampled_from(
    ["WRITE", "DELETE", "OPTIMIZE", "REPLACE TABLE", "ROW TRACKING BACKFILL"]
)
APPS = st.sampled_from(["s", "t"])
DOMAINS = st.sampled_from(["d", "delta.clustering"])


def domain(name: str) -> Row:
    return {"domainMetadata": {"domain": name, "configuration": "{}", "removed": False}}


@st.composite
def files(draw: st.DrawFn) -> list[Row]:
    """Return files that join, with bounds or without, and files that leave."""
    found: list[Row] = []
    for path in draw(st.lists(NAMES, unique=True, max_size=4)):
        if draw(st.booleans()):
            found.append(builders.remove(path))
            continue
        low = draw(st.integers(0, 9))
        bounds = {"minValues": {"x": low}, "maxValues": {"x": low + 1}, "nullCount": {"x": 0}}
        stats = {"numRecords": 3, **(bounds if draw(st.booleans()) else {})}
        ids = draw(st.sampled_from([{}, {}, {"baseRowId": 7, "defaultRowCommitVersion": 1}]))
        found.append(builders.add(path, stats=json.dumps(stats), **ids))
    return found


@st.composite
def proposals(draw: st.DrawFn) -> Proposal:
    """Return a proposal that read all kinds of things."""
    more: list[Row] = [domain(name) for name in draw(st.lists(DOMAINS, unique=True, max_size=1))]
    reads = ReadSet(
        whole_table=draw(st.sampled_from([False, False, True])),
        predicates=tuple(draw(st.lists(PREDICATES, max_size=2))),
        files=tuple(draw(st.lists(NAMES, max_size=2))),
        app_ids=tuple(draw(st.lists(APPS, max_size=1))),
        domains=tuple(draw(st.lists(DOMAINS, max_size=1))),
        delete_insensitive=draw(st.booleans()),
    )
    own: dict[str, Any] = {}
    if draw(st.booleans()):
        own["app_txn"] = {"app_id": draw(APPS), "version": draw(st.integers(0, 9))}
    return builders.proposal(
        *draw(files()),
        *more,
        reads=draw(st.sampled_from([reads, reads, ReadSet()])),
        operation=Operation(name=draw(OPERATIONS)),
        isolation=draw(LEVELS),
        **own,
    )


@st.composite
def winners(draw: st.DrawFn) -> tuple[Entry, Sequence[Add] | None]:
    """Return a version, and its new files where they have been read."""
    extra: list[Row] = draw(
        st.sampled_from(
            [
                *([], [], []),
                [{"txn": {"appId": "s", "version": 1}}],
                [domain("delta.clustering")],
                [builders.metadata(["p"], note="x")],
                [TRACKED],
            ]
        )
    )
    told = info(draw(OPERATIONS), isBlindAppend=draw(st.booleans()))
    made = commit(1, told, *draw(files()), *extra)
    return entry_of(made, "0" * 64, 1), draw(st.sampled_from([None, tuple(made.adds)]))


def candidate_of(one: Proposal, offset: int = 0) -> Candidate:
    found = read_record(value_of(one), offset, POLICY)
    assert isinstance(found, Candidate)
    return found


def basis(protocol: Row) -> Basis:
    made = commit(0, protocol, builders.metadata(["p"]))
    assert made.metadata is not None
    assert made.protocol is not None
    return Basis(made.metadata, made.protocol)


@given(proposals(), winners(), LEVELS, st.sampled_from([builders.protocol(), TRACKED]))
@settings(max_examples=600, deadline=None)
def test_no_rule_fires_and_nothing_is_adopted(
    one: Proposal, met: tuple[Entry, Sequence[Add] | None], level: Level, protocol: Row
) -> None:
    winner, adds = met
    candidate = candidate_of(one)
    known = Known(adds={} if adds is None else {winner.version: adds})
    before = begin(candidate, basis(protocol), level, known)
    if passes_by(before, winner.footprint, adds):
        assert [rule.__name__ for rule in RULES if rule(before, winner)] == []
        assert adopt(before, winner) == before


def state_of() -> TableState:
    made = commit(0, *builders.creation(["p"]), builders.add("p=1/a"), builders.add("p=2/b"))
    return evolve(TableState(TABLE, ROOT, 1_000), Landed(entry_of(made, "0" * 64, 1)))


@given(st.lists(proposals(), min_size=2, max_size=6))
@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_a_group_is_judged_as_if_each_rule_had_been_asked_of_each_member(
    monkeypatch: pytest.MonkeyPatch, batch: list[Proposal]
) -> None:
    candidates = [candidate_of(one, offset) for offset, one in enumerate(batch)]
    quick = decided(candidates)
    with monkeypatch.context() as context:
        for module in (conflicts, steps):
            context.setattr(module, "passes_by", lambda *asked: False)
        assert decided(candidates) == quick


def decided(candidates: Sequence[Candidate]) -> list[object]:
    """Return every verdict, and what was written."""
    state, left, found = state_of(), list(candidates), list[object]()
    adds: dict[int, Sequence[Add]] = {}
    while left:
        done = plan(state, left, POLICY, Terms(NOW_MS, 100), Known(adds=adds))
        left = left[len(done.verdicts) :]
        found += [(one.status, one.version, one.place, one.rejection) for one in done.verdicts]
        if not done.group.is_empty:
            encoded = encode(state, done.group, ORIGIN, Attempt(TABLE, NOW_MS))
            adds[encoded.entry.version] = encoded.adds
            state = evolve(state, Landed(encoded.entry))
            found.append(encoded.content)
    return found
