"""An unforeseen exception halts the one table that raised it, and no other."""

import logging
from collections.abc import Callable, Iterator
from typing import Any, NoReturn
from unittest import mock
from uuid import UUID

import pytest

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
    table_in_memory,
    to_bytes,
)
from tests.support.outcomes import rejection_of, rule_of, rules_of
from tidegate_committer.decision import machine
from tidegate_committer.loop import partition_worker as workers
from tidegate_committer.loop.operator_requests import OperatorRequests
from tidegate_committer.loop.outcome_publisher import OutcomePublisher
from tidegate_committer.loop.table_committer import TableCommitter
from tidegate_committer.loop.table_router import TableRouter
from tidegate_committer.settings import CommitterSection
from tidegate_delta.errors import Unavailable
from tidegate_delta.log.file_names import commit_name, in_log
from tidegate_messages.proposal import Proposal
from tidegate_runtime import failpoints
from tidegate_runtime.containment import PAUSE_MAX_S, PAUSE_MIN_S
from tidegate_runtime.observability.metrics import FAULTS

pytestmark = pytest.mark.usefixtures("contained")

OTHER, OTHER_ROOT = UUID(int=0x4711), "memory://tables/other"


class Odd(Exception):
    """An exception class that no handler names."""


def fail(*_: object, **__: object) -> NoReturn:
    """Raise an unforeseen exception."""
    raise Odd("of an odd kind")


@pytest.fixture
def new_gate() -> Gate:
    return Gate(CommitterSection(roots=("memory://tables",), audit_s=5.0, external_probe_s=1.0))


@pytest.fixture
def first_proposals() -> list[Proposal]:
    return [create(), create(table=OTHER, table_root=OTHER_ROOT)]


def elsewhere(gate: Gate) -> str:
    """Send a proposal to the other table, and return its outcome's status."""
    [result] = gate.ask(
        proposal(add(f"f{len(gate.outcomes())}"), table=OTHER, table_root=OTHER_ROOT)
    )
    return result.status


def of_ours(real: Callable[..., Any]) -> Callable[..., Any]:
    """Return a table committer's method, patched to fail for the one table."""

    def method(table_committer: TableCommitter, *arguments: Any) -> Any:
        if table_committer.record.table == TABLE:
            fail()
        return real(table_committer, *arguments)

    return method


def no_load(gate: Gate) -> Any:
    gate.table_committer().forget()
    return mock.patch.object(gate.stores[ROOT], "list_from", fail)


def no_refresh(gate: Gate) -> Any:
    gate.table_committer().cache.is_behind = True
    return mock.patch.object(gate.stores[ROOT], "read", fail)


def no_probe(gate: Gate) -> Any:
    gate.clock.boot += 2.0
    return mock.patch.object(gate.stores[ROOT], "read", fail)


def no_decision(gate: Gate) -> Any:
    return mock.patch.object(TableCommitter, "_decide", of_ours(TableCommitter._decide))


def no_put(gate: Gate) -> Any:
    return mock.patch.object(gate.stores[ROOT], "put_if_absent", fail)


def no_news(gate: Gate) -> Any:
    result = OutcomePublisher.version

    def version(publisher: OutcomePublisher, entry: Any, record: Any, trace: Any = ()) -> Any:
        return fail() if record.table == TABLE else result(publisher, entry, record, trace)

    return mock.patch.object(OutcomePublisher, "version", version)


STAGES = [no_load, no_refresh, no_probe, no_decision, no_put, no_news]


@pytest.mark.parametrize("stage", STAGES)
def test_what_nobody_foresaw_halts_one_table_and_is_tried_again(
    gate: Gate, stage: Callable[[Gate], Any], caplog: pytest.LogCaptureFixture
) -> None:
    before = FAULTS.labels("t", "Odd")._value.get()
    with stage(gate):
        gate.send(proposal(add("a")))
        gate.settle()
        assert elsewhere(gate) == "committed"
        record = gate.tables()[TABLE]
        assert record.status == "halted"
        assert record.reason == "Odd: of an odd kind"
        assert gate.tables()[OTHER].status == "open"
        [line] = [record for record in caplog.records if "halted table=t" in record.getMessage()]
        assert line.exc_info is not None
        assert FAULTS.labels("t", "Odd")._value.get() == before + 1
        assert not gate.loop.pending, "offsets go on"
        # It stays halted, and its store is not read, until its retry is due.
        assert rule_of(gate.ask(proposal(add("b")))[0]) == "table_halted"
    gate.settle()
    assert gate.tables()[TABLE].status == "halted"
    gate.clock.boot += PAUSE_MIN_S
    gate.settle()
    assert gate.tables()[TABLE].status == "open"
    assert gate.ask(proposal(add("c")))[0].status == "committed"


