"""The registry is the content of the table-state topic, read to its end."""

import time
from collections.abc import Sequence
from typing import NoReturn
from unittest import mock
from uuid import UUID

import pytest

from tests.fakes.memory_bus import MemoryBus
from tests.fakes.memory_clients import MemoryReader
from tidegate_delta.errors import InvalidRequest, Unavailable
from tidegate_messages.codec import encode, headers
from tidegate_messages.published_records import TableRecord
from tidegate_messages.topics import Topics
from tidegate_runtime import table_registry
from tidegate_runtime.kafka.client_protocols import ANSWER_S, Offset, Record, TopicPartition
from tidegate_runtime.table_registry import FOLLOWED_S, RegistryReader, find_table, read_registry

TOPICS = Topics(partitions=3)


def table(number: int, name: str = "", published_through: int = -1) -> TableRecord:
    return TableRecord(
        table=UUID(int=number),
        table_root=f"file:///lake/{number}",
        name=name or f"t{number}",
        proposals_topic=TOPICS.proposals,
        topic_partition=number % 3,
        published_through=published_through,
    )


@pytest.fixture
def bus() -> MemoryBus:
    return MemoryBus(TOPICS.declared())


def publish(bus: MemoryBus, *records: TableRecord) -> None:
    producer = bus.producer()
    for record in records:
        topic_partition = TopicPartition(TOPICS.table_state, record.topic_partition)
        producer.publish(
            topic_partition, str(record.table).encode(), encode(record), headers(record)
        )
    producer.flush(1)


def test_an_empty_topic_is_an_empty_registry(bus: MemoryBus) -> None:
    assert read_registry(bus, TOPICS) == {}


def test_the_last_record_of_each_table_counts_on_every_topic_partition(bus: MemoryBus) -> None:
    publish(bus, table(1), table(2), table(3), table(1, published_through=7))
    result = read_registry(bus, TOPICS)
    assert {key.int: record.published_through for key, record in result.items()} == {
        1: 7,
        2: -1,
        3: -1,
    }


@pytest.mark.parametrize(
    ("then", "now"),
    [
        ("abfss://c@a.blob.core.windows.net/t", "abfss://c@a.dfs.core.windows.net/t"),
        ("file:///lake/sp ace#ü", "file:///lake/sp%20ace%23%C3%BC"),
        ("s3://lake/sp ace", "s3://lake/sp%20ace"),
    ],
)
def test_a_root_that_an_earlier_release_spelled_otherwise_is_found(
    bus: MemoryBus, then: str, now: str
) -> None:
    publish(bus, table(1).model_copy(update={"table_root": then}))
    result = read_registry(bus, TOPICS)
    assert [record.table_root for record in result.values()] == [now]
    assert find_table(result, then) is find_table(result, now) is not None


def test_a_tombstone_takes_a_table_out(bus: MemoryBus) -> None:
    publish(bus, table(1), table(2))
    topic_partition = TopicPartition(TOPICS.table_state, 1)
    producer = bus.producer()
    producer.publish(topic_partition, str(UUID(int=1)).encode(), None)
    producer.flush(1)
    assert list(read_registry(bus, TOPICS)) == [UUID(int=2)]


@pytest.mark.parametrize("key", [b"sales", b"\xff", b"", None])
def test_a_tombstone_under_no_tables_id_takes_out_none(bus: MemoryBus, key: bytes | None) -> None:
    publish(bus, table(1))
    bus.append(TopicPartition(TOPICS.table_state, 1), key, None)
    assert list(read_registry(bus, TOPICS)) == [UUID(int=1)]


def test_a_record_that_cannot_be_read_hides_no_other(bus: MemoryBus) -> None:
    producer = bus.producer()
    producer.publish(TopicPartition(TOPICS.table_state, 0), b"k", b"{")
    producer.flush(1)
    publish(bus, table(3))
    assert list(read_registry(bus, TOPICS)) == [UUID(int=3)]


