"""A reader and a partition whose leader is being chosen."""

from typing import Any, cast

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException

from tidegate.delta.errors import Unavailable
from tidegate.runtime import kafka_reader
from tidegate.runtime.bus import TopicPartition
from tidegate.runtime.kafka_reader import KafkaReader

AT = TopicPartition("t", 0)


class Leaderless:
    """A consumer that is told so many times that the broker it asked is not the leader."""

    def __init__(self, times: int, code: int) -> None:
        self.left = times
        self.code = code

    def get_watermark_offsets(self, at: Any, timeout: float) -> tuple[int, int]:
        """Return bounds, once the partition is led."""
        if self.left > 0:
            self.left -= 1
            raise KafkaException(KafkaError(self.code))
        return (2, 7)

    def list_topics(self, topic: str, timeout: float) -> Any:
        """Return metadata by which the topic is there."""
        return type("Found", (), {"topics": {topic: type("Topic", (), {"error": None})}})


def reader(times: int, code: int) -> KafkaReader:
    return KafkaReader(cast("Consumer", Leaderless(times, code)))


def test_a_partition_that_is_being_led_anew_is_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kafka_reader, "_PAUSE_S", 0.0)
    assert reader(2, KafkaError.NOT_LEADER_FOR_PARTITION).bounds(AT) == (2, 7)


def test_a_partition_that_stays_leaderless_is_unavailable() -> None:
    with pytest.raises(Unavailable, match="bounds"):
        reader(10**6, KafkaError.NOT_LEADER_FOR_PARTITION).bounds(AT, 0.05)


def test_other_failures_are_told_at_once() -> None:
    with pytest.raises(Unavailable, match="bounds"):
        reader(1, KafkaError._TRANSPORT).bounds(AT)
