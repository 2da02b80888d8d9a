"""Records as librdkafka gives them, as ours."""

from collections.abc import Sequence

from confluent_kafka import OFFSET_INVALID, Message
from confluent_kafka import TopicPartition as RdPartition

from tidegate.delta.errors import Fenced
from tidegate.runtime.bus import Headers, Offset, Record, TopicPartition
from tidegate.runtime.kafka.errors import passes, translated


def records(messages: Sequence[Message], doing: str) -> tuple[Record, ...]:
    """Return the records among what came; what the library mends by itself is passed over.

    Raises: Fenced, Misconfigured, Unavailable, for what it does not mend.
    """
    found = []
    for message in messages:
        error = message.error()
        if error is None:
            found.append(_record(message))
        elif error.fatal() and not passes(error):
            raise Fenced(f"cannot {doing}: {error.str()}; this instance leaves")
        elif not passes(error):
            raise translated(error, doing)
    return tuple(found)


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
    """Return the headers; none where a name is no UTF-8, which the library can't read.

    Whoever may write a record may write such a name, and what a header says is a claim anyhow.
    """
    try:
        pairs = message.headers() or ()
    except (SystemError, UnicodeDecodeError):
        return ()
    assert not isinstance(pairs, dict), "headers are read as pairs"
    return tuple((name, _octets(value)) for name, value in pairs)


def _octets(value: str | bytes | None) -> bytes:
    return value.encode() if isinstance(value, str) else value or b""


def theirs(at: TopicPartition, offset: int = OFFSET_INVALID, note: str = "") -> RdPartition:
    """Return a topic partition, an offset in it and a note, as the library takes them."""
    return RdPartition(at.topic, at.partition, offset, metadata=note)


def ours(partitions: list[RdPartition]) -> list[TopicPartition]:
    """Return topic partitions as ours, in order."""
    return sorted(TopicPartition(at.topic, at.partition) for at in partitions)