def test_a_record_of_a_newer_format_is_not_read_as_one_of_ours(
    bus: MemoryBus, caplog: pytest.LogCaptureFixture
) -> None:
    publish(bus, table(3))
    newer = encode(table(3, name="other"))
    bus.append(TopicPartition(TOPICS.table_state, 0), b"k", newer, (("format", b"table/2"),))
    assert read_registry(bus, TOPICS)[UUID(int=3)].name == "t3"
    assert "table/2" in caplog.text


@pytest.mark.parametrize("asked", ["t2", "file:///lake/2", "/lake/2", "/lake/2/", str(UUID(int=2))])
def test_a_table_is_found_by_name_root_and_id(asked: str) -> None:
    registry = {UUID(int=n): table(n) for n in (1, 2)}
    result = find_table(registry, asked)
    assert result is not None
    assert result.table.int == 2


def test_what_is_not_registered_is_not_found() -> None:
    assert find_table({UUID(int=1): table(1)}, "t9") is None


def test_a_name_of_several_tables_is_refused_with_their_roots() -> None:
    registry = {UUID(int=n): table(n, "same") for n in (1, 2)}
    with pytest.raises(InvalidRequest, match="file:///lake/1, file:///lake/2"):
        find_table(registry, "same")
    assert find_table(registry, "/lake/1") == registry[UUID(int=1)]


class Hurried(MemoryBus):
    """A bus that records the timeouts it is given."""

    asked_s: list[float]

    def partitions(self, topic: str, timeout_s: float = ANSWER_S) -> int:
        self.asked_s.append(timeout_s)
        return super().partitions(topic, timeout_s)


def test_a_name_is_that_of_the_table_that_is_there() -> None:
    gone = table(1, "shop").model_copy(update={"status": "dropped"})
    there = table(2, "shop")
    both = {item.table: item for item in (gone, there)}
    assert find_table(both, "shop") == there
    moved = there.model_copy(update={"table_root": gone.table_root})
    assert find_table({**both, moved.table: moved}, gone.table_root) == moved
    assert find_table({gone.table: gone}, "shop") == gone


def test_the_caller_sets_the_timeout_of_the_brokers() -> None:
    bus = Hurried(TOPICS.declared())
    bus.asked_s = []
    read_registry(bus, TOPICS, 2.5)
    assert 2.0 < bus.asked_s[0] <= 2.5


class Mute(MemoryBus):
    """A bus whose topic has records that never arrive."""

    def reader(self) -> MemoryReader:
        return MuteReader(self)


class MuteReader(MemoryReader):
    def read(
        self, topic_partition: TopicPartition, start: Offset, timeout_s: float
    ) -> tuple[Record, ...]:
        return ()


class HalfMuteReader(MemoryReader):
    """One partition answers every read, another one never does."""

    def bounds(
        self, topic_partition: TopicPartition, timeout_s: float = ANSWER_S
    ) -> tuple[Offset, Offset]:
        return Offset(0), Offset(1)

    def read(
        self, topic_partition: TopicPartition, start: Offset, timeout_s: float
    ) -> tuple[Record, ...]:
        said = encode(table(topic_partition.partition))
        return (
            () if topic_partition.partition == 1 else (Record(topic_partition, start, b"k", said),)
        )


def test_who_goes_on_talking_does_not_hide_who_is_mute() -> None:
    bus = MemoryBus(TOPICS.declared())
    with (
        mock.patch.object(bus, "reader", return_value=HalfMuteReader(bus)),
        pytest.raises(Unavailable, match="/1 gave nothing from 0 to 1"),
    ):
        read_registry(bus, TOPICS, 0.01)


def test_all_topic_partitions_are_read_at_once() -> None:
    bus = MemoryBus(TOPICS.declared())
    publish(bus, table(1), table(2), table(3))
    reader = MemoryReader(bus)
    with (
        mock.patch.object(bus, "reader", return_value=reader),
        mock.patch.object(reader, "read_several", wraps=reader.read_several) as asked,
    ):
        assert len(read_registry(bus, TOPICS)) == 3
    assert asked.call_count == 1


