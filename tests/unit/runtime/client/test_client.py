"""A client gets the one outcome of its proposal, or learns that there is none yet."""

import pickle
from collections.abc import Callable, Iterable
from unittest import mock
from uuid import UUID

import pytest

from tests.definitions import one_file
from tests.fakes.memory_clients import MemoryProducer, MemoryReader
from tests.support.refusals import refused
from tests.unit.producers.answering_bus import (
    ROOT,
    TABLE,
    Answers,
    Gate,
    ManualClock,
    committed,
    rejected,
)
from tidegate_delta.errors import InvalidRequest, Misconfigured, OutcomeUnknown, Unavailable
from tidegate_messages.codec import PRODUCER_BYTES_MAX, decode
from tidegate_messages.outcome import ClientAdvice, Outcome, Rejection
from tidegate_messages.proposal import Proposal
from tidegate_messages.record_headers import is_traceparent
from tidegate_messages.table_home import partition_of
from tidegate_messages.topics import Topics
from tidegate_runtime import table_registry
from tidegate_runtime.client.client import Client, Rejected, result
from tidegate_runtime.client.proposal_builders import Stamp, Target, append
from tidegate_runtime.kafka.client_protocols import ANSWER_S, Offset, Record, TopicPartition

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
ID = UUID("0192bbbb-0000-7000-8000-000000000001")
APPENDED = Rejection(
    rule="concurrent_append",
    reason="version 7 added 'b.parquet'",
    exception="ConcurrentAppendException",
    error_class="DELTA_CONCURRENT_APPEND",
    winner_version=7,
    path="b.parquet",
)


def proposal(table: UUID = TABLE) -> Proposal:
    add = one_file("a")
    return append(Target(table, ROOT, 0, "m"), Stamp(ID, 0), [add])


def client_of(answers: Answers, partitions: int = 1) -> tuple[Client, Gate]:
    topics = Topics(partitions=partitions)
    gate = Gate(topics, answers)
    return Client(gate, topics, ManualClock(), patience_s=5), gate


def always(proposal: Proposal, digest: str) -> Iterable[Outcome]:
    return [committed(proposal, digest, 4)]


def test_the_outcome_of_a_proposal_is_returned() -> None:
    client, gate = client_of(always)
    assert client.propose(proposal()).version == 4
    assert len(gate.sent) == 1


def test_its_producer_gets_an_id_while_the_registry_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client, gate = client_of(always)
    made: list[str] = []
    for kind in ("producer", "reader"):
        make = getattr(gate, kind)

        def noted(kind: str = kind, make: Callable[[], object] = make) -> object:
            made.append(kind)
            return make()

        monkeypatch.setattr(gate, kind, noted)
    client.propose(proposal())
    assert made[0] == "producer", "librdkafka asks again only after half a second"


def test_outcomes_of_others_and_of_other_bytes_are_passed_over() -> None:
    def answers(sent: Proposal, digest: str) -> Iterable[Outcome]:
        mine = committed(sent, digest, 4)
        yield mine.model_copy(update={"proposal_id": TABLE, "version": 1})
        yield mine.model_copy(update={"proposal_sha256": "0" * 64, "version": 2})
        yield mine

    client, _ = client_of(answers)
    assert client.propose(proposal()).version == 4


def test_an_outcome_from_before_the_proposal_was_sent_is_not_its_answer() -> None:
    client, gate = client_of(always)
    old = committed(proposal(), "1" * 64, 2)
    gate.publish_outcome(0, old)
    assert client.propose(proposal()).version == 4


def test_silence_is_answered_by_the_same_bytes_again() -> None:
    arrivals: list[str] = []

    def third_time(sent: Proposal, digest: str) -> Iterable[Outcome]:
        arrivals.append(digest)
        return [committed(sent, digest)] if len(arrivals) == 3 else []

    client, gate = client_of(third_time)
    assert client.propose(proposal(), 60).version == 1
    assert len({value for _, value in gate.sent}) == 1
    assert len(gate.sent) == 3


