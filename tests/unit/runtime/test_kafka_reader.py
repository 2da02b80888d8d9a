"""A reader asks again where waiting helps, and says at once where it does not."""

from typing import Any, cast

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException

from tidegate.delta.errors import Misconfigured, Unavailable
from tidegate.runtime import kafka_reader
from tidegate.runtime.bus import TopicPartition
from tidegate.runtime.kafka_reader import KafkaReader

AT = TopicPartition("t", 0)


class Failing:
    """A consumer whose question for bounds fails so many times."""

    def __init__(self, times: int, code: int) -> None:
        self.left = times
        self.code = code

    def get_watermark_offsets(self, at: Any, timeout: float) -> tuple[int, int]:
        """Return bounds, in the end."""
        if self.left > 0:
            self.left -= 1
            raise KafkaException(KafkaError(self.code))
        return (2, 7)

    def list_topics(self, topic: str, timeout: float) -> Any:
        """Return metadata by which the topic is there."""
        return type("Found", (), {"topics": {topic: type("Topic", (), {"error": None})}})


def reader(times: int, code: int) -> KafkaReader:
    return KafkaReader(cast("Consumer", Failing(times, code)))


@pytest.mark.parametrize(
    "code",
    [
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError._TRANSPORT,
        KafkaError._DESTROY_BROKER,
        KafkaError._UNKNOWN_PARTITION,
    ],
)
def test_who_does_not_answer_is_asked_again(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_reader, "_PAUSE_S", 0.0)
    assert reader(2, code).bounds(AT) == (2, 7)


def test_who_never_answers_is_unavailable_when_the_time_is_up() -> None:
    with pytest.raises(Unavailable, match="bounds"):
        reader(10**6, KafkaError.NOT_LEADER_FOR_PARTITION).bounds(AT, 0.05)


def test_what_no_waiting_mends_is_told_at_once() -> None:
    with pytest.raises(Misconfigured, match=r"kafka\.security"):
        reader(1, KafkaError.TOPIC_AUTHORIZATION_FAILED).bounds(AT)
