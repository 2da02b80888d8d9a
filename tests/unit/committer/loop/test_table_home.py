"""A table has one home: one topic partition serves it, wherever its proposals arrive."""

from typing import Any
from unittest import mock
from uuid import UUID

import pytest

from tests.builders import ROOT, TABLE, Gate, add, create, creation, proposal, table_in_memory
from tests.support.outcomes import rejection_of, rules_of
from tests.support.registry import table_record
from tests.unit.committer.held_puts import HeldPuts
from tidegate_committer.loop.registrar import Registrar
from tidegate_committer.loop.served_tables import STALE_S, ServedTables
from tidegate_messages.codec import decode, encode, headers
from tidegate_messages.outcome import Outcome
from tidegate_messages.proposal import OPERATOR_REQUESTS, Proposal
from tidegate_messages.published_records import CommitRecord, TableRecord
from tidegate_messages.table_home import partition_of
from tidegate_messages.topics import Topics
from tidegate_runtime import failpoints
from tidegate_runtime.kafka.client_protocols import TopicPartition
from tidegate_runtime.table_registry import read_registry

HOME, AWAY = 0, 1


class Killed(BaseException):
    """The process dies."""


assert partition_of(TABLE, 2) == HOME


def gate_of(partitions: int = 2, **fields: Any) -> Gate:
    return Gate(topics=Topics(partitions=partitions), **fields)


def send(gate: Gate, partition: int, *proposals: Proposal) -> None:
    topics = gate.topics
    for item in proposals:
        topic = topics.admin if item.kind in OPERATOR_REQUESTS else topics.proposals
        gate.bus.append(TopicPartition(topic, partition), None, encode(item))


def outcomes(gate: Gate, partition: int) -> list[Outcome]:
    records = gate.bus.logs[TopicPartition(gate.topics.outcomes, partition)]
    return [decode(Outcome, record.value) for record in records]


def ask(gate: Gate, partition: int, *proposals: Proposal) -> list[Outcome]:
    before = len(outcomes(gate, partition))
    send(gate, partition, *proposals)
    gate.settle()
    return outcomes(gate, partition)[before:]


def publish_record(gate: Gate, record: TableRecord) -> None:
    at = TopicPartition(gate.topics.table_state, record.topic_partition)
    gate.bus.append(at, str(record.table).encode(), encode(record), headers(record))


def registered(gate: Gate, partition: int, **fields: Any) -> TableRecord:
    record = table_record(topic=gate.topics.proposals, topic_partition=partition)
    return record.model_copy(update=fields)


def homes(gate: Gate) -> list[int]:
    """Return the topic partitions whose workers have a table committer for the table."""
    workers = gate.loop.workers.items()
    return sorted(at.partition for at, worker in workers if TABLE in worker.tables.committers)


def denial(outcome: Outcome) -> tuple[str, int | None]:
    assert outcome.status == "denied", outcome
    assert outcome.rejection is not None
    is_resent = outcome.rejection.topic_partition is not None
    assert (outcome.rejection.advice == "resend") == is_resent, outcome
    return outcome.rejection.rule, outcome.rejection.topic_partition


@pytest.mark.parametrize("asked", [create(), proposal(kind="register", table_root=ROOT)])
def test_a_creation_away_from_home_is_denied_with_its_home(asked: Proposal) -> None:
    stores = {} if asked.is_create else {ROOT: table_in_memory(creation())}
    gate = gate_of(stores=dict(stores))
    [away] = ask(gate, AWAY, asked)
    assert denial(away) == ("other_partition", HOME)
    assert f"{gate.topics.proposals}/{HOME}" in rejection_of(away).reason
    assert read_registry(gate.bus, gate.topics) == {}
    [home] = ask(gate, HOME, asked)
    assert (home.status, home.version) == ("committed", 0)
    assert homes(gate) == [HOME]


@pytest.mark.parametrize("first", [HOME, AWAY])
@pytest.mark.parametrize("asked", [create(), proposal(kind="register", table_root=ROOT)])
def test_the_same_creation_on_two_topic_partitions_registers_one_table(
    asked: Proposal, first: int
) -> None:
    stores = {} if asked.is_create else {ROOT: table_in_memory(creation())}
    gate = gate_of(stores=dict(stores))
    send(gate, first, asked)
    send(gate, 1 - first, asked)
    gate.settle()
    assert homes(gate) == [HOME]
    assert [denial(outcome) for outcome in outcomes(gate, AWAY)] == [("other_partition", HOME)]
    assert [outcome.status for outcome in outcomes(gate, HOME)] == ["committed"]


