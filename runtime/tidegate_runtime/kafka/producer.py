"""The idempotent producer on confluent-kafka."""

import time
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from tidegate_delta.errors import OutcomeUnknown, TidegateError, Unavailable
from tidegate_runtime.kafka.client_protocols import Headers, TopicPartition
from tidegate_runtime.kafka.error_translation import NO_ANSWER, translated, undelivered

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
