"""A committer's gauges of its tables, including idle ones and those that other engines write."""

from unittest import mock

import pytest
from prometheus_client import REGISTRY, generate_latest

from tests.builders import NOW_MS, ROOT, Gate, add, create, info, proposal, to_bytes
from tests.fakes.memory_bus import MemoryConsumer
from tests.support.stores import store_of
from tests.unit.committer.held_reads import Held
from tidegate_committer.loop import gauges
from tidegate_committer.loop.gauges import KEPT_S, OBSERVED_S, OBSERVED_SHARE
from tidegate_committer.loop.service import OUTSIDE_S
from tidegate_committer.settings import CommitterSection
from tidegate_delta.errors import Unavailable
from tidegate_delta.log.file_names import commit_name, in_log
from tidegate_messages.codec import PRODUCER
from tidegate_runtime.observability import metrics


def shown(metric: str, table: str) -> float | None:
    return REGISTRY.get_sample_value(metric, {"table": table})


def test_the_last_version_is_shown_for_any_writer() -> None:
    gate = Gate()
    gate.ask(create(name="gauged"))
    gate.ask(proposal(add("a")))
    gate.settle()
    assert shown("tidegate_table_version", "gauged") == 1
    store_of(gate).files[in_log(commit_name(2))] = to_bytes([info()])
    gate.clock.boot += gate.settings.external_probe_s
    gate.settle()
    assert shown("tidegate_table_version", "gauged") == 2


def test_a_table_that_was_only_read_has_a_version_and_a_time() -> None:
    gate = Gate()
    gate.ask(create(name="idle"))
    gauges.observe((), 0, gate.clock.boot_s())
    assert shown("tidegate_table_version", "idle") is None
    gate.restart()
    gate.settle()
    assert shown("tidegate_table_version", "idle") == 0
    at_s = shown("tidegate_table_last_commit_timestamp_seconds", "idle")
    assert at_s is not None
    assert at_s >= NOW_MS / 1000


def test_a_table_that_others_serve_now_or_nobody_is_shown_no_more() -> None:
    gate = Gate()
    gate.ask(create(name="moved"))
    gate.settle()
    assert shown("tidegate_table_version", "moved") == 0
    gate.clock.boot += OBSERVED_S + 1
    gate.ask(proposal(kind="drop"))
    gate.clock.boot += OBSERVED_S + 1
    gate.settle()
    assert shown("tidegate_table_version", "moved") is None
    assert shown("tidegate_table_last_commit_timestamp_seconds", "moved") is None


WAIT = "tidegate_store_wait_seconds"


def test_a_store_that_hangs_is_shown_by_the_table_that_waits_for_it() -> None:
    held = Held()
    gate = Gate(loads=held)
    gate.ask(create(name="hung"))
    held.held.add(ROOT)
    gate.restart()
    gate.settle()
    assert shown(WAIT, "hung") is None, "most wait a moment"
    gate.clock.boot += 45
    gate.settle()
    first = shown(WAIT, "hung")
    assert first is not None
    assert first >= 45
    [(_, _, answer)] = held.asked
    answer.set_exception(Unavailable("no answer within 60 s"))
    gate.clock.boot += 45
    gate.settle()
    again = shown(WAIT, "hung")
    assert again is not None
    assert again >= 90, "it was asked again, and has not come back"
    held.held.clear()
    held.answer()
    gate.settle()
    assert shown(WAIT, "hung") is None


def test_a_table_that_its_operator_halted_waits_for_nothing() -> None:
    held = Held()
    gate = Gate(loads=held)
    gate.ask(create(name="closed"))
    held.held.add(ROOT)
    gate.restart()
    gate.settle()
    gate.clock.boot += 45
    gate.ask(proposal(kind="halt", reason="its disk is away"))
    gate.settle()
    assert shown(WAIT, "closed") is None


def test_counters_of_alerts_begin_at_zero() -> None:
    gate = Gate()
    gate.ask(create(name="first"))
    gate.settle()
    assert shown("tidegate_external_versions_total", "first") == 0
    letters = REGISTRY.get_sample_value("tidegate_dead_letters_total", {"reason": "too_large"})
    assert letters is not None


