"""Operators' requests about a table: halt it, reopen it, drop it, move it.

A request comes on a topic of its own. Proposals that come while it waits are decided after it is
carried out. A drop waits for the proposals that came before it, unless a halt follows. A halt is
for incidents: it waits only for the PUT in flight, and waiting proposals are denied with the advice
to retry. A move waits for no more than that either: waiting proposals are sent to the new home.

Their topic partition is read beside that of the proposals (`RequestIntake`). A request is never
held back: it is routed as soon as it is read, before or after any proposal. A record that kills the
process is not looked for here: who may write this topic may drop every table, and its records are
small.
"""

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final
from uuid import UUID

from tidegate_committer.admission.tidegate_properties import what_halts
from tidegate_committer.decision.decision_types import Verdict, denied
from tidegate_committer.decision.published_record_limits import short
from tidegate_committer.intake.candidate import Candidate
from tidegate_committer.intake.proposal_reader import DeadLetter, read_record
from tidegate_committer.loop import registration_rules
from tidegate_committer.loop.outcome_publisher import OutcomePublisher
from tidegate_committer.loop.served_tables import ServedTables
from tidegate_committer.loop.table_committer import TableCommitter
from tidegate_committer.policy import Policy
from tidegate_delta.errors import InvalidRequest, Unavailable
from tidegate_messages.outcome import Rejection
from tidegate_messages.proposal import OPERATOR_REQUESTS
from tidegate_messages.published_records import Ruling, TableRecord
from tidegate_messages.topics import REQUEST_BYTES_MAX, Topics
from tidegate_runtime.containment import attempted, class_of, is_fault, reason_of
from tidegate_runtime.kafka.client_protocols import Offset, Record, TopicPartition
from tidegate_runtime.observability.logs import log_event
from tidegate_runtime.observability.metrics import FAULTS

_log = logging.getLogger(__name__)

_UNHALTED: Final = {"reason": None, "overwritten": None, "halted_by_hand": None}


