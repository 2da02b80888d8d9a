import pytest

from tests.fakes.memory_bus import MemoryBus, MemoryConsumer
from tidegate_delta.errors import Fenced, InvalidRequest, Misconfigured
from tidegate_messages.topics import Topic, Topics
from tidegate_runtime.kafka.client_protocols import Offset, Polled, TopicPartition

P0, P1 = TopicPartition("p", 0), TopicPartition("p", 1)


@pytest.fixture
def bus() -> MemoryBus:
    return MemoryBus({"p": 2})


def member(bus: MemoryBus) -> MemoryConsumer:
    return bus.consumer("g", ["p"])


def values(polled: Polled) -> list[bytes | None]:
    return [record.value for record in polled.records]


def fill(bus: MemoryBus, at: TopicPartition, count: int) -> None:
    for number in range(count):
        bus.append(at, None, str(number).encode())


def test_what_is_published_is_there_after_the_flush_and_not_before(bus: MemoryBus) -> None:
    producer = bus.producer()
    producer.publish(P0, b"k", b"v", (("h", b"1"),))
    assert bus.logs[P0] == []
    producer.flush(1.0)
    [record] = bus.logs[P0]
    assert (record.key, record.value, record.headers) == (b"k", b"v", (("h", b"1"),))


def test_a_producer_that_is_dropped_loses_its_queue(bus: MemoryBus) -> None:
    producer = bus.producer()
    for number in range(3):
        producer.publish(P0, None, str(number).encode())
    producer.deliver(1)
    assert [record.value for record in bus.logs[P0]] == [b"0"]
    assert len(producer.queued) == 2


def test_what_is_larger_than_its_topic_allows_is_refused() -> None:
    large = Topic("large", "", 1, "delete", -1, {"max.message.bytes": "2000000"})
    producer = MemoryBus([large, Topic("usual", "", 1, "delete", -1)]).producer()
    producer.publish(TopicPartition("large", 0), None, b"x" * 1_100_000)
    with pytest.raises(InvalidRequest, match="1100000 bytes"):
        producer.publish(TopicPartition("usual", 0), None, b"x" * 1_100_000)


def test_a_member_gets_its_partitions_then_their_records(bus: MemoryBus) -> None:
    fill(bus, P0, 2)
    one = member(bus)
    assert one.poll(10, 0.0) == Polled(assigned=(P0, P1))
    assert values(one.poll(10, 0.0)) == [b"0", b"1"]
    assert one.poll(10, 0.0) == Polled()


def test_a_poll_brings_no_more_than_it_was_asked_for(bus: MemoryBus) -> None:
    fill(bus, P0, 3)
    fill(bus, P1, 3)
    one = member(bus)
    one.poll(10, 0.0)
    assert [len(one.poll(4, 0.0).records) for _ in range(3)] == [4, 2, 0]


def test_a_group_begins_at_the_first_record_and_goes_on_from_what_it_committed(
    bus: MemoryBus,
) -> None:
    fill(bus, P0, 3)
    one = member(bus)
    one.poll(10, 0.0)
    assert one.committed(P0) is None
    one.commit({P0: Offset(2)})
    one.close()
    two = member(bus)
    two.poll(10, 0.0)
    assert two.committed(P0) == 2
    assert values(two.poll(10, 0.0)) == [b"2"]


def test_a_second_member_waits_until_the_first_has_polled(bus: MemoryBus) -> None:
    one, two = member(bus), member(bus)
    assert one.poll(10, 0.0).assigned == (P0, P1)
    assert two.poll(10, 0.0) == Polled()
    assert two.poll(10, 0.0) == Polled()
    assert one.poll(10, 0.0) == Polled(revoked=(P0, P1), assigned=(P0,))
    assert two.poll(10, 0.0) == Polled(assigned=(P1,))


def test_a_member_that_leaves_gives_its_share_to_the_others(bus: MemoryBus) -> None:
    one, two = member(bus), member(bus)
    one.poll(10, 0.0)
    two.poll(10, 0.0)
    one.poll(10, 0.0)
    two.poll(10, 0.0)
    one.close()
    assert two.poll(10, 0.0) == Polled(revoked=(P1,), assigned=(P0, P1))