def test_the_oldest_who_waits_counts_wherever_he_stands_in_the_line() -> None:
    settings = CommitterSection(roots=("memory://tables",), audit_s=1e9, group_members_max=1)
    gate = Gate(settings)
    gate.ask(create(name="fair"))
    flood, other = ((PRODUCER, name) for name in (b"flood", b"other"))
    gate.send(proposal(add("a")), headers=(flood,))
    gate.settle()
    with mock.patch.object(gate.stores[ROOT], "put_if_absent", side_effect=Unavailable("down")):
        gate.send(proposal(add("b")), headers=(flood,))
        gate.settle()
        gate.clock.boot += 60
        gate.send(proposal(add("c")), headers=(other,))
        gate.settle(40)
    assert gate.table_committer().queue[0].candidate.producer == "other", (
        "it is the other one's turn"
    )
    age_s = REGISTRY.get_sample_value("tidegate_proposal_queue_age_seconds")
    assert age_s is not None
    assert age_s >= 60


def test_a_metric_is_exposed_once() -> None:
    metrics.TABLES.labels("idle").set(0)
    metrics.FLUSH.observe(0.0005)
    lines = generate_latest().decode().splitlines()
    names = {line.partition("{")[0].partition(" ")[0] for line in lines}
    assert not [
        name for name in names if name.startswith("tidegate_") and name.endswith("_created")
    ]
    assert 'tidegate_flush_seconds_bucket{le="0.001"} 0.0' not in lines, "a PUT of 1 ms shows"


def test_who_is_not_let_into_the_group_for_long_starts_over_with_new_clients() -> None:
    gate = Gate()
    gate.ask(create())
    other = gate.start()
    with mock.patch.object(MemoryConsumer, "is_member", False):
        other.step()
        gate.clock.boot += OUTSIDE_S
        other.step()
        gate.loop.step()
        gate.clock.boot += 1
        with pytest.raises(Unavailable, match="has not let it in"):
            other.step()
        gate.loop.step()
    assert gate.loop.readiness[0], "who has a topic partition is in"


def series_of(table: str) -> set[str]:
    result = (sample for family in REGISTRY.collect() for sample in family.samples)
    return {sample.name for sample in result if sample.labels.get("table") == table}


def test_nothing_is_shown_for_ever_of_a_table_that_is_gone() -> None:
    gate = Gate()
    gate.ask(create(name="passing"))
    gate.ask(proposal(add("a")), proposal(add("../x")))
    assert len(series_of("passing")) > 10
    gate.ask(proposal(kind="drop"))
    gate.settle()
    assert "tidegate_proposals_total" in series_of("passing"), "scrapes have the last of it first"
    gate.clock.boot += KEPT_S
    gate.settle()
    assert series_of("passing") == set()


def test_a_table_that_comes_back_is_counted_on() -> None:
    gate = Gate()
    gate.ask(create(name="back"))
    gate.settle()
    gauges.observe((), 0, gate.clock.boot_s())
    gate.clock.boot += KEPT_S - 1
    gate.settle()
    gate.clock.boot += KEPT_S
    gate.ask(proposal(add("a")))
    labels = {"table": "back", "outcome": "committed"}
    assert REGISTRY.get_sample_value("tidegate_proposals_total", labels) == 2
    assert "tidegate_group_wait_seconds_count" in series_of("back")


def test_the_gauges_of_very_many_tables_are_set_less_often() -> None:
    gate = Gate()
    gate.ask(create())
    began_s, calls = gate.clock.boot_s(), []

    def slow(*arguments: object) -> None:
        calls.append(gate.clock.boot_s())
        gate.clock.boot += 2 * OBSERVED_S

    with mock.patch.object(gauges, "observe", slow):
        while gate.clock.boot_s() < began_s + 500 * OBSERVED_S:
            gate.settle(1)
    assert 2 <= len(calls) <= 1 + 500 * OBSERVED_SHARE
