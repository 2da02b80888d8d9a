"""Kafka records of a change stream, before they are sent.

A chunk is what goes into one Kafka transaction; a thread sends one while the next is filled.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol, Self, overload

from tidegate_cdc_publisher.change_batch import Batch, Op
from tidegate_messages.stream_position import Position
from tidegate_runtime.observability.tracing import Span

Headers = list[tuple[str, str | bytes | None]]

CONTENT_TYPE: Final = b"application/json"
EVENT_ID: Final = "event_id"
EVERY_PARTITION: Final = -2


class RecordPlace(NamedTuple):
    """Where a record goes that is no change of a row."""

    topic: str
    partition: int


class ChangeRecord(NamedTuple):
    """A Kafka record to be sent. A `value` of None is a tombstone.

    Without a place it goes to the change topic, to the partition of its key.
    """

    key: bytes | None
    value: bytes | None
    headers: Headers
    place: RecordPlace | None = None


class VersionBound(NamedTuple):
    """Where the records of a version begin or end in a chunk: before the record of this number.

    Units: `timestamp_ms` is the version's commit timestamp.
    """

    records: int
    version: int
    timestamp_ms: int
    is_end: bool


@dataclass
class Records(Sequence[ChangeRecord]):
    """Records held as columns; each record is assembled when it is read.

    `shared` holds the headers that all changes of one kind and version have. A tombstone has these
    headers and no event id. The id stands in the headers that `ids_in` names. The garbage collector
    does not track bytes, whereas it would walk again and again over tuples and lists that live as
    long as a chunk.
    """

    keys: list[bytes | None] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    event_ids: list[bytes | None] = field(default_factory=list)
    shared: list[Headers] = field(default_factory=list)
    places: list[RecordPlace | None] = field(default_factory=list)
    ids_in: tuple[str, ...] = (EVENT_ID,)

    def append(
        self, key: bytes | None, value: bytes | None, headers: Headers, place: RecordPlace
    ) -> None:
        """Append a record that is no change of a row."""
        self += Records([key], [value], [None], [headers], [place])

    def __len__(self) -> int:
        """Return how many records there are."""
        return len(self.values)

    def __iter__(self) -> Iterator[ChangeRecord]:
        """Yield the records in order."""
        further_ids = self.ids_in[1:]
        columns = zip(self.keys, self.values, self.event_ids, self.shared, self.places, strict=True)
        for key, value, event_id, shared, place in columns:
            headers = shared if event_id is None else [*shared, (EVENT_ID, event_id)]
            if further_ids and event_id is not None:
                headers = [*headers, *((name, event_id) for name in further_ids)]
            # Skip the namedtuple constructor: it costs as much as the rest of the loop.
            yield tuple.__new__(ChangeRecord, (key, value, headers, place))

    @overload
    def __getitem__(self, at: int) -> ChangeRecord: ...
    @overload
    def __getitem__(self, at: slice) -> "Records": ...
    def __getitem__(self, at: int | slice) -> "ChangeRecord | Records":
        """Return one record or a slice of them."""
        if isinstance(at, slice):
            return Records(
                self.keys[at],
                self.values[at],
                self.event_ids[at],
                self.shared[at],
                self.places[at],
                self.ids_in,
            )
        (one,) = self[at : at + 1 or None]
        return one

    def __iadd__(self, other_records: "Records") -> Self:
        """Append other records."""
        self.keys += other_records.keys
        self.values += other_records.values
        self.event_ids += other_records.event_ids
        self.shared += other_records.shared
        self.places += other_records.places
        self.ids_in = max(self.ids_in, other_records.ids_in, key=len)
        return self


CHUNK_BYTES_MAX: Final = 16 * 1024 * 1024
"""Maximum text of images in one Kafka transaction; a chunk of large rows has fewer rows."""


@dataclass
class Chunk:
    """The content of the next Kafka transaction: at most `rows_max` changes, and their position.

    `whole` describes the part that ends with the last complete version: its number of records, the
    position after them, and the number of changes of each kind. `spans` end with the transaction.
    """

    rows_max: int
    records: Records = field(default_factory=Records)
    position: Position | None = None
    counts: Counter[Op] = field(default_factory=Counter)
    size_bytes: int = 0
    whole: tuple[int, Position, Counter[Op]] | None = None
    spans: list[Span] = field(default_factory=list)
    bounds: list[VersionBound] = field(default_factory=list)

    @property
    def is_full(self) -> bool:
        """Whether the chunk takes no more changes."""
        return self.counts.total() >= self.rows_max or self.size_bytes >= CHUNK_BYTES_MAX

    def fitting(self, batch: Batch, begin: int, schema_bytes: int = 0) -> Batch:
        """Return the changes from `begin` on that fit, by count and by mean row size.

        Units: `schema_bytes` is the size of the inline schemas of each record.
        """
        assert not self.is_full, "a full chunk is published before it takes more"
        mean_bytes = max(1, batch.size_bytes // len(batch) + schema_bytes)
        by_size = max(1, (CHUNK_BYTES_MAX - self.size_bytes) // mean_bytes)
        by_count = self.rows_max - self.counts.total()
        return batch.slice(begin, min(by_size, by_count, len(batch) - begin))

    def add(self, batch: Batch, records: Records, schema_bytes: int = 0) -> None:
        """Add changes with their records."""
        self.records += records
        self.counts[batch.op] += len(batch)
        self.size_bytes += batch.size_bytes + schema_bytes * len(batch)

    def move(self, position: Position) -> None:
        """Set the position after the records."""
        self.position = position
        if position.complete:
            self.whole = len(self.records), position, self.counts.copy()

    def of_whole_versions(self) -> "Chunk":
        """Return the chunk without the changes of an incomplete version."""
        if self.whole is None:
            return Chunk(self.rows_max)
        length, position, counts = self.whole
        bounds = [bound for bound in self.bounds if bound.is_end or bound.records < length]
        return Chunk(
            self.rows_max,
            self.records[:length],
            position,
            counts,
            spans=self.spans,
            bounds=[bound for bound in bounds if bound.records <= length],
        )


class SendThread:
    """Runs one send at a time in a thread.

    Law: a send begins only after every earlier one has succeeded.
    """

    def __init__(self) -> None:
        self._on_its_way: Future[None] | None = None

    def hand_over(self, send: Callable[[], None]) -> None:
        """Wait for the running send, then start this one. Raises: as `wait`."""
        self.wait()
        thread = ThreadPoolExecutor(1, "sending")
        self._on_its_way = thread.submit(send)
        thread.shutdown(wait=False)

    def wait(self) -> None:
        """Wait for the running send to end. Raises: the error of that send, if any."""
        if self._on_its_way is not None:
            self._on_its_way.result()
            self._on_its_way = None


class Writer(Protocol):
    """Publishes whole chunks, each with its position, or nothing of them."""

    def publish(
        self,
        topic: str,
        records: Sequence[ChangeRecord],
        position: Position,
        bounds: Sequence[VersionBound] = (),
    ) -> None:
        """Publish a chunk; `bounds` are the begins and ends of versions to publish with it.

        Raises: Unavailable, Fenced, InvalidRequest.
        """

    def close(self) -> None:
        """Release the writer's resources."""
