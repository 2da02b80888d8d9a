"""Kafka records of a change stream, before they are sent."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Self, overload

Headers = list[tuple[str, str | bytes | None]]

CONTENT_TYPE: Final = b"application/json"
EVENT_ID: Final = "event_id"
EVERY_PARTITION: Final = -2


class Place(NamedTuple):
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
    place: Place | None = None


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
    places: list[Place | None] = field(default_factory=list)
    ids_in: tuple[str, ...] = (EVENT_ID,)

    def append(
        self, key: bytes | None, value: bytes | None, headers: Headers, place: Place
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
