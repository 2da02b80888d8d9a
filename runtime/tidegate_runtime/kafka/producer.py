"""The idempotent producer on confluent-kafka, and the one for copies of outcomes.

Copies on topics that writers name are sent without waiting, and lost if that fails. They have a
producer of their own, so that a topic that is missing, or that we may not write, delays no other
record.
"""

import logging
import time
from collections.abc import Callable
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from tidegate_delta.errors import OutcomeUnknown, TidegateError, Unavailable
from tidegate_runtime.kafka.client_protocols import Headers, TopicPartition
from tidegate_runtime.kafka.librdkafka import NO_ANSWER, translated, undelivered
from tidegate_runtime.observability.logs import log_event
from tidegate_runtime.observability.metrics import REPLIES_LOST

_ANSWER_S: Final = 15.0
_SLICE_S: Final = 0.05


class KafkaProducer:
    """An idempotent producer. `flush` raises failures of delivery."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._failures: list[TidegateError] = []

    def publish(
        self,
        topic_partition: TopicPartition,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
    ) -> None:
        """Queue a record; while the queue is full, wait.

        Raises: InvalidRequest for a record that is too large, Misconfigured for a missing topic,
        Unavailable when the queue stays full.
        """
        ends = time.monotonic() + _ANSWER_S
        while True:
            try:
                self._producer.produce(
                    topic_partition.topic,
                    value=value,
                    key=key,
                    partition=topic_partition.partition,
                    headers=list(headers),
                    on_delivery=self._on_delivery,
                )
            except BufferError as error:
                if time.monotonic() > ends:
                    raise Unavailable(
                        f"the producer's queue for {topic_partition.topic!r} stays full; "
                        f"{NO_ANSWER}"
                    ) from error
                self._producer.poll(_SLICE_S)
            except KafkaException as error:
                raise translated(error, f"send a record to {topic_partition.topic!r}") from error
            else:
                self._producer.poll(0)
                return

    def flush(self, timeout_s: float) -> None:
        """Wait until all queued records are durable; past the timeout the rest is dropped.

        Raises: Unavailable; OutcomeUnknown; the error with which a delivery failed.
        """
        left = self._producer.flush(timeout_s)
        if left:
            self._producer.purge()
            self._producer.flush(_SLICE_S)
            self._failures = [
                OutcomeUnknown(
                    f"{left} records were not acknowledged within {timeout_s} s and may have "
                    "arrived; read the topic before sending again"
                )
            ]
        if self._failures:
            failure, self._failures = self._failures[0], []
            raise failure

    def close(self) -> None:
        """Flush what is queued. Raises: as `flush`."""
        self.flush(_ANSWER_S)

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failures.append(undelivered(error, f"send a record to {message.topic()!r}"))


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