@pytest.mark.parametrize("kind", ["commit", "halt", "drop", "reopen", "register"])
def test_proposals_for_a_table_of_another_topic_partition_are_answered_with_its_home(
    kind: str,
) -> None:
    gate = gate_of()
    ask(gate, HOME, create())
    result: dict[str, Any] = {"reason": "why"} if kind == "halt" else {}
    rows = [add("a")] if kind == "commit" else []
    [away] = ask(gate, AWAY, proposal(*rows, kind=kind, table_root=ROOT, **result))
    assert denial(away) == ("other_partition", HOME)
    assert read_registry(gate.bus, gate.topics)[TABLE].status == "open"


def test_a_registered_table_keeps_its_home_when_topic_partitions_are_added() -> None:
    gate = gate_of(1)
    ask(gate, 0, create(table=UUID(int=7)))
    for topic in ("outcomes", "commits", "table_state", "admin", "proposals"):
        gate.bus.add_partition(getattr(gate.topics, topic))
    assert partition_of(UUID(int=7), 2) == 1
    gate.settle(12)
    assert rules_of(ask(gate, 0, proposal(add("a"), table=UUID(int=7)))) == ["committed"]
    [away] = ask(gate, 1, create(table=UUID(int=7)))
    assert denial(away) == ("other_partition", 0)
    [new] = ask(gate, 1, create(table=UUID(int=9), table_root="memory://tables/new"))
    assert new.status == "committed", "new tables use the new topic partition"


def test_of_two_registrations_the_same_one_counts_for_everybody() -> None:
    for order in ((HOME, AWAY), (AWAY, HOME)):
        gate = gate_of(stores={ROOT: table_in_memory(creation())})
        for number in order:
            publish_record(gate, registered(gate, number))
        gate.settle()
        assert homes(gate) == [HOME]
        assert read_registry(gate.bus, gate.topics)[TABLE].topic_partition == HOME


def test_who_learns_that_a_table_has_another_home_closes_it_and_writes_nothing_more() -> None:
    gate = gate_of(stores={ROOT: table_in_memory(creation())})
    publish_record(gate, registered(gate, AWAY))
    gate.settle()
    assert homes(gate) == [AWAY]
    publish_record(gate, registered(gate, HOME))
    gate.clock.boot += 2 * STALE_S
    before = len(gate.bus.logs[TopicPartition(gate.topics.table_state, AWAY)])
    send(gate, AWAY, create(table=UUID(int=99), table_root="memory://elsewhere/x"))
    [_, behind] = ask(gate, AWAY, proposal(add("a")))
    assert denial(behind) == ("other_partition", HOME)
    assert len(gate.bus.logs[TopicPartition(gate.topics.table_state, AWAY)]) == before
    assert rules_of(ask(gate, HOME, proposal(add("b")))) == ["committed"]
    assert homes(gate) == [HOME]


@pytest.mark.parametrize("kind", ["halt", "drop"])
def test_an_operator_is_not_answered_by_who_has_lost_the_table(kind: str) -> None:
    gate = gate_of(stores={ROOT: table_in_memory(creation())})
    publish_record(gate, registered(gate, AWAY))
    gate.settle()
    publish_record(gate, registered(gate, HOME))
    gate.clock.boot += 2 * STALE_S
    result: dict[str, Any] = {"reason": "why"} if kind == "halt" else {}
    asked = proposal(kind=kind, table_root=ROOT, **result)
    [away] = ask(gate, AWAY, asked)
    assert denial(away) == ("other_partition", HOME)
    assert rules_of(ask(gate, HOME, asked)) == ["committed"]
    status = {"halt": "halted", "drop": "dropped"}[kind]
    assert read_registry(gate.bus, gate.topics)[TABLE].status == status


def test_proposals_at_a_table_that_closes_are_answered_with_its_home() -> None:
    gate = gate_of(stores={ROOT: table_in_memory(creation())})
    publish_record(gate, registered(gate, AWAY))
    gate.settle()
    [worker] = [worker for at, worker in gate.loop.workers.items() if at.partition == AWAY]
    with mock.patch.object(worker, "_attend", return_value=False):
        assert ask(gate, AWAY, proposal(add("a"))) == []
    publish_record(gate, registered(gate, HOME))
    worker.tables.open()
    gate.settle()
    assert [denial(outcome) for outcome in outcomes(gate, AWAY)] == [("other_partition", HOME)]
    assert worker.pending == 0


