"""Quarantine: the tables that a follower skips after an error, and where it publishes them.

An error of one table never affects the others. After a TidegateError the table is tried again at
the next pass, after any other exception only after a pause, which grows each time. The topic
`follower-state` holds a record for each table in quarantine. A tombstone removes it: the follower
writes one once the table is served again, an operator writes one to have the table tried at the
next pass.
"""

import logging
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from uuid import UUID

from tidegate_messages.codec import encode, headers
from tidegate_messages.published_records import FollowerRecord
from tidegate_messages.topics import Topics
from tidegate_runtime.clock import Clock
from tidegate_runtime.containment import Faults, class_of, contained, is_fault, reason_of
from tidegate_runtime.kafka.client_protocols import Bus, TopicPartition
from tidegate_runtime.observability import metrics
from tidegate_runtime.observability.logs import log_event
from tidegate_runtime.table_registry import PATIENCE_S, newest_values, read_message

_log = logging.getLogger(__name__)


def read_follower_state(
    bus: Bus, topics: Topics, timeout_s: float = PATIENCE_S
) -> dict[bytes, FollowerRecord]:
    """Return the tables in quarantine at any follower, by their records' keys.

    Raises: Unavailable; Misconfigured, when the topic is missing.
    """
    newest = newest_values(bus, TopicPartition(topics.follower_state, 0), timeout_s)
    read = {key: read_message(FollowerRecord, record) for key, record in newest.items()}
    return {key: record for key, record in read.items() if record is not None}


def publish_follower_state(
    bus: Bus, topics: Topics, records: Mapping[bytes, FollowerRecord | None]
) -> None:
    """Write records of tables in quarantine durably; None removes one. Raises: Unavailable."""
    producer, topic_partition = bus.producer(), TopicPartition(topics.follower_state, 0)
    for key, record in records.items():
        if record is None:
            producer.publish(topic_partition, key, None)
        else:
            producer.publish(topic_partition, key, encode(record), headers(record))
    producer.close()


@dataclass
class _Quarantined:
    """A table in quarantine. Units: `until_s` by `Clock.boot_s`."""

    record: FollowerRecord
    until_s: float


@dataclass
class Quarantine:
    """The tables in quarantine at one follower, called `service`.

    `release` drops the follower's state of a table (id, name) that enters quarantine.
    `recorded` is what the topic holds of this follower, and of others of its name: as read at
    the last pass, and written since.
    """

    service: str
    bus: Bus
    topics: Topics
    clock: Clock
    release: Callable[[UUID, str], object]
    recorded: dict[bytes, FollowerRecord] = field(default_factory=dict)
    _held: dict[UUID, _Quarantined] = field(default_factory=dict)
    _faults: dict[UUID, Faults] = field(default_factory=dict)
    _unsaid: dict[bytes, FollowerRecord | None] = field(default_factory=dict)
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def refresh(self, tables: Collection[UUID]) -> set[UUID]:
        """Read the topic, and return the tables that an operator wants tried at once.

        Tables that are not in `tables`, those that are followed, leave quarantine.
        Raises: Unavailable; Misconfigured, when the topic is missing.
        """
        records = read_follower_state(self.bus, self.topics)
        self.recorded = {
            key: record for key, record in records.items() if record.service == self.service
        }
        released = {table for table in self._held if self._key(table) not in self.recorded}
        for table in released:
            self._held[table].until_s = -inf
        for table in {*self._held, *(record.table for record in self.recorded.values())} - {
            *tables
        }:
            self.heal(table)
        return released & self._held.keys()

    def holds(self, table: UUID) -> bool:
        """Return whether a table is in quarantine, and so skipped until the next pass."""
        return table in self._held

    def waits(self, table: UUID) -> bool:
        """Return whether this pass, too, skips a table."""
        held = self._held.get(table)
        return held is not None and self.clock.boot_s() < held.until_s

    @contextmanager
    def around(self, table: UUID, name: str, level: int = logging.WARNING) -> Iterator[None]:
        """Put this table, and no other, into quarantine after any error of the body."""
        with contained(lambda error: self.hold(table, name, error, level)):
            yield

    def hold(self, table: UUID, name: str, error: Exception, level: int = logging.WARNING) -> None:
        """Put a table into quarantine."""
        self.let_go(table, name)
        fault, until_s, next_try_ms = None, -inf, None
        if is_fault(error):
            pause_s = self._faults.setdefault(table, Faults()).add(self.clock.boot_s())
            fault, until_s = error, self.clock.boot_s() + pause_s
            next_try_ms = self.clock.now_ms() + round(pause_s * 1000)
            metrics.FAULTS.labels(name, class_of(error)).inc()
        key = self._key(table)
        held = self._held.get(table)
        former = held.record if held else self.recorded.get(key)
        record = FollowerRecord(
            service=self.service,
            table=table,
            name=name,
            reason=reason_of(error),
            error_class=class_of(error),
            since_ms=former.since_ms if former else self.clock.now_ms(),
            attempts=former.attempts + 1 if former else 1,
            next_try_ms=next_try_ms,
        )
        self._held[table] = _Quarantined(record, until_s)
        # An error that recurs at every pass is published once, not every half a minute.
        is_published = key in self.recorded and self.recorded[key].reason == record.reason
        if fault is not None or not is_published:
            self._publish(key, record)
        metrics.QUARANTINED.set(len(self._held))
        fields = {"table": name, "why": record.reason, "error_class": record.error_class}
        log_event(_log, "set_aside", level=level, fault=fault, **fields)

    def let_go(self, table: UUID, name: str) -> None:
        """Drop the follower's state of a table; errors of doing so are only logged."""

        def ignore(error: Exception) -> None:
            log_event(_log, "not_released", level=logging.WARNING, fault=error, table=name)

        with contained(ignore):
            self.release(table, name)

    def heal(self, table: UUID) -> None:
        """Take a table that is served, or no longer followed, out of quarantine if it is there."""
        held, key = self._held.pop(table, None), self._key(table)
        if held is None and key not in self.recorded:
            return
        self.recorded.pop(key, None)
        self._publish(key, None)
        metrics.QUARANTINED.set(len(self._held))
        if held is not None:
            log_event(_log, "healed", table=held.record.name)

    def tell(self) -> None:
        """Publish which tables entered quarantine or left it. Raises: Unavailable."""
        with self._turn:
            unsaid, self._unsaid = self._unsaid, {}
        if unsaid:
            publish_follower_state(self.bus, self.topics, unsaid)

    def _publish(self, key: bytes, record: FollowerRecord | None) -> None:
        with self._turn:
            self._unsaid[key] = record
        if record is not None:
            self.recorded[key] = record

    def _key(self, table: UUID) -> bytes:
        return f"{self.service}/{table}".encode()
