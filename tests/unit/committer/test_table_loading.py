"""Tables are loaded in the background: a store that does not answer delays only its own tables."""

import threading
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from tests.builders import ROOT, TABLE, Gate, add, create, proposal
from tests.unit.committer.held_reads import Held
from tidegate_committer.settings import CommitterSection
from tidegate_committer.store_executor import StoreThreads
from tidegate_delta.errors import BrokenLog, Unavailable
from tidegate_messages.proposal import Proposal

OTHER = UUID(int=0x7000_8000_0000_0000_4712)
OTHER_ROOT = "memory://others/t2"


@pytest.fixture
def new_gate(held: Held) -> Gate:
    section = CommitterSection(roots=("memory://tables", "memory://others"), audit_s=1e9)
    return Gate(section, loads=held)


@pytest.fixture
def first_proposals() -> list[Proposal]:
    return [create(), create(table=OTHER, table_root=OTHER_ROOT)]


@pytest.fixture
def after_first_proposals(held: Held) -> Callable[[Gate], None]:
    """Restart the committer while the store of one table does not answer."""

    def restart(gate: Gate) -> None:
        held.held.add(ROOT)
        gate.restart()
        gate.settle()

    return restart


def at_other(*actions: Any) -> Proposal:
    return proposal(*actions, table=OTHER, table_root=OTHER_ROOT)


def test_a_store_that_hangs_keeps_no_other_table_waiting(gate: Gate, held: Held) -> None:
    gate.send(proposal(add("a")))
    [result] = gate.ask(at_other(add("b")))
    assert (result.table, result.status) == (OTHER, "committed")
    held.answer()
    gate.settle()
    assert [(outcome.table, outcome.version) for outcome in gate.outcomes()[-2:]] == [
        (OTHER, 1),
        (TABLE, 1),
    ]


def test_who_waits_for_a_store_that_hangs_makes_no_watchman_restart_the_committer(
    gate: Gate,
) -> None:
    gate.send(proposal(add("a")))
    gate.settle()
    assert (gate.loop.pending, gate.loop.movable) == (1, 0)


def test_a_load_is_started_once_and_checked_ever_more_rarely(gate: Gate, held: Held) -> None:
    table_committer = gate.table_committer()
    gate.settle()
    assert len(held.asked) == 1
    now_s = gate.clock.boot
    table_committer.cache.loading.since_s = now_s
    for took_s, pause_s in ((0.0, 0.001), (0.1, 0.01), (60.0, 0.05)):
        gate.clock.boot = now_s + took_s
        until_s = table_committer.waits_until_s
        assert until_s is not None
        assert until_s - gate.clock.boot == pytest.approx(pause_s)


def test_nobody_is_kept_awake_by_tables_that_are_idle(gate: Gate, held: Held) -> None:
    [worker] = gate.loop.workers.values()
    assert worker.waits_until_s is not None
    held.answer()
    gate.settle()
    assert worker.waits_until_s is None


def test_a_view_that_is_too_old_is_reloaded_in_the_background(gate: Gate, held: Held) -> None:
    held.answer()
    gate.settle()
    gate.clock.boot += 2 * gate.settings.view_age_max_s
    gate.send(proposal(add("a")))
    [result] = gate.ask(at_other(add("b")))
    assert result.table == OTHER
    held.answer()
    gate.settle()
    assert gate.outcomes()[-1].table == TABLE


@pytest.mark.parametrize(
    ("error", "reason"), [(Unavailable("away"), None), (BrokenLog("torn"), "torn")]
)
def test_a_load_that_fails_is_for_its_table_alone(
    gate: Gate, held: Held, error: Exception, reason: str | None
) -> None:
    [(_, _, answer)] = held.asked
    answer.set_exception(error)
    gate.loop.step()
    table_committer = gate.table_committer()
    assert table_committer.rests_until_s > gate.clock.boot
    assert table_committer.halted == reason
    held.held.clear()
    gate.clock.boot += 60.0
    gate.settle()
    result = gate.ask(proposal(add("a")), at_other(add("b")))
    assert [outcome.status for outcome in result] == ["committed", "committed"]


def test_requests_from_before_a_halt_by_hand_do_not_count_after_it(gate: Gate, held: Held) -> None:
    root = gate.table_committer().record.table_root
    gate.ask(proposal(kind="halt", reason="files are moved", table_root=root))
    held.answer()
    gate.settle()
    [(_, _, answer)] = held.asked
    assert answer.cancelled()
    assert gate.table_committer().cache.state is None


def test_tables_of_one_store_are_read_one_by_one_and_stores_beside_each_other() -> None:
    many, going_on, order = StoreThreads(1, "load"), threading.Event(), list[str]()

    def hangs() -> None:
        going_on.wait(10.0)
        order.append("first")

    first = many.begin("s3://bucket/a", hangs)
    second = many.begin("s3://bucket/b/c", lambda: order.append("second"))
    many.begin("s3://other/a", lambda: order.append("other")).result(10.0)
    many.begin("file:///data/t", lambda: order.append("local")).result(10.0)
    assert [many.is_free(root) for root in ("s3://bucket/d", "s3://other/a")] == [False, True]
    assert many.is_free("file:///data/u")
    assert [item.done() for item in (first, second)] == [False, False]
    going_on.set()
    second.result(10.0)
    assert order == ["other", "local", "first", "second"]
