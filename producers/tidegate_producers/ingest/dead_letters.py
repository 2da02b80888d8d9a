"""Records that are no rows of their table: sent to a topic, listed, and read again.

A batch that is repeated may send a record twice. `source`, the record's place in its topic, and
`attempt`, which a replay raises, say which dead letters are the same.

A record that was sent once stays a dead letter until it is replayed, whatever a later try would
make of it: else a job that died before its commit, and came back with other options, would make a
row of it, and a replay another one.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tidegate_producers.ingest.positions import OffsetsBySource, SourcePartition
from tidegate_runtime.kafka.client_protocols import (
    Headers,
    Offset,
    Producer,
    Reader,
    Record,
    TopicPartition,
)

FLUSH_S: Final = 60.0
_READ_S: Final = 10.0
_ORIGINAL: Final = "header."
"""What the names of the record's own headers begin with."""

_KEY: Final = "key"


@dataclass(frozen=True)
class DeadLetter:
    """A record that is no row of a table, with why. `value` and `key` are its bytes."""

    table_root: str
    source: SourcePartition
    offset: int
    reason: str
    field: str | None
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    attempt: int = 1

    @property
    def place(self) -> str:
        """Where the record is: topic, partition and offset."""
        return f"{self.source}@{self.offset}"

    @property
    def identity(self) -> tuple[str, str, str, int]:
        """What is equal in dead letters of which only one counts."""
        return self.table_root, self.source.app_id, self.place, self.attempt


def send(producer: Producer, topic: str, letters: Iterable[DeadLetter]) -> int:
    """Send dead letters, wait until they are durable, and return how many. Raises: Unavailable."""
    count = 0
    for letter in letters:
        producer.publish(TopicPartition(topic, 0), None, letter.value, _headers(letter))
        count += 1
    if count:
        producer.flush(FLUSH_S)
    return count


def _headers(letter: DeadLetter) -> Headers:
    named = {
        "reason": letter.reason,
        "field": letter.field,
        "table": letter.table_root,
        "source": letter.place,
        "topic_id": letter.source.topic_id,
        "attempt": str(letter.attempt),
    }
    own = [(name, text.encode()) for name, text in named.items() if text is not None]
    if letter.key is not None:
        own.append((_KEY, letter.key))
    return (*own, *((f"{_ORIGINAL}{name}", value) for name, value in letter.headers))


def letter_of(record: Record) -> DeadLetter | None:
    """Return the dead letter in a record of the topic, or None if it is none of ours."""
    named = dict(record.headers)
    try:
        place, _, offset = named["source"].decode().rpartition("@")
        topic, _, partition = place.rpartition("/")
        return DeadLetter(
            table_root=named["table"].decode(),
            source=SourcePartition(topic, named["topic_id"].decode(), int(partition)),
            offset=int(offset),
            reason=named["reason"].decode(),
            field=named["field"].decode() if "field" in named else None,
            key=named.get(_KEY),
            value=record.value,
            headers=tuple(
                (name.removeprefix(_ORIGINAL), value)
                for name, value in record.headers
                if name.startswith(_ORIGINAL)
            ),
            attempt=int(named["attempt"]),
        )
    except (KeyError, ValueError):
        return None


def read_all(reader: Reader, topic: str) -> Iterator[tuple[Offset, DeadLetter]]:
    """Yield each dead letter of the topic once, with its offset there, oldest first.

    Raises: Unavailable; Misconfigured, for a missing topic.
    """
    place = TopicPartition(topic, 0)
    offset, end = reader.bounds(place)
    seen: set[tuple[str, str, str, int]] = set()
    while offset < end:
        records = reader.read(place, offset, _READ_S)
        if not records and reader.end_seen(place) >= end:
            return
        for record in records:
            offset = Offset(record.offset + 1)
            letter = letter_of(record)
            if record.offset < end and letter is not None and letter.identity not in seen:
                seen.add(letter.identity)
                yield record.offset, letter


def sent_ahead(
    reader: Reader, topic: str, table_root: str, positions: OffsetsBySource
) -> Sequence[str]:
    """Return the places of a table's dead letters that are beyond its positions: their batch was
    not committed. Raises: as `read_all`.
    """
    return [
        letter.place
        for _, letter in read_all(reader, topic)
        if letter.table_root == table_root
        and letter.source in positions
        and letter.offset > positions[letter.source]
    ]