def test_the_pause_grows_up_to_a_bound(gate: Gate) -> None:
    with no_load(gate):
        gate.settle()
        table_committer, pauses = gate.table_committer(), list[float]()
        for _ in range(8):
            gate.clock.boot = began_s = table_committer.rests_until_s + 0.1
            gate.settle()
            pauses.append(round(table_committer.rests_until_s - began_s))
        assert pauses == sorted(pauses)
        assert pauses[0] == 2 * PAUSE_MIN_S
        assert pauses[-1] == PAUSE_MAX_S
        assert elsewhere(gate) == "committed"


def test_a_halted_table_is_tried_at_once_when_it_is_reopened(gate: Gate) -> None:
    with no_load(gate):
        gate.settle()
        [result] = gate.ask(proposal(kind="reopen"))
        assert rule_of(result) == "table_halted"
        assert "Odd: of an odd kind" in rejection_of(result).reason
    assert rules_of(gate.ask(proposal(kind="reopen"))) == ["committed"]
    assert gate.ask(proposal(add("c")))[0].status == "committed"


def test_a_table_that_cannot_be_created_for_such_a_reason_is_denied(gate: Gate) -> None:
    third, root = UUID(int=0x4712), "memory://tables/third"
    with mock.patch.object(machine.BatchPlanner, "extend", fail):
        [result] = gate.ask(create(table=third, table_root=root))
    assert (result.status, rule_of(result)) == ("denied", "fault")
    assert third not in gate.tables()
    assert gate.ask(create(table=third, table_root=root))[0].status == "committed"


def test_a_table_that_cannot_be_registered_for_such_a_reason_is_denied(gate: Gate) -> None:
    third, root = UUID(int=0x4712), "memory://tables/third"
    own = metadata()
    own["metaData"]["id"] = str(third)
    gate.stores[root] = table_in_memory([info(), protocol(), own], root=root)
    ask: dict[str, Any] = {"table": third, "table_root": root, "kind": "register"}
    with mock.patch.object(gate.stores[root], "list_from", fail):
        [result] = gate.ask(proposal(**ask))
    assert (result.status, rule_of(result)) == ("denied", "fault")
    assert elsewhere(gate) == "committed"
    [result] = gate.ask(proposal(**ask))
    assert result.status == "committed", result.rejection


@pytest.mark.parametrize("is_in_headers", [True, False])
def test_a_record_over_which_we_fail_becomes_a_dead_letter(gate: Gate, is_in_headers: bool) -> None:
    one = proposal(add("a"))
    named = (("proposal_id", str(one.proposal_id).encode()), ("table", str(one.table).encode()))
    with mock.patch.object(workers, "read_record", fail):
        gate.send(one, headers=named if is_in_headers else ())
        gate.settle()
    result = gate.outcomes()[-1]
    assert (result.proposal_id, result.status, rule_of(result)) == (
        one.proposal_id,
        "denied",
        "fault",
    )
    assert len(gate.letters()) == 1
    assert gate.ask(one)[0].status == "committed"
    assert elsewhere(gate) == "committed"


def test_a_record_that_can_not_be_given_to_its_table_halts_it(gate: Gate) -> None:
    with mock.patch.object(TableRouter, "_request", fail):
        [result] = gate.ask(proposal(kind="drop"))
    assert (result.status, rule_of(result)) == ("denied", "fault")
    assert gate.tables()[TABLE].status == "halted"
    assert not gate.loop.pending
    assert elsewhere(gate) == "committed"


def test_a_request_over_which_we_fail_is_answered_and_so_are_those_behind(gate: Gate) -> None:
    gate.clock.boot += 0.1
    with mock.patch.object(OperatorRequests, "_drop", fail):
        gate.send(proposal(kind="drop"))
        gate.loop.step()
        gate.send(proposal(add("b")))
        gate.settle()
    assert {rule_of(outcome) for outcome in gate.outcomes()[-2:]} <= {"fault", "table_halted"}
    assert not gate.loop.pending
    gate.clock.boot += PAUSE_MIN_S
    gate.settle()
    assert gate.ask(proposal(add("c")))[0].status == "committed"


