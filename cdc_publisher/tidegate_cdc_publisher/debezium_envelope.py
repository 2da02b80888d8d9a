"""Encodes changes as records in Debezium's envelope, a column at a time.

docs/changes.md describes the form for subscribers. Everything that all changes of a version
share is one constant text; records differ only in their images and index.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version as version_of
from itertools import chain
from typing import Final, Literal, NamedTuple, Self, overload
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from tidegate_cdc_publisher.connect_schema import NO_SCHEMAS, InlineSchemas
from tidegate_cdc_publisher.json_rows import TEXT, in_utf8, join
from tidegate_cdc_publisher.row_diff import Images

Op = Literal["c", "u", "d", "r"]
Tombstones = Literal["with", "without"]
Headers = list[tuple[str, str | bytes | None]]

CONNECTOR: Final = "tidegate"
CONTENT_TYPE: Final = b"application/json"
_RELEASE: Final = version_of("tidegate")


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


@dataclass
class Records(Sequence[ChangeRecord]):
    """Records held as columns; each record is assembled when it is read.

    `shared` holds the headers that all changes of one kind and version have. A tombstone has these
    headers and no event id. The garbage collector does not track bytes, whereas it would walk again
    and again over tuples and lists that live as long as a chunk.
    """

    keys: list[bytes | None] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    event_ids: list[bytes | None] = field(default_factory=list)
    shared: list[Headers] = field(default_factory=list)
    places: list[Place | None] = field(default_factory=list)

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
        columns = zip(self.keys, self.values, self.event_ids, self.shared, self.places, strict=True)
        for key, value, event_id, shared, place in columns:
            headers = shared if event_id is None else [*shared, ("event_id", event_id)]
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
            )
        (one,) = self[at : at + 1 or None]
        return one

    def __iadd__(self, others: "Records") -> Self:
        """Append other records."""
        self.keys += others.keys
        self.values += others.values
        self.event_ids += others.event_ids
        self.shared += others.shared
        self.places += others.places
        return self


@dataclass(frozen=True)
class SourceBlock:
    """What all changes of one version share.

    `logical_name` is the installation's name (the topic prefix). The fields of `more` are copied
    into `source` unchanged. `schemas` are those of the version's records.
    Units: `timestamp_ms` is the version's commit timestamp.
    """

    table: UUID
    table_name: str
    logical_name: str
    version: int
    timestamp_ms: int
    more: Mapping[str, str | int] = field(default_factory=dict)
    schemas: InlineSchemas = NO_SCHEMAS


@dataclass(frozen=True)
class Batch:
    """Changes of one kind; `start` is the index of the first in its version.

    `before` and `after` are set where the kind has them; if both are set, their rows correspond.
    `ends` says that the last row is the last of a snapshot.
    """

    op: Op
    start: int
    before: Images | None = None
    after: Images | None = None
    ends: bool = False

    def __len__(self) -> int:
        """Return how many changes there are."""
        return len(self._images)

    @property
    def size_bytes(self) -> int:
        """The size of the images' text."""
        return sum(one.texts.nbytes for one in (self.before, self.after) if one is not None)

    @property
    def keys(self) -> pa.Array | None:
        """The keys of the rows, or None for a stream without keys."""
        return self._images.keys

    @property
    def _images(self) -> Images:
        images = self.after if self.after is not None else self.before
        assert images is not None, "a change has an image"
        return images

    def slice(self, start: int, length: int) -> "Batch":
        """Return `length` changes from `start` on; they keep their indices."""
        return Batch(
            self.op,
            self.start + start,
            None if self.before is None else self.before.slice(start, length),
            None if self.after is None else self.after.slice(start, length),
            self.ends and start + length >= len(self),
        )


