"""A follower of `commits` that publishes row changes: notification, position, decide, publish.

All its state is the log and the positions on Kafka. Each table has a stream with a transactional
producer of its own; opening a stream fences the previous owner, so two publishers can't both
publish a version. An error of one table stops that table alone
(`tidegate_runtime.followers.quarantine`); the others continue.
"""

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from math import inf
from threading import Lock
from typing import Final, Literal
from uuid import UUID

from tidegate_cdc_publisher.key_columns import is_asked_for, key_columns
from tidegate_cdc_publisher.large_rows import LargeRowRule
from tidegate_cdc_publisher.machine import StreamState
from tidegate_cdc_publisher.settings import CdcSettings, TableChanges
from tidegate_cdc_publisher.signals import SignalReader
from tidegate_cdc_publisher.stream_layouts import StreamSource
from tidegate_cdc_publisher.stream_notices import heartbeat
from tidegate_cdc_publisher.table_stream import TableStream
from tidegate_cdc_publisher.transactional_producer import (
    RECORD_BYTES_MAX,
    ChangeWriter,
    PositionReader,
)
from tidegate_delta.errors import (
    Fenced,
    InvalidRequest,
    Misconfigured,
    OutcomeUnknown,
    TidegateError,
    Unavailable,
)
from tidegate_messages.published_records import CommitRecord, LeaseRecord, TableRecord
from tidegate_messages.stream_position import Position, Positions, position_of
from tidegate_messages.topics import Topic
from tidegate_runtime.containment import contained, is_fault
from tidegate_runtime.followers.quarantine import Quarantine
from tidegate_runtime.followers.stream_status import FOLLOWED, SERVICE
from tidegate_runtime.followers.version_gates import take_lease
from tidegate_runtime.kafka.client_protocols import ANSWER_S, Bus, Producer, TopicPartition
from tidegate_runtime.kafka.topic_admin import create_topics
from tidegate_runtime.observability import metrics
from tidegate_runtime.observability.logs import log_event
from tidegate_runtime.observability.tracing import continued_traceparent, is_exporting
from tidegate_runtime.service.runner import Running
from tidegate_runtime.storage.log_store import LogStore
from tidegate_runtime.storage.open_store import open_store
from tidegate_runtime.storage.overwrite_detection import check_promised
from tidegate_runtime.table_io.open_table import head_version, open_keys, stated_checksum
from tidegate_runtime.table_io.time_travel import versions_between
from tidegate_runtime.table_registry import read_registry

TURN_MAX_S: Final = 1.0
"""Time limit of one table's turn, and of all turns within a pass together.

A pass waits for running turns to end, and all tables wait for a pass. A table with changes left
after its turn gets the next one at once, in parallel with other tables.
"""

OPENED_AT_ONCE: Final = 8
"""How many tables are taken over at a time: each waits a third of a second for the brokers."""

_ABORTED_WITHIN_S: Final = 20.0
"""How long brokers may take to abort a transaction after its timeout: they check every 10 s."""
_AS_SET: Final = TableChanges()
_LAGS: Final = (metrics.CDC_LAG_VERSIONS, metrics.CDC_LAG)
_log = logging.getLogger(__name__)


