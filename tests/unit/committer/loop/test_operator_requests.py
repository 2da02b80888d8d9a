"""Operator requests to halt, reopen or drop tables, on a topic beside the proposals."""

from collections.abc import Callable
from typing import Any
from unittest import mock
from uuid import UUID

import pytest

from tests.builders import (
    ROOT,
    TABLE,
    Gate,
    Row,
    add,
    an_id,
    create,
    delete,
    digest_of,
    info,
    metadata,
    proposal,
    protocol,
    table_in_memory,
    to_bytes,
)
from tests.fakes.memory_clients import MemoryProducer
from tests.support.outcomes import answers_of, rejection_of, rules_of
from tests.support.stores import store_of
from tests.unit.committer.held_puts import HeldPuts
from tidegate_committer.loop.partition_worker import RETRY_HALTED_S
from tidegate_committer.loop.table_committer import TableCommitter
from tidegate_committer.store_executor import InlineExecutor
from tidegate_delta.errors import Unavailable
from tidegate_delta.log.file_names import commit_name, in_log, staged_name
from tidegate_messages.codec import decode, encode
from tidegate_messages.proposal import Proposal
from tidegate_messages.published_records import TableRecord
from tidegate_runtime.kafka.client_protocols import TopicPartition

WHY = "the bucket is being moved"


def halt(why: str = WHY, table: UUID = TABLE, root: str = ROOT) -> Proposal:
    return proposal(kind="halt", table=table, table_root=root, reason=why)


def reopen() -> Proposal:
    return proposal(kind="reopen", table=TABLE, table_root=ROOT)


def request_to_drop(table: UUID = TABLE, root: str = ROOT) -> Proposal:
    return proposal(kind="drop", table=table, table_root=root)


def record_of(gate: Gate) -> TableRecord:
    return gate.tables()[TABLE]


def test_a_table_that_is_being_created_is_queried_again() -> None:
    puts = HeldPuts(is_holding=True)
    gate = Gate(puts=puts)
    gate.send(create())
    gate.settle(2)
    result = gate.ask(halt(), request_to_drop())
    assert [
        (outcome.status, outcome.rejection and outcome.rejection.advice) for outcome in result
    ] == [("denied", "retry")] * 2
    assert gate.tables() == {}
    puts.release()
    gate.settle()
    assert gate.tables()[TABLE].status == "open"


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        ((create,), "open"),
        ((create, halt), "halted"),
        ((create, halt, reopen), "open"),
        ((create, request_to_drop), "dropped"),
    ],
)
def test_no_outcome_of_a_registration_before_the_registry_holds_it(
    asked: tuple[Callable[[], Proposal], ...], status: str
) -> None:
    gate, held = Gate(), list[str]()
    *before, last = asked
    for item in before:
        gate.ask(item())
    publish = MemoryProducer.publish

    def noting(self: MemoryProducer, at: TopicPartition, *arguments: Any) -> None:
        if at.topic == gate.topics.outcomes:
            held.append(gate.tables()[TABLE].status)
        publish(self, at, *arguments)

    with mock.patch.object(MemoryProducer, "publish", noting):
        gate.ask(last())
    assert held == [status]


def test_a_table_that_is_halted_takes_nothing_until_it_is_reopened(gate: Gate) -> None:
    [outcome] = gate.ask(halt())
    assert (outcome.status, outcome.version, outcome.repeat) == ("committed", 0, False)
    assert (record_of(gate).status, record_of(gate).reason) == ("halted", f"by hand: {WHY}")
    refused = proposal(add("a"))
    [outcome] = gate.ask(refused)
    assert outcome.rejection is not None
    assert (outcome.status, outcome.rejection.rule) == ("denied", "table_halted")
    assert WHY in outcome.rejection.reason
    assert outcome.rejection.advice == "retry"
    assert len(gate.entries()) == 1
    assert rules_of(gate.ask(reopen(), refused)) == ["committed", "committed"]
    assert (record_of(gate).status, record_of(gate).reason) == ("open", None)


def test_time_and_another_committer_do_not_reopen_it(gate: Gate) -> None:
    gate.ask(halt())
    for _ in range(3):
        gate.clock.boot += 2 * RETRY_HALTED_S
        gate.settle()
        gate.restart()
        gate.settle()
    assert record_of(gate).halted_by_hand == WHY
    assert rules_of(gate.ask(proposal(add("a")))) == ["table_halted"]
    assert rules_of(gate.ask(reopen(), proposal(add("b")))) == ["committed", "committed"]


