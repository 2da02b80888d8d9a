"""The registry: the registered tables, according to the records of `table-state`.

Each topic partition of proposals writes its records to the partition of `table-state` with the same
number. There Kafka keeps their order, and compaction keeps the last one of each key. If several
topic partitions have written of a table, `table_home` decides which record counts.
"""

import logging
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar
from uuid import UUID

from tidegate_delta.errors import (
    InvalidRequest,
    MalformedRecord,
    TidegateError,
    Unavailable,
)
from tidegate_messages.codec import decode, other_format
from tidegate_messages.message import Message
from tidegate_messages.published_records import TableRecord
from tidegate_messages.table_home import Home, counting, later, recorded_home
from tidegate_messages.topics import Topics
from tidegate_runtime.containment import attempted, is_fault, reason_of
from tidegate_runtime.kafka.client_protocols import Bus, Offset, Reader, Record, TopicPartition
from tidegate_runtime.observability.logs import log_event
from tidegate_runtime.storage.root_paths import recorded_root

M = TypeVar("M", bound=Message)

PATIENCE_S: Final = 15.0
FOLLOWED_S: Final = 3_600.0
"""How long a reader continues from its last position before it reads the whole topic again, as
tombstones are not kept for ever.
"""

_READ_S: Final = 1.0
_LEAST_S: Final = 0.05
_log = logging.getLogger(__name__)


def read_registry(
    bus: Bus, topics: Topics, timeout_s: float = PATIENCE_S
) -> dict[UUID, TableRecord]:
    """Read the topic to its end, and return the registered tables by id.

    Raises: Unavailable; Misconfigured, when the topic is missing.
    """
    registrations = Registrations()
    _read_on(bus, topics, registrations, {}, time.monotonic() + timeout_s)
    return {table: _with_canonical_root(record) for table, record in registrations.counting.items()}


@dataclass
class Registrations:
    """The registry's state while it is read.

    `counting` has the record that counts of each table; `contested` has the record of each home for
    tables of which several homes have written.

    Law: equal for every order of reading that keeps the order of each partition of `table-state`
    """

    counting: dict[UUID, TableRecord] = field(default_factory=dict)
    contested: dict[UUID, dict[Home, TableRecord]] = field(default_factory=dict)

    def take(self, record: TableRecord) -> None:
        """Add the next record of a partition."""
        table, home = record.table, recorded_home(record)
        known = self.counting.get(table)
        if known is None or (table not in self.contested and recorded_home(known) == home):
            self.counting[table] = later(known, record)
            return
        homes = self.contested.setdefault(table, {recorded_home(known): known})
        homes[home] = later(homes.get(home), record)
        self.counting[table] = counting(homes.values())

    def take_out(self, table: UUID, partition: int) -> None:
        """Remove the record that a topic partition has written of a table."""
        left = [record for record in self.records_of(table) if record.topic_partition != partition]
        self.counting.pop(table, None)
        self.contested.pop(table, None)
        for record in left:
            self.take(record)

    def records_of(self, table: UUID) -> Sequence[TableRecord]:
        """Return the records of a table, one for each home."""
        if table in self.contested:
            return tuple(self.contested[table].values())
        return (self.counting[table],) if table in self.counting else ()


class RegistryReader:
    """The registry for repeated reads: each one continues where the last one ended.

    Every version leaves a record in the topic, which Kafka compacts late. So the time to read all
    of it grows with the number of versions, not of tables.
    """

    def __init__(self, bus: Bus, topics: Topics) -> None:
        self._bus, self._topics = bus, topics
        self._found = Registrations()
        self._ends: dict[TopicPartition, Offset] = {}
        self._life, self._read_s = "", -math.inf

    def read(self, timeout_s: float = PATIENCE_S) -> dict[UUID, TableRecord]:
        """Return the registered tables by id. Raises: as `read_registry`."""
        began_s, topic = time.monotonic(), self._topics.table_state
        life = self._bus.identity([topic]).topic_ids[topic]
        if life != self._life or began_s - self._read_s > FOLLOWED_S:
            self._forget()
        try:
            changed = self._read_on(began_s + timeout_s)
            tables = self._found.counting
            for table in changed:
                if table in tables:
                    tables[table] = _with_canonical_root(tables[table])
        except TidegateError:
            self._forget()
            raise
        self._life, self._read_s = life, began_s
        return dict(self._found.counting)

    def elsewhere(self, table: UUID, home: Home) -> TableRecord | None:
        """Return which of a table's records by other homes counts, as last read, or None.

        It may be `staged`: then another committer is about to register the table.
        """
        others = [
            record for record in self._found.records_of(table) if recorded_home(record) != home
        ]
        return counting(others) if others else None

    def written_by(self, home: Home) -> Sequence[TableRecord]:
        """Return the records that one home has written, one for each table, as last read."""
        tables = self._found.counting
        records = (record for table in tables for record in self._found.records_of(table))
        return [record for record in records if recorded_home(record) == home]

    def _read_on(self, until_s: float) -> set[UUID]:
        changed = _read_on(self._bus, self._topics, self._found, self._ends, until_s)
        if changed is not None:
            return changed
        # The topic ends before our position: it was restored from a copy.
        self._forget()
        changed = _read_on(self._bus, self._topics, self._found, self._ends, until_s)
        return set(self._found.counting) if changed is None else changed

    def _forget(self) -> None:
        self._found, self._ends = Registrations(), {}