def test_a_client_may_name_its_writer_and_the_name_is_in_each_record() -> None:
    gate = Gate(Topics(), always)
    for name in ("flights", None):
        Client(gate, gate.topics, ManualClock(), producer=name).propose(proposal())
    named, unnamed = gate.log(TopicPartition(gate.topics.proposals, 0))
    assert dict(named.headers)["producer"] == b"flights"
    assert dict(unnamed.headers)["producer"] not in (b"flights", b"")
    for wrong in ("", "n" * (PRODUCER_BYTES_MAX + 1)):
        with pytest.raises(InvalidRequest, match="producer"):
            Client(gate, gate.topics, producer=wrong)


def test_a_proposal_carries_one_trace_however_often_it_is_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client, gate = client_of(lambda sent, digest: [])
    route = gate.log(TopicPartition(gate.topics.proposals, 0))
    for given in ("", TRACE):
        monkeypatch.setenv("TRACEPARENT", given)
        with pytest.raises(OutcomeUnknown):
            client.propose(proposal(), 12)
    traces = [dict(record.headers)["traceparent"].decode() for record in route]
    assert traces[3:] == [TRACE] * 3
    assert traces[:3] == [traces[0]] * 3
    assert is_traceparent(traces[0])
    assert traces[0] != TRACE


def test_an_answer_that_came_after_the_timeout_is_found_by_the_next_poll() -> None:
    late: list[Outcome] = []

    def answers(sent: Proposal, digest: str) -> Iterable[Outcome]:
        late.append(committed(sent, digest, len(late)))
        return late[:-1]

    client, _ = client_of(answers)
    assert client.propose(proposal(), 60).version == 0


def test_outcomes_that_begin_anew_while_one_is_awaited_are_read_from_where_they_end() -> None:
    arrivals: list[str] = []

    def answers(sent: Proposal, digest: str) -> Iterable[Outcome]:
        arrivals.append(digest)
        if len(arrivals) > 1:
            return [committed(sent, digest, 4)]
        gate.log(TopicPartition(gate.topics.outcomes, 0)).clear()
        return []

    client, gate = client_of(answers)
    for version in range(3):
        gate.publish_outcome(0, committed(proposal(), "1" * 64, version))
    assert client.propose(proposal(), 60).version == 4
    assert len(gate.sent) == 2


class Spent(MemoryProducer):
    """A producer whose every flush fails."""

    def flush(self, timeout_s: float) -> None:
        raise OutcomeUnknown("_FATAL: out of order sequence number")


def test_a_producer_that_failed_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    client, gate = client_of(lambda sent, digest: [committed(sent, digest, 4)])
    makes, made = gate.producer, [Spent(gate)]
    monkeypatch.setattr(gate, "producer", lambda: made.pop() if made else makes())
    assert client.propose(proposal(), 60).version == 4


def test_a_topic_that_is_gone_after_the_bytes_were_sent_leaves_the_outcome_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Gone(MemoryReader):
        def read(
            self, topic_partition: TopicPartition, start: Offset, timeout_s: float
        ) -> list[Record]:
            raise Misconfigured("the topic is not there")

    client, gate = client_of(always)
    monkeypatch.setattr(gate, "reader", lambda: Gone(gate))
    with pytest.raises(OutcomeUnknown) as raised:
        client.propose(proposal(), 12)
    assert isinstance(raised.value.__cause__, Misconfigured)
    assert gate.sent


def test_a_topic_that_is_missing_before_anything_was_sent_is_an_error_at_once() -> None:
    client, gate = client_of(always)
    client.topics = Topics("elsewhere.")
    with pytest.raises(Misconfigured):
        client.propose(proposal(), 60)
    assert not gate.sent


def test_without_an_answer_the_error_names_the_proposal_and_what_to_do() -> None:
    client, gate = client_of(lambda sent, digest: [])
    with pytest.raises(OutcomeUnknown, match=str(ID)) as raised:
        client.propose(proposal(), 12)
    assert "may yet be committed" in str(raised.value)
    assert len(gate.sent) == 3


def test_without_an_answer_the_error_explains_why_the_table_rests() -> None:
    client, gate = client_of(lambda sent, digest: [])
    gate.register(reason="rests, its proposals wait: No space left on device")
    with pytest.raises(OutcomeUnknown, match=r"The table rests, .* No space left on device"):
        client.propose(proposal(), 12)


