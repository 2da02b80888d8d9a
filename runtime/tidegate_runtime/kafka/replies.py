"""Copies of outcomes on topics that writers name: sent without waiting, and lost if that fails.

They have a producer of their own, so that a topic that is missing, or that we may not write,
delays no other record.
"""

import logging
from collections.abc import Callable
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from tidegate_runtime.kafka.client_protocols import Headers
from tidegate_runtime.observability.logs import log_event
from tidegate_runtime.observability.metrics import REPLIES_LOST

REST_S: Final = 30.0
"""How long nothing is sent to a topic that could not be written to."""

TOPICS_MAX: Final = 1_000
"""A client remembers every topic that it was given; after so many a new one begins afresh."""

CLOSE_S: Final = 1.0
_log = logging.getLogger(__name__)


class KafkaReplies:
    """Implements `client_protocols.Replies`. `new` makes a producer, `now_s` tells the time in s.

    It is used by one thread.
    """

    def __init__(self, new: Callable[[], Producer], now_s: Callable[[], float]) -> None:
        self._new = new
        self._now_s = now_s
        self._producer: Producer | None = None
        self._rests_until_s: dict[str, float] = {}

    def send(self, topic: str, key: bytes, value: bytes, headers: Headers) -> None:
        """Queue a copy; count it as lost if its topic rests, or the queue is full."""
        producer = self._of(topic)
        producer.poll(0)
        if self._now_s() < self._rests_until_s[topic]:
            REPLIES_LOST.inc()
            return
        try:
            producer.produce(
                topic, value, key, headers=list(headers), on_delivery=self._on_delivery
            )
        except (BufferError, KafkaException) as error:
            self._lost(topic, str(error))

    def close(self) -> None:
        """Give what is queued a second, and drop the rest."""
        if self._producer is not None:
            left = self._producer.flush(CLOSE_S)
            REPLIES_LOST.inc(left)
            self._producer.purge()
            self._producer = None

    def _of(self, topic: str) -> Producer:
        """Return the producer for a topic."""
        if topic not in self._rests_until_s and len(self._rests_until_s) >= TOPICS_MAX:
            self._producer = None
            self._rests_until_s.clear()
        self._rests_until_s.setdefault(topic, 0.0)
        if self._producer is None:
            self._producer = self._new()
        return self._producer

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._lost(str(message.topic()), error.str())

    def _lost(self, topic: str, reason: str) -> None:
        REPLIES_LOST.inc()
        now_s = self._now_s()
        if now_s >= self._rests_until_s.get(topic, 0.0):
            log_event(_log, "reply_lost", level=logging.WARNING, topic=topic, why=reason)
            if topic in self._rests_until_s:
                self._rests_until_s[topic] = now_s + REST_S
