"""The bus on a real broker: groups, positions, rebalances, failures, ids."""

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from tidegate_delta.errors import (
    InvalidRequest,
    Misconfigured,
    OutcomeUnknown,
    TidegateError,
    Unavailable,
)
from tidegate_local.embedded_kafka import EmbeddedKafka
from tidegate_runtime.kafka.client_protocols import Consumer, Offset, Polled, Record, TopicPartition
from tidegate_runtime.kafka.confluent_bus import KafkaBus
from tidegate_runtime.kafka.settings import KafkaSettings
from tidegate_runtime.kafka.topic_admin import create_topics
from tidegate_runtime.table_registry import newest_values

PATIENCE_S = 20.0
ZOMBIE = Path(__file__).parent / "zombie_program.py"


@pytest.fixture
def settings(kafka: KafkaSettings) -> KafkaSettings:
    """Return settings with two partitions instead of one."""
    wide = kafka.model_copy(update={"partitions": 2, "topic_prefix": f"b{secrets.token_hex(4)}."})
    create_topics(wide, wide.topics.declared())
    return wide


@pytest.fixture
def topic(settings: KafkaSettings) -> str:
    return settings.topics.proposals


@pytest.fixture
def bus(settings: KafkaSettings) -> KafkaBus:
    return KafkaBus(settings, "test")


@pytest.fixture
def member(bus: KafkaBus, topic: str) -> Iterator[Callable[[], Consumer]]:
    members: list[Consumer] = []

    def join() -> Consumer:
        members.append(bus.consumer("g", [topic]))
        return members[-1]

    yield join
    for each in members:
        each.close()


def poll_until(consumer: Consumer, done: Callable[[Polled], bool], *others: Consumer) -> Polled:
    """Poll until the result is as expected; the others poll too, so that they rejoin."""
    ends = time.monotonic() + PATIENCE_S
    while time.monotonic() < ends:
        polled = consumer.poll(100, 0.1)
        if done(polled):
            return polled
        for other in others:
            other.poll(100, 0.05)
    raise AssertionError("it did not come")


def was_assigned(polled: Polled) -> bool:
    return bool(polled.assigned)


def joined(member: Callable[[], Consumer]) -> Consumer:
    """Return a member that has its partitions assigned."""
    one = member()
    poll_until(one, was_assigned)
    return one


def had_records(polled: Polled) -> bool:
    return bool(polled.records)


def publish(bus: KafkaBus, at: TopicPartition, count: int) -> None:
    producer = bus.producer()
    for number in range(count):
        producer.publish(at, b"k", str(number).encode(), (("h", b"x"),))
    producer.flush(PATIENCE_S)
    producer.close()


def read_all(consumer: Consumer, count: int) -> list[Record]:
    read: list[Record] = []
    while len(read) < count:
        read += poll_until(consumer, had_records).records
    return read


def test_records_come_as_they_went(
    bus: KafkaBus, topic: str, member: Callable[[], Consumer]
) -> None:
    at = TopicPartition(topic, 1)
    producer = bus.producer()
    producer.publish(at, b"k", b"v", (("format", b"proposal/1"), ("empty", b"")))
    producer.publish(at, None, None)
    producer.flush(PATIENCE_S)
    one = joined(member)
    full, tombstone = read_all(one, 2)
    assert (full.at, full.offset, full.key, full.value) == (at, 0, b"k", b"v")
    assert full.headers == (("format", b"proposal/1"), ("empty", b""))
    assert full.timestamp_ms > 0
    assert (tombstone.offset, tombstone.key, tombstone.value) == (1, None, None)


def test_an_assignment_comes_before_its_records(
    bus: KafkaBus, topic: str, member: Callable[[], Consumer]
) -> None:
    publish(bus, TopicPartition(topic, 0), 3)
    one = member()
    first = poll_until(one, lambda polled: polled != Polled())
    assert first == Polled(assigned=(TopicPartition(topic, 0), TopicPartition(topic, 1)))
    assert [record.offset for record in read_all(one, 3)] == [0, 1, 2]