def test_requests_that_are_read_again_open_nothing_that_was_closed_since(gate: Gate) -> None:
    gate.ask(halt(), reopen(), halt("it takes longer"))
    before = len(gate.records(gate.topics.table_state))
    gate.bus.drop_offsets("tidegate.committer")
    gate.restart()
    gate.settle()
    since = gate.records(gate.topics.table_state)[before:]
    assert "open" not in [decode(TableRecord, record.value).status for record in since]
    assert record_of(gate).halted_by_hand == "it takes longer"
    assert rules_of(gate.outcomes()[-3:]) == ["committed"] * 3


def test_a_repeated_request_is_no_error_and_its_reason_replaces_the_old(gate: Gate) -> None:
    assert [item.repeat for item in gate.ask(halt(), halt())] == [False, True]
    assert [one.repeat for one in gate.ask(halt("it takes longer"))] == [False]
    assert record_of(gate).halted_by_hand == "it takes longer"
    assert [one.repeat for one in gate.ask(reopen(), reopen())] == [False, True]


def test_a_request_on_a_topic_that_was_made_anew_is_no_repeat_of_one_on_the_former(
    gate: Gate,
) -> None:
    assert rules_of(gate.ask(halt(), reopen())) == ["committed", "committed"]
    gate.bus.create_topic(gate.topics.admin, 1)
    gate.send(halt())
    with pytest.raises(Unavailable, match="recreated"):
        gate.settle()
    gate.restart()
    gate.settle()
    assert record_of(gate).halted_by_hand == WHY


def test_its_store_is_left_alone_while_it_is_halted(gate: Gate) -> None:
    gate.ask(halt())
    store = gate.stores[ROOT]
    silent = mock.Mock(side_effect=AssertionError("the store of a halted table was asked"))
    with mock.patch.multiple(store, read=silent, list_from=silent, put_if_absent=silent):
        gate.clock.boot += 3600
        gate.ask(proposal(add("a")))
        gate.restart()
        gate.settle()
    assert record_of(gate).status == "halted"


def test_puts_in_flight_are_finished_and_published_and_waiting_proposals_are_denied() -> None:
    puts = HeldPuts()
    gate = Gate(puts=puts)
    gate.ask(create())
    puts.is_holding = True
    gate.send(proposal(add("a")))
    gate.settle(2)
    gate.send(proposal(add("b")), halt())
    gate.loop.step()
    gate.send(proposal(add("c")))
    gate.settle()
    assert record_of(gate).status == "open", "nobody is told before what flies has landed"
    puts.release()
    gate.settle()
    assert rules_of(gate.outcomes()[1:]) == [
        "committed",
        "table_halted",
        "committed",
        "table_halted",
    ]
    assert [commit.version for commit in gate.commits()] == [0, 1]
    assert record_of(gate).published_through == 1


def test_ready_bytes_are_refused_alike(gate: Gate) -> None:
    content = to_bytes([info(), add("a")])
    proposal_id = an_id()
    path = in_log(f"_staged_commits/{staged_name(1, proposal_id)}")
    claim = {"path": path, "size": len(content), "sha256": digest_of(content)}
    result: Row = {"kind": "verbatim", "exact_version": 1, "claim_check": claim}
    ready = proposal(**result, proposal_id=proposal_id)
    store = store_of(gate)
    store.put(path, content)
    assert rules_of(gate.ask(halt(), ready)) == ["committed", "table_halted"]
    assert rules_of(gate.ask(reopen(), ready)) == ["committed", "committed"]
    assert len(gate.entries()) == 2


def test_a_table_whose_log_is_torn_stays_halted_and_its_operator_hears_why(gate: Gate) -> None:
    gate.ask(proposal(add("a")))
    gate.ask(halt())
    store = store_of(gate)
    path = in_log(commit_name(1))
    whole, store.files[path] = store.files[path], b"torn"
    assert answers_of(gate.ask(reopen())) == [("denied", "table_halted")]
    assert record_of(gate).halted_by_hand == WHY
    store.files[path] = whole
    assert rules_of(gate.ask(reopen())) == ["committed"]


def test_a_store_that_is_away_keeps_a_table_halted(gate: Gate) -> None:
    gate.ask(halt())
    with mock.patch.object(gate.stores[ROOT], "list_from", side_effect=Unavailable("away")):
        [outcome] = gate.ask(reopen())
    assert (outcome.status, rejection_of(outcome).advice) == ("denied", "retry")
    assert record_of(gate).halted_by_hand == WHY


def test_a_table_that_halted_by_itself_is_read_at_once_when_it_is_reopened(gate: Gate) -> None:
    gate.ask(proposal(add("a")))
    store = store_of(gate)
    path = in_log(commit_name(1))
    whole, store.files[path] = store.files[path], b"torn"
    gate.restart()
    gate.settle()
    assert record_of(gate).status == "halted"
    store.files[path] = whole
    assert rules_of(gate.ask(reopen(), proposal(add("b")))) == ["committed", "committed"]
    assert record_of(gate).status == "open"


