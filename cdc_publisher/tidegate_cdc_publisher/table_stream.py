"""The stream of one table: decide what is next, read it, cut it into chunks, publish.

After an error the stream is discarded, and the next one continues from the position in Kafka.
"""

import logging
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from math import inf
from typing import Final, assert_never

from tidegate_cdc_publisher.change_batch import Batch, SourceBlock
from tidegate_cdc_publisher.change_reader import (
    VersionChange,
    Wanted,
    snapshot_batches,
    version_batches,
)
from tidegate_cdc_publisher.change_records import (
    Writer,
)
from tidegate_cdc_publisher.incremental_snapshot import IncrementalSnapshots
from tidegate_cdc_publisher.key_columns import KeyColumns, order_of
from tidegate_cdc_publisher.machine import (
    Due,
    IncrementalDue,
    Notice,
    Received,
    SignalDue,
    SnapshotAnew,
    SnapshotDue,
    Stranded,
    StreamDue,
    StreamState,
    VersionDue,
    decide,
    paused,
)
from tidegate_cdc_publisher.schema_markers import (
    SchemaState,
    empty_snapshot,
    end_marker,
    gap_marker,
    shift_between,
)
from tidegate_cdc_publisher.stream_layouts import StreamSource, TableShape, VersionLayouts
from tidegate_cdc_publisher.stream_notices import BY_SIGNAL
from tidegate_cdc_publisher.stream_sender import StreamSender
from tidegate_delta.change_feed import plan
from tidegate_delta.errors import (
    BrokenLog,
    Fenced,
    InvalidRequest,
    TidegateError,
    Unavailable,
)
from tidegate_delta.features.supported_features import check_readable
from tidegate_messages.schema_announcement import SchemaChange, StreamGap
from tidegate_messages.stream_position import Position
from tidegate_runtime.observability import metrics
from tidegate_runtime.observability.logs import log_event
from tidegate_runtime.observability.tracing import Attributes, Span, start_span
from tidegate_runtime.service.runner import Running
from tidegate_runtime.storage.log_store import LogStore
from tidegate_runtime.table_io.open_table import read_commit
from tidegate_runtime.table_io.time_travel import oldest_travelable

FILES_GONE: Final = frozenset({"DataFileMissing", "DeletionVectorMissing"})
"""The error classes of versions whose files a vacuum took."""

_log = logging.getLogger(__name__)