def test_a_group_goes_on_from_what_it_committed(
    bus: KafkaBus, topic: str, member: Callable[[], Consumer]
) -> None:
    at = TopicPartition(topic, 0)
    publish(bus, at, 5)
    one = joined(member)
    assert one.committed(at) is None
    read_all(one, 5)
    one.commit({at: Offset(3)})
    one.close()
    two = bus.consumer("g", [topic])
    poll_until(two, was_assigned)
    assert two.committed(at) == 3
    assert [record.offset for record in read_all(two, 2)] == [3, 4]
    two.close()


def test_a_note_travels_with_an_offset_and_goes_with_the_next_one(
    bus: KafkaBus, topic: str, member: Callable[[], Consumer]
) -> None:
    at = TopicPartition(topic, 0)
    publish(bus, at, 1)
    one = joined(member)
    assert one.noted(at) == (None, "")
    one.commit({at: Offset(1)}, {at: '{"owner":"me"}'})
    assert one.noted(at) == (1, '{"owner":"me"}')
    one.commit({at: Offset(1)})
    assert one.noted(at) == (1, "")


def test_who_lives_leaves_a_note_at_a_rebalance(topic: str, member: Callable[[], Consumer]) -> None:
    one, two = member(), member()
    both = poll_until(one, was_assigned).assigned
    one.commit(dict.fromkeys(both, Offset(0)), dict.fromkeys(both, "mine"))
    for at in both:
        one.note_on_revoke(at, "gone")
    [moved] = poll_until(two, was_assigned, one).assigned
    assert {at: two.noted(at)[1] for at in both} == {**dict.fromkeys(both, "mine"), moved: "gone"}


def test_offsets_are_recorded_soon_and_a_failure_is_raised_by_the_next_call(
    bus: KafkaBus, topic: str, member: Callable[[], Consumer]
) -> None:
    at = TopicPartition(topic, 0)
    one = joined(member)
    one.commit_soon({at: Offset(3)})
    ends = time.monotonic() + PATIENCE_S
    while one.committed(at) != 3:
        assert time.monotonic() < ends, "it is recorded"
    one.commit_soon({TopicPartition("nowhere", 0): Offset(1)})

    def poll_on() -> None:
        while time.monotonic() < ends:
            one.poll(1, 0.05)
            one.commit_soon({})

    with pytest.raises(TidegateError, match="commit the position of group 'g'"):
        poll_on()
    one.commit_soon({at: Offset(4)})


def test_a_seek_right_after_the_assignment_holds(
    bus: KafkaBus, topic: str, member: Callable[[], Consumer]
) -> None:
    at = TopicPartition(topic, 0)
    publish(bus, at, 5)
    one = joined(member)
    one.seek(at, Offset(4))
    assert [record.offset for record in read_all(one, 1)] == [4]
    one.seek(at, Offset(2))
    assert [record.offset for record in read_all(one, 3)] == [2, 3, 4]


def test_a_paused_partition_waits_and_then_goes_on_where_it_was(
    bus: KafkaBus, topic: str, member: Callable[[], Consumer]
) -> None:
    at, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    publish(bus, at, 2)
    one = joined(member)
    read_all(one, 2)
    one.pause(at)
    publish(bus, at, 2)
    publish(bus, other, 1)
    assert {record.at for record in read_all(one, 1)} == {other}
    assert one.poll(100, 0.5) == Polled()
    one.resume(at)
    assert [record.offset for record in read_all(one, 2)] == [2, 3]


@dataclass(eq=False)
class Holder:
    """A member's partitions, its records, and the partitions it lost, over all of its polls."""

    consumer: Consumer
    held: set[TopicPartition] = field(default_factory=set)
    revoked: list[TopicPartition] = field(default_factory=list)
    read: set[TopicPartition] = field(default_factory=set)

    def poll(self) -> None:
        polled = self.consumer.poll(100, 0.05)
        self.held -= {*polled.revoked, *polled.lost}
        self.held |= {*polled.assigned}
        self.revoked += polled.revoked
        self.read |= {record.at for record in polled.records}