@dataclass
class OperatorRequests:
    """Carries out operators' requests about the tables of a topic partition, and answers them.

    `before` are the registrations of tables of which the log is being read to serve them anew.
    """

    tables: ServedTables
    before: dict[UUID, TableRecord] = field(default_factory=dict)

    def carry_out(self, candidate: Candidate, table_committer: TableCommitter) -> bool:
        """Carry out a request and answer it; return False while the table's log is being read."""
        assert candidate.proposal is not None, "a request is a proposal"
        reason, kind = candidate.proposal.reason, candidate.proposal.kind
        record, stream = table_committer.record, self.tables.requests_stream
        ruled = ruling(candidate, record, stream)
        if is_over(candidate, record, stream):
            self._answer(granted(candidate, record, repeat=True), record)
        elif kind == "halt":
            assert reason is not None, "a halt gives its reason"
            self._halt(candidate, table_committer, halted(record, reason, ruled))
        elif kind == "reopen":
            return self._reopen(candidate, table_committer, ruled)
        elif kind == "move":
            self._move(candidate, table_committer, ruled)
        else:
            self._drop(candidate, table_committer, dropped(record, ruled))
        return True

    def _drop(
        self, candidate: Candidate, table_committer: TableCommitter, record: TableRecord
    ) -> None:
        self.tables.drop(record)
        self.tables.publisher.dropped(record)
        table_committer.forget()
        for queued in table_committer.queue.everybody():
            self._answer(registration_rules.table_dropped(queued.candidate, record), record)
        self._answer(granted(candidate, record), record)
        self.tables.publisher.tables.discard(record.table)

    def _move(self, candidate: Candidate, table_committer: TableCommitter, ruled: Ruling) -> None:
        """Give a table another topic partition, and serve it here no longer.

        From the moment that its record is durable there, the owner of that partition may serve it,
        from its log: so nothing is in flight, and nothing is written here any more. The request is
        sent on to the new owner, who grants it: so it has the table by then.
        """
        assert candidate.proposal is not None, "a request is a proposal"
        record, number = table_committer.record, candidate.proposal.to_partition
        assert number is not None, "a move names its topic partition"
        if number == record.topic_partition:
            self._answer(granted(candidate, record), record)
            return
        topic = record.proposals_topic
        count = self.tables.dependencies.bus.partitions(topic)
        if number >= count:
            reason = f"to_partition: {topic} has the partitions 0 to {count - 1}, and not {number}"
            self._answer(denied(candidate, "no_such_partition", reason), record)
            return
        moved = record.model_copy(update={"topic_partition": number, "ruling": ruled})
        waiting = [queued.candidate for queued in table_committer.queue.everybody()]
        self.tables.publisher.moved(moved)
        self.tables.close(moved)
        table_committer.forget()
        for each in (*waiting, candidate):
            self._answer(registration_rules.elsewhere(each, moved, self.tables.here), moved)
        self.tables.publisher.tables.discard(record.table)

    def _halt(
        self, candidate: Candidate, table_committer: TableCommitter, record: TableRecord
    ) -> None:
        is_done = table_committer.record.halted_by_hand == record.halted_by_hand
        table_committer.forget()
        table_committer.record = record
        self.tables.publisher.halted(record)
        for queued in table_committer.queue.everybody():
            self._answer(denied_by_halt(queued.candidate, record), record)
        self._answer(granted(candidate, record, repeat=is_done), record)

    def _reopen(self, candidate: Candidate, table_committer: TableCommitter, ruled: Ruling) -> bool:
        """Reopen a halted table if its log proves sound; return False while it is being read."""
        record = table_committer.record
        is_anew = record.table in self.before or names_other_table(candidate, record)
        if record.status != "halted" and not is_anew:
            self._answer(granted(candidate, record, repeat=True), record)
            return True
        if is_anew and record.table not in self.before:
            # What was published is of the table that was here before: it says nothing of this one.
            self.before[record.table] = record
            table_committer.record = made_anew(record, candidate)
        result = read_for_request(table_committer)
        cache = table_committer.cache
        if is_anew and result is True:
            result = self._take_anew(table_committer)
        if is_anew and result is not False:
            before = self.before.pop(record.table)
            table_committer.record = table_committer.record if result is True else before
        if result is True and cache.state is not None:
            properties = cache.state.table_definition.metadata.configuration
            strictness = self.tables.dependencies.settings.unsafe_writers
            result = (
                what_halts(cache.unpublished, table_committer.record, properties, strictness)
                or result
            )
        if isinstance(result, Unavailable):
            self._answer(denied(candidate, result.error_class, f"table: {result}", "retry"), record)
        elif isinstance(result, Exception):
            table_committer.forget()
            cache.unpublished.clear()
            self._answer(still_closed(candidate, reason_of(result)), record)
        elif result:
            table_committer.halted, table_committer.rests_until_s = None, 0.0
            table_committer.record = reopened(table_committer.record, ruled)
            self.tables.publisher.reopened(table_committer.record)
            self._answer(granted(candidate, table_committer.record), table_committer.record)
        return result is not False

    def _take_anew(self, table_committer: TableCommitter) -> bool | Exception:
        """Count the versions of a table that was made anew as published, or return why not."""
        record, cache = table_committer.record, table_committer.cache
        assert cache.state is not None, "its log was read"
        table_id = cache.state.table_definition.metadata.id
        if short(table_id) != record.table_id:
            return InvalidRequest(
                f"the table at {record.table_root} has the id {table_id!r} and not "
                f"{record.table_id!r}: it was made anew again; send a new request",
                error_class="other_table",
            )
        head = cache.state.entries.get(cache.state.version)
        update = {"published_through": cache.state.version, "sha256": head.sha256 if head else None}
        cache.unpublished.clear()
        table_committer.record = record.model_copy(update=update)
        return True

    def _answer(self, verdict: Verdict, record: TableRecord) -> None:
        self.tables.publisher.answer(verdict, record)


