"""A proposal with an old read version waits aside while the versions since then are read."""

import dataclasses

import pytest

from tests.builders import ROOT, Gate, add, create, proposal, remove
from tests.fakes.memory_store import MemoryStore
from tests.support.decisions import state_of
from tests.support.outcomes import rejection_of, rules_of
from tests.unit.committer.held_reads import Held
from tidegate_committer.loop import table_cache
from tidegate_committer.settings import CommitterSection
from tidegate_committer.state import version_history as kept
from tidegate_committer.store_reads import table_loading
from tidegate_delta.errors import Unavailable
from tidegate_delta.log.file_names import commit_name, in_log
from tidegate_messages.proposal import Proposal, ReadSet

SECTION = CommitterSection(roots=("memory://tables",), audit_s=1e9, id_window=5)
VERSIONS = 30
STALE = (("producer", b"stale"),)
FRESH = (("producer", b"fresh"),)


class Counting(MemoryStore):
    """A store that records which commits are read."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.read_names: list[str] = []
        self.fails = False

    def read(self, path: str) -> bytes | None:
        if self.fails:
            raise Unavailable("it is away")
        self.read_names.append(path)
        return super().read(path)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lower the limit so that three versions need a background read."""
    monkeypatch.setattr(table_loading, "FETCHED_MAX", 2)
    monkeypatch.setattr(table_cache, "FETCHED_MAX", 2)


@pytest.fixture
def new_gate(few: None, held: Held) -> Gate:
    """A committer that keeps five versions of a table in memory."""
    return Gate(SECTION, stores={ROOT: Counting(ROOT)}, reads=held)


@pytest.fixture
def first_proposals() -> list[Proposal]:
    """A table with thirty versions."""
    appends = [proposal(add(f"f{number}"), read_version=number) for number in range(VERSIONS)]
    return [create(), *appends]


def store_of(gate: Gate) -> Counting:
    store = gate.stores[ROOT]
    assert isinstance(store, Counting)
    return store


def commits_read(gate: Gate) -> int:
    """Return how many of the first commits were read from the store since the last call."""
    read, store_of(gate).read_names = store_of(gate).read_names, []
    first = {in_log(commit_name(version)) for version in range(VERSIONS + 1)}
    return sum(name in first for name in read)


def stale(name: str, read_version: int = 2) -> Proposal:
    reads = ReadSet(files=("f1",))
    return proposal(add(name), read_version=read_version, reads=reads)


def remembered(gate: Gate) -> int:
    """Return how many versions the table's state holds."""
    return len(state_of(gate).entries)


def statuses(gate: Gate, *proposals: Proposal) -> list[str]:
    result = {outcome.proposal_id: outcome.status for outcome in gate.outcomes()}
    return [result.get(proposal.proposal_id, "") for proposal in proposals]


def test_others_are_decided_while_history_is_read(gate: Gate, held: Held) -> None:
    held.held.add(ROOT)
    old, fresh = stale("a"), [proposal(add(f"n{item}"), read_version=VERSIONS) for item in range(3)]
    gate.send(old, headers=STALE)
    for one in fresh:
        gate.send(one, headers=FRESH)
        gate.settle()
    assert statuses(gate, old, *fresh) == ["", *["committed"] * 3]
    assert gate.loop.movable == 0, "it waits for the store: a restart would not help it"
    held.answer()
    held.held.clear()
    gate.settle()
    assert statuses(gate, old) == ["committed"]
    assert gate.loop.pending == 0


def test_who_follows_in_the_same_series_waits_behind_it(gate: Gate, held: Held) -> None:
    held.held.add(ROOT)
    old, later = stale("a"), proposal(add("b"), read_version=VERSIONS)
    gate.send(old, later, headers=STALE)
    gate.settle()
    assert statuses(gate, old, later) == ["", ""]
    held.answer()
    held.held.clear()
    gate.settle()
    answered = [outcome.proposal_id for outcome in gate.outcomes()]
    assert answered[-2:] == [old.proposal_id, later.proposal_id]


