"""Versions are read again: an overwritten one is found even on an idle table."""

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock
from uuid import UUID

import pytest
from prometheus_client import REGISTRY

from tests.builders import (
    ROOT,
    TABLE,
    Gate,
    add,
    create,
    info,
    metadata,
    proposal,
    protocol,
    to_bytes,
)
from tests.fakes.memory_store import MemoryStore
from tests.support.decisions import state_of
from tests.support.outcomes import answers_of, rejection_of, rules_of
from tests.support.stores import store_of
from tests.unit.committer.held_puts import HeldPuts
from tests.unit.committer.held_reads import Held
from tidegate_committer.persistent_map import PersistentMap
from tidegate_committer.settings import CommitterSection
from tidegate_committer.store_executor import InlineExecutor
from tidegate_committer.store_reads.log_audit import Audit
from tidegate_delta.errors import Unavailable
from tidegate_delta.log.file_names import checkpoint_name, commit_name, in_log
from tidegate_messages.proposal import Proposal
from tidegate_runtime.storage.local_store import LocalStore
from tidegate_runtime.storage.log_store import LogStore

OTHER_ROOT = "memory://tables/other"
OTHER = UUID(int=0x7000_8000_0000_0000_4711)
SECTION = CommitterSection(
    roots=("memory://tables", "file:///"), audit_s=30.0, audit_versions=4, external_probe_s=1e6
)


def path_of(version: int) -> str:
    return in_log(commit_name(version))


class Pending(InlineExecutor):
    """Reads that a test answers."""

    def __init__(self, answer: Future[Any]) -> None:
        self._answer = answer

    def begin(
        self, root: str, work: Callable[[], Any], /, behind: Future[Any] | None = None
    ) -> Future[Any]:
        """Return the pending answer."""
        return self._answer


def overwrite(store: LogStore, version: int) -> bytes:
    """Overwrite a version as an engine without put-if-absent does; return the previous bytes."""
    before = store.read(path_of(version))
    assert before is not None
    store.put(path_of(version), to_bytes([info(), add("foreign")]))
    return before


def wait(gate: Gate, seconds: float) -> None:
    for _ in range(4):
        gate.clock.boot += seconds / 4
        gate.loop.step()
    gate.clock.boot += 0.3
    gate.loop.step()


def opening() -> list[Proposal]:
    """Return the proposals of a table with the versions 0 to 5."""
    return [create(), *(proposal(add(f"f{number}"), read_version=number) for number in range(5))]


def written(gate: Gate) -> Gate:
    for item in opening():
        gate.ask(item)
    return gate


@pytest.fixture
def new_gate() -> Gate:
    return Gate(SECTION)


@pytest.fixture
def first_proposals() -> list[Proposal]:
    return opening()


@pytest.fixture
def held_gate(held: Held) -> Gate:
    return written(Gate(SECTION, background=held))


@pytest.mark.parametrize("version", [5, 4, 1])
def test_an_overwritten_version_halts_its_table_while_nobody_writes(
    gate: Gate, version: int
) -> None:
    gate.ask(create(table=OTHER, table_root=OTHER_ROOT))
    overwrite(gate.stores[ROOT], version)
    wait(gate, 120.0)
    record = gate.tables()[TABLE]
    assert record.status == "halted"
    assert f"version {version} of {ROOT}" in str(record.reason)
    assert gate.tables()[OTHER].status == "open"
    [result] = gate.ask(proposal(add("a"), table=OTHER, table_root=OTHER_ROOT))
    assert result.status == "committed"
    assert answers_of(gate.ask(proposal(add("b")))) == [("denied", "table_halted")]


def audited(gate: Gate) -> float:
    labels = {"table": gate.tables()[TABLE].name}
    return REGISTRY.get_sample_value("tidegate_audited_versions_total", labels) or 0.0


def test_a_table_at_which_put_follows_on_put_is_audited_all_the_same() -> None:
    puts = HeldPuts()
    gate = Gate(SECTION.model_copy(update={"group_members_max": 1}), puts=puts)
    gate.ask(create())
    before, followed = audited(gate), 0
    puts.is_holding = True
    for number in range(0, 700, 2):
        if len(gate.table_committer().queue) < 3:
            gate.send(proposal(add(f"f{number}")), proposal(add(f"f{number + 1}")))
        for _ in range(3):
            gate.loop.step()
        in_flight = gate.table_committer().in_flight
        followed += in_flight is not None and in_flight.follower is not None
        gate.clock.boot += 0.2
        puts.land()
    assert followed > 300
    assert audited(gate) - before >= 2 * SECTION.audit_versions


