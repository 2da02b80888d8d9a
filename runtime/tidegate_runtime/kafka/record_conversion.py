"""Convert librdkafka's messages and topic partitions to ours, and back."""

from collections.abc import Sequence

from confluent_kafka import OFFSET_INVALID, Message
from confluent_kafka import TopicPartition as RdPartition

from tidegate_delta.errors import Fenced
from tidegate_runtime.kafka.client_protocols import Headers, Offset, Record, TopicPartition
from tidegate_runtime.kafka.error_translation import passes, translated


def records(messages: Sequence[Message], doing: str) -> tuple[Record, ...]:
    """Return the records among some messages; errors from which librdkafka recovers are skipped.

    Raises: Fenced, Misconfigured, Unavailable, for the others.
    """
    converted = []
    for message in messages:
        error = message.error()
        if error is None:
            converted.append(_record(message))
        elif error.fatal() and not passes(error):
            raise Fenced(f"cannot {doing}: {error.str()}; this instance ends")
        elif not passes(error):
            raise translated(error, doing)
    return tuple(converted)


def _record(message: Message) -> Record:
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None, "a record has a topic"
    assert partition is not None, "a record has a partition"
    assert offset is not None, "a record has an offset"
    return Record(
        TopicPartition(topic, partition),
        Offset(offset),
        message.key(),
        message.value(),
        _headers(message),
        message.timestamp()[1],
    )


def _headers(message: Message) -> Headers:
    """Return the headers; none if a name is not UTF-8, which librdkafka's binding can't read.

    Any writer may send such a name, and no decision depends on headers alone.
    """
    try:
        pairs = message.headers() or ()
    except (SystemError, UnicodeDecodeError):
        return ()
    assert not isinstance(pairs, dict), "headers are read as pairs"
    return tuple((name, _octets(value)) for name, value in pairs)


def _octets(value: str | bytes | None) -> bytes:
    return value.encode() if isinstance(value, str) else value or b""


def to_librdkafka(
    topic_partition: TopicPartition, offset: int = OFFSET_INVALID, note: str = ""
) -> RdPartition:
    """Return librdkafka's object for a topic partition, an offset in it and a note."""
    return RdPartition(topic_partition.topic, topic_partition.partition, offset, metadata=note)


def from_librdkafka(partitions: list[RdPartition]) -> list[TopicPartition]:
    """Convert librdkafka's topic partitions to ours, sorted."""
    return sorted(
        TopicPartition(topic_partition.topic, topic_partition.partition)
        for topic_partition in partitions
    )