def test_an_outcome_that_can_not_be_published_costs_its_writer_the_answer_and_nobody_else(
    gate: Gate,
) -> None:
    told, tells = proposal(add("a")), OutcomePublisher.verdict

    def verdict(publisher: OutcomePublisher, one: Any, *rest: Any) -> None:
        if one.candidate.id == told.proposal_id and one.status == "committed":
            fail()
        tells(publisher, one, *rest)

    other = proposal(add("b"))
    with mock.patch.object(OutcomePublisher, "verdict", verdict):
        answers = {outcome.proposal_id: outcome for outcome in gate.ask(told, other)}
    assert rule_of(answers[told.proposal_id]) == "fault"
    assert answers[other.proposal_id].status == "committed"
    assert gate.tables()[TABLE].status == "open"
    again = gate.ask(told)[0]
    assert (again.status, again.repeat) == ("committed", True), "what stands in the log stands"


def test_a_registration_that_can_not_be_published_halts_its_table(gate: Gate) -> None:
    tells = OutcomePublisher.table

    def table(publisher: OutcomePublisher, record: Any) -> None:
        if record.table == TABLE and record.table_id is not None:
            fail()
        tells(publisher, record)

    with mock.patch.object(OutcomePublisher, "table", table):
        gate.ask(proposal(add("a")))
        assert gate.tables()[TABLE].status == "halted"
        assert elsewhere(gate) == "committed"


def test_a_store_that_can_not_be_opened_for_such_a_reason_halts_its_table(gate: Gate) -> None:
    gate.restart()
    opens = gate.loop.dependencies.open_store

    def open_store(root: str) -> Any:
        return fail() if root == ROOT else opens(root)

    object.__setattr__(gate.loop.dependencies, "open_store", open_store)
    gate.settle()
    assert gate.tables()[TABLE].status == "halted"
    assert elsewhere(gate) == "committed"


def test_an_error_of_the_bus_still_ends_the_loop(gate: Gate) -> None:
    def away(*_: object) -> NoReturn:
        raise Unavailable("no broker answers")

    for method in ("version", "verdict"):
        with mock.patch.object(OutcomePublisher, method, away), pytest.raises(Unavailable):
            gate.ask(proposal(add(f"of-{method}")))
        gate.restart()
        gate.settle(12)


@pytest.fixture
def killed_at() -> Iterator[dict[str, str]]:
    points: dict[str, str] = {}

    def reach(point: str, about: object = "") -> None:
        if points.get(point) == str(about):
            raise KeyboardInterrupt

    with mock.patch.object(failpoints, "reach", reach):
        yield points


def test_what_ends_the_process_is_not_contained(gate: Gate, killed_at: dict[str, str]) -> None:
    killed_at["after_decide"] = "t"
    with pytest.raises(KeyboardInterrupt):
        gate.ask(proposal(add("a")))


def test_a_reason_that_no_record_could_hold_is_spelled_so_that_it_can(
    gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    def odd(*_: object) -> NoReturn:
        raise UnicodeError("half a pair: \ud800")

    gate.table_committer().forget()
    # pytest-xdist could not serialize a captured log line with this text.
    caplog.set_level(logging.CRITICAL)
    with mock.patch.object(gate.stores[ROOT], "list_from", odd):
        gate.settle()
    assert gate.tables()[TABLE].reason == "UnicodeError: half a pair: \\ud800"


def test_the_reason_names_table_and_version(gate: Gate) -> None:
    gate.stores[ROOT].put(in_log(commit_name(1)), to_bytes([info(), add("z")]))
    gate.clock.boot += 2.0
    with mock.patch("tidegate_delta.log.commit.Commit.decode", fail):
        gate.settle()
    assert gate.tables()[TABLE].reason == f"Odd: of an odd kind (version 1) (table {ROOT})"


@pytest.mark.parametrize("depth", [256, 900])
@pytest.mark.parametrize("action", ["someFutureAction", "commitInfo"])
def test_a_foreign_version_of_any_depth_keeps_nobody_from_the_other_table(
    gate: Gate, action: str, depth: int
) -> None:
    nested = f'{{"{action}":{"[" * depth}1{"]" * depth}}}\n'.encode()
    gate.stores[ROOT].put(in_log(commit_name(1)), to_bytes([info(), add("z")]) + b"\n" + nested)
    for _ in range(2):
        assert elsewhere(gate) == "committed"
        gate.restart()
        gate.settle(12)
    assert elsewhere(gate) == "committed"
