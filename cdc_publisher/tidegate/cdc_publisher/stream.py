"""The stream of one table: decide what is next, read it, cut it into chunks, publish.

A chunk is one Kafka transaction and may hold the changes of several small versions, or a part of a
large one. While a full one is on its way the next is made; it leaves when the one before it is
committed. What fails is thrown away: the next life reads the position and goes on there.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol, assert_never
from uuid import UUID

from tidegate.cdc_publisher.envelope import (
    Batch,
    ChangeRecord,
    Origin,
    Records,
    Tombstones,
    records,
)
from tidegate.cdc_publisher.keys import KeyColumns, key_columns, order_of
from tidegate.cdc_publisher.machine import (
    Event,
    Notice,
    Published,
    SnapshotDue,
    State,
    Stranded,
    StreamDue,
    VersionDue,
    decide,
    evolve,
    reordered,
)
from tidegate.cdc_publisher.position import Position
from tidegate.cdc_publisher.provenance import commit_time_ms, provenance
from tidegate.cdc_publisher.reading import VersionChange, snapshot_batches, version_batches
from tidegate.cdc_publisher.sending import Sending
from tidegate.cdc_publisher.settings import TableChanges
from tidegate.delta import actions
from tidegate.delta.actions import Metadata
from tidegate.delta.changes.plan import plan
from tidegate.delta.commit import Commit
from tidegate.delta.errors import BrokenLog, InvalidRequest
from tidegate.delta.features.table import check_readable
from tidegate.delta.snapshot import Snapshot
from tidegate.runtime import metrics
from tidegate.runtime.log_store import LogStore
from tidegate.runtime.open_table import open_snapshot, read_commit
from tidegate.runtime.service import Running

GAP: Final = "GAP"
"""The error class of a stream that can't go on without leaving something out."""

CHUNK_BYTES_MAX: Final = 16 * 1024 * 1024
"""Text of images in one Kafka transaction; a chunk of large rows has fewer of them."""


class Writer(Protocol):
    """Where chunks go: all of one or nothing, its position included."""

    def publish(self, topic: str, records: Sequence[ChangeRecord], position: Position) -> None:
        """Make a chunk visible. Raises: Unavailable, Fenced, InvalidRequest."""

    def close(self) -> None:
        """Let go."""


@dataclass(frozen=True)
class Source:
    """A table, and how its changes are told."""

    table: UUID
    name: str
    logical_name: str
    topic: str
    changes: TableChanges
    chunk_rows: int


@dataclass(frozen=True)
class _Shape:
    """What the table is at the last version told."""

    protocol: actions.Protocol
    metadata: Metadata


@dataclass
class _Chunk:
    """What the next Kafka transaction will hold.

    `whole` is how much of it tells versions to their end: so many records, the position after them,
    how often each kind is among them.
    """

    records: Records = field(default_factory=Records)
    position: Position | None = None
    told: Counter[str] = field(default_factory=Counter)
    size_bytes: int = 0
    whole: tuple[int, Position, Counter[str]] | None = None

    def move(self, position: Position) -> None:
        """Say how far the records tell."""
        self.position = position
        if position.complete:
            self.whole = len(self.records), position, self.told.copy()

    def of_whole_versions(self) -> "_Chunk":
        """Return the chunk without what tells a version in part."""
        if self.whole is None:
            return _Chunk()
        count, position, told = self.whole
        return _Chunk(self.records[:count], position, told)


