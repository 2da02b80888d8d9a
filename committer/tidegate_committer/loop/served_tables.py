"""The tables of one topic partition: the registry as last read, and a committer for each table."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final
from uuid import UUID

from tidegate_committer.dependencies import Dependencies
from tidegate_committer.group_commit.entry_encoding import EntryWriter
from tidegate_committer.loop import registration_rules
from tidegate_committer.loop.outcome_publisher import OutcomePublisher
from tidegate_committer.loop.registration_rules import RegisteredTables
from tidegate_committer.loop.scheduling import TableScheduler
from tidegate_committer.loop.table_committer import TableCommitter
from tidegate_delta.errors import Misconfigured, TidegateError
from tidegate_messages.published_records import TableRecord
from tidegate_messages.table_home import Home, home_of, recorded_home
from tidegate_runtime.containment import attempted
from tidegate_runtime.kafka.client_protocols import TopicPartition
from tidegate_runtime.observability.logs import log_event
from tidegate_runtime.storage.log_store import LogStore
from tidegate_runtime.storage.open_store import UnavailableStore
from tidegate_runtime.storage.root_paths import canonical_root
from tidegate_runtime.table_registry import RegistryReader

_log = logging.getLogger(__name__)

STALE_S: Final = 1.0
"""How old our copy of the registry may be when a proposal is denied because of it."""


@dataclass
class ServedTables:
    """The table committers of a topic partition, by table id.

    `dropped` are the registrations of dropped tables: they have no table committer, but keep their
    ids and roots. `registry` is the registry as last read, at `opened_s` by `Clock.boot_s`;
    `partitions` is how many partitions the proposals topic had then. `committers_started` is how
    many table committers were started. `requests_stream` identifies the topic partition of
    operators' requests, as `origin.stream` does that of the proposals.
    """

    topic_partition: TopicPartition
    dependencies: Dependencies
    publisher: OutcomePublisher
    origin: EntryWriter
    registry_reader: RegistryReader
    requests_stream: str
    committers: dict[UUID, TableCommitter] = field(default_factory=dict)
    dropped: dict[UUID, TableRecord] = field(default_factory=dict)
    scheduler: TableScheduler = field(default_factory=TableScheduler)
    committers_started: int = 0
    opened_s: float = 0.0
    registry: RegisteredTables = field(default_factory=lambda: RegisteredTables({}, ()))
    partitions: int = 1

    @property
    def here(self) -> Home:
        """The home of the tables that are served here."""
        return Home(self.topic_partition.topic, self.topic_partition.partition)

    @property
    def is_stale(self) -> bool:
        """Whether other committers may have registered tables since the registry was last read."""
        return self.dependencies.clock.boot_s() - self.opened_s > STALE_S

    def open(self) -> RegisteredTables:
        """Read new registry records, start table committers for this partition's tables, and close
        those of tables that are dropped or registered elsewhere.
        """
        partitions = self.dependencies.bus.partitions(self.topic_partition.topic)
        return self.serve_all(self.registry_reader.read(), partitions)

    def serve_all(self, records: Mapping[UUID, TableRecord], partitions: int) -> RegisteredTables:
        """Do as `open`, with registry records that were just read."""
        tables, self.partitions = dict(records), partitions
        self.opened_s = self.dependencies.clock.boot_s()
        self.registry = RegisteredTables(dict(tables), self.dependencies.settings.roots)
        for record in records.values():
            is_here = recorded_home(record) == self.here
            table_committer = self.committers.get(record.table)
            if table_committer is not None and table_committer.is_registered:
                if record.status == "dropped" or not (is_here or record.status == "staged"):
                    self._leave(table_committer, record)
            elif table_committer is None and is_here and record.status not in ("dropped", "staged"):
                self.serve(record)
                self.publisher.tables.add(record.table)
            if is_here and record.status == "dropped":
                self.dropped[record.table] = record
        tables |= {table: served.record for table, served in self.committers.items()}
        return RegisteredTables(tables, self.dependencies.settings.roots)

    def drop(self, record: TableRecord) -> None:
        """Close the table committer of a table that an operator drops, by its new registration."""
        self.close(record)
        self.dropped[record.table] = record

    def close(self, record: TableRecord) -> None:
        """Close the table committer of a table that an operator drops or moves, by its new
        registration.
        """
        del self.committers[record.table]
        tables = {**self.registry.tables, record.table: record}
        self.registry = RegisteredTables(tables, self.registry.roots)

    def home_of(self, table: UUID) -> Home:
        """Return the home of a table, by the registry as it was last read."""
        return home_of(table, self.registry.tables, self.topic_partition.topic, self.partitions)

    def is_home(self, table: UUID) -> bool:
        """Return whether this is the home of a table."""
        return self.home_of(table) == self.here

    def unregistered_at(self, root: str) -> list[TableCommitter]:
        """Return the tables at a root that are being created or registered, and not decided yet."""
        return [
            table_committer
            for table_committer in self.committers.values()
            if not table_committer.is_registered and table_committer.record.table_root == root
        ]

    def serve(self, record: TableRecord) -> TableCommitter:
        """Start the table committer of a table. Raises: Misconfigured; Unavailable."""
        table_committer = TableCommitter(
            record, self._store_of(record.table_root), self.dependencies, self.origin
        )
        table_committer.order = self.committers_started
        self.committers_started += 1
        self.committers[record.table] = table_committer
        self.scheduler.wake(record.table)
        return table_committer

    def _store_of(self, root: str) -> LogStore:
        """Return the store of a registered table.

        A root that this release cannot parse, or that fails unexpectedly, halts only its own table.
        An error in our settings (`Misconfigured` from `open_store`) ends the process instead.
        """
        try:
            canonical_root(root)
        except Misconfigured as error:
            return UnavailableStore(root, error)
        unopened = partial(UnavailableStore, root)
        return attempted(
            lambda: self.dependencies.open_store(root), unopened, passing=TidegateError
        )

    def _leave(self, table_committer: TableCommitter, record: TableRecord) -> None:
        """Close the table committer of a table that was dropped or has another home. Write nothing
        more for it, and deny the waiting proposals and requests.

        If the PUT in flight lands, it is found in the log: no outcome says that it failed.
        """
        table = table_committer.record.table
        del self.committers[table]
        self.publisher.tables.discard(table)
        table_committer.forget()
        table_committer.in_flight = None
        table_committer.cache.unpublished.clear()
        log_event(
            _log, "left", level=logging.WARNING, table=record.name, home=recorded_home(record)
        )
        waiting = [queued.candidate for queued in table_committer.queue.everybody()]
        for candidate in (*waiting, *table_committer.give_up_requests()):
            verdict = registration_rules.elsewhere(candidate, record, self.here)
            self.publisher.answer(verdict, record)
