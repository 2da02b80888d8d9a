"""Publishes to Kafka: first outcomes, then versions, then, once these are durable, the registry.

The record of a version is made from its file alone, so every committer publishes the same one.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final
from uuid import UUID

from pydantic import JsonValue

from tidegate_committer.conflicts.conflict_rules import DELTA_NAMES
from tidegate_committer.decision.decision_types import Verdict, denied, field_of, target_of
from tidegate_committer.decision.published_record_limits import outcome_value, short, table_value
from tidegate_committer.dependencies import reach
from tidegate_committer.intake.candidate import Candidate
from tidegate_committer.intake.proposal_reader import DeadLetter
from tidegate_committer.intake.refusals import FAULT
from tidegate_committer.loop.read_ahead import ReadAhead
from tidegate_committer.row_level.row_relocation import rebased
from tidegate_committer.state.log_entry import Entry
from tidegate_delta.errors import TidegateError
from tidegate_messages.codec import encode, headers
from tidegate_messages.commit_provenance import Accepted
from tidegate_messages.outcome import Outcome, Rejection
from tidegate_messages.published_records import CommitRecord, TableRecord
from tidegate_messages.record_headers import (
    NO_REPLY,
    ReplyRequest,
    passed_on,
    reply_request,
    trace_id,
    traceparent_of,
)
from tidegate_messages.refusals import label_of
from tidegate_messages.topics import Topics
from tidegate_runtime.clock import Clock
from tidegate_runtime.containment import contained, reason_of
from tidegate_runtime.kafka.client_protocols import (
    Headers,
    NoReplies,
    Producer,
    Record,
    Replies,
    TopicPartition,
)
from tidegate_runtime.observability.logs import log_event
from tidegate_runtime.observability.metrics import (
    CONFLICTS,
    DEAD_LETTERS,
    EXTERNAL_VERSIONS,
    FLUSH,
    NOBODY,
    PROPOSAL_LATENCY,
    not_committed,
    of_table,
    outcome_counter,
)
from tidegate_runtime.observability.tracing import is_exporting, start_span

FLUSH_S: Final = 20.0
"""How long brokers may take to acknowledge. The loop stands still meanwhile, and most orchestrators
give a process 30 s to stop.
"""

LETTER_BYTES_MAX: Final = 3 * 1024 * 1024
LETTER_KEY_BYTES_MAX: Final = 4 * 1024
LETTER_HEADERS_BYTES_MAX: Final = 64 * 1024
"""How much of a dead letter is kept, so that its record fits into the topic."""

HEADER_BYTES: Final = 16
"""The most bytes that a header takes besides its name and its value."""
_log = logging.getLogger(__name__)


@dataclass
class OutcomePublisher:
    """Publishes for one topic partition of proposals, to the same partition number of each topic.

    `tables` are the registered tables: only these are named in metrics. `read_ahead` are the
    proposals without an outcome; `requests` the offsets of operators' requests without one.
    `replies` takes the copies of outcomes that writers ask for.
    """

    producer: Producer
    topics: Topics
    partition: int
    clock: Clock
    unflushed: int = 0
    """Records published since the last flush."""
    tables: set[UUID] = field(default_factory=set)
    read_ahead: ReadAhead = field(default_factory=ReadAhead)
    requests: dict[int, None] = field(default_factory=dict)
    replies: Replies = field(default_factory=NoReplies)

    def awaits(self, candidate: Candidate) -> bool:
        """Return whether a candidate has no outcome yet."""
        return candidate.offset in (self.requests if candidate.is_admin else self.read_ahead)

    def answer(self, verdict: Verdict, record: TableRecord, entry: Entry | None = None) -> None:
        """Publish the outcome of a verdict, after which its record has one; `entry` is the version
        that the proposal is in.

        If building the outcome fails, publish a denial instead: that is the proposal's fault, not
        the table's. A denial promises nothing, so it contradicts nothing in the log.
        Raises: the errors of the bus.
        """

        def deny(error: Exception) -> None:
            fields = {"table": record.name, "proposal": candidate.id, "why": reason_of(error)}
            log_event(_log, "answer_fault", level=logging.ERROR, fault=error, **fields)
            reason = f"(record): its answer could not be published: {reason_of(error)}"
            untraced = replace(candidate, trace=())
            with contained(lambda _: None, passing=TidegateError):
                self.verdict(denied(untraced, FAULT, reason), record, None)

        candidate = verdict.candidate
        with contained(deny, passing=TidegateError):
            self.verdict(verdict, record, entry)
        if candidate.is_admin:
            self.requests.pop(candidate.offset, None)
        else:
            self.read_ahead.discard(candidate.offset)

    def verdict(self, verdict: Verdict, record: TableRecord, entry: Entry | None) -> None:
        """Publish the outcome of a verdict; `entry` is the version that the proposal is in."""
        candidate = verdict.candidate
        outcome = Outcome.trusted(
            {
                "proposal_id": candidate.id,
                "proposal_sha256": candidate.sha256,
                "table": record.table,
                "status": verdict.status,
                "repeat": verdict.repeat,
                "offset": candidate.offset,
                "version": verdict.version,
                "sub_index": verdict.place,
                "in_commit_timestamp": entry.timestamp if entry else None,
                "rejection": verdict.rejection,
                "assigned": _assigned(verdict, entry),
                "app_versions": verdict.app_versions,
                "warnings": _warnings(verdict),
                "decided_ms": self.clock.now_ms(),
            }
        )
        waited_ms = _waited_ms(candidate, outcome)
        self.outcome(outcome, record.name, candidate.trace, waited_ms, candidate.reply)
        if waited_ms is not None:
            of_table(PROPOSAL_LATENCY, self._label(record.name, record.table)).observe(
                waited_ms / 1000
            )
        if is_exporting():
            _record_span(candidate, outcome, record.name)
        if candidate.is_cancel and verdict.status == "rejected":
            log_event(_log, "gave_up", table=record.name, proposal=target_of(candidate))

    def outcome(
        self,
        outcome: Outcome,
        name: str,
        trace: Headers = (),
        waited_ms: int | None = None,
        reply: ReplyRequest = NO_REPLY,
    ) -> None:
        """Publish an outcome, and a copy if one is asked for; log one line about it."""
        if reply is not NO_REPLY and (wrong := reply.wrong(self.topics)):
            outcome = outcome.model_copy(update={"warnings": (*(outcome.warnings or ()), *wrong)})
        key, value = str(outcome.proposal_id).encode(), outcome_value(outcome)
        record_headers = headers(outcome, (*trace, *reply.headers))
        topic_partition = TopicPartition(self.topics.outcomes, self.partition)
        self.producer.publish(topic_partition, key, value, record_headers)
        self.unflushed += 1
        if reply.topic is not None and self.topics.is_for_replies(reply.topic):
            self.replies.send(reply.topic, key, value, record_headers)
        rejection, label = outcome.rejection, self._label(name, outcome.table)
        if not outcome.repeat:
            outcome_counter(label, outcome.status).inc()
        fields: dict[str, Any] = {"version": outcome.version, "offset": outcome.offset}
        if outcome.repeat:
            fields["repeat"] = True
        if rejection is not None:
            rule = label_of(rejection.rule)
            not_committed(label, outcome.status, rule).inc()
            fields |= {"rule": rejection.rule, "winner": rejection.winner_version}
            fields["why"] = rejection.reason
            if rejection.rule in DELTA_NAMES and rejection.winner_version is not None:
                CONFLICTS.labels(label, rule).inc()
        fields |= {"waited_ms": waited_ms, "trace_id": trace_id(trace)}
        known_fields = {key: value for key, value in fields.items() if value is not None}
        log_event(_log, outcome.status, table=name, proposal=outcome.proposal_id, **known_fields)

    def version(self, entry: Entry, record: TableRecord, trace: Headers = ()) -> TableRecord:
        """Publish the record of a version; return the table's registration updated with it."""
        origin = entry.provenance
        commit = CommitRecord(
            table=record.table,
            table_root=record.table_root,
            name=record.name,
            version=entry.version,
            sha256=entry.sha256,
            size=entry.size,
            timestamp=entry.timestamp,
            author=entry.author,
            operation=short(entry.operation),
            proposal_ids=tuple(accepted.id for accepted in origin.accepted) if origin else (),
        )
        topic_partition = TopicPartition(self.topics.commits, self.partition)
        self.producer.publish(
            topic_partition,
            str(record.table).encode(),
            encode(commit),
            headers(commit, trace),
        )
        self.unflushed += 1
        if entry.is_past_the_gate:
            EXTERNAL_VERSIONS.labels(record.name).inc()
            log_event(_log, "external", table=record.name, version=entry.version)
        table_id = entry.metadata.id if entry.metadata else record.table_id
        return record.model_copy(
            update={
                "published_through": entry.version,
                "sha256": entry.sha256,
                "table_id": table_id,
            }
        )

    def recovered(self, entry: Entry, record: TableRecord) -> None:
        """Publish the outcomes that an entry implies as repeats: the process that wrote it may have
        died before it did.
        """
        origin = entry.provenance
        if origin is None:
            return
        for place, accepted in enumerate(origin.accepted):
            outcome = Outcome(
                proposal_id=accepted.id,
                proposal_sha256=accepted.sha256,
                table=record.table,
                status="committed",
                repeat=True,
                offset=accepted.offset,
                version=entry.version,
                sub_index=place,
                in_commit_timestamp=entry.timestamp,
                assigned=_leased(accepted),
            )
            self.outcome(outcome, record.name)
        for refused in origin.refused:
            if refused.sha256 is None:
                continue
            outcome = Outcome(
                proposal_id=refused.id,
                proposal_sha256=refused.sha256,
                table=record.table,
                status="rejected",
                repeat=True,
                offset=refused.offset,
                rejection=refused.reason,
            )
            self.outcome(outcome, record.name)

    def table(self, record: TableRecord) -> None:
        """Publish a registration."""
        self._table(str(record.table), record)

    def claimed(self, record: TableRecord) -> None:
        """Publish durably a claim to a table that is about to be registered here."""
        self.table(record)
        self.flush()

    def withdrawn(self, record: TableRecord) -> None:
        """Withdraw durably the claim to a table."""
        topic_partition = TopicPartition(self.topics.table_state, self.partition)
        self.producer.publish(topic_partition, str(record.table).encode(), None)
        self.unflushed += 1
        self.flush()

    def registered(self, record: TableRecord) -> None:
        """Publish a new registration durably, before any outcome about the table."""
        self.tables.add(record.table)
        self.table(record)
        self.flush()
        log_event(_log, "registered", table=record.name, root=record.table_root)

    def halted(self, record: TableRecord) -> None:
        """Publish durably that a table is halted by hand, before the request is answered."""
        self._publish_ruling(record)
        reason, level = record.halted_by_hand, logging.WARNING
        log_event(_log, "halted_by_hand", level=level, table=record.name, why=reason)

    def reopened(self, record: TableRecord) -> None:
        """Publish durably that a table is open again, before the request is answered."""
        self._publish_ruling(record)
        log_event(_log, "reopened", table=record.name)

    def dropped(self, record: TableRecord) -> None:
        """Publish durably that a table is dropped, before the request is answered."""
        self._publish_ruling(record)
        log_event(_log, "dropped", table=record.name, root=record.table_root)

    def moved(self, record: TableRecord) -> None:
        """Publish durably that a table has another topic partition, before the request is answered,
        and behind its versions: the new owner publishes those after `published_through`.

        The record on this partition stays: it has a lower number, and its withdrawal might come
        behind a move back.
        """
        self.flush()
        self._publish_ruling(record)
        reach("after_move")
        fields = {"home": record.topic_partition, "through": record.published_through}
        log_event(_log, "moved", table=record.name, **fields)

    def _publish_ruling(self, record: TableRecord) -> None:
        """Publish durably the result of an operator's request, under two keys.

        A committer that has lost the table may still publish its record once more, and compaction
        keeps only the last record of a key. The record under the second key preserves the result.
        """
        self._table(f"{record.table}/{record.status}", record)
        self.table(record)
        self.flush()

    def _table(self, key: str, record: TableRecord) -> None:
        topic_partition = TopicPartition(self.topics.table_state, record.topic_partition)
        self.producer.publish(topic_partition, key.encode(), table_value(record), headers(record))
        self.unflushed += 1

    def publish_dead_letter(self, letter: DeadLetter, record: Record) -> None:
        """Publish a dead letter, and an outcome if the record identifies its proposal."""
        source = f"{record.at}@{record.offset}"
        extra = (
            ("reason", letter.reason.encode()[:2048]),
            ("rule", letter.rule.encode()),
            ("source", source.encode()),
            ("sha256", letter.sha256.encode()),
            *_ids_read(letter, record),
        )
        value = None if record.value is None else record.value[:LETTER_BYTES_MAX]
        key = None if record.key is None else record.key[:LETTER_KEY_BYTES_MAX]
        topic_partition = TopicPartition(self.topics.dead_letters, 0)
        self.producer.publish(topic_partition, key, value, (*_kept(record.headers), *extra))
        self.unflushed += 1
        DEAD_LETTERS.labels(letter.rule).inc()
        log_event(_log, "dead_letter", record=source, rule=letter.rule, why=letter.reason)
        if letter.proposal_id is not None and letter.table is not None:
            outcome = _set_aside(letter, letter.proposal_id, letter.table, record)
            trace, reply = passed_on(record.headers), reply_request(record.headers)
            self.outcome(outcome, "-", trace, reply=reply)

    def _label(self, name: str, table: UUID) -> str:
        return name if table in self.tables else NOBODY

    def flush(self) -> None:
        """Wait until all published records are durable. Raises: Unavailable; OutcomeUnknown."""
        reach("before_flush")
        with FLUSH.time():
            self.producer.flush(FLUSH_S)
        self.unflushed = 0
        reach("after_flush")