def test_more_members_than_partitions_leave_the_last_without_one() -> None:
    bus = MemoryBus({"p": 1})
    one, two = member(bus), member(bus)
    one.poll(10, 0.0)
    two.poll(10, 0.0)
    one.poll(10, 0.0)
    assert two.poll(10, 0.0) == Polled()
    one.close()
    assert two.poll(10, 0.0).assigned == (P0,)


def test_an_expired_member_is_fenced_and_loses_its_partitions(bus: MemoryBus) -> None:
    zombie, successor = member(bus), member(bus)
    zombie.poll(10, 0.0)
    successor.poll(10, 0.0)
    bus.expire(zombie)
    assert successor.poll(10, 0.0).assigned == (P0, P1)
    with pytest.raises(Fenced):
        zombie.commit({P0: Offset(1)})
    assert bus.committed("g") == {}
    assert zombie.poll(10, 0.0) == Polled(lost=(P0, P1))
    assert zombie.poll(10, 0.0) == Polled()


def test_a_member_that_learned_of_a_rebalance_may_commit_until_it_has_ended(bus: MemoryBus) -> None:
    one, two, three = member(bus), member(bus), member(bus)
    one.poll(10, 0.0)
    two.poll(10, 0.0)
    one.poll(10, 0.0)
    two.poll(10, 0.0)
    three.poll(10, 0.0)
    assert one.poll(10, 0.0).revoked == (P0,)
    one.commit({P0: Offset(1)})
    two.poll(10, 0.0)
    with pytest.raises(Fenced):
        one.commit({P0: Offset(2)})
    assert bus.committed("g") == {P0: 1}


def test_a_member_that_never_joined_is_fenced(bus: MemoryBus) -> None:
    with pytest.raises(Fenced):
        member(bus).commit({P0: Offset(1)})


def test_a_paused_partition_is_kept_and_not_read(bus: MemoryBus) -> None:
    fill(bus, P0, 1)
    one = member(bus)
    one.poll(10, 0.0)
    one.pause(P0)
    assert one.poll(10, 0.0) == Polled()
    one.resume(P0)
    assert values(one.poll(10, 0.0)) == [b"0"]


def test_a_seek_reads_again(bus: MemoryBus) -> None:
    fill(bus, P0, 3)
    one = member(bus)
    one.poll(10, 0.0)
    one.poll(10, 0.0)
    one.seek(P0, Offset(1))
    assert values(one.poll(10, 0.0)) == [b"1", b"2"]
    with pytest.raises(ValueError, match="not assigned"):
        one.seek(TopicPartition("p", 7), Offset(0))


def test_offsets_that_expire_send_the_group_to_the_beginning(bus: MemoryBus) -> None:
    fill(bus, P0, 1)
    one = member(bus)
    one.poll(10, 0.0)
    one.commit({P0: Offset(1)})
    one.close()
    bus.drop_offsets("g")
    two = member(bus)
    two.poll(10, 0.0)
    assert values(two.poll(10, 0.0)) == [b"0"]


def test_offsets_that_are_set_back_are_read_again_by_the_next_owner(bus: MemoryBus) -> None:
    fill(bus, P0, 3)
    one = member(bus)
    one.poll(10, 0.0)
    one.commit({P0: Offset(3)})
    bus.rewind("g", P0, Offset(1))
    bus.rewind("g", P0, Offset(2))
    bus.rewind("nobody", P0, Offset(0))
    assert one.committed(P0) == 1
    one.close()
    two = member(bus)
    two.poll(10, 0.0)
    assert values(two.poll(10, 0.0)) == [b"1", b"2"]


def test_a_reader_reads_from_anywhere_without_a_group(bus: MemoryBus) -> None:
    fill(bus, P0, 3)
    reader = bus.reader()
    assert reader.bounds(P0) == (0, 3)
    assert [record.offset for record in reader.read(P0, Offset(1), 0.0)] == [1, 2]
    assert reader.read(P0, Offset(3), 0.0) == ()


def test_a_missing_topic_is_reported_with_the_remedy(bus: MemoryBus) -> None:
    missing = TopicPartition("q", 0)
    for ask in (
        lambda: bus.partitions("q"),
        lambda: bus.producer().publish(missing, None, b""),
        lambda: bus.producer().publish(TopicPartition("p", 2), None, b""),
        lambda: bus.reader().bounds(missing),
        lambda: bus.consumer("g", ["q"]).poll(1, 0.0),
    ):
        with pytest.raises(Misconfigured):
            ask()