def test_a_registered_tables_proposals_go_to_its_recorded_partition() -> None:
    client, gate = client_of(always, partitions=5)
    elsewhere = (partition_of(TABLE, 5) + 1) % 5
    gate.register(partition=elsewhere)
    client.propose(proposal())
    assert [at.partition for at, _ in gate.sent] == [elsewhere]


def test_a_first_proposal_chooses_the_partition_by_the_tables_id() -> None:
    client, gate = client_of(always, partitions=5)
    client.propose(proposal())
    assert [at.partition for at, _ in gate.sent] == [partition_of(TABLE, 5)]


def test_a_proposal_is_sent_to_the_home_that_the_answer_names() -> None:
    """The topic gained partitions between the client's count and the committer's."""
    right = (partition_of(TABLE, 5) + 1) % 5

    def answers(sent: Proposal, digest: str) -> Iterable[Outcome]:
        if gate.sent[-1][0].partition == right:
            return always(sent, digest)
        away = Rejection(rule="other_partition", reason="r", advice="resend", topic_partition=right)
        return [rejected(sent, digest, away).model_copy(update={"status": "denied"})]

    client, gate = client_of(answers, partitions=5)
    assert client.propose(proposal()).status == "committed"
    assert [at.partition for at, _ in gate.sent] == [partition_of(TABLE, 5), right]
    assert len({value for _, value in gate.sent}) == 1, "the same bytes"


def test_who_is_sent_to_and_fro_gives_up_in_time() -> None:
    def answers(sent: Proposal, digest: str) -> Iterable[Outcome]:
        other = 1 - gate.sent[-1][0].partition
        away = Rejection(rule="other_partition", reason="r", advice="resend", topic_partition=other)
        return [rejected(sent, digest, away).model_copy(update={"status": "denied"})]

    client, gate = client_of(answers, partitions=2)
    outcome = client.propose(proposal(), 20)
    assert outcome.rejection is not None
    assert outcome.rejection.rule == "other_partition"
    assert 3 <= len(gate.sent) <= 20


def test_the_registry_is_read_again_for_a_table_that_is_not_known_yet() -> None:
    client, gate = client_of(always)
    assert client.table("t") is None
    gate.register()
    found = client.table("t")
    assert found is not None
    assert found.table == TABLE


def test_a_frequent_reader_of_the_registry_gets_new_records() -> None:
    client, gate = client_of(always)
    gate.register()
    client.tables()
    client.tables()
    gate.register(name="renamed")
    with mock.patch.object(table_registry, "_fold", wraps=table_registry._fold) as taken:
        assert client.tables()[TABLE].name == "renamed"
    assert taken.call_count == 1


def test_a_table_that_another_writer_is_creating_is_awaited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client, gate = client_of(always)
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            gate.register()

    monkeypatch.setattr(client.clock, "sleep", sleep)
    assert client.require(ROOT).table == TABLE
    assert len(slept) == 3


def test_a_table_that_is_not_registered_is_an_error_that_says_how_to_register_it() -> None:
    client, _ = client_of(always)
    with refused(
        InvalidRequest, "TableNotRegistered", match="tidegate table register file:///data/t"
    ):
        client.require("file:///data/t")


def test_a_cancel_names_the_proposal_that_is_given_up() -> None:
    client, gate = client_of(always)
    assert client.cancel(proposal()).version == 4
    sent = decode(Proposal, gate.sent[0][1])
    assert (sent.kind, sent.cancels, sent.read_version) == ("cancel", ID, 0)
    assert sent.proposal_id != ID


def denied(sent: Proposal, digest: str, advice: ClientAdvice) -> Outcome:
    why = Rejection(rule="table_halted", reason="table: it is halted", advice=advice)
    return rejected(sent, digest, why).model_copy(update={"status": "denied"})


def test_who_is_denied_by_what_may_pass_sends_the_same_bytes_again() -> None:
    def answers(sent: Proposal, digest: str) -> Iterable[Outcome]:
        yield denied(sent, digest, "retry") if len(gate.sent) < 4 else committed(sent, digest, 4)

    client, gate = client_of(answers)
    assert client.insist(proposal(), 60).version == 4
    assert len({value for _, value in gate.sent}) == 1
    assert len(gate.sent) == 4