def test_the_successor_of_a_halted_table_keeps_it_halted(gate: Gate) -> None:
    before = overwrite(gate.stores[ROOT], 3)
    wait(gate, 120.0)
    gate.restart()
    wait(gate, 120.0)
    assert gate.tables()[TABLE].status == "halted"
    gate.stores[ROOT].put(path_of(3), before)
    wait(gate, 60.0)
    record = gate.tables()[TABLE]
    assert (record.status, record.overwritten) == ("open", None)
    [result] = gate.ask(proposal(add("b"), read_version=5))
    assert (result.status, result.version) == ("committed", 6)


def test_a_last_version_that_is_gone_halts_its_table(gate: Gate) -> None:
    gate.stores[ROOT].delete(path_of(5))
    wait(gate, 60.0)
    assert gate.tables()[TABLE].status == "halted"


def test_a_version_that_was_cleaned_up_is_no_damage(gate: Gate) -> None:
    store = gate.stores[ROOT]
    store.put(in_log(checkpoint_name(3)), b"stands for what was before")
    for version in range(3):
        store.delete(path_of(version))
    with mock.patch.object(store, "list_from", wraps=store.list_from) as listed:
        for _ in range(8):
            wait(gate, 60.0)
    assert gate.tables()[TABLE].status == "open"
    assert 1 <= listed.call_count <= 4, "no more than once for each that is gone"


@pytest.mark.parametrize("version", [0, 2, 4])
def test_a_version_without_which_nobody_can_read_the_table_halts_it(
    gate: Gate, version: int
) -> None:
    content = gate.stores[ROOT].read(path_of(version))
    assert content is not None
    gate.stores[ROOT].delete(path_of(version))
    for _ in range(4):
        wait(gate, 60.0)
    record = gate.tables()[TABLE]
    assert record.status == "halted"
    assert f"{commit_name(version)}" in (record.reason or "")
    gate.stores[ROOT].put(path_of(version), content)
    wait(gate, 60.0)
    assert gate.tables()[TABLE].status == "open"


def test_an_unavailable_store_is_retried_later(gate: Gate) -> None:
    store = gate.stores[ROOT]
    with mock.patch.object(store, "read", side_effect=Unavailable("the store is away")):
        wait(gate, 60.0)
    assert gate.tables()[TABLE].status == "open"
    overwrite(store, 5)
    wait(gate, 60.0)
    assert gate.tables()[TABLE].status == "halted"


def test_an_audit_reads_so_many_versions_and_is_counted(gate: Gate) -> None:
    store = gate.stores[ROOT]
    before = audited(gate)
    with mock.patch.object(store, "read", wraps=store.read) as read:
        wait(gate, 29.0)
        quiet = read.call_count
        wait(gate, 30.0)
    assert (read.call_count - quiet) in (4, 8)
    assert audited(gate) - before == read.call_count


def test_every_version_of_the_window_has_its_turn(gate: Gate) -> None:
    state = state_of(gate)
    seen: list[int] = []
    audit = Audit(0.0)
    for _ in range(4):
        audit.begin(MemoryStore("memory://tables/none"), state, 3, InlineExecutor())
        assert audit.answer is not None
        seen += audit.answer.result()
    assert seen[0] == state.version, "the newest one comes first"
    assert set(seen) == set(range(6))


def test_an_answer_that_takes_its_time_keeps_nobody_waiting(gate: Gate) -> None:
    state = state_of(gate)
    pending: Future[object] = Future()
    audit = Audit(0.0)
    audit.begin(gate.stores[ROOT], state, 3, Pending(pending))
    assert audit.end(state, ROOT, "t") is None
    pending.set_result({5: "another"})
    result = audit.end(state, ROOT, "t")
    assert result is not None
    assert result.version == 5


def test_a_store_that_does_not_answer_is_tried_once(held: Held, held_gate: Gate) -> None:
    held.held.add(ROOT)
    for _ in range(4):
        wait(held_gate, SECTION.audit_s)
    assert len(held.asked) == 1


def test_what_an_audit_saw_before_a_halt_does_not_count_after_it(
    held: Held, held_gate: Gate
) -> None:
    gate, unknown = held_gate, protocol(3, 7, readerFeatures=["later"], writerFeatures=["later"])
    held.held.add(ROOT)
    gate.clock.boot += SECTION.audit_s
    gate.loop.step()
    before = overwrite(gate.stores[ROOT], 5)
    gate.stores[ROOT].put(path_of(6), to_bytes([info(), unknown]))
    assert rules_of(gate.ask(proposal(add("b"), read_version=5))) == ["table_halted"]
    held.answer()
    held.held.clear()
    gate.stores[ROOT].put(path_of(5), before)
    gate.stores[ROOT].delete(path_of(6))
    gate.ask(proposal(kind="reopen", table_root=ROOT))
    gate.settle()
    assert gate.tables()[TABLE].status == "open"


def test_a_version_that_left_the_window_while_it_was_read_is_compared_with_nothing(
    gate: Gate,
) -> None:
    state, store = gate.table_committer().cache.state, gate.stores[ROOT]
    assert state is not None
    audit = Audit(0.0)
    audit.begin(store, state, 3, InlineExecutor())
    later = replace(state, version=state.version + 1, entries=PersistentMap())
    assert audit.end(later, ROOT, "t") is None