def test_a_topic_made_again_is_another_log() -> None:
    bus = MemoryBus({"p": 1})
    before = bus.identity(["p"])
    fill(bus, P0, 1)
    bus.create_topic("p", 1)
    assert bus.logs[P0] == []
    assert bus.identity(["p"]).topic_ids != before.topic_ids
    assert bus.identity(["p"]).cluster_id == before.cluster_id


def test_a_topic_made_again_begins_from_its_first_record_for_every_member() -> None:
    bus = MemoryBus({"p": 1})
    fill(bus, P0, 3)
    one = member(bus)
    one.poll(10, 0.0)
    one.commit({P0: Offset(3)})
    bus.create_topic("p", 1)
    assert bus.committed("g") == {}
    one.seek(P0, Offset(3))
    fill(bus, P0, 1)
    assert values(one.poll(10, 0.0)) == [b"0"], "nobody tells a member, as nobody does in Kafka"


def test_an_offset_past_the_end_sends_the_group_to_the_beginning(bus: MemoryBus) -> None:
    one = member(bus)
    one.poll(10, 0.0)
    one.commit({P0: Offset(7)})
    one.close()
    fill(bus, P0, 2)
    two = member(bus)
    assert two.poll(10, 0.0).assigned[0] == P0
    assert values(two.poll(10, 0.0)) == [b"0", b"1"]


def test_a_partition_that_is_added_is_shared_out() -> None:
    bus = MemoryBus({"p": 1})
    one = member(bus)
    one.poll(10, 0.0)
    bus.add_partition("p")
    wider = (P0, TopicPartition("p", 1))
    assert one.poll(10, 0.0) == Polled(revoked=(P0,), assigned=wider)


def test_it_is_made_from_declared_topics() -> None:
    topics = Topics("x.", 3)
    bus = MemoryBus(topics.declared())
    assert bus.partitions("x.proposals") == 3
    assert bus.partitions("x.dead-letters") == 1


def test_records_carry_the_time_of_the_clock_it_is_given() -> None:
    bus = MemoryBus({"p": 1}, now_ms=lambda: 42)
    bus.append(P0, None, b"")
    assert bus.logs[P0][0].timestamp_ms == 42


def test_a_member_is_one_from_its_first_assignment_until_it_hears_that_it_is_none() -> None:
    bus = MemoryBus({"p": 1})
    first, second = member(bus), member(bus)
    assert not first.is_member
    first.poll(10, 0.0)
    assert first.is_member
    second.poll(10, 0.0)
    assert not second.is_member, "the other one has not given up its share yet"
    first.poll(10, 0.0)
    assert second.poll(10, 0.0) == Polled()
    assert second.is_member, "with no partition, and a member all the same"
    bus.expire(first)
    first.poll(10, 0.0)
    assert not first.is_member


def test_a_note_travels_with_an_offset_and_goes_with_the_next_one(bus: MemoryBus) -> None:
    one = member(bus)
    one.poll(10, 0.0)
    assert one.noted(P0) == (None, "")
    one.commit({P0: Offset(1), P1: Offset(2)}, {P0: "a"})
    assert (one.noted(P0), one.noted(P1)) == ((1, "a"), (2, ""))
    one.commit({P0: Offset(1)})
    assert one.noted(P0) == (1, "")


def test_who_lives_leaves_a_note_at_a_rebalance_and_who_is_expired_does_not(bus: MemoryBus) -> None:
    one, two = member(bus), member(bus)
    one.poll(10, 0.0)
    one.commit({P0: Offset(0), P1: Offset(0)}, {P0: "mine", P1: "mine"})
    one.note_on_revoke(P1, "gone")
    two.poll(10, 0.0)
    one.poll(10, 0.0)
    two.poll(10, 0.0)
    assert (one.noted(P0)[1], two.noted(P1)[1]) == ("mine", "gone")
    two.commit({P1: Offset(0)}, {P1: "theirs"})
    two.note_on_revoke(P1, "gone")
    bus.expire(two)
    one.poll(10, 0.0)
    assert one.noted(P1) == (0, "theirs")