class CdcPublisher:
    """Handles notifications. Called from threads, never twice at once for one table."""

    name = SERVICE

    def __init__(self, settings: CdcSettings, bus: Bus, running: Running) -> None:
        self._settings = settings
        self._bus = bus
        self._running = running
        self._registry = settings.cdc.registry.opened()
        self._signals = SignalReader(bus, settings.kafka.topics.cdc_signals)
        self._begun: set[UUID] = set()
        self._tables: dict[UUID, TableRecord] = {}
        self._owners: dict[str, UUID] = {}
        self._streams: dict[UUID, TableStream] = {}
        self._quarantined: dict[UUID, TableRecord] = {}
        self._lost: set[UUID] = set()
        self._leased_until_ms: dict[UUID, int] = {}
        self._keyless: dict[UUID, int] = {}
        self._beats: Producer | None = None
        self._beat_s = -inf
        self._seen: Positions | None = None
        self._position_reader = PositionReader(settings.kafka)
        self._behind: dict[UUID, tuple[TableRecord, int]] = {}
        self._to_open: dict[UUID, TableRecord] = {}
        self._opening = Lock()
        topics = settings.kafka.topics
        self._quarantine = Quarantine(self.name, bus, topics, running.clock, self._release)

    @property
    def poll_interval_s(self) -> float:
        """Seconds between two passes."""
        return self._settings.cdc.look_s

    @property
    def unfinished(self) -> Collection[UUID]:
        """The tables whose last turn left changes unpublished."""
        return self._behind.keys()

    def notice(self, record: CommitRecord) -> None:
        """Publish pending changes up to a version, for one turn.

        A table that is set aside waits for a pass, an unfinished one for its next turn.
        """
        if record.table in self._quarantined or record.table in self._behind:
            return
        self._publish_of(record)
        self._quarantine.tell()

    def _publish_of(self, record: CommitRecord) -> None:
        if record.table not in self._tables:
            self._tables = self._registered()
        table = self._tables.get(record.table)
        if table is not None and table.status not in FOLLOWED:
            return
        if table is None:
            log_event(_log, "unregistered", level=logging.WARNING, table=record.table)
            return
        head = self._head(table, record.version)
        if head is None:
            return
        if record.table not in self._streams and self._has_keys(table, head):
            self._to_open[record.table] = table
            if self._opening.locked():
                self._behind[record.table] = table, head
                return
            self._open_waiting()
        if is_exporting() and record.table in self._streams:
            self._streams[record.table].continue_trace(record.version, continued_traceparent())
        self._catch_up(table, head, self._turn_ends_s())

    def urgency(self, table: UUID) -> float:
        """Return the same for all tables: their turns take the same time, so they alternate."""
        return 0.0

    def go_on(self, table: UUID) -> None:
        """Publish an unfinished table for one more turn, up to its present head."""
        unfinished = self._behind.pop(table, None)
        if unfinished is not None:
            record, known_head = unfinished
            head = self._head(record, known_head)
            if head is None:
                self._to_open.pop(table, None)
            else:
                if table not in self._streams:
                    self._open_waiting()
                self._catch_up(record, head, self._turn_ends_s())
            self._quarantine.tell()

    def poll(self) -> None:
        """Publish pending changes of our tables, and take over tables that nobody publishes.

        The first pass takes over every table with changes to publish. A later pass takes over those
        whose position has not advanced since the pass before, and tables that we lost because their
        store or the brokers were unavailable. A pass publishes for one turn in all: tables that it
        leaves unfinished, or that were unfinished before, get their turns after it.
        """
        self._poll_all()
        self._quarantine.tell()

    def _poll_all(self) -> None:
        self._signals.read()
        for table_id, stream in self._streams.items():
            stream.receive(self._signals.after(table_id, stream.signal))
        behind, self._behind = self._behind, {}
        quarantined, self._quarantined = self._quarantined, {}
        self._tables = self._registered()
        followed_ids = {table.table for table in self._tables.values() if table.status in FOLLOWED}
        retried = self._quarantine.refresh(followed_ids)
        for table_id in retried:
            self._keyless.pop(table_id, None)
        waits = self._quarantine.waits
        self._quarantined |= {
            table_id: record for table_id, record in quarantined.items() if waits(table_id)
        }
        lost = {table_id for table_id in self._lost if not waits(table_id)} | retried
        self._lost -= lost
        to_open, self._to_open = self._to_open, {}
        heads: dict[UUID, int] = {}
        for record in self._tables.values():
            if record.status in FOLLOWED and not waits(record.table):
                head = self._head(record, max(0, record.published_through))
                heads |= {} if head is None else {record.table: head}
        followed = [self._tables[table] for table in heads]
        not_open = [record for record in followed if record.table not in self._streams]
        positions = self._positions("committed") if not_open else {}
        stuck = [
            record
            for record in not_open
            if self._is_legible(record, positions)
            and (
                record.table in lost
                or record.table in to_open
                or self._has_not_advanced(record, heads, positions)
            )
        ]
        self._open(
            [
                record
                for record in stuck
                if record.table in positions or self._has_keys(record, heads[record.table])
            ]
        )
        self._take_leases(list(self._streams))
        self._seen = positions
        until_s = self._turn_ends_s()
        for table in followed:
            if table.table in behind or self._running.clock.boot_s() >= until_s:
                self._leave(table, heads[table.table])
            else:
                self._catch_up(table, heads[table.table], until_s)
        self._beat_if_due(followed, positions)
        own_tables = self._streams.keys() | self._quarantined.keys()
        names = {table.name for table in self._tables.values() if table.table in own_tables}
        for record in quarantined.values():
            if record.name not in names:
                _remove_metrics(record.name)  # published by another publisher, or not at all

    def close(self) -> None:
        """Close all streams, without waiting for turns that are still running."""
        for stream in list(self._streams.values()):
            stream.close()
        self._streams.clear()
        if self._beats is not None:
            self._beats.close()
            self._beats = None

    def _has_not_advanced(
        self, table: TableRecord, heads: Mapping[UUID, int], positions: Positions
    ) -> bool:
        position = position_of(positions, table.table)
        is_told = (
            position is not None and position.complete and position.version >= heads[table.table]
        )
        if is_told and not self._is_due(table, position):
            self._quarantine.heal(table.table)
            return False
        return self._seen is None or self._seen.get(table.table) == position

    def _is_due(self, table: TableRecord, position: Position | None) -> bool:
        """Return whether anything but the table's next version is to be published."""
        if self._settings.cdc.mode(table.name) == "always" and table.table not in self._begun:
            return True
        incremental = None if position is None else position.incremental
        has_rows_due = incremental is not None and not incremental.paused
        return has_rows_due or bool(
            self._signals.after(table.table, position.signal if position else None)
        )

    def _is_legible(self, table: TableRecord, positions: Positions) -> bool:
        with self._contain_error(table):
            position_of(positions, table.table)
            return True
        return False

    def _has_keys(self, table: TableRecord, head: int) -> bool:
        """Return whether an unpublished table has the key columns it needs, without asking Kafka.

        Many tables may not be meant for publication, and opening one takes a third of a second.
        """
        changes = self._changes(table)
        if changes.key == "none":
            return True
        if self._keyless.get(table.table) == head:
            self._quarantined[table.table] = table
            return False
        with self._contain_error(table):
            store = open_store(table.table_root, self._settings.storage)
            checksum = stated_checksum(store, head)
            metadata = checksum.metadata if checksum else open_keys(store, head).metadata
            try:
                key_columns(metadata, table.name, changes.key, changes.key_columns)
            except InvalidRequest as error:
                is_news = table.table not in self._keyless
                self._keyless[table.table] = head
                if is_asked_for(metadata, changes.key_columns):
                    raise
                self._quarantined[table.table] = table
                self._quarantine.heal(table.table)
                if is_news:
                    _log_quarantined(table, error, logging.WARNING)
                return False
            self._keyless.pop(table.table, None)
            return True
        return False

    def _open_waiting(self) -> None:
        """Take over all tables that wait for it, as their turns came while others were taken over.

        On return no table is being taken over that waited for it before.
        """
        with self._opening:
            waiting, self._to_open = self._to_open, {}
            if waiting:
                self._open(list(waiting.values()))

    def _open(self, tables: Sequence[TableRecord]) -> None:
        """Take tables over: fence their previous owners first, then read their positions.

        Not in two threads at once, since all share one reader of positions.
        """
        with ThreadPoolExecutor(OPENED_AT_ONCE, thread_name_prefix="opening") as pool:
            taken = pool.map(self._taken_over, tables)
            writers = {
                table.table: writer
                for table, writer in zip(tables, taken, strict=True)
                if writer is not None
            }
        positions = self._positions("end") if writers else {}
        for table in [table for table in tables if table.table in writers]:
            with self._contain_error(table):
                position = position_of(positions, table.table)
                self._streams[table.table] = self._stream(table, writers[table.table], position)
                version, index = (position.version, position.index) if position else (None, None)
                log_event(_log, "took_over", table=table.name, version=version, index=index)
            if table.table not in self._streams:
                writers[table.table].close()
        self._take_leases(writers)

    def _taken_over(self, table: TableRecord) -> ChangeWriter | None:
        """Return a table's writer, after it has fenced others; None after an error of the table,
        and while the process stops.
        """
        if self._running.stopping.is_set():
            return None
        with self._contain_error(table):
            self._prepare(table)
            section = self._settings.cdc
            transactions_of = table.name if section.has_transactions(table.name) else None
            writer = ChangeWriter(
                self._settings.kafka, table.table, section.transaction_timeout_ms, transactions_of
            )
            writer.take_over()
            return writer
        return None

    def _take_leases(self, tables: Collection[UUID]) -> None:
        """Hold what our streams need, before they read it; renew leases of which half is over.

        A stream goes on without a lease: it stops by itself where versions are gone.
        """
        now_ms, length_ms = self._running.clock.now_ms(), int(self._settings.cdc.lease_s * 1000)
        leases = [
            LeaseRecord(
                table=table,
                holder=SERVICE,
                needed_from=self._streams[table].needed_from(self._tables[table].published_through),
                until_ms=now_ms + length_ms,
                reason="the change stream",
            )
            for table in tables
            if table in self._streams
            and table in self._tables
            and self._leased_until_ms.get(table, 0) - now_ms < length_ms // 2
        ]
        if not leases:
            return
        try:
            take_lease(self._bus, self._settings.kafka.topics, *leases)
        except (InvalidRequest, Misconfigured, OutcomeUnknown, Unavailable) as error:
            log_event(_log, "not_leased", level=logging.WARNING, why=error)
            return
        self._leased_until_ms |= {lease.table: lease.until_ms for lease in leases}

    def _beat_if_due(self, tables: Sequence[TableRecord], positions: Positions) -> None:
        """Say how far the streams of tables have come: ours, and those that `positions` has.

        Nothing depends on it: a failure is logged.
        """
        interval_s = self._settings.cdc.heartbeat_interval_ms / 1000
        now_s = self._running.clock.boot_s()
        if not interval_s or now_s < self._beat_s + interval_s:
            return
        topic = self._settings.kafka.topics.cdc_heartbeats
        try:
            if self._beats is None:
                create_topics(self._settings.kafka, self._declared(topic))
                self._beats = self._bus.producer()
            for record in tables:
                stream = self._streams.get(record.table)
                position = stream.published if stream else positions.get(record.table)
                if isinstance(position, Position):
                    beat = heartbeat(record.name, position, self._running.clock.now_ms())
                    self._beats.publish(TopicPartition(topic, 0), *beat)
            self._beats.flush(ANSWER_S)
        except (Misconfigured, OutcomeUnknown, Unavailable) as error:
            log_event(_log, "no_heartbeat", level=logging.WARNING, why=error)
        else:
            self._beat_s = now_s

    def _declared(self, *names: str) -> list[Topic]:
        return [topic for topic in self._settings.kafka.topics.declared() if topic.name in names]

    def _prepare(self, table: TableRecord) -> None:
        """Create the table's topic; refuse a topic that another table has.

        Raises: InvalidRequest (`TopicCollision`, `KeylessOrder`).
        """
        topic = self._topic(table)
        owner = self._owners.setdefault(topic, table.table)
        if owner != table.table:
            raise InvalidRequest(
                f"table {table.name} would publish to {topic}, which is the topic of table {owner} "
                "already; register it under another name",
                error_class="TopicCollision",
            )
        keyless = self._changes(table).key == "none"
        changes, section = self._changes(table), self._settings.cdc
        partitions = 1 if keyless else changes.partitions or section.partitions
        config = {"max.message.bytes": str(RECORD_BYTES_MAX)}
        config |= section.topic_settings(table.name)
        topics = [Topic(topic, "key columns", partitions, "delete", -1, config)]
        shared = self._settings.kafka.topics
        topics += self._declared(
            shared.cdc_schema_changes, shared.cdc_transactions, shared.cdc_notifications
        )
        create_topics(self._settings.kafka, topics)
        if keyless and self._bus.partitions(topic) > 1:
            raise InvalidRequest(
                f"table {table.name} is declared to have no key, and its topic {topic} has several "
                "partitions, among which its changes would lose their order; declare key columns, "
                "or recreate the topic with one partition",
                error_class="KeylessOrder",
            )

    def _stream(
        self, table: TableRecord, writer: ChangeWriter, position: Position | None
    ) -> TableStream:
        changes = self._changes(table)
        kafka = self._settings.kafka
        store = open_store(table.table_root, self._settings.storage)
        source = StreamSource(
            table.table,
            table.name,
            kafka.topic_prefix.rstrip(".-_") or "tidegate",
            self._topic(table),
            changes,
            self._settings.cdc.chunk_rows,
            self._settings.cdc.form(table.name),
            changes.on_schema_change or self._settings.cdc.on_schema_change,
            self._settings.cdc.gaps(table.name),
            kafka.topics.cdc_schema_changes,
            self._registry,
            self._settings.cdc.has_transactions(table.name),
            self._large_rows(table, store),
            kafka.topics.cdc_notifications if self._settings.cdc.notifications else None,
        )
        mode = self._settings.cdc.mode(table.name)
        # A stream of which nothing is known obeys only the signals that follow.
        newest = self._signals.newest if position is None else position.signal
        state = StreamState(
            table.table,
            mode,
            position,
            _start(store, changes) if position is None or position.begins else None,
            () if position is None else self._signals.after(table.table, position.signal),
            newest,
            anew=mode == "always" and table.table not in self._begun,
        )
        self._begun.add(table.table)
        writer.go_on(position)
        return TableStream(source, store, writer, state, self._running)

    @contextmanager
    def _contain_error(self, table: TableRecord) -> Iterator[None]:
        """Contain an error to its table: close the table's stream and quarantine the table.

        A fenced table is only released. A table of ours whose error may pass is taken over again.
        """

        def treat(error: Exception) -> None:
            if isinstance(error, Fenced):
                self._quarantine.let_go(table.table, table.name)
                log_event(_log, "fenced", level=logging.WARNING, table=table.name, why=error)
                return
            may_pass = isinstance(error, Unavailable) or is_fault(error)
            if table.table in self._streams and may_pass:
                self._lost.add(table.table)
            self._quarantined[table.table] = table
            self._quarantine.hold(table.table, table.name, error, logging.ERROR)
            for lag in _LAGS:
                lag.labels(table.name).set(inf)

        with contained(treat):
            yield

    def _release(self, table: UUID, name: str) -> None:
        """Close a table's stream, if we have one; its next owner begins at its position."""
        stream = self._streams.pop(table, None)
        if stream is not None:
            # Its next owner writes the same lease.
            self._leased_until_ms.pop(table, None)
            stream.close()
            _remove_metrics(name)
            metrics.CDC_ABORTS.labels(name).inc()

    def _registered(self) -> dict[UUID, TableRecord]:
        """Return the registry; if two names give one topic, the older table owns it."""
        tables = read_registry(self._bus, self._settings.kafka.topics)
        followed = {table.table for table in tables.values() if table.status in FOLLOWED}
        # Iterate over a copy: the thread of another table's notification may add an owner.
        owners = list(self._owners.items())
        self._owners = {topic: table for topic, table in owners if table in followed}
        for record in sorted(tables.values(), key=lambda record: record.table):
            if record.status in FOLLOWED:
                # A name that is no valid topic name stops only its own table, when that is opened.
                with suppress(Misconfigured):
                    topic = self._topic(record)
                    self._owners.setdefault(topic, record.table)
        return tables

    def _head(self, table: TableRecord, at_least: int) -> int | None:
        """Return the newest version, or None after an error of the table, such as a forged log."""
        with self._contain_error(table):
            store = open_store(table.table_root, self._settings.storage)
            check_promised(store, table)
            head = head_version(store, at_least)
            return at_least if head is None else head
        return None

    def _turn_ends_s(self) -> float:
        return self._running.clock.boot_s() + TURN_MAX_S

    def _catch_up(self, table: TableRecord, head: int, until_s: float) -> None:
        """Publish a table until its turn ends; schedule another turn if changes are left."""
        stream = self._streams.get(table.table)
        if stream is None or self._running.stopping.is_set():
            return
        with self._contain_error(table):
            if not stream.catch_up(head, until_s):
                self._leave(table, head)
            self._quarantine.heal(table.table)

    def _leave(self, table: TableRecord, head: int) -> None:
        """Schedule the next turn of a table that we own."""
        if table.table in self._streams:
            self._behind[table.table] = table, head

    def _positions(self, until: Literal["end", "committed"]) -> Positions:
        """Read the positions, waiting as long as the abort of an abandoned transaction may take."""
        patience_s = _ABORTED_WITHIN_S + self._settings.cdc.transaction_timeout_ms / 1000
        return self._position_reader.read(patience_s, until)

    def _large_rows(self, table: TableRecord, store: LogStore) -> LargeRowRule:
        settings = self._settings.cdc.topic_settings(table.name)
        size = int(settings.get("max.message.bytes", RECORD_BYTES_MAX))
        policy, dead_letters = (
            self._settings.cdc.large(table.name),
            self._settings.kafka.topics.dead_letters,
        )
        return LargeRowRule(policy, min(size, RECORD_BYTES_MAX), dead_letters, store.put)

    def _topic(self, table: TableRecord) -> str:
        return self._settings.cdc.topic_of(self._settings.kafka.topics, table.name)

    def _changes(self, table: TableRecord) -> TableChanges:
        return self._settings.cdc.tables.get(table.name, _AS_SET)


def _start(store: LogStore, changes: TableChanges) -> int | None:
    """Return the first version whose changes are published, if the settings name one.

    Raises: InvalidRequest (`TimestampAfterLatest`), if none is as late as the time.
    """
    if changes.start_timestamp is None:
        return changes.start_version
    start_ms = round(changes.start_timestamp.timestamp() * 1000)
    return versions_between(store, open_keys(store), start_ms)[0]


def _log_quarantined(table: TableRecord, error: TidegateError, level: int) -> None:
    reason, error_class = str(error), error.error_class
    log_event(_log, "set_aside", level=level, table=table.name, why=reason, error_class=error_class)


def _remove_metrics(name: str) -> None:
    """Remove a table's metrics; its next owner sets them again."""
    for gauge in (*_LAGS, metrics.CDC_POSITION):
        gauge.remove(name)