def test_reads_of_a_table_from_before_a_halt_by_hand_are_ignored_after_it() -> None:
    held = Held({ROOT})
    gate = Gate(SECTION, background=held)
    gate.ask(create(), proposal(add("a")))
    wait(gate, 40.0)
    assert len(held.asked) == 2, "a look and an audit are out"
    gate.ask(proposal(kind="halt", table_root=ROOT, reason="its files are moved"))
    store = store_of(gate)
    there = dict(store.files)
    store.files.clear()
    held.answer()
    gate.settle()
    store.files.update(there)
    result = gate.ask(proposal(kind="reopen", table_root=ROOT), proposal(add("b")))
    assert [outcome.status for outcome in result] == ["committed", "committed"]


def test_a_table_that_was_moved_away_takes_no_commits_until_it_is_back(tmp_path: Path) -> None:
    home, away = tmp_path / "t", tmp_path / "away"
    root = home.as_uri()
    gate = Gate(SECTION.model_copy(update={"audit_s": 1e6}), {root: LocalStore(root)})
    gate.ask(create(table_root=root))
    gate.ask(proposal(add("a"), table_root=root))
    home.rename(away)
    gate.send(proposal(add("b"), read_version=1, table_root=root))
    wait(gate, 60.0)
    assert not home.exists()
    assert gate.tables()[TABLE].status == "halted"
    assert [outcome.status for outcome in gate.outcomes()] == ["committed", "committed", "denied"]
    away.rename(home)
    wait(gate, 60.0)
    [result] = gate.ask(proposal(add("b"), read_version=1, table_root=root))
    assert (result.status, result.version) == ("committed", 2)


def make_anew(gate: Gate, table_id: str, versions: int) -> None:
    """Remove the table's folder, and make another table in it, as an engine without us does."""
    store = store_of(gate)
    store.files.clear()
    rows = [info(), protocol(), {"metaData": {**metadata()["metaData"], "id": table_id}}]
    store.put(path_of(0), to_bytes(rows))
    for version in range(1, versions):
        store.put(path_of(version), to_bytes([info(), add(f"new{version}")]))


@pytest.mark.parametrize("is_busy", [True, False])
def test_commits_into_a_table_that_was_made_anew_end_after_a_second(
    gate: Gate, is_busy: bool
) -> None:
    """The audit would come after 30 s, and the probe for versions by others never."""
    if not is_busy:
        gate.clock.boot += 20.0
        gate.loop.step()
    make_anew(gate, "another", 20)
    gate.ask(proposal(add("x"), read_version=5))
    gate.clock.boot += 1.0
    gate.loop.step()
    gate.loop.step()
    record = gate.tables()[TABLE]
    assert record.status == "halted"
    assert "made another table in the folder" in str(record.reason)
    assert "tidegate table reopen --made-anew" in str(record.reason)
    assert rules_of(gate.ask(proposal(add("y"), read_version=5))) == ["table_halted"]


def test_a_poll_is_one_read_a_second_however_many_versions_come(gate: Gate) -> None:
    store, found = gate.stores[ROOT], list[str]()
    read_file = store.read

    def noting(path: str) -> bytes | None:
        content = read_file(path)
        found.extend([path] if content is not None else [])
        return content

    with mock.patch.object(store, "read", noting):
        for number in range(40):
            gate.send(proposal(add(f"g{number}"), read_version=5))
            gate.loop.step()
            gate.clock.boot += 0.125
    assert len(gate.entries()) > 30
    # The commits before and after were written by us, and nothing else reads them.
    assert 4 <= len([path for path in found if path.endswith(".json")]) <= 6


def test_a_table_that_was_made_anew_is_served_again_and_refuses_proposals_for_the_old_one(
    gate: Gate,
) -> None:
    make_anew(gate, "another", 8)
    stale = proposal(add("x"), read_version=5)
    gate.ask(stale)
    gate.clock.boot += 1.0
    gate.loop.step()
    gate.loop.step()
    assert gate.tables()[TABLE].status == "halted"
    wrong = proposal(kind="reopen", table=TABLE, table_root=ROOT, table_id="third", read_version=8)
    [result] = gate.ask(wrong)
    assert "made anew again" in rejection_of(result).reason
    asked = proposal(
        kind="reopen", table=TABLE, table_root=ROOT, table_id="another", read_version=8
    )
    [result] = gate.ask(asked)
    assert (result.status, result.version) == ("committed", 8)
    record = gate.tables()[TABLE]
    assert (record.status, record.table_id, record.published_through) == ("open", "another", 8)
    assert answers_of(gate.ask(proposal(add("y"), read_version=5))) == [("rejected", "other_table")]
    [result] = gate.ask(proposal(add("z"), read_version=8, table_id="another"))
    assert result.status == "committed"
