"""Moves tables between the topic partitions of proposals, and plans moves that even out the load.

A table belongs to one topic partition, whose committer serves it. Partitions that are added to the
topic take new tables; those that exist go there by a move.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from tidegate_messages.outcome import Outcome
from tidegate_messages.proposal import Operation
from tidegate_messages.published_records import TableRecord
from tidegate_messages.topics import Topics
from tidegate_producers.writing.table_write import WriteRequest, stamp_for
from tidegate_runtime.client import proposal_builders
from tidegate_runtime.client.client import Client, result
from tidegate_runtime.kafka.client_protocols import Bus, Offset, Reader, TopicPartition
from tidegate_runtime.table_registry import PATIENCE_S, read_to_ends

RECENT_S: Final = 600.0
"""The time over which the versions of tables are counted."""

READ_MAX: Final = 100_000
"""The most records of a topic partition of `commits` that are read for that."""

UNEVEN_MIN: Final = 0.1
"""Topic partitions whose loads differ by a smaller share of their mean are left as they are."""


@dataclass(frozen=True)
class Move:
    """A table that is to get another topic partition. Units: `rate` in versions a second."""

    table: TableRecord
    to: int
    rate: float


def move(client: Client, root_or_name: str, to: int, timeout_s: float) -> Outcome:
    """Give a table another topic partition, and return the outcome; a second time is no error.

    The old owner sends the request on to the new one, which has the table when it grants it.
    Proposals that arrive at the old partition are denied with the advice to send the same bytes to
    the new one.
    Raises: InvalidRequest (`TableNotRegistered`); Rejected (`no_such_partition`); OutcomeUnknown;
    Unavailable.
    """
    record = client.require(root_or_name, timeout_s)
    version = max(record.published_through, 0)
    target = proposal_builders.Target(record.table, record.table_root, version, record.table_id)
    body = proposal_builders.Body(Operation(name="MOVE"), to_partition=to)
    stamp = stamp_for(client, WriteRequest(timeout_s))
    proposal = proposal_builders.of_body("move", target, stamp, body)
    return result(client.propose(proposal, timeout_s))


def recent_rates(bus: Bus, topics: Topics, now_ms: int) -> dict[UUID, float]:
    """Return how many versions a second each table had in the last ten minutes, without idle ones.

    Raises: Unavailable; Misconfigured, if the topic `commits` is missing.
    """
    rates: defaultdict[UUID, float] = defaultdict(float)
    with closing(bus.reader()) as reader:
        for number in range(bus.partitions(topics.commits)):
            # One that has moved meanwhile has versions on both partitions.
            at = TopicPartition(topics.commits, number)
            for table, rate in _rates_of(reader, at, now_ms).items():
                rates[table] += rate
    return dict(rates)


def _rates_of(reader: Reader, at: TopicPartition, now_ms: int) -> dict[UUID, float]:
    first, end = reader.bounds(at)
    start = max(first, Offset(end - READ_MAX))
    if start == end:
        return {}
    since_ms = now_ms - 1_000 * RECENT_S
    counts: Counter[bytes] = Counter()
    oldest_ms = float(now_ms)
    for record in read_to_ends(reader, {at: end}, {at: start}, time.monotonic() + PATIENCE_S):
        oldest_ms = min(oldest_ms, record.timestamp_ms)
        if record.timestamp_ms >= since_ms and record.key is not None:
            counts[record.key] += 1
    seconds = RECENT_S if start == first else max(1.0, (now_ms - max(oldest_ms, since_ms)) / 1_000)
    return {UUID(key.decode()): count / seconds for key, count in counts.items()}


def balanced(
    tables: Iterable[TableRecord], rates: Mapping[UUID, float], partitions: int
) -> list[Move]:
    """Return the moves that even out the load of topic partitions, the most useful first. Pure.

    The load of a table is its rate of versions; one that is idle stays where it is. Each move takes
    a table from the busiest partition to the least busy one, so that their difference shrinks most.
    Law: the busiest partition is no busier afterwards; no table moves twice
    """
    homes: dict[int, list[TableRecord]] = {number: [] for number in range(partitions)}
    for record in tables:
        if rates.get(record.table, 0.0) > 0.0 and record.topic_partition in homes:
            homes[record.topic_partition].append(record)
    loads = {
        number: sum(rates[record.table] for record in records) for number, records in homes.items()
    }
    moves: list[Move] = []
    moved: set[UUID] = set()
    while True:
        busiest, idlest = (
            max(loads, key=lambda each: (loads[each], each)),
            min(loads, key=lambda each: (loads[each], each)),
        )
        gap, mean = loads[busiest] - loads[idlest], sum(loads.values()) / len(loads)
        fitting = [
            record
            for record in homes[busiest]
            if record.table not in moved and rates[record.table] < gap
        ]
        if gap <= UNEVEN_MIN * mean or not fitting:
            return moves
        chosen = min(fitting, key=lambda record: (abs(gap - 2 * rates[record.table]), record.table))
        moves.append(Move(chosen, idlest, rates[chosen.table]))
        moved.add(chosen.table)
        homes[busiest].remove(chosen)
        homes[idlest].append(chosen)
        loads[busiest] -= rates[chosen.table]
        loads[idlest] += rates[chosen.table]
