"""What a committer reports: readiness, gauges, counters, and one log line per outcome."""

import json
import logging
from collections.abc import Iterator
from typing import Any
from unittest import mock
from uuid import UUID

import prometheus_client
import pytest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.builders import NOW_MS, ROOT, Gate, add, create, delete, info, late, proposal
from tests.support.other_engines import write_next
from tests.support.outcomes import rejection_of
from tests.support.registry import publish, table_record
from tests.support.stores import store_of
from tests.unit.committer.held_puts import HeldPuts
from tidegate_committer.loop.gauges import STATES
from tidegate_committer.loop.service import serve
from tidegate_delta.errors import Unavailable
from tidegate_delta.log.file_names import commit_name, in_log
from tidegate_messages.proposal import Proposal
from tidegate_messages.record_headers import TRACEPARENT, compose_traceparent
from tidegate_runtime.observability import tracing
from tidegate_runtime.observability.logs import JsonFormatter
from tidegate_runtime.observability.metrics import CONFLICTS
from tidegate_runtime.observability.span_export import provider_of
from tidegate_runtime.service.health import Health
from tidegate_runtime.service.runner import Running
from tidegate_runtime.table_registry import RegistryReader


@pytest.fixture
def first_proposals() -> list[Proposal]:
    return [create(name="shop")]


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Iterator[list[dict[str, Any]]]:
    """Yield the log lines as they are written from here on."""
    caplog.set_level(logging.INFO)
    written: list[dict[str, Any]] = []
    style = JsonFormatter("committer")

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            written.append(json.loads(style.format(record)))

    handler = Kept()
    logging.getLogger().addHandler(handler)
    yield written
    logging.getLogger().removeHandler(handler)


def value(name: str, **labels: str) -> float:
    return prometheus_client.REGISTRY.get_sample_value(name, labels) or 0.0


def tables(gate: Gate) -> dict[str, float]:
    """Return the number of tables in each state, without empty states."""
    gate.clock.boot += 1
    gate.loop.step()
    result = {state: value("tidegate_tables", state=state) for state in STATES}
    return {state: count for state, count in result.items() if count}


def test_who_has_no_turn_is_a_standby_and_ready() -> None:
    gate = Gate()
    assert gate.loop.readiness == (False, "joining: the group has not let it in")
    gate.loop.step()
    assert gate.loop.readiness == (True, "active: 1 topic partitions")
    successor = gate.start()
    successor.step()
    assert not successor.readiness[0], "the group is still sharing out"
    gate.loop.step()
    successor.step()
    gate.loop.step()
    result = sorted(loop.readiness for loop in (gate.loop, successor))
    assert [is_ready for is_ready, _ in result] == [True, True]
    assert [why.partition(":")[0] for _, why in result] == ["active", "standby"]


def test_tables_are_counted_by_what_goes_on_at_them(gate: Gate) -> None:
    assert tables(gate) == {"idle": 1}
    store = store_of(gate)
    path = in_log(commit_name(1))
    with mock.patch.object(store, "put_if_absent", side_effect=Unavailable("it is down")):
        gate.send(proposal(add("a")))
        gate.loop.step()
        gate.loop.step()
    rests = value("tidegate_rests_total", table="shop", why="Unavailable")
    assert rests >= 1
    gate.settle()
    store.files[path] = b"torn"
    gate.restart()
    gate.settle()
    assert tables(gate) == {"halted": 1}
    gate.loop.leave()
    assert value("tidegate_tables", state="halted") == 0


def watched(gate: Gate, steps: int) -> list[bool]:
    """Run for `steps` steps of a second, and return after each whether /healthz is healthy."""
    running = Running(gate.clock, Health(gate.clock, stalled_s=60.0))
    well: list[bool] = []
    step = gate.loop.step

    def a_second(timeout_s: float = 0.0) -> bool:
        gate.clock.boot += 1
        well.append(not running.health.stalled())
        if len(well) == steps:
            running.stopping.set()
        return step(timeout_s)

    with mock.patch.multiple(gate.loop, step=a_second, finish=mock.DEFAULT):
        serve(gate.loop, running)
    return well


def test_a_store_that_is_away_makes_no_watchman_restart_the_committer(gate: Gate) -> None:
    gate.send(proposal(add("a")))
    down = mock.patch.object(gate.stores[ROOT], "put_if_absent", side_effect=Unavailable("down"))
    with down:
        well = watched(gate, 300)
    assert all(well), f"unwell after {well.index(False)} s"
    assert gate.loop.pending == 1, "it waits for the store"


def test_a_put_that_never_ends_is_no_progress() -> None:
    puts = HeldPuts()
    gate = Gate(puts=puts)
    gate.ask(create(name="shop"))
    puts.is_holding = True
    gate.send(proposal(add("a")))
    well = watched(gate, 100)
    assert well.index(False) in range(60, 65)


def test_groups_are_measured_and_lost_races_counted(gate: Gate) -> None:
    before = {
        name: value(f"tidegate_{name}", table="shop")
        for name in ("group_bytes_sum", "group_wait_seconds_count", "races_lost_total")
    }
    gate.ask(proposal(add("a")))
    size = len(gate.stores[ROOT].read(in_log(commit_name(1))) or b"")
    assert value("tidegate_group_bytes_sum", table="shop") - before["group_bytes_sum"] == size
    waits = value("tidegate_group_wait_seconds_count", table="shop")
    assert waits > before["group_wait_seconds_count"]
    write_next(gate, info(), add("theirs"))
    gate.ask(proposal(add("b"), read_version=1))
    lost = value("tidegate_races_lost_total", table="shop")
    assert lost == before["races_lost_total"] + 1