def read_for_request(table_committer: TableCommitter) -> bool | Exception:
    """Return whether a table's log was read since a request first needed it, or the error."""
    if not table_committer.reads_for_request:
        table_committer.forget()
        table_committer.reads_for_request = True
    load: Callable[[], bool | Exception] = table_committer.load
    result = attempted(load, partial(_unread, table_committer))
    if result is not False:
        table_committer.reads_for_request = False
    return result


def _unread(table_committer: TableCommitter, error: Exception) -> Exception:
    """Return an error of reading a log for a request; log it first if it was unexpected."""
    if is_fault(error):
        FAULTS.labels(table_committer.label, class_of(error)).inc()
        fields = {"table": table_committer.record.name, "why": reason_of(error)}
        log_event(_log, "request_fault", level=logging.ERROR, fault=error, **fields)
    return error


def is_misplaced(candidate: Candidate) -> bool:
    """Return whether a request came among the proposals, or something else among the requests."""
    kind = candidate.proposal.kind if candidate.proposal is not None else "commit"
    return candidate.is_admin != (kind in OPERATOR_REQUESTS)


def misplaced_denial(candidate: Candidate, topics: Topics) -> Verdict:
    """Return the denial of a candidate that is misplaced."""
    kind = candidate.proposal.kind if candidate.proposal is not None else "commit"
    if candidate.is_admin:
        topic, taken = topics.proposals, f"only {', '.join(sorted(OPERATOR_REQUESTS))} are taken"
        reason = f"kind: {kind!r}, and {taken} on {topics.admin}; send the same bytes to {topic}"
    else:
        topic, taken = topics.admin, f"which is not taken on {topics.proposals}"
        reason = f"kind: {kind!r} is an operator's request, {taken}; send the same bytes to {topic}"
    rejection = Rejection(
        rule="wrong_topic",
        reason=f"{reason}, on the same partition number, as a client that may write there",
        advice="resend",
        field="kind",
        topic=topic,
    )
    return Verdict(candidate, "denied", rejection=rejection)


def objection(candidate: Candidate, table_committer: TableCommitter) -> Verdict | None:
    """Return why a request does not match its table's registration, or None."""
    assert candidate.proposal is not None, "a request is a proposal"
    if not table_committer.is_registered:
        return registration_rules.being_created(candidate)
    if candidate.proposal.table_root != table_committer.record.table_root:
        reason = (
            f"table: {candidate.table} is {table_committer.record.table_root}; "
            "name the table's root"
        )
        return denied(candidate, "other_root", reason)
    return None


def is_due(waiting: Collection[Candidate], table_committer: TableCommitter) -> bool:
    """Return whether the first waiting request may be carried out at this moment.

    A halt queued behind a drop makes the drop due: operators send it when the store is down.
    """
    first = next(iter(waiting)).proposal
    assert first is not None, "a request is a proposal"
    has_time = first.kind == "drop" and table_committer.queue and not any(map(is_halt, waiting))
    return table_committer.in_flight is None and not has_time


def is_halt(candidate: Candidate) -> bool:
    """Return whether a request is to halt its table."""
    return candidate.proposal is not None and candidate.proposal.kind == "halt"


def stops_puts(table_committer: TableCommitter) -> bool:
    """Return whether a halt or a move waits for the PUT in flight: then no other may be sent.

    A move behind a drop waits for that, and so for the proposals before it.
    """
    requests = table_committer.requests
    first = requests[0].proposal if requests else None
    return any(map(is_halt, requests)) or (first is not None and first.kind == "move")


def granted(candidate: Candidate, record: TableRecord, *, repeat: bool = False) -> Verdict:
    """Return the answer to a request that was carried out; `repeat`: it had been before."""
    version = max(record.published_through, 0)
    return Verdict(candidate, "committed", version=version, repeat=repeat)


