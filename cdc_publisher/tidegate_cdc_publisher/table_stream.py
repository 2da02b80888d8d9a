"""The stream of one table: decide what is next, read it, cut it into chunks, publish.

A chunk is one Kafka transaction. It holds the changes of several small versions, or a part of a
large one. While a full chunk is being sent, the next one is filled; it is sent once the earlier
one is committed. After an error the stream is discarded, and the next one continues from the
position in Kafka.
"""

import logging
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import Any, Final, assert_never
from uuid import UUID

from tidegate_cdc_publisher.change_batch import Batch, SourceBlock
from tidegate_cdc_publisher.change_reader import (
    VersionChange,
    Wanted,
    snapshot_batches,
    version_batches,
)
from tidegate_cdc_publisher.change_records import (
    Chunk,
    RecordPlace,
    Records,
    SendThread,
    VersionBound,
    Writer,
)
from tidegate_cdc_publisher.commit_origin import commit_time_ms, provenance
from tidegate_cdc_publisher.connect_schema import (
    NO_SCHEMAS,
    InlineSchemas,
    inline_schemas,
    layout,
)
from tidegate_cdc_publisher.declared_keys import DeclaredKeys
from tidegate_cdc_publisher.incremental_snapshot import (
    file_batches,
    live_files,
    next_round,
    paths_of,
)
from tidegate_cdc_publisher.key_columns import KeyColumns, keys_of_order, order_of
from tidegate_cdc_publisher.large_rows import LargeRowRule
from tidegate_cdc_publisher.machine import (
    Due,
    IncrementalDue,
    Moved,
    Notice,
    OnGap,
    Published,
    Received,
    SignalDue,
    SnapshotAnew,
    SnapshotDue,
    Stranded,
    StreamDue,
    StreamState,
    VersionDue,
    decide,
    evolve,
    paused,
    reordered,
)
from tidegate_cdc_publisher.notifications import BY_SIGNAL, Aggregate, Status, notification
from tidegate_cdc_publisher.record_encoding import Tombstones, records
from tidegate_cdc_publisher.record_form import PLAIN, REGISTERED, PayloadEncoder, RecordForm
from tidegate_cdc_publisher.schema_markers import (
    OnSchemaChange,
    SchemaState,
    Streams,
    announced,
    check_may_change,
    empty_snapshot,
    end_marker,
    gap_marker,
    in_words,
    schema_steps,
    shift_between,
    value_form,
)
from tidegate_cdc_publisher.settings import TableChanges
from tidegate_delta.change_feed import plan
from tidegate_delta.errors import (
    BrokenLog,
    Fenced,
    InvalidRequest,
    TidegateError,
    Unavailable,
    UnsupportedFeature,
)
from tidegate_delta.features.supported_features import check_readable
from tidegate_delta.log import actions
from tidegate_delta.log.actions import Metadata
from tidegate_delta.log.commit import Commit
from tidegate_delta.log.file_names import Version
from tidegate_delta.schema.arrow_types import to_arrow
from tidegate_delta.schema.column_mapping import mode_of
from tidegate_delta.snapshots.snapshot import Snapshot
from tidegate_messages.schema_change import SchemaChange, StreamGap, columns_between
from tidegate_messages.stream_position import Incremental, Position
from tidegate_runtime.observability import metrics
from tidegate_runtime.observability.logs import log_event
from tidegate_runtime.observability.tracing import Attributes, Span, start_span
from tidegate_runtime.service.runner import Running
from tidegate_runtime.storage.log_store import LogStore
from tidegate_runtime.table_io.data_file_reader import schema_of
from tidegate_runtime.table_io.open_table import open_keys, open_snapshot, read_commit
from tidegate_runtime.table_io.time_travel import oldest_travelable

GAP: Final = "GAP"
"""The error class of a stream that can't continue without omitting changes."""

