"""Reads the records on the topics and the commits in the log, once the demo's writes are done."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import orjson

from tidegate_delta.log.commit import Commit
from tidegate_messages.codec import decode
from tidegate_messages.outcome import Outcome
from tidegate_messages.proposal import Proposal
from tidegate_messages.topics import Topics
from tidegate_runtime.kafka.client_protocols import Bus, Record, TopicPartition
from tidegate_runtime.storage.log_store import LogStore
from tidegate_runtime.table_io.open_table import read_commit

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