def test_history_is_read_once(gate: Gate) -> None:
    commits_read(gate)
    gate.ask(stale("a"))
    a_look = 1
    assert commits_read(gate) == VERSIONS - 2 - 5 + a_look
    for name in "bcd":
        gate.ask(proposal(add(f"n{name}"), read_version=VERSIONS))
        assert rules_of(gate.ask(stale(name))) == ["committed"]
    assert commits_read(gate) == 0


def test_a_conflict_of_long_ago_is_found_in_kept_history(gate: Gate) -> None:
    gate.ask(stale("a"))
    gate.ask(proposal(remove("f1"), read_version=VERSIONS, reads=ReadSet(files=("f1",))))
    for number in range(12):
        gate.ask(proposal(add(f"later{number}"), read_version=VERSIONS))
    assert remembered(gate) > 5 + 12
    assert rules_of(gate.ask(stale("b"))) == ["concurrent_delete_read"]


def test_what_is_committed_is_found_by_its_id_however_long_ago(gate: Gate) -> None:
    old = proposal(add("once"), read_version=VERSIONS)
    gate.ask(old)
    for number in range(12):
        gate.ask(proposal(add(f"later{number}"), read_version=VERSIONS))
    [result] = gate.ask(old)
    assert (result.status, result.repeat, result.version) == ("committed", True, VERSIONS + 1)


def test_a_version_below_the_log_is_expired(gate: Gate) -> None:
    for version in range(10):
        gate.stores[ROOT].delete(in_log(commit_name(version)))
    [result] = gate.ask(stale("a", read_version=2))
    assert result.status == "expired"
    assert rules_of(gate.ask(stale("b", read_version=12))) == ["committed"]


def test_what_is_too_large_to_keep_is_denied_and_requested_once(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_loading, "BYTES_MAX", 10 * kept.ENTRY_BYTES)
    commits_read(gate)
    [result] = gate.ask(stale("a"))
    assert result.status == "denied"
    assert rejection_of(result).rule == "read_version_too_far"
    assert 0 < commits_read(gate) <= 10
    [result] = gate.ask(stale("b"))
    assert result.status == "denied"
    assert commits_read(gate) == 0
    assert rules_of(gate.ask(stale("c", read_version=VERSIONS - 10))) == ["committed"]


def test_history_is_dropped_past_its_bound(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    gate.ask(stale("a"))
    table_committer = gate.table_committer()
    assert table_committer.cache.history_bytes > 0
    assert remembered(gate) > 20
    monkeypatch.setattr(
        "tidegate_committer.loop.table_cache.BYTES_MAX", table_committer.cache.history_bytes
    )
    gate.ask(proposal(add("b"), read_version=VERSIONS))
    gate.ask(proposal(add("c"), read_version=VERSIONS))
    assert (table_committer.cache.history_bytes, remembered(gate)) == (0, 5)
    assert rules_of(gate.ask(stale("d"))) == ["committed"]


def test_who_used_its_history_longest_ago_drops_it_for_others() -> None:
    @dataclasses.dataclass
    class Table:
        history_bytes: int
        history_used_s: float
        is_dropped: bool = False

        def drop_history(self) -> None:
            self.is_dropped = True

    half = kept.BYTES_MAX // 2
    first, second, third = Table(half, 1.0), Table(half, 3.0), Table(half, 2.0)
    histories = kept.HistoryBudget()
    for table in (first, second, third):
        histories.keep(table)
    assert [item.is_dropped for item in (first, second, third)] == [True, False, False]


def test_a_store_that_fails_for_history_rests_the_table_and_is_retried(
    gate: Gate, held: Held
) -> None:
    held.held.add(ROOT)
    old = stale("a")
    gate.send(old, headers=STALE)
    gate.settle()
    store_of(gate).fails = True
    held.answer()
    held.held.clear()
    gate.settle(2)
    assert gate.table_committer().rests_until_s > 0
    assert statuses(gate, old) == [""]
    store_of(gate).fails = False
    gate.settle(60)
    assert statuses(gate, old) == ["committed"]
