"""An open Kafka transaction on `proposals` is seen: by gauges, the log and `/readyz`."""

from collections.abc import Iterator
from unittest import mock

import pytest
from prometheus_client import REGISTRY

from tests.builders import Gate, add, proposal
from tidegate_committer.loop.held_back_proposals import LONG_S, OpenTransactions
from tidegate_runtime.kafka.client_protocols import HeldBack, Offset, TopicPartition

NAMES = ("tidegate_open_transaction_offsets", "tidegate_open_transaction_seconds")
AT = TopicPartition("tidegate.proposals", 0)


def gauges() -> tuple[float | None, float | None]:
    """Return how many offsets are held back, and for how many seconds."""
    offsets, seconds = (REGISTRY.get_sample_value(name, {"partition": "0"}) for name in NAMES)
    return offsets, seconds


@pytest.fixture(autouse=True)
def _nothing_is_left_shown() -> Iterator[None]:
    yield
    OpenTransactions().observe((), {}, 0.0)


def hold(gate: Gate, stable: int, offsets: int) -> None:
    gate.bus.held_back[AT] = HeldBack(Offset(stable), offsets)
    step_after(gate)


def step_after(gate: Gate, after_s: float = 1.0) -> None:
    gate.clock.boot += after_s
    gate.loop.step()


def test_what_is_held_back_is_shown_with_since_when(gate: Gate) -> None:
    step_after(gate)
    assert gauges() == (0, 0)
    hold(gate, 1, 3)
    assert gauges() == (3, 0)
    hold(gate, 1, 40)
    assert gauges() == (40, 1)
    gate.bus.held_back.clear()
    step_after(gate)
    assert gauges() == (0, 0)


def test_transactions_that_end_and_others_that_begin_are_not_one_long_one(gate: Gate) -> None:
    for stable in range(100):
        hold(gate, stable, 5)
    assert gauges() == (5, 0)
    assert "transaction" not in gate.loop.readiness[1]


def test_a_long_stall_is_shown_by_the_probe_which_stays_ready_and_logged_once(
    gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    hold(gate, 1, 7)
    step_after(gate, LONG_S - 0.5)
    assert gate.loop.readiness == (True, "active: 1 topic partitions")
    step_after(gate)
    step_after(gate)
    assert gate.loop.readiness == (
        True,
        "active: 1 topic partitions; topic partition 0: an open Kafka transaction has held back 7 "
        "offsets for 12 s",
    )
    logged = [record.message for record in caplog.records if "open_transaction" in record.message]
    assert logged == ["open_transaction partition=0 offset=1 behind=7"]


def test_a_paused_topic_partition_is_not_reported(gate: Gate) -> None:
    hold(gate, 1, 7)
    gate.loop.paused.add(AT)
    with mock.patch.object(gate.loop, "_pause_or_resume"):
        step_after(gate)
    assert gauges() == (0, 0)


def test_another_committers_topic_partition_is_not_ours_to_show(gate: Gate) -> None:
    hold(gate, 1, 7)
    gate.loop.leave()
    assert gauges() == (None, None)


def test_the_loop_goes_on_meanwhile(gate: Gate) -> None:
    hold(gate, 1, 7)
    assert [outcome.status for outcome in gate.ask(proposal(add("a"), read_version=0))] == [
        "committed"
    ]