def test_who_insists_hears_the_last_denial_when_his_time_is_over() -> None:
    client, gate = client_of(lambda sent, digest: [denied(sent, digest, "retry")])
    began_s = client.clock.boot_s()
    assert client.insist(proposal(), 20).status == "denied"
    assert client.clock.boot_s() - began_s <= 20
    assert 3 <= len(gate.sent) <= 6


def test_a_writer_with_a_misconfiguration_does_not_retry() -> None:
    client, gate = client_of(lambda sent, digest: [denied(sent, digest, "fix")])
    assert client.insist(proposal()).status == "denied"
    assert len(gate.sent) == 1


def test_a_rejection_is_raised_with_delta_sparks_exception_and_the_winner() -> None:
    client, _ = client_of(lambda sent, digest: [rejected(sent, digest, APPENDED)])
    with pytest.raises(Rejected) as raised:
        result(client.propose(proposal()))
    error = raised.value
    assert error.error_class == "ConcurrentAppendException"
    assert error.rule == "concurrent_append"
    for part in (
        "concurrent_append (ConcurrentAppendException)",
        "version 7",
        "b.parquet",
        "run the operation again",
    ):
        assert part in str(error)
    assert pickle.loads(pickle.dumps(error)).outcome == error.outcome


def test_denied_is_raised_too_and_expired_is_never_called_a_failure() -> None:
    outcome = committed(proposal(), "0" * 64)
    denied = outcome.model_copy(update={"status": "denied", "version": None})
    with pytest.raises(Rejected, match="was denied"):
        result(denied)
    with pytest.raises(OutcomeUnknown, match="was expired"):
        result(denied.model_copy(update={"status": "expired"}))
    assert result(outcome) is outcome


class Slow(Gate):
    """A bus whose brokers use up every timeout."""

    def partitions(self, topic: str, timeout_s: float = ANSWER_S) -> int:
        self.asked_s.append(timeout_s)
        raise Unavailable("no broker answers")

    asked_s: list[float]


class Away(Gate):
    """A bus that cannot read a topic's end before a set time."""

    back_s = 0.0
    clock = ManualClock()

    def reader(self) -> MemoryReader:
        return _AwayReader(self)


class _AwayReader(MemoryReader):
    def __init__(self, gate: Away) -> None:
        super().__init__(gate)
        self._gate = gate

    def bounds(
        self, topic_partition: TopicPartition, timeout_s: float = ANSWER_S
    ) -> tuple[Offset, Offset]:
        if self._gate.clock.at_s < self._gate.back_s:
            raise Unavailable("no broker answers")
        return super().bounds(topic_partition, timeout_s)


def away_for(seconds: float) -> tuple[Client, Away]:
    gate = Away(Topics(), always)
    gate.register()
    gate.clock = ManualClock()
    client = Client(gate, gate.topics, gate.clock)
    client.tables()
    gate.back_s = gate.clock.at_s + seconds
    return client, gate


def test_brokers_that_are_away_before_anything_is_sent_are_waited_for() -> None:
    client, gate = away_for(30.0)
    assert client.propose(proposal(), timeout_s=60.0).version == 4
    assert len(gate.sent) == 1


def test_brokers_that_stay_away_are_waited_for_until_the_writers_timeout() -> None:
    client, gate = away_for(30.0)
    began_s = gate.clock.at_s
    with pytest.raises(Unavailable):
        client.propose(proposal(), timeout_s=10.0)
    assert 8.0 <= gate.clock.at_s - began_s <= 11.0
    assert gate.sent == []


def test_the_registry_is_read_within_the_time_that_the_writer_has() -> None:
    gate = Slow(Topics(), always)
    gate.asked_s = []
    client = Client(gate, Topics(), ManualClock())
    with pytest.raises(Unavailable):
        client.propose(proposal(), timeout_s=2.0)
    with pytest.raises(Unavailable):
        client.require(ROOT, 3.0)
    with pytest.raises(Unavailable):
        client.propose(proposal(), timeout_s=600.0)
    assert gate.asked_s == pytest.approx([2.0, 3.0, ANSWER_S], abs=0.5)
