"""A group member knows its membership from the library's rebalance callbacks."""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any, cast
from unittest import mock

import pytest
from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as RdPartition
from confluent_kafka.admin import AdminClient

from tidegate_delta.errors import Fenced, Misconfigured, Unavailable
from tidegate_runtime.kafka import consumer as kafka_reader
from tidegate_runtime.kafka.client_protocols import Offset, TopicPartition
from tidegate_runtime.kafka.consumer import KafkaConsumer, KafkaReader
from tidegate_runtime.kafka.librdkafka import EARLIEST

HERE = [RdPartition("t", 0)]
AT = TopicPartition("t", 0)
UNKNOWN_MEMBER = KafkaError(KafkaError.UNKNOWN_MEMBER_ID)


@pytest.fixture
def consumer() -> Iterator[KafkaConsumer]:
    alone = KafkaConsumer({"bootstrap.servers": "localhost:1", "group.id": "g"}, "g", ["t"])
    yield alone
    alone.close()


def test_who_has_given_up_its_share_is_a_member_once_the_group_lets_it_in_again(
    consumer: KafkaConsumer,
) -> None:
    library = mock.Mock()
    assert not consumer.is_member
    consumer._on_assign(library, HERE)
    assert consumer.is_member
    consumer._on_revoke(library, HERE)
    assert not consumer.is_member
    consumer._on_assign(library, [])
    assert consumer.is_member, "with no partition, and a member all the same"
    consumer._on_lost(library, [])
    assert not consumer.is_member


def test_a_commit_of_a_former_membership_that_is_refused_late_fences_nobody(
    consumer: KafkaConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = mock.Mock()
    library.commit.return_value = []
    monkeypatch.setattr(consumer, "_consumer", library)
    consumer._on_commit(UNKNOWN_MEMBER, [])
    consumer.commit_soon({AT: Offset(3)})
    assert not library.commit.call_args.kwargs["asynchronous"], "it asks, and waits for the answer"
    consumer.commit_soon({AT: Offset(4)})
    assert library.commit.call_args.kwargs["asynchronous"]


def test_who_is_no_member_any_more_is_fenced(
    consumer: KafkaConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = mock.Mock()
    library.commit.side_effect = KafkaException(UNKNOWN_MEMBER)
    monkeypatch.setattr(consumer, "_consumer", library)
    consumer._on_commit(UNKNOWN_MEMBER, [])
    with pytest.raises(Fenced):
        consumer.commit_soon({AT: Offset(3)})


class Failing:
    """An administration that fails to list offsets a number of times; without a code it then gives
    no offset and no error, as librdkafka does between two leaders.
    """

    def __init__(self, times: int, code: int | None) -> None:
        self.left = times
        self.code = code
        self.calls: list[str] = []

    def list_offsets(
        self, specs: dict[RdPartition, Any], isolation_level: Any, request_timeout: float
    ) -> dict[RdPartition, Future[Any]]:
        """Return the bounds 2 and 7, after the failures."""
        self.calls.append("list_offsets")
        answers: dict[RdPartition, Future[Any]] = {at: Future() for at in specs}
        for at, future in answers.items():
            if self.left > 0:
                self.left -= 1
                if self.code is None:
                    future.set_result(mock.Mock(offset=OFFSET_INVALID))
                else:
                    future.set_exception(KafkaException(KafkaError(self.code)))
            else:
                future.set_result(mock.Mock(offset=2 if specs[at] is EARLIEST else 7))
        return answers

    def list_topics(self, topic: str, timeout: float) -> Any:
        """Return metadata that lists the topic."""
        self.calls.append(f"list_topics {topic}")
        return type("Found", (), {"topics": {topic: type("Topic", (), {"error": None})}})


def reader(times: int, code: int | None) -> KafkaReader:
    administration = cast("AdminClient", Failing(times, code))
    return KafkaReader(mock.Mock(), lambda: administration)


@pytest.mark.parametrize(
    "code",
    [
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError._TRANSPORT,
        KafkaError._DESTROY_BROKER,
        KafkaError._UNKNOWN_PARTITION,
        None,
    ],
)
def test_a_broker_that_does_not_answer_is_queried_again(
    code: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_reader, "_PAUSE_S", 0.0)
    assert reader(2, code).bounds(AT) == (2, 7)


def test_leaders_are_known_before_offsets_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """librdkafka 2.16 may crash where `list_offsets` has to look them up."""
    administration = Failing(0, None)
    one = KafkaReader(mock.Mock(), lambda: cast("AdminClient", administration))
    listed = ["list_offsets", "list_offsets"]
    assert one.bounds(AT) == one.bounds(AT) == (2, 7)
    found = f"list_topics {AT.topic}"
    assert administration.calls == [found, *listed, *listed]
    monkeypatch.setattr(kafka_reader, "_LEADERS_S", -1.0)
    assert one.bounds(AT) == (2, 7)
    assert administration.calls[5:] == [found, *listed], "librdkafka may have forgotten them"


def test_who_never_answers_is_unavailable_when_the_time_is_up() -> None:
    with pytest.raises(Unavailable, match="bounds"):
        reader(10**6, KafkaError.NOT_LEADER_FOR_PARTITION).bounds(AT, 0.05)


def test_what_no_waiting_mends_is_raised_at_once() -> None:
    with pytest.raises(Misconfigured, match=r"kafka\.security"):
        reader(1, KafkaError.TOPIC_AUTHORIZATION_FAILED).bounds(AT)


class Message:
    """A record at an offset, or an error in its place."""

    def __init__(self, offset: int, code: int | None = None) -> None:
        self._offset = offset
        self._code = code

    def error(self) -> KafkaError | None:
        """Return the error."""
        return None if self._code is None else KafkaError(self._code)

    def topic(self) -> str:
        """Return its topic."""
        return AT.topic

    def partition(self) -> int:
        """Return its partition."""
        return AT.partition

    def offset(self) -> int:
        """Return its offset."""
        return self._offset

    def key(self) -> None:
        """Return None."""

    def value(self) -> bytes:
        """Return its value."""
        return b""

    def headers(self) -> None:
        """Return None."""

    def timestamp(self) -> tuple[int, int]:
        """Return the broker's timestamp."""
        return (1, 0)


class Broken:
    """A consumer of four records, with one error after the second."""

    def __init__(self, code: int) -> None:
        self.code: int | None = code
        self.queue: deque[Message] = deque()

    def assign(self, partitions: list[RdPartition]) -> None:
        """Start from that offset."""
        messages = [Message(offset) for offset in range(partitions[0].offset, 4)]
        if self.code is not None:
            messages.insert(2, Message(-1, self.code))
        self.queue, self.code = deque(messages), None

    def poll(self, timeout: float) -> Message | None:
        """Return the next message."""
        return self.queue.popleft() if self.queue else None

    def consume(self, count: int, timeout: float) -> list[Message]:
        """Return the remaining messages."""
        rest, self.queue = list(self.queue), deque()
        return rest


def _reader_of(broken: Broken) -> KafkaReader:
    return KafkaReader(lambda: cast("Consumer", broken), mock.Mock())


def test_records_that_came_in_one_breath_with_a_failure_come_again() -> None:
    one = _reader_of(Broken(KafkaError.TOPIC_AUTHORIZATION_FAILED))
    with pytest.raises(Misconfigured):
        one.read(AT, Offset(0), 0.0)
    assert [record.offset for record in one.read(AT, Offset(0), 0.0)] == [0, 1, 2, 3]
