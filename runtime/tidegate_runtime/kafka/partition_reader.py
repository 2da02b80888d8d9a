"""A reader of partitions outside any group, on confluent-kafka."""

import time
from collections.abc import Sequence
from typing import Final

from confluent_kafka import Consumer, KafkaException, Message

from tidegate_delta.errors import TidegateError, Unavailable
from tidegate_runtime.kafka.client_protocols import ANSWER_S, Offset, Record, Starts, TopicPartition
from tidegate_runtime.kafka.error_translation import is_retriable, translated
from tidegate_runtime.kafka.record_conversion import records, theirs

_PAUSE_S: Final = 0.1
_READ_AT_ONCE: Final = 1_000


class KafkaReader:
    """Reads partitions outside any group. Any offset but the next one makes it assign again."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._next: dict[TopicPartition, Offset] = {}

    def bounds(self, at: TopicPartition, timeout_s: float = ANSWER_S) -> tuple[Offset, Offset]:
        """Return the first offset and the end offset; ask again while brokers do not answer.

        Raises: Unavailable, when the time is up; Misconfigured for a missing topic.
        """
        doing = f"look up the bounds of {at}"
        ends = time.monotonic() + timeout_s
        while (left := ends - time.monotonic()) > 0:
            try:
                found = self._consumer.get_watermark_offsets(theirs(at), timeout=left)
            except KafkaException as error:
                self._check_topic(at, doing, max(_PAUSE_S, ends - time.monotonic()))
                if not is_retriable(error.args[0]) or time.monotonic() + _PAUSE_S > ends:
                    raise translated(error, doing) from error
                time.sleep(_PAUSE_S)
            else:
                if found is not None:
                    return Offset(found[0]), Offset(found[1])
        raise Unavailable(f"no bounds of {at} within {timeout_s:g} s; look at the brokers")

    def read(self, at: TopicPartition, start: Offset, timeout_s: float) -> Sequence[Record]:
        """Return records from `start` on, in order; none if none came within the timeout.

        Raises: Unavailable; Misconfigured for a missing topic.
        """
        return self.read_several({at: start}, timeout_s)

    def read_several(self, starts: Starts, timeout_s: float) -> Sequence[Record]:
        """Return records of several partitions, each in order; otherwise as `read`.

        Raises: as `read`; then nothing counts as read, and the same starts give the same records.
        """
        if starts != self._next:
            self._next = {}
            self._consumer.assign([theirs(at, start) for at, start in starts.items()])
            self._next = dict(starts)
        ends = time.monotonic() + timeout_s
        while True:
            left = max(0.0, ends - time.monotonic())
            first = self._consumer.poll(left)
            if first is not None:
                found = self._found([first, *self._consumer.consume(_READ_AT_ONCE, 0)])
                if found:
                    return found
            if left == 0.0:
                return []

    def close(self) -> None:
        """Close the connection."""
        self._consumer.close()

    def _found(self, messages: Sequence[Message]) -> Sequence[Record]:
        starts = self._next
        try:
            came = records(messages, f"read {', '.join(sorted({at.topic for at in starts}))}")
        except TidegateError:
            # librdkafka's position is past the records that came with the error: assign again.
            self._next = {}
            raise
        found = [record for record in came if record.offset >= starts[record.at]]
        for record in found:
            self._next[record.at] = Offset(record.offset + 1)
        return found

    def _check_topic(self, at: TopicPartition, doing: str, timeout_s: float) -> None:
        """Raise for a missing topic, which librdkafka reports only as a missing leader."""
        try:
            error = self._consumer.list_topics(at.topic, timeout=timeout_s).topics[at.topic].error
        except KafkaException as unanswered:
            error = unanswered.args[0]
        if error is not None and not is_retriable(error):
            raise translated(error, doing)
