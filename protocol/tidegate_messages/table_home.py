"""The home of a table: the one topic partition of proposals whose committer serves it.

The registration of a table records its home. A table that is not registered belongs to the topic
partition that its id chooses among those there are; who counts them differently is told so.

The registry may hold records of one table by several topic partitions: each writes its own. Which
of them counts is decided here, and alike by everybody who has read them, in whatever order.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple
from uuid import UUID

from tidegate_messages.published_records import TableRecord


class Home(NamedTuple):
    """A topic partition of proposals; as text, `topic/partition`."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"


def partition_of(table: UUID, partitions: int) -> int:
    """Return the partition that a table chooses by its id; its registration then fixes it."""
    return table.int % partitions


def home_of(table: UUID, registry: Mapping[UUID, TableRecord], topic: str, partitions: int) -> Home:
    """Return the home of a table: the registered one, else the one that its id chooses."""
    record = registry.get(table)
    if record is not None and record.status != "staged":
        return recorded_home(record)
    return Home(topic, partition_of(table, partitions))


def recorded_home(record: TableRecord) -> Home:
    """Return the home that a registration records."""
    return Home(record.proposals_topic, record.topic_partition)


def later(known: TableRecord | None, record: TableRecord) -> TableRecord:
    """Return which of two records of one home counts; `record` comes behind `known`.

    The later one, unless it was written by a committer that had lost the table: nothing takes back
    a drop, nor a request of an operator that was carried out.
    """
    return record if known is None or _standing(record) >= _standing(known) else known


def counting(records: Iterable[TableRecord]) -> TableRecord:
    """Return which record counts of one table's records by different homes, one each.

    A dropped table is dropped; a registration counts before what is only staged; the one with more
    requests of operators before the others; of equals that of the lowest topic partition.
    Law: commutative, associative, idempotent; there is a record
    """
    return min(records, key=_place)


def _standing(record: TableRecord) -> tuple[bool, int, bool]:
    return record.status == "dropped", record.rulings, record.status != "staged"


def _place(record: TableRecord) -> tuple[bool, bool, int, Home]:
    is_open = record.status != "staged"
    return record.status != "dropped", not is_open, -record.rulings, recorded_home(record)
