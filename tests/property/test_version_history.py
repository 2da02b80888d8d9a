"""Law: decisions on retained history equal decisions on history read from the store."""

from hypothesis import given
from hypothesis import strategies as st

from tests.builders import (
    NOW_MS,
    ROOT,
    TABLE,
    add,
    creation,
    info,
    metadata,
    proposal,
    remove,
    table_in_memory,
    value_of,
)
from tests.fakes.memory_store import MemoryStore
from tidegate_committer.decision.machine import DecisionTerms, VersionLanded, evolve, plan
from tidegate_committer.intake.candidate import Candidate
from tidegate_committer.intake.proposal_reader import read_record
from tidegate_committer.policy import Policy
from tidegate_committer.state.table_state import TableState, narrowed
from tidegate_committer.store_reads import recovery
from tidegate_messages.proposal import ReadSet

WINDOW = 3
POLICY = Policy(window=WINDOW)

Change = tuple[str, int]

changes = st.lists(
    st.tuples(st.sampled_from(["add", "add", "remove", "metadata", "txn"]), st.integers(0, 5)),
    min_size=6,
    max_size=20,
)


def log_of(made: list[Change]) -> MemoryStore:
    """Return a table with these versions after its creation and one version of six files."""
    commits = [creation(), [info(), *(add(f"f{number}") for number in range(6))]]
    live = {f"f{number}" for number in range(6)}
    for version, (kind, number) in enumerate(made, 2):
        rows = [info()]
        name = f"f{number}"
        if kind == "add":
            rows.append(add(f"v{version}"))
        elif kind == "remove" and name in live:
            live.discard(name)
            rows.append(remove(name))
        elif kind == "metadata":
            rows.append(metadata(**{"a.b": str(number)}))
        elif kind == "txn":
            rows.append({"txn": {"appId": f"app{number}", "version": version}})
        commits.append(rows)
    return table_in_memory(*commits)


def head_of(store: MemoryStore, versions: int) -> TableState:
    """Return the state after so many versions, all landed one by one."""
    state = TableState(TABLE, ROOT, WINDOW)
    for version in range(versions):
        entry = recovery.read_entry(store, version)
        assert entry is not None
        state = evolve(state, VersionLanded(entry))
    return state


def grown(store: MemoryStore, state: TableState, versions: int) -> TableState:
    for version in range(state.version + 1, versions):
        entry = recovery.read_entry(store, version)
        assert entry is not None
        state = evolve(state, VersionLanded(entry))
    return state


def candidates(read_version: int, number: int) -> list[Candidate]:
    """Return proposals of several kinds with one read version."""
    name = f"f{number}"
    reads = ReadSet(files=(name,))
    made = [
        proposal(add("new"), read_version=read_version),
        proposal(add("new"), read_version=read_version, reads=reads),
        proposal(add("new"), read_version=read_version, reads=ReadSet(whole_table=True)),
        proposal(remove(name), add("new"), read_version=read_version, reads=reads),
        proposal(metadata(**{"c.d": "1"}), read_version=read_version),
    ]
    read = [read_record(value_of(item), 0, POLICY, (), NOW_MS) for item in made]
    return [one for one in read if isinstance(one, Candidate)]


def judged(state: TableState, candidate: Candidate) -> object:
    [verdict] = plan(state, [candidate], POLICY, DecisionTerms(NOW_MS, 10)).verdicts
    return verdict._replace(candidate=candidate)


@given(changes, st.integers(0, 5), st.integers(1, 20), st.integers(1, 20))
def test_kept_history_decides_as_history_that_was_just_read(
    made: list[Change], number: int, read_version: int, asked_at: int
) -> None:
    store, versions = log_of(made), len(made) + 2
    read_version = min(read_version, versions - 1)
    before = head_of(store, max(1, min(asked_at, versions)))
    past = {entry.version: entry for entry in recovery.entries(store, range(before.window_start))}
    kept = grown(store, recovery.reach_back(store, before, 0, past), versions)
    # While nothing has left the window, no history is retained.
    kept = recovery.reach_back(store, kept, read_version)
    fresh = recovery.reach_back(store, head_of(store, versions), read_version)
    for candidate in candidates(read_version, number):
        assert judged(kept, candidate) == judged(fresh, candidate)


@given(changes, st.integers(1, 20))
def test_a_state_without_its_history_is_as_if_it_had_never_had_one(
    made: list[Change], asked_at: int
) -> None:
    store, versions = log_of(made), len(made) + 2
    before = head_of(store, max(1, min(asked_at, versions)))
    past = {entry.version: entry for entry in recovery.entries(store, range(before.window_start))}
    kept = narrowed(grown(store, recovery.reach_back(store, before, 0, past), versions))
    plain = head_of(store, versions)
    for name in ("entries", "decisions", "leases", "apps", "domains"):
        assert dict(getattr(kept, name)) == dict(getattr(plain, name))
    for name in ("version", "window_start", "oldest", "rules", "timestamp", "mark_before"):
        assert getattr(kept, name) == getattr(plain, name)
    for version in range(max(0, plain.window_start - 1), plain.version + 1):
        ours, theirs = kept.table_definition_at(version), plain.table_definition_at(version)
        assert (ours.metadata, ours.protocol) == (theirs.metadata, theirs.protocol)
    assert not kept.keeps_past
