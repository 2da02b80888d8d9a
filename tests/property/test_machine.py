"""Laws of the decision machine: replay, idempotence, contiguity, agreement with the log."""

from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests import builders
from tests.builders import NOW_MS, ROOT, TABLE, commit, creation, value_of
from tidegate_committer.conflicts.conflict_rules import RULES_VERSION
from tidegate_committer.decision.decision_types import Verdict
from tidegate_committer.decision.machine import DecisionTerms, VersionLanded, evolve, plan
from tidegate_committer.group_commit.entry_encoding import Attempt, EntryWriter, encode
from tidegate_committer.intake.candidate import Candidate
from tidegate_committer.intake.proposal_reader import read_record
from tidegate_committer.policy import Policy
from tidegate_committer.state.log_entry import entry_of
from tidegate_committer.state.table_state import TableState
from tidegate_delta.log.commit import Commit, sha256
from tidegate_messages.proposal import Proposal, ReadSet

ORIGIN = EntryWriter(TABLE, "c/t/0", "tidegate/t/0", "Tidegate")
POLICY = Policy(group_members_max=4)
NAMES = st.sampled_from([f"p={p}/{name}" for p in (1, 2) for name in "abcd"])


def begun() -> TableState:
    made = commit(0, *creation(["p"]))
    state = evolve(
        TableState(TABLE, ROOT, 1_000), VersionLanded(entry_of(made, sha256(made.encode()), 1))
    )
    return replace(state, rules=RULES_VERSION)


@st.composite
def proposals(draw: st.DrawFn) -> Proposal:
    """Draw a proposal, valid or not: append, rewrite, txn, bad path, late or cancel."""
    kind = draw(
        st.sampled_from(["append", "rewrite", "batch", "advance", "bad", "late", "compaction"])
    )
    path, other = draw(NAMES), draw(NAMES)
    reads = ReadSet(files=(path,))
    if kind == "rewrite":
        return builders.proposal(builders.remove(path), builders.add(f"{other}2"), reads=reads)
    if kind == "batch":
        return builders.batch_of("s", draw(st.integers(0, 3)), builders.add(path))
    if kind == "advance":
        expected = draw(st.integers(-1, 2))
        step = {"app_id": "s", "version": expected + draw(st.integers(1, 2)), "expected": expected}
        return builders.proposal(builders.add(path), app_txns=(step,))
    if kind == "late":
        return builders.late(builders.add(path))
    if kind == "bad":
        return builders.proposal(builders.add("../x"))
    if kind == "compaction":
        rows = (
            builders.remove(path, dataChange=False),
            builders.add(f"{other}3", dataChange=False),
        )
        return builders.proposal(*rows, reads=reads)
    return builders.proposal(builders.add(path))


def considered(proposals: list[Proposal], start: int) -> list[Candidate]:
    result = []
    for offset, one in enumerate(proposals, start):
        candidate = read_record(value_of(one), offset, POLICY)
        assert isinstance(candidate, Candidate)
        result.append(candidate)
    return result


def settle(
    state: TableState, batch: list[Candidate]
) -> tuple[TableState, list[Verdict], list[bytes]]:
    """Decide a batch completely; return the state, the verdicts and what was written."""
    verdicts: list[Verdict] = []
    written: list[bytes] = []
    while len(verdicts) < len(batch):
        decided = plan(state, batch[len(verdicts) :], POLICY, DecisionTerms(NOW_MS, 100))
        verdicts += decided.verdicts
        if not decided.group.is_empty:
            encoded = encode(state, decided.group, ORIGIN, Attempt(TABLE, NOW_MS))
            written.append(encoded.content)
            state = evolve(state, VersionLanded(encoded.entry))
    return state, verdicts, written


@given(st.lists(proposals(), min_size=1, max_size=12))
@settings(max_examples=100, deadline=None)
def test_replaying_the_log_gives_the_state(batch: list[Proposal]) -> None:
    state, _, written = settle(begun(), considered(batch, 0))
    again = begun()
    for content in written:
        made = Commit.decode(again.version + 1, content)
        again = evolve(again, VersionLanded(entry_of(made, sha256(content), len(content))))
    assert dict(again.files) == dict(state.files)
    assert dict(again.decisions) == dict(state.decisions)
    assert dict(again.entries) == dict(state.entries)
    assert (again.version, again.timestamp) == (state.version, state.timestamp)


@given(st.lists(proposals(), min_size=1, max_size=12))
@settings(max_examples=100, deadline=None)
def test_a_repeated_delivery_gets_the_same_answer_and_writes_nothing(batch: list[Proposal]) -> None:
    state, first, _ = settle(begun(), considered(batch, 0))
    # A denial of a gap promises nothing: the gap may be closed by now.
    assume(all(verdict.status != "denied" for verdict in first))
    after, again, written = settle(state, considered(batch, 100))
    assert written == []
    assert after == state
    for before, now in zip(first, again, strict=True):
        assert (before.status, before.version) == (now.status, now.version)
        assert now.repeat or now.rejection is not None


@given(st.lists(proposals(), min_size=1, max_size=12), st.integers(1, 4))
@settings(max_examples=100, deadline=None)
def test_how_a_batch_is_cut_changes_no_file_of_the_table(
    batch: list[Proposal], members: int
) -> None:
    alone = Policy(group_members_max=members)
    state, _, _ = settle(begun(), considered(batch, 0))
    one_by_one = begun()
    for candidate in considered(batch, 0):
        decided = plan(one_by_one, [candidate], alone, DecisionTerms(NOW_MS, 100))
        if not decided.group.is_empty:
            encoded = encode(one_by_one, decided.group, ORIGIN, Attempt(TABLE, NOW_MS))
            one_by_one = evolve(one_by_one, VersionLanded(encoded.entry))
    assert dict(state.files) == dict(one_by_one.files)


def test_versions_are_contiguous() -> None:
    state = begun()
    with pytest.raises(AssertionError, match="contiguous"):
        evolve(state, VersionLanded(replace(state.entries[0], version=5)))