def test_versions_found_on_opening_an_idle_table_are_published_before_its_next_poll(
    gate: Gate,
) -> None:
    gate.settle()
    gate.send(halt())
    gate.loop.step()
    gate.stores[ROOT].put(in_log(commit_name(1)), to_bytes([info(), add("foreign")]))
    gate.send(reopen())
    gate.settle(3)
    assert [commit.version for commit in gate.commits()] == [0, 1]


def test_a_record_by_a_committer_that_lost_the_table_reopens_nothing(gate: Gate) -> None:
    stale = record_of(gate)
    gate.ask(halt())
    gate.bus.append(TopicPartition(gate.topics.table_state, 0), None, encode(stale))
    gate.restart()
    assert rules_of(gate.ask(proposal(add("a")))) == ["table_halted"]


def test_a_dropped_table_is_published_durably_and_takes_nothing_more(gate: Gate) -> None:
    gate.ask(proposal(add("a")))
    [outcome] = gate.ask(request_to_drop())
    assert (outcome.status, outcome.version, outcome.repeat) == ("committed", 1, False)
    assert gate.tables()[TABLE].status == "dropped"
    assert answers_of(gate.ask(proposal(add("b")))) == [("denied", "table_dropped")]
    [outcome] = gate.ask(request_to_drop())
    assert (outcome.status, outcome.repeat) == ("committed", True)
    assert len(gate.entries()) == 2, "its log is as it was"


def test_another_table_at_a_dropped_root_is_registered_under_another_id(gate: Gate) -> None:
    gate.ask(proposal(add("a")))
    gate.ask(request_to_drop())
    other, again = UUID(int=98), UUID(int=99)
    same = proposal(kind="register", table=again, read_version=1)
    assert rules_of(gate.ask(same)) == ["table_dropped"], "the log is the dropped table's"
    assert again not in gate.tables()

    store = store_of(gate)
    begins = metadata()
    begins["metaData"]["id"] = "other"
    store.files = table_in_memory([protocol(), begins], [info("WRITE")]).files
    made = create(table=again, table_root=ROOT)
    assert rules_of(gate.ask(made)) == ["table_dropped"], "a creation gives out no dropped root"
    asked = proposal(kind="register", table=other, read_version=1, table_id="other")
    assert rules_of(gate.ask(asked)) == ["committed"]
    assert {table: one.status for table, one in gate.tables().items()} == {
        TABLE: "dropped",
        other: "open",
    }
    record = gate.tables()[other]
    assert (record.table_root, record.table_id, record.published_through) == (ROOT, "other", 1)

    late = [proposal(add("late")), request_to_drop(), reopen()]
    assert rules_of(gate.ask(*late)) == ["table_dropped", "committed", "table_dropped"]
    of_the_old = proposal(add("old"), table=other, read_version=1)
    assert rules_of(gate.ask(of_the_old)) == ["other_table"]
    written = b"".join(store.files.values())
    assert b'"late"' not in written, "nothing meant for the old table is in the new one"
    assert b'"old"' not in written
    named = proposal(add("b"), table=other, read_version=1, table_id="other")
    assert rules_of(gate.ask(named)) == ["committed"]
    gate.restart()
    assert rules_of(gate.ask(proposal(add("late")))) == ["table_dropped"]
    assert gate.tables()[other].status == "open"


def test_proposals_from_before_a_drop_are_decided_before_it(gate: Gate) -> None:
    gate.send(proposal(add("a")), proposal(add("b")), request_to_drop())
    gate.settle()
    gate.ask(proposal(add("c")))
    assert rules_of(gate.outcomes()[1:]) == ["committed", "committed", "committed", "table_dropped"]
    assert record_of(gate).published_through == len(gate.entries()) - 1 > 0
    assert record_of(gate).status == "dropped"


def test_a_drop_waits_for_a_store_that_is_away_unless_the_table_is_halted_first(gate: Gate) -> None:
    with mock.patch.object(gate.stores[ROOT], "put_if_absent", side_effect=Unavailable("away")):
        gate.send(proposal(add("a")), request_to_drop())
        gate.settle()
        assert record_of(gate).status == "open"
    gate.settle(12)
    assert rules_of(gate.outcomes()[1:]) == ["committed", "committed"]
    assert record_of(gate).status == "dropped"
    gate = Gate()
    gate.ask(create())
    with mock.patch.object(gate.stores[ROOT], "put_if_absent", side_effect=Unavailable("away")):
        gate.send(proposal(add("a")))
        gate.settle(2)
        asked = gate.ask(halt(), request_to_drop())
    assert rules_of(asked) == ["table_halted", "committed", "committed"]
    assert record_of(gate).status == "dropped"