def records(origin: SourceBlock, batch: Batch, now_ms: int, tombstones: Tombstones) -> Records:
    """Return the records of some changes, in order; a tombstone may follow a delete.

    Law: the same changes give the same records, except for the top-level `ts_ms`.
    """
    numbers = pa.array(range(batch.start, batch.start + len(batch)), pa.int64())
    schemas = origin.schemas
    value_schema = schemas.value_of_deletes if batch.op == "d" else schemas.value
    images = _with_schema(value_schema, _values(origin, batch, numbers, now_ms))
    values: list[bytes | None] = [*in_utf8(images)]
    keys: list[bytes | None] = [None] * len(batch)
    if batch.keys is not None:
        key_schema = schemas.key_of_deletes if batch.op == "d" else schemas.key
        keys = [*in_utf8(_with_schema(key_schema, batch.keys))]
    ids: list[bytes | None] = [*in_utf8(_event_ids(origin, batch, numbers))]
    if batch.op == "d" and tombstones == "with" and batch.keys is not None:
        keys, values, ids = _twice(keys, keys), _twice(values), _twice(ids)
    count = len(values)
    return Records(keys, values, ids, [_shared_headers(origin, batch.op)] * count, [None] * count)


def _with_schema(schema: str | None, payloads: pa.Array) -> pa.Array:
    if schema is None:
        return payloads
    return join([f'{{"schema":{schema},"payload":', payloads, "}"])


def _twice(
    of_changes: list[bytes | None], of_tombstones: Sequence[bytes | None] = ()
) -> list[bytes | None]:
    """Interleave a column of changes with the values of the tombstones that follow each change."""
    behind = of_tombstones or [None] * len(of_changes)
    return list(chain.from_iterable(zip(of_changes, behind, strict=True)))


def _values(origin: SourceBlock, batch: Batch, numbers: pa.Array, now_ms: int) -> pa.Array:
    version, count = origin.version, len(batch)
    index = pc.cast(numbers, TEXT)
    parts: list[pa.Array | str] = ['{"before":', _image(batch.before), ',"after":']
    parts += [_image(batch.after), f',"source":{{{_source(origin)},"snapshot":']
    parts += [_snapshot_marks(batch), f',"sequence":"[\\"{version}\\",\\"', index, '\\"]"}']
    parts += [f',"op":"{batch.op}","ts_ms":{now_ms}']
    if batch.op == "r":
        return join([*parts, pa.repeat(pa.scalar(',"transaction":null}', TEXT), count)])
    order = pc.cast(pc.add(numbers, 1), TEXT)
    parts += [f',"transaction":{{"id":"{origin.table}:{version}","total_order":', order]
    parts += [',"data_collection_order":', order, "}}"]
    return join(parts)


def _source(origin: SourceBlock) -> str:
    """Return the constant fields of the source block, without its braces."""
    *above, table = origin.table_name.split(".")
    schema, database = [*reversed(above), "", ""][:2]
    constant = {
        "version": _RELEASE,
        "connector": CONNECTOR,
        "name": origin.logical_name,
        "ts_ms": origin.timestamp_ms,
        "ts_us": origin.timestamp_ms * 1000,
        "db": database,
        "schema": schema,
        "table": table,
        "txId": origin.version,
        **origin.more,
    }
    return json.dumps(constant, ensure_ascii=False, separators=(",", ":"))[1:-1]


def _snapshot_marks(batch: Batch) -> pa.Array | str:
    if batch.op != "r":
        return '"false"'
    marks = ['"true"'] * len(batch)
    if batch.start == 0 and marks:
        marks[0] = '"first"'
    if batch.ends and marks:
        marks[-1] = '"last"'
    return pa.array(marks, TEXT)


def _image(images: Images | None) -> pa.Array | str:
    return "null" if images is None else images.texts


def _event_ids(origin: SourceBlock, batch: Batch, numbers: pa.Array) -> pa.Array:
    """Return an id for each change that never changes.

    A snapshot row and a change of the same version have different ids.
    """
    mark = "r" if batch.op == "r" else ""
    return join([f"{origin.table}:{origin.version}:{mark}", pc.cast(numbers, TEXT)])


def _shared_headers(origin: SourceBlock, op: Op) -> Headers:
    return [
        ("table", str(origin.table).encode()),
        ("delta_version", str(origin.version).encode()),
        ("op", op.encode()),
        ("content-type", CONTENT_TYPE),
    ]