def find_table(registry: Mapping[UUID, TableRecord], root_or_name: str) -> TableRecord | None:
    """Return the table with this root, id or name, or None; a dropped one is found last.

    Raises: InvalidRequest (`AmbiguousName`), when several tables have the name.
    """
    root, table = recorded_root(root_or_name), _as_id(root_or_name)
    exact = [r for r in registry.values() if r.table_root == root or r.table == table]
    same_named = [r for r in registry.values() if r.name == root_or_name]
    named = [r for r in same_named if r.status != "dropped"] or same_named
    if not exact and len(named) > 1:
        roots = ", ".join(sorted(record.table_root for record in named))
        raise InvalidRequest(
            f"{len(named)} tables are called {root_or_name!r}; give the root instead: {roots}",
            error_class="AmbiguousName",
        )
    exact.sort(key=lambda record: record.status == "dropped")
    return next(iter((*exact, *named)), None)


def _with_canonical_root(record: TableRecord) -> TableRecord:
    """Return a record with its root in the present canonical form.

    An earlier release distinguished forms that are one root in this release.
    """
    root = recorded_root(record.table_root)
    return record if root == record.table_root else record.model_copy(update={"table_root": root})


def _as_id(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


def _read_on(
    bus: Bus,
    topics: Topics,
    registrations: Registrations,
    ends: dict[TopicPartition, Offset],
    until_s: float,
) -> set[UUID] | None:
    """Add the topic's records from `ends` on, advance `ends`, and return the tables concerned.

    Return None if the topic ends before them. Raises: as `read_registry`.
    """
    reader = bus.reader()
    try:
        numbers = range(bus.partitions(topics.table_state, _left_s(until_s)))
        everywhere = [TopicPartition(topics.table_state, number) for number in numbers]
        bounds = reader.bounds_of(everywhere, _left_s(until_s))
        if any(
            end < ends.get(topic_partition, end) for topic_partition, (_, end) in bounds.items()
        ):
            return None
        starts = {
            topic_partition: max(first, ends.get(topic_partition, first))
            for topic_partition, (first, _) in bounds.items()
        }
        until = {
            topic_partition: end
            for topic_partition, (_, end) in bounds.items()
            if starts[topic_partition] < end
        }
        read = read_to_ends(
            reader,
            until,
            {topic_partition: starts[topic_partition] for topic_partition in until},
            until_s,
        )
        changed = {table for record in read for table in _fold(registrations, record)}
        ends |= {topic_partition: end for topic_partition, (_, end) in bounds.items()}
    finally:
        reader.close()
    return changed


def read_to_ends(
    reader: Reader,
    ends: Mapping[TopicPartition, Offset],
    starts: dict[TopicPartition, Offset],
    until_s: float,
) -> Iterator[Record]:
    """Yield the records of some partitions, read together: one after the other takes seconds.

    Units: `until_s` by `time.monotonic`.
    Raises: Unavailable, if they deliver nothing in time.
    """
    while behind := [
        topic_partition
        for topic_partition, end in ends.items()
        if max(starts[topic_partition], reader.end_seen(topic_partition)) < end
    ]:
        records = reader.read_several(starts, min(_READ_S, _left_s(until_s)))
        yield from records
        starts |= {record.at: Offset(record.offset + 1) for record in records}
        if time.monotonic() > until_s and not any(record.at in behind for record in records):
            topic_partition = behind[0]
            raise Unavailable(
                f"{topic_partition} gave nothing from {starts[topic_partition]} to "
                f"{ends[topic_partition]} in time; look at the brokers"
            )


def newest_values(
    bus: Bus, topic_partition: TopicPartition, timeout_s: float
) -> dict[bytes, Record]:
    """Return the newest record of each key of a compacted topic partition, without tombstones.

    Raises: Unavailable; Misconfigured, when the topic is missing.
    """
    newest: dict[bytes, Record] = {}
    bus.partitions(topic_partition.topic, timeout_s)
    reader = bus.reader()
    try:
        first, end = reader.bounds(topic_partition, timeout_s)
        if first < end:
            until_s = time.monotonic() + timeout_s
            for record in read_to_ends(
                reader, {topic_partition: end}, {topic_partition: first}, until_s
            ):
                newest.pop(record.key or b"", None)
                if record.value is not None:
                    newest[record.key or b""] = record
    finally:
        reader.close()
    return newest


def _left_s(until_s: float) -> float:
    return max(_LEAST_S, until_s - time.monotonic())


def read_message(kind: type[M], record: Record) -> M | None:
    """Return the message in a record; log a record that can't be read, and return None."""

    def read() -> M:
        other = other_format(record.headers, kind)
        if other is not None:
            raise MalformedRecord(
                f"it is of format {other!r}, by a newer release: upgrade this one"
            )
        return decode(kind, record.value)

    def skip(error: Exception) -> None:
        source, fault = f"{record.at}@{record.offset}", error if is_fault(error) else None
        fields = {"record": source, "why": reason_of(error)}
        log_event(_log, "malformed", level=logging.ERROR, fault=fault, **fields)

    return attempted(read, skip)


def _fold(registrations: Registrations, record: Record) -> tuple[UUID, ...]:
    """Add one record, and return the table that it is about, if any."""
    if record.value is None:
        # An operator who writes a tombstone by hand may get the key wrong: that removes nothing.
        removed = _as_id((record.key or b"").decode(errors="replace"))
        if removed is None:
            return ()
        registrations.take_out(removed, record.at.partition)
        return (removed,)
    table = read_message(TableRecord, record)
    if table is None:
        return ()
    registrations.take(table)
    return (table.table,)
