"""Copies of outcomes: what can't be sent is counted, rests, and stops nothing."""

from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from prometheus_client import REGISTRY

from tidegate_runtime.kafka import producer
from tidegate_runtime.kafka.producer import REST_S, KafkaReplies


class Topic:
    """What librdkafka says about a record: its topic."""

    def __init__(self, name: str) -> None:
        self._name = name

    def topic(self) -> str:
        return self._name


class Client:
    """A librdkafka producer. `missing` are topics that it can't deliver to."""

    def __init__(self, missing: set[str]) -> None:
        self.missing = missing
        self.queued: list[tuple[str, Callable[[KafkaError | None, Topic], None]]] = []
        self.sent: list[str] = []
        self.full = False

    def produce(self, topic: str, value: bytes, key: bytes, **fields: Any) -> None:
        if self.full:
            raise BufferError
        if topic == "x.replies.refused":
            raise KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
        self.queued.append((topic, fields["on_delivery"]))

    def poll(self, timeout_s: float) -> None:
        queued, self.queued = self.queued, []
        for topic, result in queued:
            if topic in self.missing:
                result(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART), Topic(topic))
            else:
                self.sent.append(topic)

    def flush(self, timeout_s: float) -> int:
        self.poll(timeout_s)
        return 0

    def purge(self) -> None:
        self.queued.clear()


class Sender:
    """A sender over such clients, with a clock that stands."""

    def __init__(self, *missing: str) -> None:
        self.clients: list[Client] = []
        self.missing = set(missing)
        self.now_s = 100.0
        new: Any = self._new
        self.replies = KafkaReplies(new, lambda: self.now_s)

    def _new(self) -> Client:
        self.clients.append(Client(self.missing))
        return self.clients[-1]

    def send(self, topic: str) -> None:
        self.replies.send(topic, b"k", b"v", ())


def lost() -> float:
    return REGISTRY.get_sample_value("tidegate_replies_lost_total") or 0.0


def test_a_copy_is_sent_and_no_client_is_made_before_it() -> None:
    sender = Sender()
    assert sender.clients == []
    sender.send("x.replies.a")
    sender.replies.close()
    assert sender.clients[0].sent == ["x.replies.a"]


def test_a_topic_that_is_missing_rests_and_the_others_go_on() -> None:
    sender, before = Sender("x.replies.gone"), lost()
    for topic in ("x.replies.gone", "x.replies.a", "x.replies.gone", "x.replies.a"):
        sender.send(topic)
    [client] = sender.clients
    client.poll(0)
    assert client.sent == ["x.replies.a", "x.replies.a"]
    assert lost() == before + 2
    sender.missing.clear()
    sender.now_s += REST_S
    sender.send("x.replies.gone")
    client.poll(0)
    assert client.sent[-1] == "x.replies.gone"
    assert lost() == before + 2


def test_a_full_queue_and_a_refusal_at_once_are_counted_too() -> None:
    sender, before = Sender(), lost()
    sender.send("x.replies.refused")
    sender.clients[0].full = True
    sender.send("x.replies.a")
    assert lost() == before + 2


def test_a_client_that_was_given_many_topics_is_replaced() -> None:
    sender = Sender()
    for number in range(producer.TOPICS_MAX + 1):
        sender.send(f"x.replies.{number}")
    assert len(sender.clients) == 2
    sender.send(f"x.replies.{producer.TOPICS_MAX}")
    assert len(sender.clients) == 2
