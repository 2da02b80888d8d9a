"""Proposals and their outcomes, as far as the topics still hold them.

An outcome belongs to a proposal's bytes, not to its id: different bytes under the same id have
outcomes of their own. A record that can't be read is known only by its outcomes.

Dead letters are records that no service could read, with the reason.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final
from uuid import UUID

import orjson

from tidegate_delta.errors import MalformedRecord
from tidegate_delta.log.commit import sha256
from tidegate_messages.codec import decode
from tidegate_messages.outcome import Outcome
from tidegate_messages.proposal import Proposal
from tidegate_messages.published_records import CommitRecord, TableRecord
from tidegate_messages.topics import Topics
from tidegate_runtime.kafka.client_protocols import Bus, Offset, Reader, Record, TopicPartition

QUIET_S: Final = 2.0
"""Silence after which a topic partition counts as read to its end, if its broker still answers."""

SEARCHED_RECORDS_MAX: Final = 10_000
"""Newest records of a topic partition that are searched for those of one table."""

PROMISES: Final = frozenset({"committed", "rejected"})
CLOSED: Final = PROMISES | {"expired"}
"""Statuses of proposals that no later delivery of their bytes commits."""

OUTCOMES_EACH: Final = 4
"""Outcomes read per listed proposal: an outcome may be published again."""


@dataclass(frozen=True)
class ProposalOutcomes:
    """A proposal as it first arrived, and all outcomes of its bytes that the topic still holds.

    `proposal` is None if the record can't be read or is gone. `others` are outcomes of different
    bytes under the same id; only `find_proposal` sets them.
    Units: `at_ms` is the record's timestamp; `latency_ms` is the time from there to the first
    outcome.
    """

    proposal_id: UUID
    table: UUID
    proposal: Proposal | None
    partition: int
    offset: int | None
    at_ms: int
    outcomes: tuple[Outcome, ...]
    latency_ms: int | None = None
    others: tuple[Outcome, ...] = ()

    @property
    def answer(self) -> Outcome | None:
        """The outcome that counts: a final one (`PROMISES`) if there is one, else the last."""
        last = self.outcomes[-1] if self.outcomes else None
        return next((outcome for outcome in self.outcomes if outcome.status in PROMISES), last)

    @property
    def status(self) -> str:
        """The status of the outcome that counts, or `pending`."""
        return self.answer.status if self.answer else "pending"


@dataclass(frozen=True)
class PublishedOutcome:
    """An outcome, and when it was published. Units: ms since the Unix epoch."""

    outcome: Outcome
    at_ms: int


@dataclass(frozen=True)
class FoundLetter:
    """A dead letter: what was wrong, and where its record stood (`topic/partition@offset`).

    Units: `at_ms` is when it was set aside, in ms since the Unix epoch.
    """

    proposal_id: UUID
    rule: str
    reason: str
    source: str
    at_ms: int


_Answers = Mapping[str, Sequence[PublishedOutcome]]
"""Outcomes by the SHA-256 of the bytes that they answer."""


def last_proposals(
    bus: Bus, topics: Topics, limit: int, table: TableRecord | None = None
) -> list[ProposalOutcomes]:
    """Return the newest proposals, of all tables or of one, oldest first.

    Those of one table are searched in the newest `SEARCHED_RECORDS_MAX` records of its topic
    partition.
    Raises: Unavailable.
    """
    if table is None:
        numbers = range(bus.partitions(topics.proposals))
        proposals = [
            proposal for number in numbers for proposal in _newest(bus, topics, number, limit)
        ]
    else:
        newest = _newest(bus, topics, table.topic_partition, max(limit, SEARCHED_RECORDS_MAX))
        proposals = [proposal for proposal in newest if proposal.table == table.table]
    return sorted(
        proposals, key=lambda proposal: (proposal.at_ms, proposal.partition, proposal.offset or 0)
    )[-limit:]


def open_proposals(
    bus: Bus, topics: Topics, table: TableRecord, now_ms: int
) -> list[ProposalOutcomes]:
    """Return a table's proposals that may still be committed, oldest first.

    These are the unanswered ones, and those denied for a passing reason, unless their deadline has
    passed. The committer answers a topic partition in its order, so the search goes back, twice as
    far each time, until the older half of what it found is answered.
    Raises: Unavailable.
    """
    limit, last_count = SEARCHED_RECORDS_MAX, -1
    while True:
        newest = sorted(_newest(bus, topics, table.topic_partition, limit), key=_arrived)
        is_answered = not any(_is_open(proposal, now_ms) for proposal in newest[: len(newest) // 2])
        if is_answered or len(newest) == last_count:
            return [
                proposal
                for proposal in newest
                if proposal.table == table.table and _is_open(proposal, now_ms)
            ]
        limit, last_count = 2 * limit, len(newest)


def _arrived(proposal: ProposalOutcomes) -> tuple[int, int]:
    return proposal.at_ms, proposal.offset or 0


def _is_open(delivery: ProposalOutcomes, now_ms: int) -> bool:
    proposal = delivery.proposal
    if proposal is None or proposal.kind not in ("commit", "verbatim") or delivery.status in CLOSED:
        return False
    return proposal.deadline_ms is None or proposal.deadline_ms > now_ms


def last_refusals(bus: Bus, topics: Topics, table: TableRecord) -> list[PublishedOutcome]:
    """Return a table's newest refusals, one for each proposal, newest first.

    They are searched in the newest `SEARCHED_RECORDS_MAX` outcomes of its topic partition.
    Raises: Unavailable.
    """
    reader = bus.reader()
    refusals: dict[UUID, PublishedOutcome] = {}
    try:
        topic_partition = TopicPartition(topics.outcomes, table.topic_partition)
        for record in _tail(reader, topic_partition, SEARCHED_RECORDS_MAX):
            outcome = _outcome(record)
            if outcome and outcome.table == table.table and outcome.rejection is not None:
                refusals.setdefault(
                    outcome.proposal_id, PublishedOutcome(outcome, record.timestamp_ms)
                )
    finally:
        reader.close()
    return list(refusals.values())[::-1]


def versions_past_the_gate(bus: Bus, topics: Topics) -> list[CommitRecord]:
    """Return versions that another program wrote and nobody proposed, oldest first.

    They are searched among the newest `SEARCHED_RECORDS_MAX` commits of each topic partition, as
    far back as its newest outcomes reach, which are as many: a proposal's outcome is published
    after its version.
    Raises: Unavailable.
    """
    reader, found = bus.reader(), list[CommitRecord]()
    try:
        for number in range(bus.partitions(topics.commits)):
            commits = TopicPartition(topics.commits, number)
            foreign = {
                (commit.table, commit.version): (commit, record.timestamp_ms)
                for record in _tail(reader, commits, SEARCHED_RECORDS_MAX)
                if (commit := decode(CommitRecord, record.value)).author == "external"
            }
            outcomes = TopicPartition(topics.outcomes, number)
            answers = list(_tail(reader, outcomes, SEARCHED_RECORDS_MAX)) if foreign else []
            since_ms = answers[0].timestamp_ms if answers else 0
            proposed = {
                (outcome.table, outcome.version)
                for outcome in map(_outcome, answers)
                if outcome is not None and outcome.status == "committed"
            }
            found += [
                commit
                for version, (commit, at_ms) in foreign.items()
                if version not in proposed and min(at_ms, commit.timestamp or at_ms) >= since_ms
            ]
    finally:
        reader.close()
    return found


def find_proposal(bus: Bus, topics: Topics, proposal_id: UUID) -> ProposalOutcomes | None:
    """Return a proposal by its id, or None if the topics hold neither it nor an outcome of it.

    Of several deliveries with the id, return the one with a final outcome, else the first.
    Raises: Unavailable.
    """
    deliveries = [
        delivery
        for number in range(bus.partitions(topics.proposals))
        for delivery in _of_id(bus, topics, number, proposal_id)
    ]
    chosen = next(
        (delivery for delivery in deliveries if delivery.status in PROMISES),
        next(iter(deliveries), None),
    )
    if chosen is None:
        return None
    other_outcomes = tuple(
        outcome
        for delivery in deliveries
        if delivery is not chosen
        for outcome in delivery.outcomes
    )
    return replace(chosen, others=other_outcomes)


def find_letter(bus: Bus, topics: Topics, proposal_id: UUID) -> FoundLetter | None:
    """Return the newest dead letter with a proposal's id, or None.

    The id is that of the header `proposal_id`, else that of the value. Of a value that is no JSON
    it is enough that the id stands in it.
    Raises: Unavailable.
    """
    reader, letter = bus.reader(), None
    try:
        for record in _tail(reader, TopicPartition(topics.dead_letters, 0), None):
            if _is_letter_of(record, proposal_id):
                headers = {name: value.decode(errors="replace") for name, value in record.headers}
                letter = FoundLetter(
                    proposal_id,
                    headers.get("rule", "malformed"),
                    headers.get("reason", ""),
                    headers.get("source", ""),
                    record.timestamp_ms,
                )
    finally:
        reader.close()
    return letter


def _is_letter_of(record: Record, proposal_id: UUID) -> bool:
    header_id = dict(record.headers).get("proposal_id")
    if header_id is not None and _is_id(header_id, proposal_id):
        return True
    value = record.value or b""
    if not _is_id(value, proposal_id):
        return False
    try:
        body = orjson.loads(value)
    except orjson.JSONDecodeError:
        return True
    # A readable record may name the id elsewhere: a cancel names the proposal that it cancels.
    return isinstance(body, dict) and _is_id(str(body.get("proposal_id")).encode(), proposal_id)


def _is_id(text: bytes, proposal_id: UUID) -> bool:
    """Return whether an id stands in a text, with or without hyphens, in either case."""
    return proposal_id.hex.encode() in text.lower().replace(b"-", b"")


def _newest(bus: Bus, topics: Topics, number: int, limit: int) -> Iterator[ProposalOutcomes]:
    reader = bus.reader()
    try:
        topic_partition = TopicPartition(topics.outcomes, number)
        answers = _by_digest(_tail(reader, topic_partition, limit * OUTCOMES_EACH))
        yielded: set[tuple[UUID, str]] = set()
        requests = _tail(reader, TopicPartition(topics.admin, number), limit)
        proposals = _tail(reader, TopicPartition(topics.proposals, number), limit)
        for record in chain(requests, proposals):
            delivery = _with_outcomes(record, answers)
            if delivery is None:
                continue
            identity = (delivery.proposal_id, sha256(record.value or b""))
            if identity not in yielded:
                yielded.add(identity)
                yield delivery
    finally:
        reader.close()


def _of_id(bus: Bus, topics: Topics, number: int, proposal_id: UUID) -> list[ProposalOutcomes]:
    """Return the deliveries of an id in a topic partition, one for each content, oldest first."""
    reader, key = bus.reader(), str(proposal_id).encode()
    try:
        outcomes = _tail(reader, TopicPartition(topics.outcomes, number), None)
        answers = _by_digest(record for record in outcomes if record.key == key)
        deliveries: dict[str, ProposalOutcomes] = {}
        requests = _tail(reader, TopicPartition(topics.admin, number), None)
        proposals = _tail(reader, TopicPartition(topics.proposals, number), None)
        for record in chain(requests, proposals):
            if _is_id(record.value or b"", proposal_id):
                delivery = _with_outcomes(record, answers)
                if delivery is not None and delivery.proposal_id == proposal_id:
                    deliveries.setdefault(sha256(record.value or b""), delivery)
    finally:
        reader.close()
    without_record = [
        _without_record(number, outcomes)
        for name, outcomes in answers.items()
        if name not in deliveries
    ]
    return [*deliveries.values(), *without_record]


def _by_digest(records: Iterable[Record]) -> _Answers:
    answers: dict[str, list[PublishedOutcome]] = defaultdict(list)
    for record in records:
        outcome = _outcome(record)
        if outcome is not None:
            answers[outcome.proposal_sha256].append(PublishedOutcome(outcome, record.timestamp_ms))
    return answers


def _with_outcomes(record: Record, answers: _Answers) -> ProposalOutcomes | None:
    """Return a delivery with its outcomes, or None for unreadable bytes without any."""
    proposal, published_outcomes = _proposal(record), answers.get(sha256(record.value or b""), ())
    if proposal is None and not published_outcomes:
        return None
    about = proposal or published_outcomes[0].outcome
    later = (
        published.at_ms
        for published in published_outcomes
        if (published.outcome.offset or record.offset) >= record.offset
    )
    first_ms = next(later, None)
    return ProposalOutcomes(
        about.proposal_id,
        about.table,
        proposal,
        record.at.partition,
        record.offset,
        record.timestamp_ms,
        tuple(published.outcome for published in published_outcomes),
        None if first_ms is None else max(0, first_ms - record.timestamp_ms),
    )


def _without_record(
    number: int, published_outcomes: Sequence[PublishedOutcome]
) -> ProposalOutcomes:
    first = published_outcomes[0].outcome
    place = (number, first.offset, published_outcomes[0].at_ms)
    outcomes = tuple(published.outcome for published in published_outcomes)
    return ProposalOutcomes(first.proposal_id, first.table, None, *place, outcomes)


def _proposal(record: Record) -> Proposal | None:
    """Return the proposal in a record, or None for an undecodable one (a dead letter)."""
    try:
        return decode(Proposal, record.value)
    except MalformedRecord:
        return None


def _outcome(record: Record) -> Outcome | None:
    """Return the outcome in a record, or None if it holds none."""
    try:
        return decode(Outcome, record.value)
    except MalformedRecord:
        return None


def _tail(reader: Reader, topic_partition: TopicPartition, limit: int | None) -> Iterator[Record]:
    """Yield the newest records, or all. Raises: Unavailable, if the brokers fall silent."""
    first, end = reader.bounds(topic_partition)
    following = first if limit is None else Offset(max(first, end - limit))
    while following < end:
        records = reader.read(topic_partition, following, QUIET_S)
        if not records:
            # This raises if the broker is away: silence alone does not mean the end.
            reader.bounds(topic_partition)
            records = reader.read(topic_partition, following, QUIET_S)
        if not records:
            return  # the remaining offsets hold no records
        yield from records
        following = Offset(records[-1].offset + 1)


@dataclass(frozen=True)
class DeadLetter:
    """A record that could not be read. `source` is where it stood: `topic/partition@offset`.

    `proposal_id` and `producer` are what its headers say, unverified.
    Units: `at_ms` is when it was set aside, in ms since the Unix epoch.
    """

    offset: int
    at_ms: int
    rule: str
    reason: str
    source: str
    proposal_id: str | None
    producer: str | None
    size_bytes: int


@dataclass(frozen=True)
class DeadLetters:
    """How many offsets the topic holds, and the newest letters, newest first."""

    count: int
    newest: tuple[DeadLetter, ...]


def newest_letters(bus: Bus, topics: Topics, limit: int) -> DeadLetters:
    """Return the newest dead letters. Raises: Unavailable; Misconfigured for a missing topic."""
    topic_partition, reader = TopicPartition(topics.dead_letters, 0), bus.reader()
    letters: list[DeadLetter] = []
    try:
        first, end = reader.bounds(topic_partition)
        following = Offset(max(first, end - limit))
        while following < end:
            records = reader.read(topic_partition, following, QUIET_S)
            if not records:
                break  # the remaining offsets hold no records
            letters += [_letter(record) for record in records]
            following = Offset(records[-1].offset + 1)
    finally:
        reader.close()
    return DeadLetters(end - first, tuple(letters[::-1][:limit]))


def _letter(record: Record) -> DeadLetter:
    headers = {name: value.decode(errors="replace") for name, value in record.headers}
    return DeadLetter(
        offset=record.offset,
        at_ms=record.timestamp_ms,
        rule=headers.get("rule", "malformed"),
        reason=headers.get("reason", ""),
        source=headers.get("source", ""),
        proposal_id=headers.get("proposal_id"),
        producer=headers.get("producer"),
        size_bytes=len(record.value or b""),
    )
