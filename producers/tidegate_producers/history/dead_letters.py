"""The newest dead letters: records that no service could read, and why."""

from dataclasses import dataclass

from tidegate_messages.topics import Topics
from tidegate_runtime.kafka.client_protocols import Bus, Offset, Record, TopicPartition

QUIET_S = 2.0


@dataclass(frozen=True)
class DeadLetter:
    """A record that could not be read. `source` is where it stood: `topic/partition@offset`.

    `proposal_id` and `producer` are what its headers say, unverified.
    Units: `at_ms` is when it was set aside, in ms since the Unix epoch.
    """

    offset: int
    at_ms: int
    rule: str
    reason: str
    source: str
    proposal_id: str | None
    producer: str | None
    size_bytes: int


@dataclass(frozen=True)
class DeadLetters:
    """How many offsets the topic holds, and the newest letters, newest first."""

    count: int
    newest: tuple[DeadLetter, ...]


def newest_letters(bus: Bus, topics: Topics, limit: int) -> DeadLetters:
    """Return the newest dead letters. Raises: Unavailable; Misconfigured for a missing topic."""
    topic_partition, reader = TopicPartition(topics.dead_letters, 0), bus.reader()
    letters: list[DeadLetter] = []
    try:
        first, end = reader.bounds(topic_partition)
        following = Offset(max(first, end - limit))
        while following < end:
            records = reader.read(topic_partition, following, QUIET_S)
            if not records:
                break  # the remaining offsets hold no records
            letters += [_letter(record) for record in records]
            following = Offset(records[-1].offset + 1)
    finally:
        reader.close()
    return DeadLetters(end - first, tuple(letters[::-1][:limit]))


def _letter(record: Record) -> DeadLetter:
    headers = {name: value.decode(errors="replace") for name, value in record.headers}
    return DeadLetter(
        offset=record.offset,
        at_ms=record.timestamp_ms,
        rule=headers.get("rule", "malformed"),
        reason=headers.get("reason", ""),
        source=headers.get("source", ""),
        proposal_id=headers.get("proposal_id"),
        producer=headers.get("producer"),
        size_bytes=len(record.value or b""),
    )
