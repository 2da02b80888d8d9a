"""The sending side of a stream: fills chunks, and sends each as one Kafka transaction."""

from collections.abc import Iterator
from functools import partial

from tidegate_cdc_publisher.change_batch import Batch, SourceBlock
from tidegate_cdc_publisher.change_records import (
    Chunk,
    RecordPlace,
    Records,
    SendThread,
    VersionBound,
    Writer,
)
from tidegate_cdc_publisher.machine import (
    Moved,
    Published,
    Received,
    SnapshotDue,
    StreamState,
    VersionDue,
    evolve,
)
from tidegate_cdc_publisher.record_encoding import Tombstones, records
from tidegate_cdc_publisher.schema_markers import (
    SchemaState,
    Streams,
    announced,
)
from tidegate_cdc_publisher.stream_layouts import StreamSource
from tidegate_cdc_publisher.stream_notices import Aggregate, Status, notification
from tidegate_messages.schema_announcement import SchemaChange
from tidegate_messages.stream_position import Position
from tidegate_runtime.observability import metrics
from tidegate_runtime.service.runner import Running


class StreamSender:
    """The state of a stream, and the chunk that takes it further.

    A chunk is one Kafka transaction. It holds the changes of several small versions, or a part of
    a large one. While a full chunk is being sent, the next one is filled; it is sent once the
    earlier one is committed.
    """

    def __init__(
        self, source: StreamSource, writer: Writer, state: StreamState, running: Running
    ) -> None:
        self.state = state
        self.chunk = Chunk(source.chunk_rows)
        self.published = state.position
        self.announced = None if state.position is None else state.position.schema_version
        self._source = source
        self._writer = writer
        self._running = running
        self._sending = SendThread()

    @property
    def is_stopping(self) -> bool:
        """Whether the service stops."""
        return self._running.stopping.is_set()

    @property
    def is_interrupted(self) -> bool:
        """Whether a version is left in its middle: for a stop, or for an operator's signal."""
        return self.is_stopping or bool(self.state.signals)

    def close(self) -> None:
        """Close the writer."""
        self._writer.close()

    def leave_incomplete(self) -> None:
        """Take the changes of an incomplete version out of the chunk."""
        self.chunk = self.chunk.of_whole_versions()

    def announce(self, change: SchemaChange, layout: SchemaState) -> None:
        """Add an announcement to the chunk; the next position says that it was made."""
        policy, form = self._source.on_schema_change, self._source.form
        has_markers = policy != "topic" and not form.is_registered
        in_stream = (change.is_followed_by_rows or change.snapshot) and has_markers
        topics = Streams(
            self._source.topic if in_stream else None, self._source.schema_changes_topic
        )
        self.chunk.records += announced(change, topics, layout, self._source.form)
        self.announced = change.version

    def notify(
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
        self.chunk.records += notification(
            self._source.table, place, aggregate, status, details, clock
        )

    def add_in_parts(self, origin: SourceBlock, batch: Batch) -> Iterator[Batch]:
        """Add changes to the chunk, in parts that fit; yield each for the position behind it."""
        schema_bytes, begin = origin.schemas.size_bytes, 0
        while begin < len(batch):
            part = self.chunk.fitting(batch, begin, schema_bytes)
            begin += len(part)
            self.chunk.add(part, self._records(origin, part), schema_bytes)
            yield part

    def _records(self, origin: SourceBlock, batch: Batch) -> Records:
        tombstones: Tombstones = "with" if self._source.changes.tombstones else "without"
        result = records(origin, batch, self._running.clock.now_ms(), tombstones)
        rule = self._source.large_rows
        if rule is None:
            return result
        return rule.applied(result, self._source.topic, origin.form.envelope)

    def bound(self, origin: SourceBlock, due: SnapshotDue | VersionDue, *, is_end: bool) -> None:
        """Note where the records of a version begin or end; a snapshot is no transaction."""
        if self._source.has_transactions and isinstance(due, VersionDue):
            start, version, when_ms = len(self.chunk.records), origin.version, origin.timestamp_ms
            self.chunk.bounds.append(VersionBound(start, version, when_ms, is_end=is_end))

    def move(self, position: Position) -> None:
        """Set the position after the records of the chunk."""
        self.state = evolve(self.state, Published(position))
        self.chunk.move(position)

    def move_by(
        self, received: Received | None, position: Position | None, refused: str | None = None
    ) -> None:
        """Set the position to another one, by a signal if there is one."""
        if position is not None and received is not None:
            update = {"signal": received.offset, "refused": refused}
            position = position.model_copy(update=update)
        self.state = evolve(self.state, Moved(position, is_signal=received is not None))
        if position is not None:
            self.chunk.move(position)

    def send_if_full(self) -> None:
        """Send a full chunk in the thread, once the earlier one is sent.

        Raises: as `Writer.publish`.
        """
        if self.chunk.is_full:
            self._sending.hand_over(partial(self._send, self._taken()))

    def send_last(self) -> None:
        """Send what the chunk holds, and wait for it. Raises: as `Writer.publish`."""
        # If both sends fail, report the error of the earlier one.
        self._sending.wait()
        self._send(self._taken())

    def _taken(self) -> Chunk:
        chunk, self.chunk = self.chunk, Chunk(self._source.chunk_rows)
        return chunk

    def _send(self, chunk: Chunk) -> None:
        if chunk.position is None:
            return
        self._writer.publish(self._source.topic, chunk.records, chunk.position, chunk.bounds)
        self.published = chunk.position
        self._running.health.progress("commits")
        for op, count in chunk.counts.items():
            metrics.CDC_EVENTS.labels(self._source.name, op).inc(count)
        metrics.CDC_POSITION.labels(self._source.name).set(chunk.position.version)
        for span in chunk.spans:
            span.end()
