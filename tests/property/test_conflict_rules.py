"""Laws of the conflict rules over generated proposals and winners."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tests import builders
from tests.builders import Row, commit, info
from tidegate_committer.conflicts.conflict_rules import RebaseState, TableDefinition, check
from tidegate_committer.intake.candidate import Candidate
from tidegate_committer.intake.proposal_reader import read_record
from tidegate_committer.policy import Level, Policy
from tidegate_committer.state.log_entry import Entry, entry_of
from tidegate_messages.proposal import Predicate, Proposal, ReadSet

PATHS = st.sampled_from([f"p={p}/{name}" for p in (1, 2) for name in "abc"])
LEVELS: st.SearchStrategy[Level] = st.sampled_from(["Serializable", "WriteSerializable"])
EQUALITIES: st.SearchStrategy[Predicate] = st.builds(
    lambda value: {"op": "=", "column": ["p"], "value": value, "type": "integer"},
    st.sampled_from([1, 2]),
)


@st.composite
def rows(draw: st.DrawFn) -> list[Row]:
    """Draw files that are added and removed, each once."""
    paths = draw(st.lists(PATHS, unique=True, max_size=4))
    kinds = st.sampled_from([builders.add, builders.remove])
    return [draw(kinds)(path) for path in paths]


@st.composite
def winners(draw: st.DrawFn) -> list[Entry]:
    """Draw a few versions after the read version."""
    found = []
    for version in range(1, draw(st.integers(0, 4)) + 1):
        blind = draw(st.booleans())
        extra = draw(st.sampled_from([[], [builders.protocol()], [builders.metadata(["p"])]]))
        result = commit(version, info(isBlindAppend=blind), *draw(rows()), *extra)
        found.append(entry_of(result, "0" * 64, 1))
    return found


@st.composite
def proposals(draw: st.DrawFn) -> Proposal:
    """Draw a proposal with or without a read set."""
    reads = ReadSet(
        whole_table=draw(st.booleans()),
        predicates=tuple(draw(st.lists(EQUALITIES, max_size=2))),
        files=tuple(draw(st.lists(PATHS, max_size=3))),
    )
    return builders.proposal(*draw(rows()), reads=draw(st.sampled_from([reads, ReadSet()])))


def rebase_state(one: Proposal, level: Level) -> RebaseState:
    candidate = read_record(builders.value_of(one), 0, Policy())
    assert isinstance(candidate, Candidate)
    made = commit(0, builders.protocol(), builders.metadata(["p"]))
    assert made.metadata is not None
    assert made.protocol is not None
    table_definition = TableDefinition(made.metadata, made.protocol)
    return RebaseState(candidate, table_definition, table_definition, level)


@given(proposals(), winners(), winners(), LEVELS)
def test_a_conflict_is_for_ever(
    one: Proposal, first: list[Entry], more: list[Entry], level: Level
) -> None:
    result = check(rebase_state(one, level), first)
    later = [replace(entry, version=entry.version + len(first)) for entry in more]
    if result is not None:
        assert check(rebase_state(one, level), [*first, *later]) == result


@given(proposals(), winners())
def test_what_passes_serializable_passes_write_serializable(
    one: Proposal, others: list[Entry]
) -> None:
    if check(rebase_state(one, "Serializable"), others) is None:
        assert check(rebase_state(one, "WriteSerializable"), others) is None


@given(proposals(), winners(), LEVELS)
def test_who_read_the_whole_table_conflicts_at_least_as_often(
    one: Proposal, others: list[Entry], level: Level
) -> None:
    whole = one.model_copy(update={"reads": None})
    if check(rebase_state(one, level), others) is not None:
        assert check(rebase_state(whole, level), others) is not None


@given(proposals(), winners(), LEVELS)
def test_no_winner_no_conflict(one: Proposal, others: list[Entry], level: Level) -> None:
    assert check(rebase_state(one, level), []) is None
    hollow = [Entry(version=entry.version) for entry in others]
    assert check(rebase_state(one, level), hollow) is None