def test_a_table_dropped_on_any_topic_partition_is_dropped() -> None:
    gate = gate_of(stores={ROOT: table_in_memory(creation())})
    publish_record(gate, registered(gate, HOME))
    gate.settle()
    publish_record(gate, registered(gate, AWAY, status="dropped"))
    gate.clock.boot += 2 * STALE_S
    [result, behind] = ask(gate, HOME, create(table=UUID(int=98)), proposal(add("a")))
    assert result.rejection is not None
    assert denial(behind) == ("table_dropped", None)
    assert homes(gate) == []
    assert read_registry(gate.bus, gate.topics)[TABLE].status == "dropped"


def test_of_two_who_count_the_topic_partitions_differently_one_at_most_registers() -> None:
    """Each takes itself for the home, and each sees the other's claim."""
    gate = gate_of(stores={ROOT: table_in_memory(creation())})
    gate.settle()
    real = Registrar._claim
    with (
        mock.patch.object(ServedTables, "is_home", return_value=True),
        mock.patch.object(Registrar, "_claim", autospec=True) as claim,
    ):

        def both(self: Registrar, table_committer: Any) -> Any:
            if self.tables.topic_partition.partition == HOME:
                # The other one claims the table at the same time.
                publish_record(gate, registered(gate, AWAY, status="staged"))
            return real(self, table_committer)

        claim.side_effect = both
        [outcome] = ask(gate, HOME, proposal(kind="register", table_root=ROOT))
    assert denial(outcome)[0] == "being_created"
    assert homes(gate) == []
    result = read_registry(gate.bus, gate.topics)
    assert [(item.status, item.topic_partition) for item in result.values()] == [("staged", AWAY)]


def test_who_finds_the_table_registered_elsewhere_after_creating_it_leaves_it() -> None:
    gate = gate_of()
    gate.settle()
    real = Registrar._claim
    with mock.patch.object(Registrar, "_claim", autospec=True) as claim:

        def late(self: Registrar, table_committer: Any) -> Any:
            publish_record(gate, registered(gate, AWAY))
            return real(self, table_committer)

        claim.side_effect = late
        [outcome, behind] = ask(gate, HOME, create(), proposal(add("a")))
    assert denial(outcome) == ("other_partition", AWAY)
    assert denial(behind) == ("other_partition", AWAY)
    assert HOME not in homes(gate)
    assert read_registry(gate.bus, gate.topics)[TABLE].topic_partition == AWAY
    gate.clock.boot += 2 * STALE_S
    assert denial(ask(gate, HOME, create())[-1]) == ("other_partition", AWAY)


def test_an_id_that_is_used_for_two_tables_is_two_proposals_with_an_outcome_each() -> None:
    """As documented, a proposal id is unique per table."""
    gate, other, root = gate_of(1), UUID(int=99), "memory://tables/o"
    ask(gate, 0, create(), create(table=other, table_root=root))
    first = proposal(add("a"))
    second = first.model_copy(update={"table": other, "table_root": root})
    result = ask(gate, 0, first, second)
    assert [(item.status, item.table) for item in result] == [
        ("committed", TABLE),
        ("committed", other),
    ]
    assert len({one.proposal_id for one in result}) == 1
    assert len({one.proposal_sha256 for one in result}) == 2


def move(to: int, **fields: Any) -> Proposal:
    return proposal(kind="move", table_root=ROOT, to_partition=to, **fields)


def test_a_moved_table_is_served_by_its_new_home_alone_and_goes_on_there() -> None:
    gate = gate_of()
    ask(gate, HOME, create(), proposal(add("a")))
    [moved] = ask(gate, HOME, move(AWAY))
    assert denial(moved) == ("other_partition", AWAY), "the new owner grants it"
    assert read_registry(gate.bus, gate.topics)[TABLE].topic_partition == AWAY
    [behind] = ask(gate, HOME, proposal(add("b"), read_version=1))
    assert denial(behind) == ("other_partition", AWAY)
    [there] = ask(gate, AWAY, move(AWAY))
    assert (there.status, there.version) == ("committed", 1)
    assert homes(gate) == [AWAY]
    [after] = ask(gate, AWAY, proposal(add("b"), read_version=1))
    assert (after.status, after.version) == ("committed", 2)
    published = [
        [decode(CommitRecord, each.value).version for each in gate.bus.logs[at]]
        for at in (TopicPartition(gate.topics.commits, number) for number in (HOME, AWAY))
    ]
    assert published == [[0, 1], [2]], "each version is published once"


def test_the_same_bytes_are_committed_once_whichever_home_they_reach() -> None:
    gate = gate_of()
    one = proposal(add("a"))
    ask(gate, HOME, create(), one)
    ask(gate, HOME, move(AWAY))
    [again] = ask(gate, AWAY, one)
    assert (again.status, again.version, again.repeat) == ("committed", 1, True)
    assert len(gate.entries()) == 2