FILES_GONE: Final = frozenset({"DataFileMissing", "DeletionVectorMissing"})
"""The error classes of versions whose files a vacuum took."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class StreamSource:
    """A table, and how its changes are published."""

    table: UUID
    name: str
    logical_name: str
    topic: str
    changes: TableChanges
    chunk_rows: int
    form: RecordForm = PLAIN
    on_schema_change: OnSchemaChange = "marker"
    on_gap: OnGap = "fail"
    schema_changes_topic: str = "tidegate.cdc-schema-changes"
    registry: PayloadEncoder | None = None
    has_transactions: bool = False
    large_rows: LargeRowRule | None = None
    notifications_topic: str | None = None


@dataclass(frozen=True)
class _Shape:
    """The table's protocol and metadata at the last published version."""

    protocol: actions.Protocol
    metadata: Metadata


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
        self._writer = writer
        self._state = state
        self._running = running
        self._shape: _Shape | None = None
        self._keys_declared = DeclaredKeys(source.name, source.changes, self._head_metadata)
        self._schema_version: int | None = None
        if state.position is not None:
            self._keys_declared.declared = state.position.declared
            self._schema_version = state.position.schema_version
        self._head = -1
        self._steps: Iterator[None] | None = None
        self._chunk = Chunk(source.chunk_rows)
        self._published = state.position
        self._sending = SendThread()
        self._traces: dict[int, str] = {}
        self._log_gone: BrokenLog | None = None
        self._live: (
            tuple[tuple[int, str | None], _Shape, Mapping[str, Mapping[str, Any]]] | None
        ) = None
        self._round: tuple[Incremental, tuple[str, ...]] | None = None

    @property
    def signal(self) -> int | None:
        """The offset of the last signal that was obeyed or waits here, if there was one."""
        signals = self._state.signals
        return signals[-1].offset if signals else self._state.signal

    def needed_from(self, head: int) -> int:
        """Return the first version that is needed; `head` is the newest that is known."""
        position, start = self._state.position, self._state.start
        if position is None:
            return max(0, head if start is None else start - 1)
        beside = position.incremental
        return position.version if beside is None else min(position.version, beside.base)

    @property
    def published(self) -> Position | None:
        """The position of the last Kafka transaction that is known to be committed."""
        return self._published

    def receive(self, signals: Sequence[Received]) -> None:
        """Obey signals before anything else is published. Not during `catch_up`."""
        self._state = replace(self._state, signals=(*self._state.signals, *signals))

    def continue_trace(self, version: int, traceparent: str | None) -> None:
        """Continue the trace of a version's writer when its changes are published."""
        if traceparent is not None:
            self._traces[version] = traceparent

    def close(self) -> None:
        """Close the writer."""
        self._writer.close()

    def catch_up(self, head: int, until_s: float = inf) -> bool:
        """Publish up to the head, or until `until_s`; return whether everything is published.

        The next call continues where this one stopped. If a version can't be published, the
        versions before it are published first.
        Units: `until_s` is a time of `Clock.boot_s`.
        Raises: BrokenLog (`GAP`), InvalidRequest or UnsupportedFeature, for a stream that can't
        continue; Fenced, when another publisher has taken the table over; Unavailable.
        """
        self._head = head
        self._steps = self._steps or self._publish_all()
        try:
            for _ in self._steps:
                if self._running.clock.boot_s() >= until_s:
                    self._measure()
                    return False
        except Exception:
            self._chunk = self._chunk.of_whole_versions()
            self._send_last()
            raise
        self._steps = None
        self._send_last()
        self._measure()
        return True

    def _measure(self) -> None:
        position = self._state.position
        lag = self._head if position is None else self._head - position.version
        metrics.CDC_LAG_VERSIONS.labels(self._source.name).set(lag)
        if lag == 0:
            metrics.CDC_LAG.labels(self._source.name).set(0)

    def _publish_all(self) -> Iterator[None]:
        """Publish step by step until nothing is due or the service stops."""
        while not self._stopping and (events := decide(self._state, Notice(self._head))):
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
                    if error is not self._log_gone and error.error_class not in FILES_GONE:
                        raise
                    self._go_on_behind(due, error)
            case StreamDue(version):
                self._begin_after(version)
            case IncrementalDue():
                yield from self._publish_incremental(due)
            case SignalDue(received):
                self._obey(received)
            case SnapshotAnew(version):
                self._begin_anew(version)
            case Stranded(reason):
                raise self._stranded(reason)
            case _:
                assert_never(due)

    def _go_on_behind(self, due: SnapshotDue | VersionDue, error: BrokenLog) -> None:
        """Go on where a version can't be read, as the settings say. Raises: the error."""
        version = due.version
        if self._source.on_gap == "resnapshot" and version < self._head:
            reason = f"all rows of version {self._head} instead: {error}"
            self._publish_gap(version, reason)
            self._begin_anew(self._head)
            return
        if self._source.on_gap != "marker" or isinstance(due, SnapshotDue):
            raise error
        if error is self._log_gone:
            # The first version that can be opened again is in a checkpoint.
            oldest = oldest_travelable(self._store)
            if oldest is None or not version < oldest <= self._head:
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
            self._move_by(received, self._state.position, str(error))
        else:
            name, kind = self._source.name, signal.type
            log_event(_log, "signal", table=name, signal=kind, reason=signal.reason)

    def _do(self, received: Received) -> None:
        signal, position = received.signal, self._state.position
        if signal.type == "execute-snapshot" and signal.snapshot == "blocking":
            self._begin_anew(self._head, received)
            return
        if position is None or position.begins:
            self._refuse("nothing is published of the table yet")
        elif signal.type == "set-position":
            assert signal.version is not None, "the message is valid"
            if signal.version > self._head:
                self._refuse(f"version {signal.version} is beyond the table's {self._head}")
            first = position.version + 1 if position.complete else position.version
            if signal.version >= first:
                reason = signal.reason or "passed over by an operator"
                self._pass_over(first, signal.version, reason, received)
            else:
                self._go_back(signal.version, received)
        elif signal.type == "reset-position":
            fresh = Position(table=position.table, version=position.version, complete=True)
            self._keys_declared.declared = self._schema_version = self._shape = None
            self._move_by(received, fresh.model_copy(update={"begins": True}))
        elif signal.type == "execute-snapshot":
            if signal.filter is not None:
                self._live_at(position.version, signal.filter)
            incremental = Incremental(base=position.version, filter=signal.filter)
            self._notify("Incremental Snapshot", "STARTED", position.version)
            self._move_by(received, position.model_copy(update={"incremental": incremental}))
        else:
            if position.incremental is None:
                self._refuse("no incremental snapshot is under way")
            changed = paused(position.incremental, signal)
            self._notify("Incremental Snapshot", BY_SIGNAL[signal.type], position.version)
            self._move_by(received, position.model_copy(update={"incremental": changed}))

    def _notify(
        self, aggregate: Aggregate, status: Status, version: int, rows: int | None = None
    ) -> None:
        """Add a notification to the chunk, if the settings ask for them; a position follows it."""
        topic = self._source.notifications_topic
        if topic is None:
            return
        details = {
            "connector_name": self._source.logical_name,
            "data_collections": self._source.name,
            "version": str(version),
        }
        if rows is not None:
            details["total_rows_scanned"] = str(rows)
        place, clock = RecordPlace(topic, 0), self._running.clock
        self._chunk.records += notification(
            self._source.table, place, aggregate, status, details, clock
        )

    def _refuse(self, reason: str) -> None:
        raise InvalidRequest(f"table {self._source.name}: {reason}", error_class="BadSignal")

    def _publish_gap(self, version: int, reason: str) -> None:
        name, level = self._source.name, logging.WARNING
        log_event(_log, "stream_gap", level=level, table=name, version=version, why=reason)

    def _move_by(
        self, received: Received | None, position: Position | None, refused: str | None = None
    ) -> None:
        """Set the position to another one, by a signal if there is one."""
        if position is not None and received is not None:
            update = {"signal": received.offset, "refused": refused}
            position = position.model_copy(update=update)
        self._state = evolve(self._state, Moved(position, is_signal=received is not None))
        if position is not None:
            self._chunk.move(position)

    def _begin_anew(self, version: int, received: Received | None = None) -> None:
        """Have all rows of a version follow, instead of all that is not published yet."""
        self._shape, _ = self._opened(version)
        metadata = self._shape.metadata
        keys = self._keys(SnapshotDue(version), metadata, metadata)
        layout = SchemaState(metadata, keys)
        introduction = self._introduction(self._origin_at(version, layout), layout)
        self._announce(introduction.model_copy(update={"snapshot": True}), layout)
        due = SnapshotDue(version)
        position = self._position(due, keys, published=0, complete=False)
        self._move_by(received, position.model_copy(update={"incremental": None}))

    def _go_back(self, version: int, received: Received) -> None:
        """Publish again from behind an earlier version on."""
        self._shape, _ = self._opened(version)
        metadata = self._shape.metadata
        keys = self._keys(VersionDue(version), metadata, metadata)
        layout = SchemaState(metadata, keys)
        self._announce(self._introduction(self._origin_at(version, layout), layout), layout)
        position = self._position(VersionDue(version), keys, published=0, complete=True)
        self._move_by(received, position.model_copy(update={"incremental": None}))

    def _pass_over(
        self, first: int, last: int, reason: str, received: Received | None = None
    ) -> None:
        """Announce that versions are not in the stream, and go on behind them."""
        before = self._shape or self._shape_at(first - 1)
        after, _ = self._opened(last)
        keys = self._keys(VersionDue(last), after.metadata, (before or after).metadata)
        layout = SchemaState(after.metadata, keys)
        origin = self._origin_at(last, layout)
        gap = StreamGap(first=first, last=last, reason=reason)
        self._chunk.records += gap_marker(origin, self._source.topic, layout, gap)
        if before is None:
            self._announce(self._introduction(origin, layout), layout)
        else:
            position = self._state.position
            old = self._keys_declared.before(keys, after.metadata, before.metadata, position)
            change = self._change(origin, SchemaState(before.metadata, old), layout)
            if change is not None:
                self._announce(change.model_copy(update={"snapshot": False}), layout)
        self._shape = after
        position = self._position(VersionDue(last), keys, published=0, complete=True)
        incremental = position.incremental
        if incremental is not None:
            incremental = incremental.model_copy(update={"rows": 0})
        self._move_by(received, position.model_copy(update={"incremental": incremental}))

    def _publish_incremental(self, due: IncrementalDue) -> Iterator[None]:
        """Publish a part of the incremental snapshot: about as many rows as a chunk takes."""
        position = self._state.position
        if position is None or not position.complete or position.version != due.version:
            return  # The version before it was not published, or not whole.
        try:
            shape, live = self._live_at(due.version, due.progress.filter)
        except (InvalidRequest, UnsupportedFeature) as error:
            if due.progress.filter is None:
                raise
            self._abort_incremental(due, str(error))
            return
        progress, paths = due.progress, self._paths(due.progress)
        keys = self._keys(VersionDue(due.version), shape.metadata, shape.metadata)
        layout = SchemaState(shape.metadata, keys)
        origin = self._origin_at(due.version, layout)
        wanted = Wanted(keys, form=self._source.form)
        end = progress.told + self._source.chunk_rows
        while progress.files < len(paths) and progress.told < end:
            file = live.get(paths[progress.files])
            if file is not None:
                batches = file_batches(self._store, file, shape.metadata, wanted, progress)
                for batch in batches:
                    for part in self._parts(origin, batch):
                        progress_update = {"rows": progress.rows + len(part)}
                        progress_update["told"] = progress.told + len(part)
                        progress = progress.model_copy(update=progress_update)
                        self._move(self._beside(progress))
                        self._send_if_full()
                        yield
                        if self._interrupted:
                            return
            following = {"files": progress.files + 1, "rows": 0}
            progress = progress.model_copy(update=following)
        ended: Incremental | None = progress
        if progress.files >= len(paths):
            later = next_round(progress, due.version)
            ended = later if self._paths(later) else None
            if ended is None:
                name, rows = self._source.name, progress.told
                log_event(_log, "snapshot_completed", table=name, version=due.version, rows=rows)
        status: Status = "IN_PROGRESS" if ended is not None else "COMPLETED"
        self._notify("Incremental Snapshot", status, due.version, progress.told)
        self._move(self._beside(ended))
        yield

    def _beside(self, progress: Incremental | None) -> Position:
        position = self._state.position
        assert position is not None, "an incremental snapshot has a position"
        return position.model_copy(update={"incremental": progress})

    def _abort_incremental(self, due: IncrementalDue, why: str) -> None:
        """End an incremental snapshot whose filter no longer fits the table's columns."""
        name = self._source.name
        log_event(_log, "snapshot_aborted", level=logging.WARNING, table=name, why=why)
        self._notify("Incremental Snapshot", "ABORTED", due.version, due.progress.told)
        self._move(self._beside(None))

    def _live_at(
        self, version: int, text: str | None
    ) -> tuple[_Shape, Mapping[str, Mapping[str, Any]]]:
        """Return the files of a version by their paths; those asked for last are kept.

        Files that hold no row of a filter are left out. Raises: as `live_files`.
        """
        if self._live is None or self._live[0] != (version, text):
            shape, snapshot = self._opened(version)
            self._live = (version, text), shape, live_files(snapshot, text)
        return self._live[1:]

    def _paths(self, progress: Incremental) -> tuple[str, ...]:
        """Return the files of a round; the last round's are kept."""
        number = progress.model_copy(update={"files": 0, "rows": 0, "told": 0, "paused": False})
        if self._round is None or self._round[0] != number:
            self._round = number, paths_of(self._store, number)
        return self._round[1]

    def _publish_snapshot(
        self, due: SnapshotDue, change: SchemaChange | None = None
    ) -> Iterator[None]:
        """Publish the rows at a version, after the change of the schema that is the reason."""
        shape, snapshot = self._opened(due.version)
        keys = self._keys(due, shape.metadata, shape.metadata)
        layout = SchemaState(shape.metadata, keys)
        origin = self._origin_at(due.version, layout)
        if change is not None:
            self._announce(change, layout)
        elif not self._has_begun:
            self._announce(self._introduction(origin, layout), layout)
        if due.start == 0:
            self._notify("Initial Snapshot", "STARTED", due.version)
        wanted = Wanted(keys, due.start, self._source.form)
        batches = snapshot_batches(self._store, snapshot, wanted)
        is_whole = yield from self._publish_changes(origin, batches, due, layout)
        self._shape = shape if is_whole else None

    def _publish_version(self, due: VersionDue) -> Iterator[None]:
        entry = read_commit(self._store, due.version)
        if entry is None:
            raise self._gone(f"version {due.version} is next, and its commit file is gone")
        commit = entry[0]
        before = self._shape or self._shape_before(commit)
        after = _Shape(commit.protocol or before.protocol, commit.metadata or before.metadata)
        if after != before:
            check_readable(after.protocol, after.metadata, self._store.root)
        old, new = self._layouts(due, before.metadata, after.metadata)
        origin = self._origin(commit, old, new)
        if not self._has_begun:
            self._announce(self._introduction(origin, new), new)
        change = self._change(origin, old, new)
        if due.start == 0:
            self._register_schemas(origin, change, has_deletes=bool(commit.removes))
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
        self._chunk.spans.append(span)
        self._shape = after if is_whole else None

    def _span(self, version: int) -> Span:
        """Return the span of a version's publication, below its writer's if that is known."""
        parent = self._traces.get(version)
        self._traces = {
            pending: trace for pending, trace in self._traces.items() if pending > version
        }
        attributes: Attributes = {"tidegate.table": self._source.name, "tidegate.version": version}
        return start_span("tidegate.publish_changes", parent, attributes=attributes)

    def _layouts(
        self, due: VersionDue, before: Metadata, after: Metadata
    ) -> tuple[SchemaState, SchemaState]:
        """Return the columns and key columns before a version, and those from it on."""
        position = self._state.position
        keys = self._keys(due, after, before)
        old = self._keys_declared.before(keys, after, before, position)
        return SchemaState(before, old), SchemaState(after, keys)

    def _change(
        self, origin: SourceBlock, old: SchemaState, new: SchemaState
    ) -> SchemaChange | None:
        """Return the change of the schema that is to be announced with a version, if any.

        Raises: InvalidRequest (`SchemaChanged`).
        """
        steps = schema_steps(old, new)
        if not steps or self._schema_version == origin.version:
            return None
        policy = self._source.on_schema_change
        rules, columns = self._source.form.columns, columns_between(old.metadata, new.metadata)
        update = {"steps": rules.steps(steps), "columns": rules.visible(columns)}
        change = self._introduction(origin, new).model_copy(update=update)
        check_may_change(change, policy)
        anew = policy == "resnapshot" and change.is_followed_by_rows
        return change.model_copy(update={"snapshot": anew})

    def _register_schemas(
        self, origin: SourceBlock, change: SchemaChange | None, *, has_deletes: bool
    ) -> None:
        """Register the schemas of a version that changes them, before any of its deletes is sent.

        Raises: InvalidRequest (`SchemaIncompatible`); as `PayloadEncoder.encoded`.
        """
        form, schemas = self._source.form, origin.schemas
        sides = (
            ("key", form.key_format, schemas.key_of_deletes, schemas.key),
            ("value", form.value_format, schemas.value_of_deletes, schemas.value),
        )
        for of, record_format, before, after in sides:
            is_changed = before is not None and after is not None and before != after
            if origin.registry is None or record_format not in REGISTERED or not is_changed:
                continue
            subject = f"{origin.topic}-{of}"
            try:
                if has_deletes:
                    origin.registry.encoded(subject, record_format, str(before), ())
                origin.registry.evolve(subject, record_format, str(before), str(after))
            except InvalidRequest as error:
                steps = "; ".join(in_words(step) for step in change.steps) if change else "its form"
                raise InvalidRequest(
                    f"version {origin.version} of table {origin.table_name} changes its schema "
                    f"({steps}): {error}",
                    error_class=error.error_class,
                ) from error

    def _introduction(self, origin: SourceBlock, layout: SchemaState) -> SchemaChange:
        """Return the announcement of the schema with which a stream begins."""
        operation = origin.more.get("operation")
        return SchemaChange(
            table=origin.table,
            name=origin.table_name,
            version=origin.version,
            timestamp_ms=origin.timestamp_ms,
            operation=None if operation is None else str(operation),
            columns=self._source.form.columns.visible(
                columns_between(layout.metadata, layout.metadata)
            ),
            key_columns=layout.keys,
            form=value_form(self._source.form),
            schema_string=layout.metadata.schema_string,
        )

    def _announce(self, change: SchemaChange, layout: SchemaState) -> None:
        """Add an announcement to the chunk; the next position says that it was made."""
        policy, form = self._source.on_schema_change, self._source.form
        has_markers = policy != "topic" and not form.is_registered
        in_stream = (change.is_followed_by_rows or change.snapshot) and has_markers
        topics = Streams(
            self._source.topic if in_stream else None, self._source.schema_changes_topic
        )
        self._chunk.records += announced(change, topics, layout, self._source.form)
        self._schema_version = change.version

    def _begin_after(self, version: int) -> None:
        self._shape, _ = self._opened(version)
        metadata = self._shape.metadata
        keys = self._keys(VersionDue(version), metadata, metadata)
        layout = SchemaState(metadata, keys)
        self._announce(self._introduction(self._origin_at(version, layout), layout), layout)
        self._notify("Initial Snapshot", "SKIPPED", version)
        self._move(self._position(VersionDue(version), keys, published=0, complete=True))

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
            self._bound(origin, due, is_end=False)
        for batch in batches:
            if batch is None:
                if self._interrupted:
                    return False
                yield
                continue
            if change is not None and batch.op != "d":
                self._announce(change, layout)
                change = None
            for part in self._parts(origin, batch):
                published = part.start + len(part)
                self._move(self._position(due, keys, published=published, complete=False))
                self._send_if_full()
                if self._interrupted:
                    return False
                yield
        if change is not None:
            self._announce(change, layout)
        if isinstance(due, SnapshotDue):
            self._end_snapshot(origin, due, layout, published)
        if self._source.has_transactions:
            self._bound(origin, due, is_end=True)
            self._chunk.records += end_marker(origin, self._source.topic, layout)
        self._move(self._position(due, keys, published=published, complete=True))
        yield
        return True

    def _end_snapshot(
        self, origin: SourceBlock, due: SnapshotDue, layout: SchemaState, published: int
    ) -> None:
        self._notify("Initial Snapshot", "COMPLETED", due.version, published)
        if published == 0:
            self._chunk.records += empty_snapshot(origin, self._source.topic, layout)

    def _bound(self, origin: SourceBlock, due: SnapshotDue | VersionDue, *, is_end: bool) -> None:
        """Note where the records of a version begin or end; a snapshot is no transaction."""
        if self._source.has_transactions and isinstance(due, VersionDue):
            start, version, when_ms = len(self._chunk.records), origin.version, origin.timestamp_ms
            self._chunk.bounds.append(VersionBound(start, version, when_ms, is_end=is_end))

    def _parts(self, origin: SourceBlock, batch: Batch) -> Iterator[Batch]:
        """Add changes to the chunk, in parts that fit; yield each for the position behind it."""
        schema_bytes, begin = origin.schemas.size_bytes, 0
        while begin < len(batch):
            part = self._chunk.fitting(batch, begin, schema_bytes)
            begin += len(part)
            self._chunk.add(part, self._records(origin, part), schema_bytes)
            yield part

    def _send_if_full(self) -> None:
        if self._chunk.is_full:
            self._sending.hand_over(partial(self._send, self._taken()))

    def _records(self, origin: SourceBlock, batch: Batch) -> Records:
        tombstones: Tombstones = "with" if self._source.changes.tombstones else "without"
        result = records(origin, batch, self._running.clock.now_ms(), tombstones)
        rule = self._source.large_rows
        return result if rule is None else rule.applied(result, self._source.topic)

    def _move(self, position: Position) -> None:
        self._state = evolve(self._state, Published(position))
        self._chunk.move(position)

    def _taken(self) -> Chunk:
        chunk, self._chunk = self._chunk, Chunk(self._source.chunk_rows)
        return chunk

    def _send_last(self) -> None:
        # If both sends fail, report the error of the earlier one.
        self._sending.wait()
        self._send(self._taken())

    def _send(self, chunk: Chunk) -> None:
        if chunk.position is None:
            return
        self._writer.publish(self._source.topic, chunk.records, chunk.position, chunk.bounds)
        self._published = chunk.position
        self._running.health.progress("commits")
        for op, count in chunk.counts.items():
            metrics.CDC_EVENTS.labels(self._source.name, op).inc(count)
        metrics.CDC_POSITION.labels(self._source.name).set(chunk.position.version)
        for span in chunk.spans:
            span.end()

    def _position(
        self, due: SnapshotDue | VersionDue, keys: KeyColumns, *, published: int, complete: bool
    ) -> Position:
        position = self._state.position
        return Position(
            table=self._source.table,
            version=due.version,
            index=published - 1 if published else None,
            complete=complete,
            snapshot=isinstance(due, SnapshotDue),
            order=order_of(keys),
            declared=self._keys_declared.declared,
            schema_version=self._schema_version,
            signal=self._state.signal,
            refused=None if position is None else position.refused,
            incremental=None if position is None else position.incremental,
        )

    def _keys(
        self, due: SnapshotDue | VersionDue, metadata: Metadata, before: Metadata
    ) -> KeyColumns:
        """Return the key columns of a version with `metadata`; `before` is that of the one before.

        A version that is published in part is finished with the columns that it began with.
        """
        key_columns = keys_of_order(due.order) if due.start else None
        columns = to_arrow(schema_of(metadata))
        if key_columns is not None and set(key_columns) <= set(columns.names):
            self._source.form.check(self._source.name, columns, key_columns)
            return key_columns
        keys = self._keys_declared.resolved(metadata, before, self._state.position)
        self._source.form.check(self._source.name, columns, keys)
        if stranded := reordered(due, order_of(keys)):
            raise self._stranded(stranded.reason)
        return keys

    def _origin_at(self, version: int, layout: SchemaState) -> SourceBlock:
        """Return what the rows of a version share, even if its commit file is gone."""
        entry = read_commit(self._store, version)
        commit = Commit(Version(version), ()) if entry is None else entry[0]
        return self._origin(commit, layout, layout)

    def _origin(self, commit: Commit, before: SchemaState, after: SchemaState) -> SourceBlock:
        return SourceBlock(
            self._source.table,
            self._source.name,
            self._source.logical_name,
            commit.version,
            commit_time_ms(self._store, commit, self._running.clock.now_ms()),
            provenance(commit, after.metadata),
            self._schemas(before, after),
            self._source.form,
            topic=self._source.topic,
            registry=self._source.registry,
        )

    def _schemas(self, before: SchemaState, after: SchemaState) -> InlineSchemas:
        form, topic = self._source.form, self._source.topic
        if not form.has_schema:
            return NO_SCHEMAS
        old, new = (
            layout(schema_of(shape.metadata), mode_of(shape.metadata), shape.keys)
            for shape in (before, after)
        )
        return inline_schemas(form, topic, old, new)

    def _head_metadata(self) -> Metadata | None:
        return open_keys(self._store, self._head).metadata if self._head >= 0 else None

    def _opened(self, version: int) -> tuple[_Shape, Snapshot]:
        try:
            snapshot = open_snapshot(self._store, version)
        except InvalidRequest as error:
            raise self._gone(f"version {version} can't be read any more ({error})") from error
        return _Shape(snapshot.protocol, snapshot.metadata), snapshot

    def _shape_before(self, commit: Commit) -> _Shape:
        """Return the shape before a version, or at the version if the one before is gone."""
        try:
            snapshot = open_snapshot(self._store, commit.version - 1)
        except InvalidRequest:
            return self._opened(commit.version)[0]
        return _Shape(snapshot.protocol, snapshot.metadata)

    def _shape_at(self, version: int) -> _Shape | None:
        """Return the shape of a version, or None if it can't be read."""
        try:
            return self._opened(version)[0]
        except BrokenLog as error:
            if error is self._log_gone:
                return None
            raise

    def _gone(self, reason: str) -> BrokenLog:
        """Return the error for a version that is due and can't be read any more."""
        name = self._source.name
        self._log_gone = self._stranded(
            f"{reason}; publish all rows instead with `tidegate changes snapshot {name}`, go on "
            f"behind it with `tidegate changes skip {name} --to VERSION`, or set cdc.on_gap"
        )
        return self._log_gone

    def _stranded(self, reason: str) -> BrokenLog:
        return BrokenLog(f"table {self._source.name}: {reason}", error_class=GAP)

    @property
    def _stopping(self) -> bool:
        return self._running.stopping.is_set()

    @property
    def _interrupted(self) -> bool:
        """Whether a version is left in its middle: for a stop, or for an operator's signal."""
        return self._stopping or bool(self._state.signals)

    @property
    def _has_begun(self) -> bool:
        return self._state.position is not None and not self._state.position.begins
