"""A reader of partitions outside any group, on confluent-kafka."""

import time
from collections.abc import Sequence
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message

from tidegate_delta.errors import TidegateError, Unavailable
from tidegate_runtime.kafka.client_protocols import ANSWER_S, Offset, Record, Starts, TopicPartition
from tidegate_runtime.kafka.error_translation import is_retriable, translated
from tidegate_runtime.kafka.record_conversion import records, to_librdkafka

_PAUSE_S: Final = 0.1
_READ_AT_ONCE: Final = 1_000


class KafkaReader:
    """Reads partitions outside any group. Any offset but the next one makes it assign again."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._next: dict[TopicPartition, Offset] = {}
        self._ends_seen: dict[TopicPartition, Offset] = {}

    def bounds(
        self, topic_partition: TopicPartition, timeout_s: float = ANSWER_S
    ) -> tuple[Offset, Offset]:
        """Return the first offset and the end offset; ask again while brokers do not answer.

        Raises: Unavailable, when the time is up; Misconfigured for a missing topic.
        """
        doing = f"look up the bounds of {topic_partition}"
        ends = time.monotonic() + timeout_s
        while (left_s := ends - time.monotonic()) > 0:
            try:
                bounds = self._consumer.get_watermark_offsets(
                    to_librdkafka(topic_partition), timeout=left_s
                )
            except KafkaException as error:
                self._check_topic(topic_partition, doing, max(_PAUSE_S, ends - time.monotonic()))
                if not is_retriable(error.args[0]) or time.monotonic() + _PAUSE_S > ends:
                    raise translated(error, doing) from error
                time.sleep(_PAUSE_S)
            else:
                if bounds is not None:
                    return Offset(bounds[0]), Offset(bounds[1])
        raise Unavailable(
            f"no bounds of {topic_partition} within {timeout_s:g} s; look at the brokers"
        )

    def read(
        self, topic_partition: TopicPartition, start: Offset, timeout_s: float
    ) -> Sequence[Record]:
        """Return records from `start` on, in order; none if none came within the timeout.

        Raises: Unavailable; Misconfigured for a missing topic.
        """
        return self.read_several({topic_partition: start}, timeout_s)

    def read_several(self, starts: Starts, timeout_s: float) -> Sequence[Record]:
        """Return records of several partitions, each in order; otherwise as `read`.

        Raises: as `read`; then nothing counts as read, and the same starts give the same records.
        """
        if starts != self._next:
            self._next, self._ends_seen = {}, {}
            self._consumer.assign(
                [to_librdkafka(topic_partition, start) for topic_partition, start in starts.items()]
            )
            self._next = dict(starts)
        ends = time.monotonic() + timeout_s
        while True:
            left_s = max(0.0, ends - time.monotonic())
            first = self._consumer.poll(left_s)
            if first is not None:
                found_records = self._records_from(
                    [first, *self._consumer.consume(_READ_AT_ONCE, 0)]
                )
                if found_records:
                    return found_records
            if left_s == 0.0:
                return []

    def end_seen(self, topic_partition: TopicPartition) -> Offset:
        """Return the end at which the last read arrived, 0 if it arrived at none.

        It may lie behind the last record: a transaction ends with a marker that nobody is given.
        """
        return self._ends_seen.get(topic_partition, Offset(0))

    def close(self) -> None:
        """Close the connection."""
        self._consumer.close()

    def _records_from(self, messages: Sequence[Message]) -> Sequence[Record]:
        starts = self._next
        try:
            read = records(
                [message for message in messages if not self._is_end(message)],
                f"read {', '.join(sorted({topic_partition.topic for topic_partition in starts}))}",
            )
        except TidegateError:
            # librdkafka's position is past the records that came with the error: assign again.
            self._next = {}
            raise
        new_records = [record for record in read if record.offset >= starts[record.at]]
        for record in new_records:
            self._next[record.at] = Offset(record.offset + 1)
        return new_records

    def _is_end(self, message: Message) -> bool:
        """Return whether a message says that a partition's end is reached, and note where it is."""
        error = message.error()
        if error is None or error.code() != KafkaError._PARTITION_EOF:
            return False
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        assert topic is not None, "an end has a topic"
        assert partition is not None, "an end has a partition"
        assert offset is not None, "an end has an offset"
        self._ends_seen[TopicPartition(topic, partition)] = Offset(offset)
        return True

    def _check_topic(self, topic_partition: TopicPartition, doing: str, timeout_s: float) -> None:
        """Raise for a missing topic, which librdkafka reports only as a missing leader."""
        try:
            error = (
                self._consumer.list_topics(topic_partition.topic, timeout=timeout_s)
                .topics[topic_partition.topic]
                .error
            )
        except KafkaException as unanswered:
            error = unanswered.args[0]
        if error is not None and not is_retriable(error):
            raise translated(error, doing)