def names_other_table(candidate: Candidate, record: TableRecord) -> bool:
    """Return whether a request is for a table of another id than the registered one, in its folder.

    Whoever sends it has read the id in the log, and says that the table was made anew on purpose.
    """
    named = candidate.proposal.table_id if candidate.proposal is not None else None
    return None not in (named, record.table_id) and short(named) != record.table_id


def made_anew(record: TableRecord, candidate: Candidate) -> TableRecord:
    """Return the registration of the table that a request names, at the head that it has read."""
    assert candidate.proposal is not None, "a request is a proposal"
    update = {
        "table_id": short(candidate.proposal.table_id),
        "published_through": candidate.read_version,
        "sha256": None,
        "overwritten": None,
    }
    return record.model_copy(update=update)


def denied_by_halt(candidate: Candidate, record: TableRecord) -> Verdict:
    """Return the denial of a proposal for a table that an operator halted."""
    cause = record.halted_by_hand
    reason = f"table: an operator halted it by hand: {cause}; it takes commits once it is reopened"
    return denied(candidate, "table_halted", reason, "retry")


def still_closed(candidate: Candidate, cause: str) -> Verdict:
    """Return the denial of a request to reopen a table whose log cannot be served."""
    reason = f"table: it stays halted, for its log cannot be served: {cause}"
    return denied(candidate, "table_halted", reason, "retry")


def is_over(candidate: Candidate, record: TableRecord, stream: str) -> bool:
    """Return whether this request, or a later one, was carried out before."""
    last = record.ruling
    if last is None:
        return False
    done = last.offset if last.stream == stream else (last.others or {}).get(stream, -1)
    return candidate.offset <= done


def halted(record: TableRecord, reason: str, ruling: Ruling) -> TableRecord:
    """Return the registration of a table that an operator halts."""
    update = {"status": "halted", "reason": f"by hand: {reason}", "halted_by_hand": reason}
    return record.model_copy(update={**update, "ruling": ruling})


def reopened(record: TableRecord, ruling: Ruling) -> TableRecord:
    """Return the registration of a table that is open again because its log is sound."""
    return record.model_copy(update={**_UNHALTED, "status": "open", "ruling": ruling})


def dropped(record: TableRecord, ruling: Ruling) -> TableRecord:
    """Return the registration of a dropped table."""
    return record.model_copy(update={**_UNHALTED, "status": "dropped", "ruling": ruling})


def ruling(candidate: Candidate, record: TableRecord, stream: str) -> Ruling:
    """Return what the registry keeps of a request that is carried out."""
    last = record.ruling
    others = {} if last is None else {**(last.others or {}), last.stream: last.offset}
    others.pop(stream, None)
    return Ruling(
        number=record.rulings + 1, stream=stream, offset=candidate.offset, others=others or None
    )


_LIMITS = Policy(record_bytes_max=REQUEST_BYTES_MAX)


@dataclass
class RequestIntake:
    """The operators' requests of one topic partition.

    Offsets: `read_to` is the next to read, `committed` the last one committed to the group.
    """

    at: TopicPartition
    publisher: OutcomePublisher
    read_to: int = 0
    position: Offset | None = None
    committed: Offset | None = None

    def take(self, record: Record) -> Candidate | DeadLetter:
        """Read a request, and count it as one without an outcome."""
        self.position = Offset(record.offset + 1)
        self.publisher.requests[record.offset] = None
        sent_ms = record.timestamp_ms if record.timestamp_ms > 0 else None
        read = read_record(record.value, record.offset, _LIMITS, record.headers, sent_ms)
        return read if isinstance(read, DeadLetter) else replace(read, is_admin=True)

    @property
    def pending(self) -> int:
        """How many requests have no outcome yet."""
        return len(self.publisher.requests)

    @property
    def due(self) -> Offset | None:
        """The offset to commit, once outcomes are durable; None if it has not advanced."""
        first = next(iter(self.publisher.requests), None)
        safe = self.position if first is None else Offset(first)
        return safe if safe != self.committed else None