class TableStream:
    """Publishes one table from the position in Kafka on.

    After an error it is unusable: close it and open another.
    """

    def __init__(
        self,
        source: StreamSource,
        store: LogStore,
        writer: Writer,
        state: StreamState,
        running: Running,
    ) -> None:
        self._source = source
        self._store = store
        self._running = running
        self._sender = StreamSender(source, writer, state, running)
        self._layouts = VersionLayouts(
            source, store, running.clock, lambda: self._sender.state.position
        )
        if state.position is not None:
            self._layouts.declared_keys.declared = state.position.declared
        self._snapshots = IncrementalSnapshots(source, store, self._layouts, self._sender)
        self._shape: TableShape | None = None
        self._steps: Iterator[None] | None = None
        self._traces: dict[int, str] = {}

    @property
    def signal(self) -> int | None:
        """The offset of the last signal that was obeyed or waits here, if there was one."""
        signals = self._sender.state.signals
        return signals[-1].offset if signals else self._sender.state.signal

    def needed_from(self, head: int) -> int:
        """Return the first version that is needed; `head` is the newest that is known."""
        position, start = self._sender.state.position, self._sender.state.start
        if position is None:
            return max(0, head if start is None else start - 1)
        beside = position.incremental
        return position.version if beside is None else min(position.version, beside.base)

    @property
    def published(self) -> Position | None:
        """The position of the last Kafka transaction that is known to be committed."""
        return self._sender.published

    def receive(self, signals: Sequence[Received]) -> None:
        """Obey signals before anything else is published. Not during `catch_up`."""
        self._sender.state = replace(
            self._sender.state, signals=(*self._sender.state.signals, *signals)
        )

    def continue_trace(self, version: int, traceparent: str | None) -> None:
        """Continue the trace of a version's writer when its changes are published."""
        if traceparent is not None:
            self._traces[version] = traceparent

    def close(self) -> None:
        """Close the writer."""
        self._sender.close()

    def catch_up(self, head: int, until_s: float = inf) -> bool:
        """Publish up to the head, or until `until_s`; return whether everything is published.

        The next call continues where this one stopped. If a version can't be published, the
        versions before it are published first.
        Units: `until_s` is a time of `Clock.boot_s`.
        Raises: BrokenLog (`GAP`), InvalidRequest or UnsupportedFeature, for a stream that can't
        continue; Fenced, when another publisher has taken the table over; Unavailable.
        """
        self._layouts.head = head
        self._steps = self._steps or self._publish_all()
        try:
            for _ in self._steps:
                if self._running.clock.boot_s() >= until_s:
                    self._measure()
                    return False
        except Exception:
            self._sender.leave_incomplete()
            self._sender.send_last()
            raise
        self._steps = None
        self._sender.send_last()
        self._measure()
        return True

    def _measure(self) -> None:
        position = self._sender.state.position
        lag = self._layouts.head if position is None else self._layouts.head - position.version
        metrics.CDC_LAG_VERSIONS.labels(self._source.name).set(lag)
        if lag == 0:
            metrics.CDC_LAG.labels(self._source.name).set(0)

    def _publish_all(self) -> Iterator[None]:
        """Publish step by step until nothing is due or the service stops."""
        while not self._sender.is_stopping and (
            events := decide(self._sender.state, Notice(self._layouts.head))
        ):
            for due in events:
                yield from self._publish_due(due)

    def _publish_due(self, due: Due) -> Iterator[None]:
        match due:
            case SnapshotDue() | VersionDue():
                try:
                    yield from (
                        self._publish_snapshot(due)
                        if isinstance(due, SnapshotDue)
                        else self._publish_version(due)
                    )
                except BrokenLog as error:
                    if not self._layouts.is_log_gone(error) and error.error_class not in FILES_GONE:
                        raise
                    self._go_on_behind(due, error)
            case StreamDue(version):
                self._begin_after(version)
            case IncrementalDue():
                yield from self._snapshots.publish(due)
            case SignalDue(received):
                self._obey(received)
            case SnapshotAnew(version):
                self._begin_anew(version)
            case Stranded(reason):
                raise self._layouts.stranded(reason)
            case _:
                assert_never(due)

    def _go_on_behind(self, due: SnapshotDue | VersionDue, error: BrokenLog) -> None:
        """Go on where a version can't be read, as the settings say. Raises: the error."""
        version = due.version
        if self._source.on_gap == "resnapshot" and version < self._layouts.head:
            reason = f"all rows of version {self._layouts.head} instead: {error}"
            self._publish_gap(version, reason)
            self._begin_anew(self._layouts.head)
            return
        if self._source.on_gap != "marker" or isinstance(due, SnapshotDue):
            raise error
        if self._layouts.is_log_gone(error):
            # The first version that can be opened again is in a checkpoint.
            oldest = oldest_travelable(self._store)
            if oldest is None or not version < oldest <= self._layouts.head:
                raise error
            version = oldest
        self._publish_gap(version, str(error))
        self._pass_over(due.version, version, str(error))

    def _obey(self, received: Received) -> None:
        """Do what an operator's signal says; one that can't be obeyed is logged and left."""
        signal = received.signal
        try:
            self._do(received)
        except (Unavailable, Fenced):
            raise
        except TidegateError as error:
            name, kind, level = self._source.name, signal.type, logging.WARNING
            log_event(_log, "signal_refused", level=level, table=name, signal=kind, why=str(error))
            self._sender.move_by(received, self._sender.state.position, str(error))
        else:
            name, kind = self._source.name, signal.type
            log_event(_log, "signal", table=name, signal=kind, reason=signal.reason)

    def _do(self, received: Received) -> None:
        signal, position = received.signal, self._sender.state.position
        if signal.type == "execute-snapshot" and signal.snapshot == "blocking":
            self._begin_anew(self._layouts.head, received)
            return
        if position is None or position.begins:
            self._refuse("nothing is published of the table yet")
        elif signal.type == "set-position":
            assert signal.version is not None, "the message is valid"
            if signal.version > self._layouts.head:
                self._refuse(f"version {signal.version} is beyond the table's {self._layouts.head}")
            first = position.version + 1 if position.complete else position.version
            if signal.version >= first:
                reason = signal.reason or "passed over by an operator"
                self._pass_over(first, signal.version, reason, received)
            else:
                self._go_back(signal.version, received)
        elif signal.type == "reset-position":
            fresh = Position(table=position.table, version=position.version, complete=True)
            self._layouts.declared_keys.declared = self._sender.announced = self._shape = None
            self._sender.move_by(received, fresh.model_copy(update={"begins": True}))
        elif signal.type == "execute-snapshot":
            incremental = self._snapshots.begin(position.version, signal.filter)
            self._sender.move_by(received, position.model_copy(update={"incremental": incremental}))
        else:
            if position.incremental is None:
                self._refuse("no incremental snapshot is under way")
            changed = paused(position.incremental, signal)
            self._sender.notify("Incremental Snapshot", BY_SIGNAL[signal.type], position.version)
            self._sender.move_by(received, position.model_copy(update={"incremental": changed}))

    def _refuse(self, reason: str) -> None:
        raise InvalidRequest(f"table {self._source.name}: {reason}", error_class="BadSignal")

    def _publish_gap(self, version: int, reason: str) -> None:
        name, level = self._source.name, logging.WARNING
        log_event(_log, "stream_gap", level=level, table=name, version=version, why=reason)

    def _begin_anew(self, version: int, received: Received | None = None) -> None:
        """Have all rows of a version follow, instead of all that is not published yet."""
        due = SnapshotDue(version)
        position = self._position(due, self._introduce(due), published=0, complete=False)
        self._sender.move_by(received, position.model_copy(update={"incremental": None}))

    def _go_back(self, version: int, received: Received) -> None:
        """Publish again from behind an earlier version on."""
        due = VersionDue(version)
        position = self._position(due, self._introduce(due), published=0, complete=True)
        self._sender.move_by(received, position.model_copy(update={"incremental": None}))

    def _begin_after(self, version: int) -> None:
        """Begin the stream behind a version, without its rows."""
        due = VersionDue(version)
        position = self._position(due, self._introduce(due), published=0, complete=True)
        self._sender.notify("Initial Snapshot", "SKIPPED", version)
        self._sender.move(position)

    def _introduce(self, due: SnapshotDue | VersionDue) -> KeyColumns:
        """Announce the schema of a version with which the stream begins or goes on."""
        self._shape, _ = self._layouts.opened(due.version)
        metadata = self._shape.metadata
        keys = self._layouts.keys(due, metadata, metadata)
        layout = SchemaState(metadata, keys)
        origin = self._layouts.origin_at(due.version, layout)
        introduction = self._layouts.introduction(origin, layout)
        update = {"snapshot": isinstance(due, SnapshotDue)}
        self._sender.announce(introduction.model_copy(update=update), layout)
        return keys

    def _pass_over(
        self, first: int, last: int, reason: str, received: Received | None = None
    ) -> None:
        """Announce that versions are not in the stream, and go on behind them."""
        before = self._shape or self._layouts.shape_at(first - 1)
        after, _ = self._layouts.opened(last)
        keys = self._layouts.keys(VersionDue(last), after.metadata, (before or after).metadata)
        layout = SchemaState(after.metadata, keys)
        origin = self._layouts.origin_at(last, layout)
        gap = StreamGap(first=first, last=last, reason=reason)
        self._sender.chunk.records += gap_marker(origin, self._source.topic, layout, gap)
        if before is None:
            self._sender.announce(self._layouts.introduction(origin, layout), layout)
        else:
            position = self._sender.state.position
            old = self._layouts.declared_keys.before(
                keys, after.metadata, before.metadata, position
            )
            change = self._change(origin, SchemaState(before.metadata, old), layout)
            if change is not None:
                self._sender.announce(change.model_copy(update={"snapshot": False}), layout)
        self._shape = after
        position = self._position(VersionDue(last), keys, published=0, complete=True)
        incremental = position.incremental
        if incremental is not None:
            incremental = incremental.model_copy(update={"rows": 0})
        self._sender.move_by(received, position.model_copy(update={"incremental": incremental}))

    def _publish_snapshot(
        self, due: SnapshotDue, change: SchemaChange | None = None
    ) -> Iterator[None]:
        """Publish the rows at a version, after the change of the schema that is the reason."""
        shape, snapshot = self._layouts.opened(due.version)
        keys = self._layouts.keys(due, shape.metadata, shape.metadata)
        layout = SchemaState(shape.metadata, keys)
        origin = self._layouts.origin_at(due.version, layout)
        if change is not None:
            self._sender.announce(change, layout)
        elif not self._has_begun:
            self._sender.announce(self._layouts.introduction(origin, layout), layout)
        if due.start == 0:
            self._sender.notify("Initial Snapshot", "STARTED", due.version)
        wanted = Wanted(keys, due.start, self._source.form)
        batches = snapshot_batches(self._store, snapshot, wanted)
        is_whole = yield from self._publish_changes(origin, batches, due, layout)
        self._shape = shape if is_whole else None

    def _publish_version(self, due: VersionDue) -> Iterator[None]:
        entry = read_commit(self._store, due.version)
        if entry is None:
            raise self._layouts.gone(f"version {due.version} is next, and its commit file is gone")
        commit = entry[0]
        before = self._shape or self._layouts.shape_before(commit)
        after = TableShape(commit.protocol or before.protocol, commit.metadata or before.metadata)
        if after != before:
            check_readable(after.protocol, after.metadata, self._store.root)
        old, new = self._layouts.around(due, before.metadata, after.metadata)
        origin = self._layouts.origin(commit, old, new)
        if not self._has_begun:
            self._sender.announce(self._layouts.introduction(origin, new), new)
        change = self._change(origin, old, new)
        if due.start == 0:
            self._layouts.register_schemas(origin, change, has_deletes=bool(commit.removes))
        if change is not None and change.snapshot:
            yield from self._publish_snapshot(SnapshotDue(due.version), change)
            return
        age_ms = self._running.clock.now_ms() - origin.timestamp_ms
        metrics.CDC_LAG.labels(self._source.name).set(max(0, age_ms) / 1000)
        is_partitioned = bool(before.metadata.partition_columns)
        planned = plan(commit, origin.timestamp_ms, is_partitioned=is_partitioned)
        version = VersionChange(planned, before.metadata, after.metadata)
        shift = shift_between(old, new)
        wanted = Wanted(new.keys, due.start, self._source.form, shift)
        batches = version_batches(self._store, version, wanted)
        span = self._span(due.version)
        origin = replace(origin, traceparent=span.traceparent)
        is_whole = yield from self._publish_changes(origin, batches, due, new, change)
        self._sender.chunk.spans.append(span)
        self._shape = after if is_whole else None

    def _change(
        self, origin: SourceBlock, old: SchemaState, new: SchemaState
    ) -> SchemaChange | None:
        """Return the change of the schema that is still to be announced with a version, if any."""
        if self._sender.announced == origin.version:
            return None
        return self._layouts.change(origin, old, new)

    def _span(self, version: int) -> Span:
        """Return the span of a version's publication, below its writer's if that is known."""
        parent = self._traces.get(version)
        self._traces = {
            pending: trace for pending, trace in self._traces.items() if pending > version
        }
        attributes: Attributes = {"tidegate.table": self._source.name, "tidegate.version": version}
        return start_span("tidegate.publish_changes", parent, attributes=attributes)

    def _publish_changes(
        self,
        origin: SourceBlock,
        batches: Iterator[Batch | None],
        due: SnapshotDue | VersionDue,
        layout: SchemaState,
        change: SchemaChange | None = None,
    ) -> Generator[None, None, bool]:
        """Publish changes in chunks; the last may wait for those of the next version. Return
        whether all are published: a stop or a signal ends it early.

        The schema changes after the deletes, which are in the schema before.
        """
        published = due.start
        keys = layout.keys
        if due.start == 0:
            self._sender.bound(origin, due, is_end=False)
        for batch in batches:
            if batch is None:
                if self._sender.is_interrupted:
                    return False
                yield
                continue
            if change is not None and batch.op != "d":
                self._sender.announce(change, layout)
                change = None
            for part in self._sender.add_in_parts(origin, batch):
                published = part.start + len(part)
                self._sender.move(self._position(due, keys, published=published, complete=False))
                self._sender.send_if_full()
                if self._sender.is_interrupted:
                    return False
                yield
        if change is not None:
            self._sender.announce(change, layout)
        if isinstance(due, SnapshotDue):
            self._end_snapshot(origin, due, layout, published)
        if self._source.has_transactions:
            self._sender.bound(origin, due, is_end=True)
            self._sender.chunk.records += end_marker(origin, self._source.topic, layout)
        self._sender.move(self._position(due, keys, published=published, complete=True))
        yield
        return True

    def _end_snapshot(
        self, origin: SourceBlock, due: SnapshotDue, layout: SchemaState, published: int
    ) -> None:
        self._sender.notify("Initial Snapshot", "COMPLETED", due.version, published)
        if published == 0:
            self._sender.chunk.records += empty_snapshot(origin, self._source.topic, layout)

    def _position(
        self, due: SnapshotDue | VersionDue, keys: KeyColumns, *, published: int, complete: bool
    ) -> Position:
        position = self._sender.state.position
        return Position(
            table=self._source.table,
            version=due.version,
            index=published - 1 if published else None,
            complete=complete,
            snapshot=isinstance(due, SnapshotDue),
            order=order_of(keys),
            declared=self._layouts.declared_keys.declared,
            schema_version=self._sender.announced,
            signal=self._sender.state.signal,
            refused=None if position is None else position.refused,
            incremental=None if position is None else position.incremental,
        )

    @property
    def _has_begun(self) -> bool:
        return self._sender.state.position is not None and not self._sender.state.position.begins