def test_what_strangers_call_their_tables_is_no_label(gate: Gate) -> None:
    fields: dict[str, Any] = {"table": UUID(int=77), "table_root": "memory://elsewhere/x"}
    [result] = gate.ask(create(**fields, name="labels-without-end"))
    assert result.status == "denied"
    fields["table_root"] = "memory://tables/x"
    [result] = gate.ask(proposal(add("../x"), read_version=-1, **fields, name="labels-without-end"))
    assert result.status == "denied"
    exposed = prometheus_client.generate_latest().decode()
    assert "labels-without-end" not in exposed
    [worker] = gate.loop.workers.values()
    assert fields["table"] not in worker.schedule.audits, "nor is anything kept of them"
    assert value("tidegate_refusals_total", table="-", status="denied", rule="root_not_allowed")


def test_a_rule_that_somebody_else_wrote_into_the_log_is_no_label(gate: Gate) -> None:
    one = late(add("x"))
    gate.ask(one)
    path = in_log(commit_name(1))
    store = store_of(gate)
    store.files[path] = store.files[path].replace(b'"deadline_passed"', b'"made_up_by_somebody"')
    table = next(iter(gate.tables().values())).model_copy(update={"sha256": None})
    gate.loop.workers.clear()
    gate.loop.finish()
    registry = {table.table: table}
    with mock.patch.object(RegistryReader, "read", return_value=registry):
        gate.restart()
        [result] = gate.ask(one)[-1:]
    assert rejection_of(result).rule == "made_up_by_somebody"
    assert "made_up_by_somebody" not in prometheus_client.generate_latest().decode()


def test_an_outcome_is_one_line_with_all_its_fields(
    gate: Gate, lines: list[dict[str, Any]]
) -> None:
    trace = (TRACEPARENT, compose_traceparent(0xABC, 9).encode())
    one = proposal(add("a"), created_ms=NOW_MS - 250)
    gate.send(one, headers=(trace,))
    gate.settle()
    [line] = [line for line in lines if line.get("proposal") == str(one.proposal_id)]
    assert (line["event"], line["table"], line["version"]) == ("committed", "shop", 1)
    assert line["trace_id"] == f"{0xABC:032x}"
    assert line["waited_ms"] >= 250
    assert not {"rule", "winner", "why", "repeat"} & line.keys()


def test_a_sampled_proposal_has_a_span_from_its_arrival_to_its_outcome(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    exporter, provider = InMemorySpanExporter(), provider_of("committer")
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(tracing._recorder, "tracer", provider.get_tracer("tidegate"))
    sampled, other = proposal(add("a")), proposal(add("b"))
    gate.send(sampled, headers=((TRACEPARENT, compose_traceparent(0xABC, 9, 1).encode()),))
    gate.send(other, headers=((TRACEPARENT, compose_traceparent(0xDEF, 9).encode()),))
    gate.settle()
    [span] = exporter.get_finished_spans()
    assert span.parent is not None
    assert (span.parent.trace_id, span.parent.span_id) == (0xABC, 9)
    assert span.attributes is not None
    assert dict(span.attributes) == {
        "tidegate.table": "shop",
        "tidegate.proposal": str(sampled.proposal_id),
        "tidegate.status": "committed",
        "tidegate.version": 1,
    }


def test_who_creates_a_table_that_is_there_is_no_conflict(gate: Gate) -> None:
    [result] = gate.ask(create())
    assert (rejection_of(result).rule, rejection_of(result).winner_version) == ("table_exists", 0)
    [conflicts] = CONFLICTS.collect()
    assert "table_exists" not in [sample.labels["kind"] for sample in conflicts.samples]


def test_a_repeat_is_counted_once(gate: Gate) -> None:
    one, counted = proposal(add("a")), {"table": "shop", "outcome": "committed"}
    before = value("tidegate_proposals_total", **counted)
    assert [outcome.repeat for outcome in gate.ask(one, one)] == [False, True]
    assert value("tidegate_proposals_total", **counted) == before + 1


def test_the_line_of_a_conflict_names_the_rule_and_the_winner(
    gate: Gate, lines: list[dict[str, Any]]
) -> None:
    gate.ask(proposal(add("a")))
    gate.ask(delete("a", read_version=1))
    loser = delete("a", read_version=1)
    gate.ask(loser)
    [line] = [line for line in lines if line.get("proposal") == str(loser.proposal_id)]
    assert (line["event"], line["rule"]) == ("rejected", "concurrent_delete_read")
    assert line["winner"] == 2
    assert "removed 'a'" in line["why"]
    assert "version" not in line


def test_what_was_committed_was_not_given_up(gate: Gate, lines: list[dict[str, Any]]) -> None:
    done, unwanted = proposal(add("a")), proposal(add("b"))
    gate.ask(done)
    for outcome in (done, unwanted):
        gate.ask(proposal(kind="cancel", cancels=outcome.proposal_id))
    result = [line["proposal"] for line in lines if line["event"] == "gave_up"]
    assert result == [str(unwanted.proposal_id)]


def test_a_table_under_a_root_of_another_release_is_halted_and_the_others_go_on(gate: Gate) -> None:
    other = UUID(int=99)
    publish(gate, table_record(other, "hdfs://x/t", "o", gate.topics.proposals))
    gate.restart()
    [result] = gate.ask(proposal(add("a"), table=other, table_root="hdfs://x/t"))
    assert rejection_of(result).rule == "table_halted"
    assert "hdfs" in rejection_of(result).reason
    assert gate.ask(proposal(add("a")))[0].status == "committed"
    assert tables(gate) == {"idle": 1, "halted": 1}