def test_a_drop_that_waits_for_a_store_that_is_away_is_ended_by_a_halt(gate: Gate) -> None:
    with mock.patch.object(gate.stores[ROOT], "put_if_absent", side_effect=Unavailable("away")):
        gate.send(proposal(add("a")), request_to_drop())
        gate.loop.step()
        gate.send(proposal(add("b")))
        gate.settle()
        assert len(gate.outcomes()) == 1
        assert rules_of(gate.ask(halt())) == ["table_dropped", "committed", *["table_dropped"] * 2]
    assert record_of(gate).status == "dropped"
    assert gate.loop.pending == 0
    assert len(gate.entries()) == 1


def test_requests_and_proposals_that_wait_for_one_another_are_obeyed_in_order(gate: Gate) -> None:
    asked = (
        *(proposal(add("a")), halt(), proposal(add("b")), reopen(), proposal(add("c"))),
        *(delete("nobody"), request_to_drop(), reopen()),
    )
    result = {outcome.proposal_id: outcome for outcome in gate.ask(*asked)}
    assert rules_of([result[outcome.proposal_id] for outcome in asked]) == [
        *("committed", "committed", "table_halted", "committed", "committed"),
        *("removed_file_not_live", "committed", "table_dropped"),
    ]


@pytest.mark.parametrize("asked", [halt(), request_to_drop(), reopen()])
def test_a_request_among_the_proposals_is_denied_by_the_name_of_its_topic(
    gate: Gate, asked: Proposal
) -> None:
    gate.send(encode(asked))
    gate.settle()
    rejection = gate.outcomes()[-1].rejection
    assert rejection is not None
    assert (rejection.rule, rejection.topic) == ("wrong_topic", "tidegate.admin")
    assert (rejection.advice, rejection.field) == ("resend", "kind")
    assert record_of(gate).status == "open"
    assert gate.loop.pending == 0


@pytest.mark.parametrize("value", [encode(proposal(add("a"))), b"no JSON"])
def test_what_is_no_request_among_the_requests_is_not_carried_out(gate: Gate, value: bytes) -> None:
    gate.bus.append(TopicPartition(gate.topics.admin, 0), None, value)
    gate.settle()
    if value.startswith(b"{"):
        assert rules_of(gate.outcomes()[1:]) == ["wrong_topic"]
        result = gate.outcomes()[1].rejection
        assert result is not None
        assert (result.advice, result.topic) == ("resend", "tidegate.proposals")
    else:
        [letter] = gate.letters()
        assert letter.value == value
    assert len(gate.entries()) == 1
    at = TopicPartition(gate.topics.admin, 0)
    assert gate.bus.committed("tidegate.committer")[at] == 1


def test_a_request_whose_outcome_is_not_durable_is_read_again(gate: Gate) -> None:
    at = TopicPartition(gate.topics.admin, 0)
    puts = HeldPuts(is_holding=True)
    gate.puts = puts
    gate.restart()
    gate.settle()
    gate.send(proposal(add("a")), request_to_drop())
    gate.settle()
    assert gate.bus.committed("tidegate.committer").get(at, 0) == 0, "it waits for the PUT"
    gate.puts = InlineExecutor()
    gate.restart()
    gate.settle(12)
    assert record_of(gate).status == "dropped"
    assert gate.bus.committed("tidegate.committer")[at] == 1


@pytest.mark.parametrize(
    ("request_", "rule"),
    [
        (request_to_drop(root="memory://tables/other"), "other_root"),
        (request_to_drop(table=UUID(int=0x4711)), "unknown_table"),
        (halt(root="memory://tables/other"), "other_root"),
        (halt(table=UUID(int=0x4711)), "unknown_table"),
    ],
)
def test_what_is_not_that_table_is_left_alone(gate: Gate, request_: Proposal, rule: str) -> None:
    assert answers_of(gate.ask(request_)) == [("denied", rule)]
    assert gate.tables()[TABLE].status == "open"


def test_requests_are_read_no_further_while_many_wait_for_a_log(
    monkeypatch: pytest.MonkeyPatch, gate: Gate
) -> None:
    monkeypatch.setattr("tidegate_committer.loop.read_ahead.RECORDS_MAX", 3)
    gate.ask(halt())
    with monkeypatch.context() as slow:
        slow.setattr(TableCommitter, "load", lambda _: False)
        gate.send(reopen(), *(halt(f"incident {number}") for number in range(4)))
        gate.loop.step()
        gate.send(*(halt(f"incident {number}") for number in range(4, 9)))
        for _ in range(3):
            gate.loop.step()
        assert gate.loop.pending == 5
    gate.settle(60)
    assert gate.loop.pending == 0
    assert rules_of(gate.outcomes()[2:]) == ["committed"] * 10
