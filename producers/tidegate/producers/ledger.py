"""Proposals and what was told of them, as the topics still hold it."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from tidegate.delta.errors import MalformedRecord
from tidegate.pipeline.codec import decode
from tidegate.pipeline.outcome import Outcome
from tidegate.pipeline.proposal import Proposal
from tidegate.pipeline.published import TableRecord
from tidegate.pipeline.topics import Topics
from tidegate.runtime.bus import Bus, Offset, Reader, Record, TopicPartition

QUIET_S: Final = 2.0
"""A topic that gives nothing for so long is read to its end."""

LOOKED_THROUGH: Final = 10_000
"""Records among which those of one table are looked for."""

PROMISES: Final = frozenset({"committed", "rejected"})
OUTCOMES_EACH: Final = 4
"""Outcomes looked through for each proposal that is listed: an outcome may be told again."""


@dataclass(frozen=True)
class Told:
    """A proposal as it first arrived, and all outcomes of it that the topic still holds.

    Units: `at_ms` is the record's timestamp; `latency_ms` the time to the first outcome.
    """

    proposal: Proposal
    partition: int
    offset: int
    at_ms: int
    outcomes: tuple[Outcome, ...]
    latency_ms: int | None

    @property
    def answer(self) -> Outcome | None:
        """What holds: the promise where one was given, else what was told last."""
        last = self.outcomes[-1] if self.outcomes else None
        return next((one for one in self.outcomes if one.status in PROMISES), last)

    @property
    def status(self) -> str:
        """What was told, or `pending`."""
        return self.answer.status if self.answer else "pending"


@dataclass(frozen=True)
class Refused:
    """An outcome other than committed, and when it was told. Units: ms since the Unix epoch."""

    outcome: Outcome
    at_ms: int


def last_proposals(
    bus: Bus, topics: Topics, limit: int, table: TableRecord | None = None
) -> list[Told]:
    """Return the newest proposals, of all tables or of one, oldest first.

    Of one table they are looked for among the newest `LOOKED_THROUGH` of its topic partition.
    Raises: Unavailable.
    """
    if table is None:
        told = [
            one
            for number in range(bus.partitions(topics.proposals))
            for one in _of_partition(bus, topics, number, limit)
        ]
    else:
        found = _of_partition(bus, topics, table.topic_partition, max(limit, LOOKED_THROUGH))
        told = [one for one in found if one.proposal.table == table.table]
    return sorted(told, key=lambda one: (one.at_ms, one.partition, one.offset))[-limit:]


def last_refusals(bus: Bus, topics: Topics, table: TableRecord) -> list[Refused]:
    """Return what was refused of a table lately, each proposal once, newest first.

    It is looked for among the newest `LOOKED_THROUGH` outcomes of its topic partition.
    Raises: Unavailable.
    """
    reader = bus.reader()
    found: dict[UUID, Refused] = {}
    try:
        at = TopicPartition(topics.outcomes, table.topic_partition)
        for record in _tail(reader, at, LOOKED_THROUGH):
            if record.value is None:
                continue
            outcome = decode(Outcome, record.value)
            if outcome.table == table.table and outcome.rejection is not None:
                found.setdefault(outcome.proposal_id, Refused(outcome, record.timestamp_ms))
    finally:
        reader.close()
    return list(found.values())[::-1]


def find_proposal(bus: Bus, topics: Topics, proposal_id: UUID) -> Told | None:
    """Return a proposal by its id, or None where the topic no longer holds it.

    Raises: Unavailable.
    """
    for number in range(bus.partitions(topics.proposals)):
        for one in _of_partition(bus, topics, number, None):
            if one.proposal.proposal_id == proposal_id:
                return one
    return None


def _of_partition(bus: Bus, topics: Topics, number: int, limit: int | None) -> Iterator[Told]:
    reader = bus.reader()
    many = None if limit is None else limit * OUTCOMES_EACH
    try:
        outcomes: dict[UUID, list[tuple[int, Outcome]]] = defaultdict(list)
        for record in _tail(reader, TopicPartition(topics.outcomes, number), many):
            if record.value is not None:
                outcome = decode(Outcome, record.value)
                outcomes[outcome.proposal_id].append((record.timestamp_ms, outcome))
        seen: set[UUID] = set()
        for record in _tail(reader, TopicPartition(topics.proposals, number), limit):
            proposal = _readable(record)
            if proposal is not None and proposal.proposal_id not in seen:
                seen.add(proposal.proposal_id)
                yield _told(record, proposal, outcomes[proposal.proposal_id])
    finally:
        reader.close()


def _told(record: Record, proposal: Proposal, outcomes: list[tuple[int, Outcome]]) -> Told:
    latency_ms = outcomes[0][0] - record.timestamp_ms if outcomes else None
    told = tuple(outcome for _, outcome in outcomes)
    place = (record.at.partition, record.offset, record.timestamp_ms)
    return Told(proposal, *place, told, latency_ms)


def _readable(record: Record) -> Proposal | None:
    """Return the proposal in a record, or None for one that went to the dead letters."""
    try:
        return decode(Proposal, record.value)
    except MalformedRecord:
        return None


def _tail(reader: Reader, at: TopicPartition, limit: int | None) -> Iterator[Record]:
    first, end = reader.bounds(at)
    following = first if limit is None else Offset(max(first, end - limit))
    while following < end:
        records = reader.read(at, following, QUIET_S)
        if not records:
            return
        yield from records
        following = Offset(records[-1].offset + 1)