def poll_until_held(holders: Mapping[Holder, int]) -> None:
    """Poll all members in turn until each holds the expected number of partitions."""
    ends = time.monotonic() + PATIENCE_S
    while any(len(holder.held) != count for holder, count in holders.items()):
        assert time.monotonic() < ends, "the partitions were not shared out so"
        for holder in holders:
            holder.poll()


def test_what_was_paused_is_read_by_who_gets_it_back(
    bus: KafkaBus, topic: str, member: Callable[[], Consumer]
) -> None:
    one, two = Holder(member()), Holder(member())
    poll_until_held({one: 2})
    for at in one.held:
        one.consumer.pause(at)
        publish(bus, at, 1)
    poll_until_held({one: 1, two: 1})
    moved = {*two.held}
    two.consumer.close()
    poll_until_held({one: 2})
    ends = time.monotonic() + PATIENCE_S
    while not moved <= one.read:
        assert time.monotonic() < ends, "it stays paused for good"
        one.poll()


def test_members_share_and_inherit(topic: str, member: Callable[[], Consumer]) -> None:
    one, two = Holder(member()), Holder(member())
    poll_until_held({one: 2})
    poll_until_held({one: 1, two: 1})
    assert not one.held & two.held
    assert {*one.revoked} == two.held, "only what another gets is taken"
    two.consumer.close()
    poll_until_held({one: 2})
    assert len(one.revoked) == 1, "what it holds stays with it"


