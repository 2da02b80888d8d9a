"""Changes -> records in Debezium's envelope, a column at a time.

The form is described for subscribers in docs/changes.md. Everything that all changes of a version
share is one constant text; a record differs from its neighbour by its images and its index.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version as version_of
from itertools import chain
from typing import Final, Literal, NamedTuple
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.cdc_publisher.diff import Images
from tidegate.cdc_publisher.rows import TEXT, join

Op = Literal["c", "u", "d", "r"]
Tombstones = Literal["with", "without"]
Headers = list[tuple[str, bytes]]

CONNECTOR: Final = "tidegate"
CONTENT_TYPE: Final = b"application/json"
_RELEASE: Final = version_of("tidegate")


class ChangeRecord(NamedTuple):
    """A record as it is sent. A `value` of None is a tombstone."""

    key: bytes | None
    value: bytes | None
    headers: Headers


@dataclass(frozen=True)
class Origin:
    """What all changes of one version share.

    `logical_name` is the installation's (the topics' prefix), `more` goes into `source` as it is.
    Units: `timestamp_ms` is the version's commit timestamp.
    """

    table: UUID
    table_name: str
    logical_name: str
    version: int
    timestamp_ms: int
    more: Mapping[str, str | int] = field(default_factory=dict)


@dataclass(frozen=True)
class Batch:
    """Changes of one kind; `start` is the index of the first in its version.

    `before` and `after` are given as the kind has them, and have the same rows. `ends` says that
    the last row is the last of a snapshot.
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
        """Return some of the changes, with their indices."""
        return Batch(
            self.op,
            self.start + start,
            None if self.before is None else self.before.slice(start, length),
            None if self.after is None else self.after.slice(start, length),
            self.ends and start + length >= len(self),
        )


def records(
    origin: Origin, batch: Batch, now_ms: int, tombstones: Tombstones
) -> Sequence[ChangeRecord]:
    """Return the records of some changes, in order; a delete may be followed by a tombstone.

    Law: the same changes give the same records, but for the top-level `ts_ms`.
    """
    values = _values(origin, batch, now_ms).cast(pa.large_binary()).to_pylist()
    keys = _keys(batch)
    ids = _event_ids(origin, batch)
    shared = _shared_headers(origin, batch.op)
    changes = (
        ChangeRecord(key, value, [*shared, ("event_id", event_id)])
        for key, value, event_id in zip(keys, values, ids, strict=True)
    )
    if batch.op != "d" or tombstones == "without":
        return list(changes)
    return list(chain.from_iterable(_with_tombstone(change, shared) for change in changes))


def _with_tombstone(change: ChangeRecord, shared: Headers) -> Iterator[ChangeRecord]:
    yield change
    if change.key is not None:
        yield ChangeRecord(change.key, None, shared)


def _values(origin: Origin, batch: Batch, now_ms: int) -> pa.Array:
    version, count = origin.version, len(batch)
    numbers = pa.array(range(batch.start, batch.start + count), pa.int64())
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


def _source(origin: Origin) -> str:
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


def _keys(batch: Batch) -> Sequence[bytes | None]:
    if batch.keys is None:
        return [None] * len(batch)
    keys: Sequence[bytes | None] = batch.keys.cast(pa.large_binary()).to_pylist()
    return keys


def _event_ids(origin: Origin, batch: Batch) -> Iterator[bytes]:
    """Name each change for ever; a snapshot's row and a change of the same version differ."""
    mark = "r" if batch.op == "r" else ""
    prefix = f"{origin.table}:{origin.version}:{mark}"
    return (f"{prefix}{batch.start + i}".encode() for i in range(len(batch)))


def _shared_headers(origin: Origin, op: Op) -> Headers:
    return [
        ("table", str(origin.table).encode()),
        ("delta_version", str(origin.version).encode()),
        ("op", op.encode()),
        ("content-type", CONTENT_TYPE),
    ]
