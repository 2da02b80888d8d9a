"""Laws of row ids and of values assigned with the version, over generated histories."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests import builders
from tests.builders import NOW_MS, ROOT, TABLE, Row, add, commit, info, metadata, protocol, remove
from tidegate_committer.conflicts.conflict_rules import Conflict, check, follow
from tidegate_committer.conflicts.rebase import RebaseState, begin
from tidegate_committer.decision.machine import DecisionTerms, VersionLanded, evolve, plan
from tidegate_committer.group_commit.entry_encoding import Attempt, EntryWriter, encode
from tidegate_committer.intake.candidate import Candidate
from tidegate_committer.intake.proposal_reader import read_record
from tidegate_committer.policy import Policy
from tidegate_committer.state.log_entry import Entry, entry_of
from tidegate_committer.state.table_definition import TableDefinition
from tidegate_committer.state.table_state import TableState, with_full_adds
from tidegate_delta.features.row_tracking import high_water_mark
from tidegate_delta.log.commit import Commit, sha256
from tidegate_messages.proposal import Operation, Proposal, ReadSet

ORIGIN = EntryWriter(TABLE, "c/t/0", "tidegate/t/0", "Tidegate")
TRACKED: Row = protocol(1, 7, writerFeatures=["domainMetadata", "rowTracking"])
PLAIN: Row = protocol(1, 7, writerFeatures=["domainMetadata"])
NAMES = st.sampled_from("abcdefgh")


def stats(count: int) -> str:
    return json.dumps({"numRecords": count})


@st.composite
def appends(draw: st.DrawFn, number: int) -> Proposal:
    """Draw new files with some rows, with guessed row ids or none."""
    rows = [
        add(
            f"{number}-{place}",
            stats=stats(draw(st.integers(0, 5))),
            **draw(st.sampled_from([{}, {"baseRowId": 3}, {"defaultRowCommitVersion": 1}])),
        )
        for place in range(draw(st.integers(1, 3)))
    ]
    return builders.proposal(*rows, read_version=draw(st.integers(0, 1)))


@st.composite
def histories(draw: st.DrawFn) -> list[list[Proposal]]:
    """Draw batches of appends; a batch may share an entry."""
    sizes = draw(st.lists(st.integers(1, 3), min_size=1, max_size=4))
    numbers = iter(range(100))
    return [[draw(appends(next(numbers))) for _ in range(size)] for size in sizes]


def considered(one: Proposal, offset: int) -> Candidate:
    candidate = read_record(builders.value_of(one), offset, Policy())
    assert isinstance(candidate, Candidate)
    return candidate


def begun(listed: Row) -> TableState:
    state = TableState(TABLE, ROOT, 1_000)
    for version, rows in enumerate(([info(), listed, metadata()], [info("X")])):
        state = evolve(state, VersionLanded(entry_of(commit(version, *rows), "0" * 64, 1)))
    return state


def written(state: TableState, batch: list[Proposal]) -> tuple[TableState, Commit]:
    candidates = [considered(one, offset) for offset, one in enumerate(batch)]
    group = plan(state, candidates, Policy(), DecisionTerms(NOW_MS, 100)).group
    assert len(group.members) == len(batch)
    first = encode(state, group, ORIGIN, Attempt(TABLE, NOW_MS))
    assert encode(state, group, ORIGIN, Attempt(TABLE, NOW_MS)) == first
    read = Commit.decode(first.entry.version, first.content)
    assert first.entry == entry_of(read, sha256(first.content), len(first.content))
    return evolve(state, VersionLanded(first.entry)), read


@given(histories())
@settings(max_examples=60)
def test_every_row_has_an_id_of_its_own_below_the_mark(history: list[list[Proposal]]) -> None:
    state = begun(TRACKED)
    given_ids: list[int] = []
    for batch in history:
        state, read = written(state, batch)
        for item in read.adds:
            assert item.base_row_id is not None
            assert item.default_row_commit_version is not None
            assert item.default_row_commit_version <= read.version
            count = json.loads(item.stats or "{}")["numRecords"]
            given_ids += range(item.base_row_id, item.base_row_id + count)
    assert len(set(given_ids)) == len(given_ids)
    assert max(given_ids, default=-1) <= high_water_mark(state.domains)


@given(histories())
@settings(max_examples=30)
def test_a_group_gives_the_ids_that_its_members_alone_would_get(
    history: list[list[Proposal]],
) -> None:
    together, apart = begun(TRACKED), begun(TRACKED)
    for batch in history:
        together, read = written(together, batch)
        alone = []
        for item in batch:
            apart, single = written(apart, [item])
            alone += [(add.path, add.base_row_id) for add in single.adds]
        assert [(add.path, add.base_row_id) for add in read.adds] == alone
    assert high_water_mark(together.domains) == high_water_mark(apart.domains)


EXTRAS: st.SearchStrategy[list[Row]] = st.sampled_from(
    [
        [],
        [TRACKED],
        [PLAIN],
        [metadata(enableRowTracking="true")],
        [metadata(rowTrackingSuspended="true")],
        [{"domainMetadata": {"domain": "d", "configuration": "", "removed": False}}],
        [{"domainMetadata": {"domain": "delta.clustering", "configuration": "{}"}}],
        [{"txn": {"appId": "s", "version": 1}}],
    ]
)
OPERATIONS = st.sampled_from(
    ["WRITE", "DELETE", "ROW TRACKING BACKFILL", "ROW TRACKING UNBACKFILL", "REPLACE TABLE"]
)


@st.composite
def files(draw: st.DrawFn) -> list[Row]:
    paths = draw(st.lists(NAMES, unique=True, max_size=3))
    changes = draw(st.booleans())
    ids: dict[str, Any] = draw(st.sampled_from([{}, {"baseRowId": 2}]))
    return [
        remove(path, dataChange=changes)
        if draw(st.booleans())
        else add(path, dataChange=changes, **ids)
        for path in paths
    ]


@st.composite
def winners(draw: st.DrawFn) -> list[tuple[Entry, Commit]]:
    found = []
    for version in range(1, draw(st.integers(0, 4)) + 1):
        result = info(draw(OPERATIONS), isBlindAppend=draw(st.booleans()))
        read = commit(version, result, *draw(files()), *draw(EXTRAS))
        found.append((entry_of(read, "0" * 64, 1), read))
    return found


@st.composite
def proposals(draw: st.DrawFn) -> Proposal:
    reads = ReadSet(
        whole_table=draw(st.booleans()),
        files=tuple(draw(st.lists(NAMES, max_size=2))),
        app_ids=draw(st.sampled_from([(), ("s",)])),
        domains=draw(st.sampled_from([(), ("d",)])),
    )
    return builders.proposal(
        *draw(files()),
        *draw(
            st.sampled_from([[], [metadata()], [TRACKED], [{"txn": {"appId": "s", "version": 1}}]])
        ),
        reads=draw(st.sampled_from([reads, ReadSet()])),
        operation=Operation(name=draw(OPERATIONS)),
    )


def rebase_state(one: Proposal, listed: Row) -> RebaseState:
    made = commit(0, listed, metadata())
    assert made.metadata is not None
    assert made.protocol is not None
    return begin(considered(one, 0), TableDefinition(made.metadata, made.protocol), "Serializable")


def at_hand(met: list[tuple[Entry, Commit]]) -> list[Entry]:
    state = TableState(TABLE, ROOT, 1_000)
    entries = {entry.version: entry for entry, _ in met}
    state = TableState(TABLE, ROOT, 1_000, entries=state.entries.changed(entries))
    full = with_full_adds(state, [read for _, read in met])
    return [full.entries[version] for version in sorted(entries)]


@given(proposals(), winners(), st.sampled_from([PLAIN, TRACKED]))
def test_a_conflict_is_for_ever(
    one: Proposal, met: list[tuple[Entry, Commit]], listed: Row
) -> None:
    entries = at_hand(met)
    result = [
        check(rebase_state(one, listed), entries[:count]) for count in range(len(entries) + 1)
    ]
    first = next((conflict for conflict in result if conflict is not None), None)
    after = result[result.index(first) :] if first is not None else []
    assert all(conflict == first for conflict in after)


@given(proposals(), winners(), st.sampled_from([PLAIN, TRACKED]))
def test_winners_are_followed_one_by_one_or_together(
    one: Proposal, met: list[tuple[Entry, Commit]], listed: Row
) -> None:
    entries = at_hand(met)
    together = follow(rebase_state(one, listed), entries)
    step: RebaseState | Conflict = rebase_state(one, listed)
    for entry in entries:
        step = follow(step, [entry]) if isinstance(step, RebaseState) else step
    assert type(step) is type(together)
    if isinstance(together, RebaseState) and isinstance(step, RebaseState):
        assert step.candidate.content == together.candidate.content
        assert step.now == together.now
        assert lines_spell_the_actions(together.candidate)


def lines_spell_the_actions(candidate: Candidate) -> bool:
    """Return whether the lines to write equal those of the actions."""
    spelled = [json.loads(line) for line in candidate.content.lines if isinstance(line, bytes)]
    paths = [row["add"]["path"] for row in spelled if "add" in row]
    ids = [row["add"].get("baseRowId") for row in spelled if "add" in row]
    adds = candidate.content.adds
    return (paths, ids) == ([item.path for item in adds], [one.base_row_id for one in adds])