def test_records_that_do_not_come_in_time_are_unavailable() -> None:
    bus = Mute(TOPICS.declared())
    publish(bus, table(1))
    with pytest.raises(Unavailable, match="gave nothing from 0 to 1"):
        read_registry(bus, TOPICS, 0.0)


class Counted(MemoryBus):
    """A bus that counts the records that are read from it."""

    read = 0

    def reader(self) -> MemoryReader:
        return CountedReader(self)


class CountedReader(MemoryReader):
    def read(
        self, topic_partition: TopicPartition, start: Offset, timeout_s: float
    ) -> Sequence[Record]:
        records = super().read(topic_partition, start, timeout_s)
        assert isinstance(self._bus, Counted)
        self._bus.read += len(records)
        return records


def test_a_second_read_returns_new_records() -> None:
    bus = Counted(TOPICS.declared())
    registry = RegistryReader(bus, TOPICS)
    publish(bus, *(table(1) for _ in range(50)), table(2))
    assert registry.read() == read_registry(bus, TOPICS)
    bus.read = 0
    publish(bus, table(3), table(2, "renamed"))
    result = registry.read()
    assert bus.read == 2
    assert result == read_registry(bus, TOPICS)
    bus.append(TopicPartition(TOPICS.table_state, 2), str(UUID(int=2)).encode(), None)
    assert registry.read() == read_registry(bus, TOPICS)
    bus.read = 0
    assert len(registry.read()) == 2
    assert bus.read == 0


def test_each_caller_gets_its_own_copy() -> None:
    bus = MemoryBus(TOPICS.declared())
    registry = RegistryReader(bus, TOPICS)
    publish(bus, table(1))
    registry.read().clear()
    assert list(registry.read()) == [UUID(int=1)]


@pytest.mark.parametrize("count", [1, 3])
def test_a_topic_that_was_made_anew_is_read_from_its_beginning(count: int) -> None:
    bus = MemoryBus(TOPICS.declared())
    registry = RegistryReader(bus, TOPICS)
    publish(bus, table(1), table(2))
    registry.read()
    bus.create_topic(TOPICS.table_state, TOPICS.partitions)
    publish(bus, *(table(7 + number) for number in range(count)))
    assert set(registry.read()) == {UUID(int=7 + number) for number in range(count)}


def test_a_topic_that_was_brought_from_a_copy_is_read_from_its_beginning() -> None:
    bus = MemoryBus(TOPICS.declared())
    registry = RegistryReader(bus, TOPICS)
    publish(bus, table(3), table(6))
    registry.read()
    del bus.logs[TopicPartition(TOPICS.table_state, 0)][1:]
    assert list(registry.read()) == [UUID(int=3)]


def test_after_a_failure_and_after_a_long_time_all_is_read_anew() -> None:
    bus = Counted(TOPICS.declared())
    registry = RegistryReader(bus, TOPICS)
    publish(bus, table(1), table(2))
    registry.read()
    publish(bus, table(3))
    with mock.patch.object(CountedReader, "read", return_value=()), pytest.raises(Unavailable):
        registry.read(0.0)
    bus.read = 0
    assert len(registry.read()) == 3
    assert bus.read == 3
    bus.read = 0
    later_s = time.monotonic() + FOLLOWED_S + 1
    with mock.patch("tidegate_runtime.table_registry.time.monotonic", return_value=later_s):
        assert len(registry.read()) == 3
    assert bus.read == 3


@pytest.mark.usefixtures("contained")
def test_a_record_over_which_its_reader_fails_is_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> NoReturn:
        raise RecursionError("too deep")

    record = Record(TopicPartition("t", 0), Offset(0), None, b"{}")
    monkeypatch.setattr(table_registry, "decode", fail)
    assert table_registry.read_message(TableRecord, record) is None