def test_who_stays_reads_on_while_a_dead_member_times_out_and_another_joins(
    settings: KafkaSettings, bus: KafkaBus, topic: str, member: Callable[[], Consumer]
) -> None:
    one = Holder(member())
    poll_until_held({one: 2})
    argv = [sys.executable, str(ZOMBIE), settings.bootstrap_servers, topic, "g"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as doomed:
        poll_until_held({one: 1})
        doomed.kill()
    [kept], gone = {*one.held}, {*one.revoked}
    publish(bus, kept, 1)
    three = Holder(member())
    poll_until_held({one: 1, three: 1})
    assert (one.held, {*one.revoked}, three.held) == ({kept}, gone, gone)
    one.poll()
    assert one.read == {kept}


def test_an_open_transaction_hides_what_is_behind_it_and_is_seen(
    settings: KafkaSettings, bus: KafkaBus, topic: str, member: Callable[[], Consumer]
) -> None:
    at = TopicPartition(topic, 0)
    consumer = joined(member)
    publish(bus, at, 2)
    read_all(consumer, 2)
    assert consumer.held_back == {}
    servers = {"bootstrap.servers": settings.bootstrap_servers}
    writer = Producer({**servers, "transactional.id": f"{topic}.w"})
    writer.init_transactions(PATIENCE_S)
    for is_committed in (False, True):
        writer.begin_transaction()
        writer.produce(topic, b"of a transaction", partition=0)
        writer.flush(PATIENCE_S)
        publish(bus, at, 3)
        hidden = poll_until(consumer, lambda _: bool(consumer.held_back))
        assert not hidden.records
        poll_until(consumer, lambda _: consumer.held_back[at].offsets == 4)
        if is_committed:
            writer.commit_transaction(PATIENCE_S)
        else:
            writer.abort_transaction(PATIENCE_S)
        read = read_all(consumer, 4 if is_committed else 3)
        assert (b"of a transaction" in [record.value for record in read]) == is_committed
        poll_until(consumer, lambda _: consumer.held_back == {})


def test_a_zombie_is_fenced_and_its_successor_has_the_partition(
    settings: KafkaSettings, bus: KafkaBus, topic: str, member: Callable[[], Consumer]
) -> None:
    at = TopicPartition(topic, 0)
    argv = [sys.executable, str(ZOMBIE), settings.bootstrap_servers, topic, "g"]
    zombie = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert zombie.stdout is not None
        assert zombie.stdin is not None
        assert zombie.stdout.readline() == "assigned\n"
        os.kill(zombie.pid, signal.SIGSTOP)
        successor = member()
        assert len(poll_until(successor, was_assigned).assigned) == 2
        successor.commit({at: Offset(1)})
        zombie.stdin.write("go\n")
        zombie.stdin.flush()
        os.kill(zombie.pid, signal.SIGCONT)
        assert zombie.stdout.readline() in ("Fenced\n", "Unavailable\n")
        assert successor.committed(at) == 1
    finally:
        zombie.kill()
        zombie.wait()


def test_a_reader_reads_from_anywhere_and_waits_for_more(bus: KafkaBus, topic: str) -> None:
    at = TopicPartition(topic, 0)
    publish(bus, at, 3)
    reader = bus.reader()
    assert reader.bounds(at) == (0, 3)
    assert reader.bounds(TopicPartition(topic, 1)) == (0, 0)
    assert [record.value for record in reader.read(at, Offset(1), PATIENCE_S)] == [b"1", b"2"]
    assert list(reader.read(at, Offset(3), 0.2)) == []
    publish(bus, at, 1)
    assert [record.offset for record in reader.read(at, Offset(3), PATIENCE_S)] == [3]
    assert [record.offset for record in reader.read(at, Offset(0), PATIENCE_S)][:1] == [0]
    reader.close()


def test_a_topic_that_ends_with_a_transaction_is_read_to_its_end(
    settings: KafkaSettings, bus: KafkaBus
) -> None:
    at = TopicPartition(settings.topics.cdc_positions, 0)
    producer = Producer(
        {"bootstrap.servers": settings.bootstrap_servers, "transactional.id": settings.topic_prefix}
    )
    producer.init_transactions(PATIENCE_S)
    for value in (b"first", b"last"):
        producer.begin_transaction()
        producer.produce(at.topic, value, b"table", at.partition)
        producer.commit_transaction(PATIENCE_S)
    reader = bus.reader()
    assert reader.bounds(at) == (0, 4), "each transaction ends with a marker"
    reader.close()
    newest = newest_values(bus, at, PATIENCE_S)
    assert {key: record.value for key, record in newest.items()} == {b"table": b"last"}


def test_many_partitions_are_read_in_the_time_of_one(kafka: KafkaSettings) -> None:
    wide = kafka.model_copy(update={"partitions": 40, "topic_prefix": f"w{secrets.token_hex(4)}."})
    create_topics(wide, wide.topics.declared())
    bus, topic = KafkaBus(wide, "test"), wide.topics.table_state
    everywhere = [TopicPartition(topic, number) for number in range(40)]
    for at in everywhere:
        publish(bus, at, 2)
    reader, starts = bus.reader(), dict.fromkeys(everywhere, Offset(1))
    read: list[Record] = []
    began = time.monotonic()
    for at in everywhere:
        assert reader.read(at, Offset(1), PATIENCE_S)
    one_by_one_s = time.monotonic() - began
    began = time.monotonic()
    while len(read) < len(everywhere) and time.monotonic() < began + PATIENCE_S:
        result = reader.read_several(starts, 1.0)
        starts |= {record.at: Offset(record.offset + 1) for record in result}
        read += result
    # One by one, each waits for the fetch before it: a tenth of a second each.
    assert time.monotonic() - began < one_by_one_s / 2
    assert sorted((record.at, record.value) for record in read) == [(at, b"1") for at in everywhere]
    reader.close()


def test_a_start_beyond_the_end_brings_nothing_older(bus: KafkaBus, topic: str) -> None:
    at = TopicPartition(topic, 0)
    publish(bus, at, 2)
    reader = bus.reader()
    assert list(reader.read(at, Offset(10), 1.0)) == []
    reader.close()


def test_a_record_that_is_too_large_is_the_callers_fault(bus: KafkaBus, topic: str) -> None:
    producer = bus.producer()
    with pytest.raises(InvalidRequest) as raised:
        producer.publish(TopicPartition(topic, 0), None, b"x" * (5 * 1024 * 1024))
    assert raised.value.error_class == "RecordTooLarge"
    producer.publish(TopicPartition(topic, 0), None, b"x" * (3 * 1024 * 1024))
    producer.flush(PATIENCE_S)
    producer.close()


def test_a_record_larger_than_its_topic_allows_fails_in_the_flush(
    settings: KafkaSettings, bus: KafkaBus
) -> None:
    producer = bus.producer()
    producer.publish(TopicPartition(settings.topics.commits, 0), None, b"x" * (2 * 1024 * 1024))
    with pytest.raises(InvalidRequest):
        producer.flush(PATIENCE_S)
    producer.close()


def test_a_missing_topic_is_reported_with_the_remedy(bus: KafkaBus) -> None:
    missing = TopicPartition("not-there", 0)
    producer, reader, consumer = bus.producer(), bus.reader(), bus.consumer("g", ["not-there"])
    producer.publish(missing, None, b"")
    for ask in (
        lambda: bus.partitions("not-there"),
        lambda: bus.identity(["not-there"]),
        lambda: producer.flush(PATIENCE_S),
        lambda: reader.bounds(missing),
        lambda: poll_until(consumer, had_records),
    ):
        with pytest.raises(Misconfigured, match="tidegate topics apply"):
            ask()
    consumer.close()
    reader.close()


def test_topics_are_known_by_their_ids(settings: KafkaSettings, bus: KafkaBus, topic: str) -> None:
    asked = [topic, settings.topics.commits]
    first = bus.identity(asked)
    assert first == KafkaBus(settings, "another").identity(asked)
    assert len(first.cluster_id) == 22
    assert all(len(topic_id) == 22 for topic_id in first.topic_ids.values())
    assert len(set(first.topic_ids.values())) == 2
    assert bus.partitions(topic) == 2


def make_again(settings: KafkaSettings, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": settings.bootstrap_servers})
    admin.delete_topics([topic])[topic].result(PATIENCE_S)
    ends = time.monotonic() + PATIENCE_S
    while not create_topics(settings, settings.topics.declared()):
        assert time.monotonic() < ends, "it can be made again"
        time.sleep(0.1)


def test_a_member_reads_a_recreated_topic_from_its_start(
    settings: KafkaSettings, bus: KafkaBus, topic: str, member: Callable[[], Consumer]
) -> None:
    at = TopicPartition(topic, 0)
    publish(bus, at, 3)
    one = joined(member)
    read_all(one, 3)
    make_again(settings, topic)
    publish(bus, at, 1)
    polled = poll_until(one, lambda polled: polled != Polled())
    assert [record.offset for record in polled.records] == [0]


def test_a_topic_made_again_is_another(settings: KafkaSettings, bus: KafkaBus, topic: str) -> None:
    before = bus.identity([topic])
    make_again(settings, topic)
    after = KafkaBus(settings, "test").identity([topic])
    assert after.cluster_id == before.cluster_id
    assert after.topic_ids != before.topic_ids


def test_when_the_broker_dies_what_was_sent_is_unknown_and_requests_are_unavailable(
    tmp_path: Path,
) -> None:
    with EmbeddedKafka(tmp_path / "kafka") as broker:
        settings = KafkaSettings(bootstrap_servers=broker.bootstrap, session_timeout_ms=2_000)
        create_topics(settings, settings.topics.declared())
        bus = KafkaBus(settings, "test")
        at = TopicPartition(settings.topics.proposals, 0)
        consumer, producer = bus.consumer("g", [at.topic]), bus.producer()
        poll_until(consumer, was_assigned)
        producer.publish(at, None, b"1")
        producer.flush(PATIENCE_S)
        broker.kill()
        producer.publish(at, None, b"2")
        with pytest.raises(OutcomeUnknown):
            producer.flush(1.0)
        with pytest.raises(Unavailable):
            consumer.commit({at: Offset(1)})
        assert poll_until(consumer, lambda polled: bool(polled.lost)).lost == (at,)
        consumer.close()
