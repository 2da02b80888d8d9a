"""Reads who needs which versions of a table: the change publisher, the committer, lease holders.

A lease says who needs which versions of a table, and until when log cleanup keeps them. It is a
record on the compacted topic `leases`. A holder renews it by writing it again.
"""

from collections.abc import Iterator, Mapping, Sequence
from uuid import UUID

from tidegate_delta.errors import MalformedRecord
from tidegate_messages.codec import encode, headers
from tidegate_messages.published_records import Gate, LeaseRecord, TableRecord
from tidegate_messages.stream_position import Position, Positions, positions_of
from tidegate_messages.topics import Topics
from tidegate_runtime.clock import instant
from tidegate_runtime.followers.stream_status import SERVICE
from tidegate_runtime.kafka.client_protocols import Bus, TopicPartition
from tidegate_runtime.table_registry import PATIENCE_S, newest_values, read_message


def take_lease(bus: Bus, topics: Topics, *leases: LeaseRecord) -> None:
    """Write leases durably; each replaces an earlier one of the same holder and table.

    A cleanup that is under way does not see it: open the table after the lease was taken, and check
    that the version is still there.
    Raises: Unavailable.
    """
    producer = bus.producer()
    for lease in leases:
        key = _key(lease.holder, lease.table)
        producer.publish(TopicPartition(topics.leases, 0), key, encode(lease), headers(lease))
    producer.close()


def give_back_lease(bus: Bus, topics: Topics, holder: str, table: UUID) -> None:
    """Remove a lease. Raises: Unavailable."""
    producer = bus.producer()
    producer.publish(TopicPartition(topics.leases, 0), _key(holder, table), None)
    producer.close()


def read_leases(
    bus: Bus, topics: Topics, timeout_s: float = PATIENCE_S
) -> Mapping[UUID, Sequence[LeaseRecord]]:
    """Return the leases of each table, those that have expired among them.

    Raises: Unavailable; Misconfigured, when the topic is missing.
    """
    leases: dict[UUID, list[LeaseRecord]] = {}
    for record in newest_values(bus, TopicPartition(topics.leases, 0), timeout_s).values():
        lease = read_message(LeaseRecord, record)
        if lease is not None:
            leases.setdefault(lease.table, []).append(lease)
    return leases


def _key(holder: str, table: UUID) -> bytes:
    return f"{holder}/{table}".encode()


class GateReader:
    """The gates of all tables. The topics are read at most once for each pass, and on demand."""

    def __init__(self, bus: Bus, topics: Topics) -> None:
        self._bus, self._topics = bus, topics
        self._read: tuple[Positions, Mapping[UUID, Sequence[LeaseRecord]]] | None = None

    def forget(self) -> None:
        """Read the topics again at the next question."""
        self._read = None

    def of(self, record: TableRecord, now_ms: int) -> tuple[Gate, ...]:
        """Return who needs which versions of a table.

        Raises: Unavailable; Misconfigured, when a topic is missing.
        """
        if self._read is None:
            self._read = self._positions(), read_leases(self._bus, self._topics)
        positions, leases = self._read
        own_leases = leases.get(record.table, ())
        return tuple(_gates(record, positions.get(record.table), own_leases, now_ms))

    def _positions(self) -> Positions:
        topic_partition = TopicPartition(self._topics.cdc_positions, 0)
        newest = newest_values(self._bus, topic_partition, PATIENCE_S)
        return positions_of({key: record.value for key, record in newest.items()})


def _gates(
    record: TableRecord,
    position: Position | MalformedRecord | None,
    leases: Sequence[LeaseRecord],
    now_ms: int,
) -> Iterator[Gate]:
    if record.published_through >= 0:
        holder = "the committer, which publishes what follows,"
        yield Gate(record.published_through, holder, reads_rows=False)
    publishers = next((lease for lease in leases if lease.holder == SERVICE), None)
    yield from _publisher_gate(position, publishers, now_ms)
    for lease in leases:
        if lease.holder != SERVICE and lease.until_ms > now_ms:
            reason = f" ({lease.reason})" if lease.reason else ""
            yield Gate(lease.needed_from, f"{lease.holder}{reason}, {_until(lease)},")


def _publisher_gate(
    position: Position | MalformedRecord | None, lease: LeaseRecord | None, now_ms: int
) -> Iterator[Gate]:
    """Yield what the change publisher needs: its position says from where, its lease until when.

    The lease alone counts before the first position. A position without a lease, by an earlier
    release, counts without end.
    """
    if lease is not None and lease.until_ms <= now_ms:
        return
    until = "" if lease is None else f", {_until(lease)},"
    if isinstance(position, MalformedRecord):
        yield Gate(
            0, f"the change publisher, whose position can't be read ({position}){until or ','}"
        )
    elif position is not None:
        beside = position.incremental
        oldest = position.version if beside is None else min(position.version, beside.base)
        yield Gate(oldest, f"the change publisher{until}")
    elif lease is not None:
        yield Gate(lease.needed_from, f"the change publisher{until}")


def _until(lease: LeaseRecord) -> str:
    return f"by a lease until {instant(lease.until_ms)} UTC"
