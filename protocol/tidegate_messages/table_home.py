"""The home of a table: the one topic partition of proposals whose committer serves it.

The registration of a table records its home. A table that is not registered belongs to the
partition that its id selects among the topic's partitions. A writer with another partition count is
sent to the right one.

The registry may hold several records of one table, each written by another topic partition. This
module decides which of them counts. The result does not depend on the order of reading.
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
    """Return the partition that a table's id selects; its registration then fixes it."""
    return table.int % partitions


def home_of(table: UUID, registry: Mapping[UUID, TableRecord], topic: str, partitions: int) -> Home:
    """Return the home of a table: the registered one, else the one that its id selects."""
    record = registry.get(table)
    if record is not None and record.status != "staged":
        return recorded_home(record)
    return Home(topic, partition_of(table, partitions))


def recorded_home(record: TableRecord) -> Home:
    """Return the home that a registration records."""
    return Home(record.proposals_topic, record.topic_partition)


def later(known: TableRecord | None, record: TableRecord) -> TableRecord:
    """Return which of two records of one home counts; `record` was written after `known`.

    The later one counts, unless a committer that had lost the table wrote it: no record undoes a
    drop, or an operator request that was carried out.
    """
    return record if known is None or _precedence(record) >= _precedence(known) else known


def counting(records: Iterable[TableRecord]) -> TableRecord:
    """Return which of one table's records counts, given one record for each home.

    A dropped record comes first, then a registered before a staged one, then the one with more
    operator requests, then the one of the lowest topic partition.
    Law: commutative, associative, idempotent; there is a record
    """
    return min(records, key=_sort_key)


def _precedence(record: TableRecord) -> tuple[bool, int, bool]:
    return record.status == "dropped", record.rulings, record.status != "staged"


def _sort_key(record: TableRecord) -> tuple[bool, bool, int, Home]:
    is_open = record.status != "staged"
    return record.status != "dropped", not is_open, -record.rulings, recorded_home(record)
