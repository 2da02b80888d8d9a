"""The fast path: each oddity alone, before every member and after every version."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from tests import builders
from tests.builders import NOW_MS, Row
from tests.fakes.memory_store import MemoryStore
from tests.property.conflict_strategies import LIVE, PLAIN, begun
from tests.property.test_fast_path import (
    EQUAL,
    ODD_FIELDS,
    ODD_ROWS,
    OTHERS,
    POLICY,
    SEEN,
    TABLES,
    append,
    candidate_of,
    change,
    later,
    read,
)
from tidegate_committer.decision.decision_types import Consider, DecisionInput, Verdict
from tidegate_committer.decision.fast_path import FastPath
from tidegate_committer.decision.machine import BatchPlanner, decide
from tidegate_committer.intake.candidate import Candidate
from tidegate_committer.policy import Policy
from tidegate_committer.state.fetched_inputs import FetchedInputs
from tidegate_committer.state.table_state import TableState
from tidegate_committer.store_reads.read_cache import ReadCache
from tidegate_messages.proposal import Proposal

Make = Callable[[], Proposal]
NOBODY: list[Make | None] = [None]


def candidate(one: Proposal) -> Candidate:
    result = candidate_of(one, 9)
    assert result is not None
    return result


def odd_ones() -> Iterator[Candidate]:
    """Yield an append and a change, plain and with each oddity."""
    for make in (append, change):
        yield candidate(make())
        for fields in ODD_FIELDS:
            result = candidate_of(make(**fields), 9)
            if result is not None:
                yield result
        for row in ODD_ROWS:
            yield candidate(make(row))


def group_of(state: TableState, store: MemoryStore, member: Make | None) -> DecisionInput:
    """Return a decision input whose group holds the member, whatever the steps decide about it."""
    group, known = BatchPlanner(state, POLICY).group, FetchedInputs()
    if member is not None:
        one = candidate(member())
        known = ReadCache(store).learn(state, [one], POLICY)
        group.take(one, known)
    return DecisionInput(state, group, POLICY, known)


@pytest.mark.parametrize("table", TABLES[1:], ids=str)
def test_who_is_odd_goes_through_the_steps_unless_they_say_nothing(
    table: tuple[Row, dict[str, str]],
) -> None:
    odd = list(odd_ones())
    went = 0
    for before in (*NOBODY, *OTHERS):
        store, state = begun(*table)
        state = later(store, state, [before()] if before else [], POLICY)
        went += straight(state, store, None, odd)
    store, state = begun(*table)
    for member in OTHERS:
        if member().dv_intents and "enableDeletionVectors" not in table[1]:
            continue
        went += straight(state, store, member, odd)
    is_plain = table[1].keys() <= {"appendOnly", "enableDeletionVectors"}
    assert bool(went) == is_plain


def straight(
    state: TableState, store: MemoryStore, member: Make | None, odd: list[Candidate]
) -> int:
    """Return how many take the fast path; the full steps must commit each of those unchanged."""
    view, way, went = group_of(state, store, member), FastPath(state, POLICY), 0
    place = len(view.group.members)
    for item in odd:
        command = Consider(replace(item), NOW_MS)
        if way.is_clear(view, command):
            known = ReadCache(store).learn(state, [item], POLICY)
            verdict = decide(replace(view, known=known), command)
            result = Verdict(command.candidate, "committed", "membership", state.version + 1, place)
            assert verdict == result
            went += 1
    return went


def test_appends_and_changes_take_the_fast_path() -> None:
    store, state = begun(PLAIN, {})
    asked = change(**read(predicates=(EQUAL,), files=(LIVE[0],)))
    odd = [candidate(item) for item in (append(), change(), asked)]
    assert straight(state, store, None, odd) == 3
    assert straight(state, store, OTHERS[0], odd) == 1
    assert straight(state, store, OTHERS[6], odd) == 2


@pytest.mark.parametrize(
    "policy", [Policy(group_members_max=1), Policy(group_actions_max=1), Policy(group_bytes_max=9)]
)
def test_who_finds_an_entry_full_goes_through_the_steps(policy: Policy) -> None:
    store, state = begun(PLAIN, {})
    way, command = FastPath(state, policy), Consider(candidate(append()), NOW_MS)
    view = replace(group_of(state, store, OTHERS[0]), policy=policy)
    assert not way.is_clear(view, command)
    assert decide(view, command).needs == "another entry"
    assert way.is_clear(group_of(state, store, None), command)


def test_who_was_heard_of_goes_through_the_steps() -> None:
    store, state = begun(PLAIN, {})
    command = Consider(candidate(append(proposal_id=SEEN)), NOW_MS)
    assert FastPath(state, POLICY).is_clear(group_of(state, store, None), command)
    member = group_of(state, store, lambda: append(name="m", proposal_id=SEEN))
    assert not FastPath(state, POLICY).is_clear(member, command)
    after = later(store, state, [append(name="m", proposal_id=SEEN)], POLICY)
    assert not FastPath(after, POLICY).is_clear(group_of(after, store, None), command)


def test_who_read_a_version_that_is_not_at_hand_goes_through_the_steps() -> None:
    store, state = begun(PLAIN, {})
    state = later(store, state, [append(name="m"), append(name="o")], POLICY)
    command = Consider(candidate(append()), NOW_MS)
    assert FastPath(state, POLICY).is_clear(group_of(state, store, None), command)
    cleaned = replace(state, oldest=2)
    assert not FastPath(cleaned, POLICY).is_clear(group_of(cleaned, store, None), command)
    assert decide(group_of(cleaned, store, None), command).status == "expired"


def test_nobody_goes_straight_to_a_table_that_is_not_there() -> None:
    state = TableState(builders.TABLE, builders.ROOT, 10)
    command = Consider(candidate(append()), NOW_MS)
    view = DecisionInput(state, BatchPlanner(state, POLICY).group, POLICY)
    assert not FastPath(state, POLICY).is_clear(view, command)
