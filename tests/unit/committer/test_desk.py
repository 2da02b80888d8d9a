"""A desk whose machine slept: what was decided on an old view is not sent."""

from unittest import mock

import pytest

from tests.builders import NOW_MS, ROOT, Gate, add, create, info, proposal, to_bytes
from tidegate.delta.names import Version, commit_name, in_log
from tidegate.runtime import failpoints
from tidegate.runtime.checkpoint_writing import move_hint_forward, write_classic
from tidegate.runtime.memory import MemoryStore
from tidegate.runtime.open_table import open_snapshot

A_MONTH_S = 30 * 24 * 60 * 60.0


def sleep_and_clean_up(gate: Gate) -> None:
    """Let a month pass, in which another engine writes versions and cleans the log up."""
    store = gate.stores[ROOT]
    assert isinstance(store, MemoryStore)
    gate.clock.boot += A_MONTH_S
    for version in (1, 2, 3):
        store.put(in_log(commit_name(version)), to_bytes([info(), add(f"x{version}")]))
    move_hint_forward(store, write_classic(store, open_snapshot(store, Version(3)), NOW_MS))
    for version in (0, 1, 2):
        store.delete(in_log(commit_name(version)))


@pytest.mark.parametrize("point", ["after_decide", "before_put"])
def test_a_plan_made_on_an_old_view_is_not_put(point: str) -> None:
    gate = Gate()
    gate.ask(create())
    slept: list[str] = []

    def reach(passed: str) -> None:
        if passed == point and not slept:
            slept.append(passed)
            sleep_and_clean_up(gate)

    with mock.patch.object(failpoints, "reach", reach):
        outcomes = gate.ask(proposal(add("a")))
        gate.settle(20)
    assert slept == [point]
    store = gate.stores[ROOT]
    assert store.read(in_log(commit_name(1))) is None, "it was cleaned up, and stays so"
    assert (outcomes or gate.outcomes()[1:])[0].status == "expired"
