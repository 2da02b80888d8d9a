"""Leases: who needs which versions of a table, and until when. Log cleanup keeps them until then.

A lease is a record on the compacted topic `leases`. A holder renews it by writing it again.
"""

from collections.abc import Mapping, Sequence
from uuid import UUID

from tidegate_messages.codec import encode, headers
from tidegate_messages.published_records import LeaseRecord
from tidegate_messages.topics import Topics
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
