"""The demo's checks: each compares the results of two independent methods.

They read the topics and the log once the demo's writes are done.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from tidegate_delta.log.commit import Commit
from tidegate_messages.codec import decode
from tidegate_messages.outcome import Outcome
from tidegate_messages.proposal import Proposal
from tidegate_messages.topics import Topics
from tidegate_runtime.kafka.client_protocols import Bus, Record, TopicPartition
from tidegate_runtime.storage.log_store import LogStore
from tidegate_runtime.table_io.open_table import read_commit

SUMS: Final = ("distance", "dep_delay", "air_time", "flight")


@dataclass(frozen=True)
class ProofCheck:
    """A statement, whether it holds, and what was observed."""

    statement: str
    holds: bool
    seen: str


def per_month(rows: pa.Table) -> pa.Table:
    """Return rows and sums for each month.

    Shape: month, count_all, and `<column>_sum` for each of SUMS.
    """
    sums = [(name, "sum") for name in SUMS]
    return rows.group_by("month").aggregate([([], "count_all"), *sums]).sort_by("month")


def same_per_month(expected: pa.Table, actual: pa.Table) -> ProofCheck:
    """Compare rows and sums of each month with those of the source."""
    left, right = per_month(expected), per_month(actual.select(expected.column_names))
    return ProofCheck(
        "rows and sums of every month equal those of the source",
        left.to_pylist() == right.to_pylist(),
        f"{right.num_rows} months, {actual.num_rows:,} rows (source: {expected.num_rows:,})",
    )


def same_rows(
    statement: str, expected: pa.Table, actual: pa.Table, key: Sequence[str]
) -> ProofCheck:
    """Compare two tables row by row, in the order of the key."""
    order = [(name, "ascending") for name in key]
    left = expected.sort_by(order).combine_chunks()
    right = actual.select(expected.column_names).cast(expected.schema)
    right = right.sort_by(order).combine_chunks()
    holds = left.num_rows == right.num_rows and all(
        _equal(left[name], right[name]) for name in left.column_names
    )
    return ProofCheck(statement, holds, f"{right.num_rows:,} of {left.num_rows:,} rows")


def replayed(events: Iterable[Mapping[str, Any]], key: Sequence[str]) -> dict[tuple[Any, ...], Any]:
    """Apply change events, in order, to rows by key, and return the rows.

    Raises: ValueError, for an event that contradicts those before it: a row created twice, or a
    changed or deleted row that is not as the event's `before` says.
    """
    rows: dict[tuple[Any, ...], Any] = {}
    for event in events:
        before, after = event.get("before"), event.get("after")
        if before is not None:
            row_key = tuple(before[name] for name in key)
            if rows.pop(row_key, None) != before:
                raise ValueError(
                    f"{event['op']} of {row_key}: the row before is not the one replayed"
                )
        if after is not None:
            row_key = tuple(after[name] for name in key)
            if row_key in rows:
                raise ValueError(f"{event['op']} of {row_key}: the row is there already")
            rows[row_key] = after
    return rows


def outcomes_agree(proposals: Iterable[Proposal], outcomes: Iterable[Outcome]) -> ProofCheck:
    """Check that every proposal has an outcome, and that all outcomes of one proposal agree."""
    results: dict[str, set[tuple[str, int | None]]] = defaultdict(set)
    for outcome in outcomes:
        results[str(outcome.proposal_id)].add((outcome.status, outcome.version))
    ids = {str(proposal.proposal_id) for proposal in proposals}
    silent = ids - results.keys()
    torn = [proposal_id for proposal_id, different in results.items() if len(different) > 1]
    return ProofCheck(
        "every proposal has an outcome, and all outcomes of one proposal agree",
        not silent and not torn,
        f"{len(ids)} proposals, {len(silent)} without an outcome, {len(torn)} with two answers",
    )


def _equal(left: pa.ChunkedArray, right: pa.ChunkedArray) -> bool:
    if pa.types.is_floating(left.type):
        nulls = pc.all(pc.equal(pc.is_null(left), pc.is_null(right))).as_py()
        values_equal = pc.all(pc.equal(pc.fill_null(left, 0.0), pc.fill_null(right, 0.0))).as_py()
        return bool(nulls is not False and values_equal is not False)
    return bool(left.equals(right))


def as_table(rows: Iterable[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    """Return rows of JSON values as a table.

    Numbers and strings are kept, and timestamps are read from their ISO text.
    """
    texts = [
        pa.field(field.name, pa.string()) if pa.types.is_timestamp(field.type) else field
        for field in schema
    ]
    return pa.Table.from_pylist(list(rows), schema=pa.schema(texts)).cast(schema)


QUIET_S: Final = 2.0
"""Silence after which a topic is read to its end. Transaction markers of Kafka take offsets too,
so the last offset alone does not show the end.
"""


@dataclass(frozen=True)
class AnsweredProposal:
    """A proposal, the outcomes published for it, and the latency of the first one.

    Units: `latency_ms` between the broker's timestamps of the two records.
    """

    proposal: Proposal
    outcomes: tuple[Outcome, ...]
    latency_ms: int | None


def answered(bus: Bus, topics: Topics) -> list[AnsweredProposal]:
    """Return every proposal on the topic once, with its outcomes."""
    outcomes: dict[UUID, list[tuple[int, Outcome]]] = defaultdict(list)
    for record in _all_partitions(bus, topics.outcomes):
        outcome = decode(Outcome, record.value)
        outcomes[outcome.proposal_id].append((record.timestamp_ms, outcome))
    sent: dict[UUID, tuple[int, Proposal]] = {}
    for record in _all_partitions(bus, topics.proposals):
        proposal = decode(Proposal, record.value)
        sent.setdefault(proposal.proposal_id, (record.timestamp_ms, proposal))
    return [
        AnsweredProposal(
            proposal,
            tuple(outcome for _, outcome in outcomes[proposal_id]),
            outcomes[proposal_id][0][0] - at_ms if outcomes[proposal_id] else None,
        )
        for proposal_id, (at_ms, proposal) in sent.items()
    ]


def changes(bus: Bus, topic: str) -> Iterator[dict[str, Any]]:
    """Yield the change events of a topic, in order, without tombstones."""
    for record in _all_partitions(bus, topic):
        if record.value is not None:
            yield orjson.loads(record.value)


def positions(bus: Bus, topics: Topics) -> Mapping[str, dict[str, Any]]:
    """Return the change publisher's last position of each table, by table id."""
    positions_by_table: dict[str, dict[str, Any]] = {}
    for record in _all_partitions(bus, topics.cdc_positions):
        if record.key is not None and record.value is not None:
            positions_by_table[record.key.decode()] = orjson.loads(record.value)
    return positions_by_table


def commits(store: LogStore) -> Iterator[tuple[Commit, bytes]]:
    """Yield the table's commits from version 0 to the head."""
    version = 0
    while (entry := read_commit(store, version)) is not None:
        yield entry
        version += 1


def _all_partitions(bus: Bus, topic: str) -> Iterator[Record]:
    reader = bus.reader()
    for partition in range(bus.partitions(topic)):
        topic_partition = TopicPartition(topic, partition)
        following, end = reader.bounds(topic_partition)
        while following < end:
            read = reader.read(topic_partition, following, QUIET_S)
            if not read:
                break
            yield from read
            following = type(end)(read[-1].offset + 1)
    reader.close()