def _ids_read(letter: DeadLetter, record: Record) -> Iterator[tuple[str, bytes]]:
    """Yield the ids that were read from a record's bytes and that its headers lack."""
    named = {name for name, _ in record.headers}
    for name, value in (("proposal_id", letter.proposal_id), ("table", letter.table)):
        if value is not None and name not in named:
            yield name, str(value).encode()


def _kept(headers: Headers) -> Iterator[tuple[str, bytes]]:
    """Yield a record's first headers, as many as fit into a dead letter."""
    room = LETTER_HEADERS_BYTES_MAX
    for name, value in headers:
        room -= len(name.encode()) + len(value) + HEADER_BYTES
        if room < 0:
            return
        yield name, value


def _record_span(candidate: Candidate, outcome: Outcome, name: str) -> None:
    """Record the span of a proposal: from its arrival at the broker to its outcome."""
    attributes: dict[str, str | int] = {
        "tidegate.table": name,
        "tidegate.proposal": str(candidate.id),
        "tidegate.status": outcome.status,
    }
    if outcome.version is not None:
        attributes["tidegate.version"] = outcome.version
    if outcome.rejection is not None:
        attributes["tidegate.rule"] = outcome.rejection.rule
    start_span(
        "tidegate.decide", traceparent_of(candidate.trace), candidate.sent_ms, attributes
    ).end()