class TableStream:
    """One table's stream, from the position that Kafka holds on.

    After an error it is of no more use: close it, open another.
    """

    def __init__(
        self, source: Source, store: LogStore, writer: Writer, state: State, running: Running
    ) -> None:
        self._source = source
        self._store = store
        self._writer = writer
        self._state = state
        self._running = running
        self._shape: _Shape | None = None
        self._chunk = _Chunk()
        self._sending = Sending()

    def close(self) -> None:
        """Let go of the writer."""
        self._writer.close()

    def catch_up(self, head: int) -> None:
        """Publish all there is up to the head, or until the service is told to stop.

        What comes before a version that can't be told is published all the same.
        Raises: BrokenLog (`GAP`), InvalidRequest or UnsupportedFeature, for a stream that can't
        go on; Fenced, when another has taken the table over; Unavailable.
        """
        try:
            while not self._stopping and (events := decide(self._state, Notice(head))):
                for due in events:
                    self._tell_due(due)
        except Exception:
            self._chunk = self._chunk.of_whole_versions()
            self._send_last()
            raise
        self._send_last()
        told = self._state.position
        lag = head if told is None else head - told.version
        metrics.CDC_LAG_VERSIONS.labels(self._source.name).set(lag)
        if lag == 0:
            metrics.CDC_LAG.labels(self._source.name).set(0)

    def _tell_due(self, due: Event) -> None:
        match due:
            case SnapshotDue():
                self._tell_snapshot(due)
            case VersionDue():
                self._tell_version(due)
            case StreamDue(version):
                self._begin_after(version)
            case Stranded(reason):
                raise self._stranded(reason)
            case Published():
                raise AssertionError("what is due is not published yet")
            case _:
                assert_never(due)

    def _tell_snapshot(self, due: SnapshotDue) -> None:
        shape, snapshot = self._opened(due.version)
        keys = self._keys(due, shape.metadata)
        found = read_commit(self._store, due.version)
        commit = Commit(snapshot.version, ()) if found is None else found[0]
        origin = self._origin(commit, shape.metadata)
        self._tell(origin, snapshot_batches(self._store, snapshot, keys, due.start), due, keys)
        self._shape = shape

    def _tell_version(self, due: VersionDue) -> None:
        found = read_commit(self._store, due.version)
        if found is None:
            raise self._stranded(
                f"version {due.version} is next, and its commit file is gone from the log; delete "
                "the table's record on the topic of positions to begin with a new snapshot"
            )
        commit = found[0]
        before = self._shape or self._shape_before(commit)
        after = _Shape(commit.protocol or before.protocol, commit.metadata or before.metadata)
        if after != before:
            check_readable(after.protocol, after.metadata, self._store.root)
        keys = self._keys(due, after.metadata)
        origin = self._origin(commit, after.metadata)
        age_ms = self._running.clock.now_ms() - origin.timestamp_ms
        metrics.CDC_LAG.labels(self._source.name).set(max(0, age_ms) / 1000)
        planned = plan(commit, origin.timestamp_ms)
        change = VersionChange(planned, before.metadata, after.metadata)
        self._tell(origin, version_batches(self._store, change, keys, due.start), due, keys)
        self._shape = after

    def _begin_after(self, version: int) -> None:
        self._shape, _ = self._opened(version)
        keys = self._keys(VersionDue(version), self._shape.metadata)
        self._move(self._position(VersionDue(version), keys, told=0, complete=True))

    def _tell(
        self,
        origin: Origin,
        batches: Iterator[Batch],
        due: SnapshotDue | VersionDue,
        keys: KeyColumns,
    ) -> None:
        """Publish changes chunk by chunk; the last may wait for those of the next version."""
        told = due.start
        for batch in batches:
            begin = 0
            while begin < len(batch):
                part = self._fitting(batch, begin)
                begin += len(part)
                told = part.start + len(part)
                self._add(origin, part)
                self._move(self._position(due, keys, told=told, complete=False))
                if self._is_full:
                    self._sending.hand_over(partial(self._send, self._taken()))
                if self._stopping:
                    return
        self._move(self._position(due, keys, told=told, complete=True))

    def _add(self, origin: Origin, batch: Batch) -> None:
        now_ms = self._running.clock.now_ms()
        tombstones: Tombstones = "with" if self._source.changes.tombstones else "without"
        self._chunk.records += records(origin, batch, now_ms, tombstones)
        self._chunk.told[batch.op] += len(batch)
        self._chunk.size_bytes += batch.size_bytes

    def _move(self, position: Position) -> None:
        self._state = evolve(self._state, Published(position))
        self._chunk.move(position)

    def _taken(self) -> _Chunk:
        chunk, self._chunk = self._chunk, _Chunk()
        return chunk

    def _send_last(self) -> None:
        # Of two troubles the one with the chunk on its way came first, and is the one to tell.
        self._sending.settle()
        self._send(self._taken())

    def _send(self, chunk: _Chunk) -> None:
        if chunk.position is None:
            return
        self._writer.publish(self._source.topic, chunk.records, chunk.position)
        self._running.health.progress("commits")
        for op, count in chunk.told.items():
            metrics.CDC_EVENTS.labels(self._source.name, op).inc(count)
        metrics.CDC_POSITION.labels(self._source.name).set(chunk.position.version)

    def _position(
        self, due: SnapshotDue | VersionDue, keys: KeyColumns, *, told: int, complete: bool
    ) -> Position:
        return Position(
            table=self._source.table,
            version=due.version,
            index=told - 1 if told else None,
            complete=complete,
            snapshot=isinstance(due, SnapshotDue),
            order=order_of(keys),
        )

    def _keys(self, due: SnapshotDue | VersionDue, metadata: Metadata) -> KeyColumns:
        changes = self._source.changes
        keys = key_columns(metadata, self._source.name, changes.key, changes.key_columns)
        if stranded := reordered(due, order_of(keys)):
            raise self._stranded(stranded.reason)
        return keys

    def _origin(self, commit: Commit, metadata: Metadata) -> Origin:
        return Origin(
            self._source.table,
            self._source.name,
            self._source.logical_name,
            commit.version,
            commit_time_ms(self._store, commit, self._running.clock.now_ms()),
            provenance(commit, metadata),
        )

    def _opened(self, version: int) -> tuple[_Shape, Snapshot]:
        try:
            snapshot = open_snapshot(self._store, version)
        except InvalidRequest as error:
            raise self._stranded(
                f"version {version} can't be read any more ({error}); delete the table's record on "
                "the topic of positions to begin with a new snapshot"
            ) from error
        return _Shape(snapshot.protocol, snapshot.metadata), snapshot

    def _shape_before(self, commit: Commit) -> _Shape:
        """Return what the table was before a version; where that is gone, what it is with it."""
        try:
            snapshot = open_snapshot(self._store, commit.version - 1)
        except InvalidRequest:
            return self._opened(commit.version)[0]
        return _Shape(snapshot.protocol, snapshot.metadata)

    def _stranded(self, reason: str) -> BrokenLog:
        return BrokenLog(f"table {self._source.name}: {reason}", error_class=GAP)

    def _fitting(self, batch: Batch, begin: int) -> Batch:
        """Return what the chunk has room for, by count and by the mean size of the rows."""
        assert not self._is_full, "a full chunk is published before it takes more"
        mean_bytes = max(1, batch.size_bytes // len(batch))
        by_size = max(1, (CHUNK_BYTES_MAX - self._chunk.size_bytes) // mean_bytes)
        by_count = self._source.chunk_rows - self._chunk.told.total()
        return batch.slice(begin, min(by_size, by_count, len(batch) - begin))

    @property
    def _is_full(self) -> bool:
        told = self._chunk.told.total()
        return told >= self._source.chunk_rows or self._chunk.size_bytes >= CHUNK_BYTES_MAX

    @property
    def _stopping(self) -> bool:
        return self._running.stopping.is_set()