def test_proposals_that_wait_while_a_put_is_in_flight_are_sent_to_the_new_home() -> None:
    puts = HeldPuts()
    gate = gate_of(puts=puts)
    ask(gate, HOME, create())
    puts.is_holding = True
    assert ask(gate, HOME, proposal(add("a"))) == []
    assert ask(gate, HOME, move(AWAY), proposal(add("b"))) == [], "the PUT is in flight"
    puts.release()
    gate.settle()
    first, waiting, moved = outcomes(gate, HOME)[-3:]
    assert (first.status, first.version) == ("committed", 1)
    assert denial(waiting) == ("other_partition", AWAY)
    assert denial(moved) == ("other_partition", AWAY)
    assert len(gate.entries()) == 2


@pytest.mark.parametrize("is_sent_on", [True, False])
def test_a_committer_that_dies_within_a_move_leaves_the_table_to_one_home(is_sent_on: bool) -> None:
    gate = gate_of()
    ask(gate, HOME, create())

    def die(point: str, object_id: object = "") -> None:
        if point == "after_move":
            raise Killed

    asked = move(AWAY)
    send(gate, HOME, asked)
    with mock.patch.object(failpoints, "reach", die), pytest.raises(Killed):
        gate.settle()
    gate.restart()
    gate.settle(12)
    assert denial(outcomes(gate, HOME)[-1]) == ("other_partition", AWAY)
    if is_sent_on:
        [there] = ask(gate, AWAY, asked)
        assert there.status == "committed"
    [after] = ask(gate, AWAY, proposal(add("a")))
    assert (after.status, after.version) == ("committed", 1)
    assert homes(gate) == [AWAY]


def test_who_lost_the_table_before_it_moved_cannot_take_it_back() -> None:
    gate = gate_of()
    ask(gate, HOME, create())
    before = read_registry(gate.bus, gate.topics)[TABLE]
    ask(gate, HOME, move(AWAY))
    publish_record(gate, before.model_copy(update={"published_through": 7}))
    assert read_registry(gate.bus, gate.topics)[TABLE].topic_partition == AWAY
    ask(gate, AWAY, move(HOME))
    [back] = ask(gate, HOME, proposal(add("a")))
    assert (back.status, back.version) == ("committed", 1)
    assert homes(gate) == [HOME]


def test_a_request_that_is_delivered_again_after_a_move_back_is_not_carried_out_again() -> None:
    gate = gate_of()
    ask(gate, HOME, create())
    ask(gate, HOME, move(AWAY))
    ask(gate, AWAY, move(HOME))
    gate.bus.drop_offsets("tidegate.committer")
    gate.restart()
    gate.settle(12)
    assert homes(gate) == [HOME]
    assert read_registry(gate.bus, gate.topics)[TABLE].topic_partition == HOME


def test_a_halted_table_may_move_and_stays_halted() -> None:
    gate = gate_of()
    ask(gate, HOME, create())
    ask(gate, HOME, proposal(kind="halt", reason="a restore"), move(AWAY))
    gate.clock.boot += 2 * STALE_S
    [refused] = ask(gate, AWAY, proposal(add("a")))
    assert rules_of([refused]) == ["table_halted"]
    asked = [*ask(gate, AWAY, proposal(kind="reopen")), *ask(gate, AWAY, proposal(add("a")))]
    assert [each.status for each in asked] == ["committed", "committed"]


def test_a_move_behind_a_drop_does_not_keep_the_proposals_before_it_from_their_answers() -> None:
    puts = HeldPuts()
    gate = gate_of(puts=puts)
    ask(gate, HOME, create())
    puts.is_holding = True
    first, waiting, drop = proposal(add("a")), proposal(add("b")), proposal(kind="drop")
    assert ask(gate, HOME, first) == []
    assert ask(gate, HOME, waiting, drop, move(AWAY)) == []
    puts.release()
    gate.settle()
    assert [each.status for each in outcomes(gate, HOME)[-4:-1]] == ["committed"] * 3
    assert rules_of(outcomes(gate, HOME)[-1:]) == ["table_dropped"]


def test_a_move_to_no_partition_of_the_topic_is_denied() -> None:
    gate = gate_of()
    ask(gate, HOME, create())
    [wrong] = ask(gate, HOME, move(2))
    assert denial(wrong) == ("no_such_partition", None)
    assert "0 to 1, and not 2" in rejection_of(wrong).reason
    assert homes(gate) == [HOME]