def _waited_ms(candidate: Candidate, outcome: Outcome) -> int | None:
    created_ms = candidate.proposal.created_ms if candidate.proposal else None
    if created_ms is None or outcome.decided_ms is None:
        return None
    return max(0, outcome.decided_ms - created_ms)


def _assigned(verdict: Verdict, entry: Entry | None) -> dict[str, JsonValue]:
    """Return `Outcome.assigned`: what the writer could not know when it proposed.

    That is the base row ids of new files; the new deletion vector of each file that lost rows,
    None for a file without rows left, and how many rows this proposal was the first to delete; the
    identity values that it leased; where compactions moved its rows.
    """
    candidate, place = verdict.candidate, verdict.place
    origin = entry.provenance if entry else None
    if entry is None or origin is None or place is None:
        return {}
    accepted = origin.accepted[place]
    assigned: dict[str, JsonValue] = _leased(accepted)
    if verdict.row_ids:
        assigned["base_row_ids"] = dict(verdict.row_ids)
    if candidate.moves:
        return {**assigned, **rebased(candidate)}
    if not (candidate.intents or candidate.moved_away or candidate.leaving):
        return assigned
    vectors: dict[str, JsonValue] = {}
    for intent in candidate.intents:
        if intent.path not in entry.removed:
            continue
        revision = entry.revised.get(intent.path)
        after = revision.after if revision else None
        vectors[intent.path] = after.model_dump(by_alias=True, exclude_none=True) if after else None
    return {
        **assigned,
        "deletion_vectors": vectors,
        "rows_deleted": accepted.rows_deleted or 0,
        **rebased(candidate),
    }


def _warnings(verdict: Verdict) -> tuple[str, ...] | None:
    """Return what a committed proposal lacks; None for nothing."""
    candidate = verdict.candidate
    if verdict.status != "committed" or candidate.is_verbatim or not candidate.content.txns:
        return None
    return (
        "actions: a `txn` row is written without comparing it with the table's version of its "
        "application; give the version in `app_txns` to have it committed once",
    )


def _leased(accepted: Accepted) -> dict[str, JsonValue]:
    blocks: list[JsonValue] = [
        identity_block.model_dump(mode="json") for identity_block in accepted.identity_blocks
    ]
    return {"identity": blocks} if blocks else {}


def _set_aside(letter: DeadLetter, proposal_id: UUID, table: UUID, record: Record) -> Outcome:
    return Outcome(
        proposal_id=proposal_id,
        proposal_sha256=letter.sha256,
        table=table,
        status="denied",
        offset=record.offset,
        rejection=Rejection(
            rule=letter.rule, reason=letter.reason, advice="fix", field=field_of(letter.reason)
        ),
    )
