"""The worker for one topic partition of proposals, from its assignment to its revocation.

It parses each record into a candidate and queues it at its table's committer. What that decides is
published as an outcome; the offset advances once the outcome is durable. A revocation at any point
loses nothing: the next owner starts from the tables' logs.
"""

import logging
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import Final
from uuid import UUID

from tidegate_committer.admission.tidegate_properties import halts, is_unsafe, unsafe_writer_error
from tidegate_committer.decision.decision_types import Verdict
from tidegate_committer.dependencies import Dependencies, reach
from tidegate_committer.intake.candidate import Candidate
from tidegate_committer.intake.proposal_reader import DeadLetter, read_record
from tidegate_committer.loop.operator_requests import RequestIntake, stops_puts
from tidegate_committer.loop.outcome_publisher import OutcomePublisher
from tidegate_committer.loop.poison_records import PoisonSuspects, at_fault, read_poison
from tidegate_committer.loop.read_ahead import IN_ORDER, OTHERS, Flow, ReadAhead, size_of
from tidegate_committer.loop.registration_rules import table_halted
from tidegate_committer.loop.scheduling import BackgroundReads, is_unread
from tidegate_committer.loop.served_tables import ServedTables
from tidegate_committer.loop.table_committer import TableCommitter, order_of
from tidegate_committer.loop.table_router import TableRouter
from tidegate_committer.state.log_entry import Entry
from tidegate_delta.errors import Contended, TidegateError, Unavailable
from tidegate_runtime.containment import attempted, class_of, contained, is_fault, reason_of
from tidegate_runtime.kafka.client_protocols import Offset, Record
from tidegate_runtime.observability.logs import log_event
from tidegate_runtime.observability.metrics import FAULTS, RESTS, UNSAFE_VERSIONS

SAID_FROM_S: Final = 1.0
"""From which pause on, in seconds, the registry says why a table rests: it is then no hiccup."""

RETRY_HALTED_S: Final = 30.0
"""How long a halted table waits before its log is read again. After an unexpected error see
`containment.Faults`.
"""

TableStep = Callable[[TableCommitter], tuple[Verdict, ...]]
_log = logging.getLogger(__name__)


@dataclass
class PartitionWorker:
    """The work on one topic partition.

    Offsets: `read_to` is the next to read, `position` the next to handle, `committed` the last one
    committed to the group; None if there is none yet. `registry_due` are the tables whose
    changed registration is not yet published. `busy` are the table committers that had proposals
    waiting, a PUT in flight or a read in progress after the last step: most tables are idle at any
    time. `grouped_at` is how many table committers there were when held records were last
    regrouped.
    """

    dependencies: Dependencies
    router: TableRouter
    suspects: PoisonSuspects
    requests: RequestIntake
    read_to: int = 0
    position: Offset | None = None
    committed: Offset | None = None
    registry_due: dict[UUID, None] = field(default_factory=dict)
    tables: ServedTables = field(init=False)
    publisher: OutcomePublisher = field(init=False)
    read_ahead: ReadAhead = field(init=False)
    schedule: BackgroundReads = field(init=False)
    busy: list[TableCommitter] = field(default_factory=list)
    grouped_at: int = 0

    def __post_init__(self) -> None:
        self.tables, self.publisher = self.router.tables, self.router.publisher
        self.read_ahead = self.publisher.read_ahead
        self.schedule = BackgroundReads(self.dependencies)

    def take(self, record: Record, *, may_handle: bool = True) -> bool:
        """Handle a record, or hold it back. It is held back if records are under suspicion
        (`poison_records`), if its table has enough proposals to decide (`ReadAhead`), or if this
        step may handle no more.

        Return whether it was handled.
        """
        if self.suspects.holds(record):
            self.suspects.held.append(record)
            return False
        self._regroup()
        flow = self._flow(record)
        if may_handle and self.read_ahead.may_be_handled(flow):
            self.handle(record)
            return True
        self.read_ahead.hold(record, flow)
        self.position = Offset(record.offset + 1)
        return False

    def take_request(self, record: Record) -> None:
        """Carry out or queue an operator's request, or publish it as a dead letter."""
        take = partial(self.requests.take, record)
        self._handle(record, attempted(take, partial(self._failed_over, record)))

    def handle_held(self, records_max: int) -> None:
        """Handle at most `records_max` held records, as far as there is room."""
        self._regroup()
        for record in self.read_ahead.release(records_max):
            self._parse(record)

    def _regroup(self) -> None:
        """Move held records to the flow that they belong to by now, before a newer record joins it:
        when no death is recorded any longer, and when a table is served that was not when they were
        read.
        """
        if self.read_ahead.held(IN_ORDER) and not self._is_in_order:
            self.read_ahead.part(IN_ORDER, self._flow)
        if self.read_ahead.held(OTHERS) and self.grouped_at != self.tables.committers_started:
            self.read_ahead.part(OTHERS, self._flow)
        self.grouped_at = self.tables.committers_started

    def next_suspect(self) -> Record | None:
        """Return the suspected record that is to be handled next, alone; None while other work is
        in progress, or if none is held.
        """
        if not self.suspects.note.alone or not self._is_quiet:
            return None
        if self.suspects.is_over():
            self.suspects.note = self.suspects.note.is_cleared()
            innocent, self.suspects.held = self.suspects.held, deque()
            for record in innocent:
                self.take(record)
        self.suspects.name_next()
        return self.suspects.held.popleft() if self.suspects.held else None

    def handle(self, record: Record) -> None:
        """Parse a record and route it to its table, or publish it as a dead letter."""
        self.read_ahead.add_handled(record, self._flow(record))
        self.position = Offset(record.offset + 1)
        self._parse(record)

    def _parse(self, record: Record) -> None:
        read = attempted(partial(self._read, record), partial(self._failed_over, record))
        self._handle(record, read)
        reach("after_take")

    def _handle(self, record: Record, read: Candidate | DeadLetter) -> None:
        if isinstance(read, DeadLetter):
            self._set_aside(record, read)
        else:
            # A `TidegateError` comes from the bus here, and concerns all tables: it ends the loop.
            with contained(partial(self._misrouted, record, read), passing=TidegateError):
                self.router.route(read)

    def _failed_over(self, record: Record, error: Exception) -> DeadLetter:
        """Return the dead letter of a record whose handling failed unexpectedly."""
        source = f"{record.at}@{record.offset}"
        fields = {"record": source, "why": reason_of(error), "error_class": class_of(error)}
        log_event(_log, "record_fault", level=logging.ERROR, fault=error, **fields)
        return at_fault(record, error)

    def _set_aside(self, record: Record, letter: DeadLetter) -> None:
        def shorter(error: Exception) -> None:
            self.publisher.publish_dead_letter(self._failed_over(record, error), record)

        with contained(shorter, passing=TidegateError):
            self.publisher.publish_dead_letter(letter, record)
        self._discard(record)

    def _misrouted(self, record: Record, candidate: Candidate, error: Exception) -> None:
        """Publish a record as a dead letter, and halt its table: routing it failed unexpectedly."""
        self._discard(record)
        self._set_aside(record, self._failed_over(record, error))
        table_committer = self.tables.committers.get(candidate.table)
        if table_committer is not None:
            self._halt(table_committer, error)

    def _discard(self, record: Record) -> None:
        """Count a record as one that has its outcome."""
        if record.at == self.requests.at:
            self.publisher.requests.pop(record.offset, None)
        else:
            self.read_ahead.discard(record.offset)

    @property
    def _is_in_order(self) -> bool:
        """Whether records are handled in offset order over all tables. That is so once processes
        have died: the record at fault must be among the first few (`poison_records`).
        """
        return self.suspects.note.deaths > 0 or self.suspects.note.alone

    def _flow(self, record: Record) -> Flow:
        """Return the flow within which a record keeps its order: the table that its key names. The
        key is trusted for nothing else.
        """
        if self._is_in_order:
            return IN_ORDER
        try:
            table = UUID((record.key or b"").decode("ascii"))
        except ValueError:
            return OTHERS
        return table if table in self.tables.committers else OTHERS

    def _read(self, record: Record) -> Candidate | DeadLetter:
        guilt = self.suspects.guilt(record)
        if guilt is not None:
            source = f"{record.at}@{record.offset}"
            log_event(_log, "poison", level=logging.ERROR, record=source, set_aside=guilt)
            return read_poison(record, even_refusing_kills=guilt)
        sent_ms = record.timestamp_ms if record.timestamp_ms > 0 else None
        read = read_record(
            record.value, record.offset, self.dependencies.policy, record.headers, sent_ms
        )
        reach("after_read", "" if isinstance(read, DeadLetter) else read.id)
        return read

    @property
    def _is_quiet(self) -> bool:
        """Whether every table is loaded and has no work left, but for resting and halted ones."""
        now_s = self.dependencies.clock.boot_s()
        return all(
            not table_committer.reads_for_request
            and (
                table_committer.rests_until_s > now_s
                or table_committer.record.halted_by_hand is not None
                or (
                    table_committer.cache.state
                    and not table_committer.queue
                    and table_committer.in_flight is None
                    and not table_committer.cache.is_behind
                )
            )
            for table_committer in self.tables.committers.values()
        )

    def work(self) -> bool:
        """Let each due table decide and publish one entry; return whether more work is due."""
        now_s, scheduler = self.dependencies.clock.boot_s(), self.tables.scheduler
        due = self._due(now_s)
        # Start one load a step of tables on which no proposal waits, so that polls and busy tables
        # go on between the loads of many tables.
        unread = scheduler.next_to_read(self.tables.committers, self.dependencies.loads.is_free)
        busy = unread is not None and bool(scheduler.unread)
        for table_committer in sorted((*due, *([unread] if unread else ())), key=order_of):
            busy = self._work_on(table_committer, now_s) or busy
        table_committers = self.tables.committers
        due_committers = (
            table_committers[table] for table in scheduler.due if table in table_committers
        )
        self.busy = [
            table_committer
            for table_committer in due_committers
            if table_committer.queue or table_committer.in_flight or table_committer.cache.waits_for
        ]
        return busy or self.read_ahead.may_go_on

    def _work_on(self, table_committer: TableCommitter, now_s: float) -> bool:
        """Do the work that is due at a table; return whether it could do more at once."""
        scheduler, table = self.tables.scheduler, table_committer.record.table
        if self.tables.committers.get(table) is not table_committer:
            # It was removed during this step: its table has another home.
            return False
        if table_committer.reads_for_request:
            self._carry_out_request(table_committer)
            return False
        if table_committer.record.halted_by_hand is not None:
            # Do not read its store: the operator may be moving its files.
            self.schedule.forget(table)
            scheduler.clear_due(table)
            return False
        if table_committer.rests_until_s > self.dependencies.clock.boot_s():
            if (
                not table_committer.queue
                and not table_committer.cache.waits_for
                and table_committer.in_flight is None
            ):
                scheduler.postpone(table, table_committer.rests_until_s)
            return False
        is_busy = self._attend(table_committer)
        if table_committer.idle_until_s > now_s and not table_committer.queue:
            scheduler.postpone(table, table_committer.idle_until_s)
        return is_busy

    def _due(self, now_s: float) -> list[TableCommitter]:
        """Return the table committers with work due; those that wait to be loaded are left out."""
        scheduler, table_committers, due = (
            self.tables.scheduler,
            self.tables.committers,
            list[TableCommitter](),
        )
        for table in scheduler.now(now_s):
            table_committer = table_committers.get(table)
            if table_committer is None:
                self.schedule.forget(table)
                scheduler.clear_due(table)
            elif table_committer.idle_until_s > now_s and not table_committer.queue:
                scheduler.postpone(table, table_committer.idle_until_s)
            elif is_unread(table_committer) and table_committer.rests_until_s <= now_s:
                scheduler.read_in_turn(table_committer)
            else:
                due.append(table_committer)
        return due

    def make_durable(self) -> Offset | None:
        """Flush outcomes, then the registry; return the offset to commit, if it has advanced."""
        publisher = self.publisher
        if publisher.unflushed:
            publisher.flush()
        table_committers = self.tables.committers
        if self.registry_due:
            for table in self.registry_due:
                if table in table_committers:
                    self._publish_registration(table_committers[table])
            self.registry_due.clear()
            publisher.flush()
            reach("after_state")
        return self._offset_to_commit if self._offset_to_commit != self.committed else None

    def _publish_registration(self, table_committer: TableCommitter) -> None:
        """Publish a table's registration; if that fails, halt the table and omit `table_id`."""

        def cut(error: Exception) -> None:
            self._halt(table_committer, error)
            table_committer.record = table_committer.record.model_copy(update={"table_id": None})
            self.publisher.table(table_committer.record)

        with contained(cut, passing=TidegateError):
            self.publisher.table(table_committer.record)

    @property
    def lags(self) -> bool:
        """Whether something published is not durable yet, or the offset has advanced."""
        is_past = self._offset_to_commit != self.committed or self.requests.due is not None
        return bool(self.publisher.unflushed or self.registry_due or is_past)

    @property
    def _offset_to_commit(self) -> Offset | None:
        """The offset to commit: every record before it has its outcome."""
        first = self.read_ahead.first
        return self.position if first is None else Offset(first)

    @property
    def pending(self) -> int:
        """How many records have no outcome yet."""
        return len(self.read_ahead) + len(self.suspects.held) + self.requests.pending

    @property
    def pending_bytes(self) -> int:
        """Their size in bytes."""
        held = sum(map(size_of, self.suspects.held))
        return self.read_ahead.size_bytes + held

    @property
    def waits_until_s(self) -> float | None:
        """When the first busy table is due again, or None. By `Clock.boot_s`."""
        waits = (table_committer.waits_until_s for table_committer in self.busy)
        return min((until_s for until_s in waits if until_s is not None), default=None)

    @property
    def has_put_in_flight(self) -> bool:
        """Whether a PUT is in flight."""
        return any(table_committer.in_flight is not None for table_committer in self.busy)

    @property
    def put_s(self) -> float:
        """The usual duration of a PUT, in seconds: the least of the tables with one in flight."""
        in_flight = (
            table_committer
            for table_committer in self.busy
            if table_committer.in_flight is not None
        )
        return min((table_committer.linger.put_s for table_committer in in_flight), default=0.0)

    def land(self) -> None:
        """Publish the results of finished PUTs; decide nothing new."""
        for table, table_committer in list(self.tables.committers.items()):
            if (
                self.tables.committers.get(table) is table_committer
                and table_committer.in_flight is not None
                and table_committer.in_flight.future.done()
            ):
                verdicts = self._attempt(table_committer, TableCommitter.land)
                self._publish_verdicts(table_committer, verdicts)

    def _attend(self, table_committer: TableCommitter) -> bool:
        verdicts: tuple[Verdict, ...] = ()
        if self._is_there(table_committer):
            verdicts = self._attempt(table_committer, self._decide_waiting)
        self._publish_verdicts(table_committer, verdicts)
        self._withdraw_idle_reason(table_committer, verdicts)
        self._carry_out_request(table_committer)
        table_committer.idle_until_s = self.schedule.idle_until_s(table_committer)
        return bool(verdicts and table_committer.queue)

    def _attempt(self, table_committer: TableCommitter, work: TableStep) -> tuple[Verdict, ...]:
        """Run one step of a table. On an error that table halts or rests, and the others go on.

        The step must publish nothing: an error of the bus would be taken for the table's.
        """

        def treat(error: Exception) -> tuple[Verdict, ...]:
            self._halt_or_rest(table_committer, error)
            return ()

        return attempted(lambda: work(table_committer), treat)

    def _halt_or_rest(self, table_committer: TableCommitter, error: Exception) -> None:
        if not isinstance(error, Unavailable | Contended):
            self._halt(table_committer, error)
        elif not self.router.registrar.gives_up(table_committer, error):
            table_committer.rest(self.dependencies.clock.boot_s())
            self._publish_idle_reason(table_committer, error)
            RESTS.labels(table_committer.label, type(error).__name__).inc()
            log_event(
                _log, "resting", level=logging.WARNING, table=table_committer.record.name, why=error
            )

    def _publish_idle_reason(self, table_committer: TableCommitter, error: Exception) -> None:
        """Have the registry say why a table rests, once it has rested for a second or so.

        Its proposals wait: writers whose patience ends, and operators, read the reason there.
        """
        record = table_committer.record
        if table_committer.rest_s < SAID_FROM_S or record.status != "open" or record.reason:
            return
        if table_committer.is_registered:
            reason = f"rests, its proposals wait: {reason_of(error)}"
            table_committer.record = record.model_copy(update={"reason": reason})
            self.registry_due[record.table] = None

    def _withdraw_idle_reason(
        self, table_committer: TableCommitter, verdicts: tuple[Verdict, ...]
    ) -> None:
        """Take back from the registry why a table rested, once it has committed or has no work."""
        record = table_committer.record
        is_idle = table_committer.cache.state is not None and not table_committer.queue
        if record.status == "open" and record.reason and (verdicts or is_idle):
            table_committer.record = record.model_copy(update={"reason": None})
            self.registry_due[record.table] = None

    def _publishing(self, table_committer: TableCommitter) -> AbstractContextManager[None]:
        """Halt the table if publishing its changes fails unexpectedly. A `TidegateError` is the
        bus's there and concerns all tables: it ends the loop.
        """
        return contained(partial(self._halt, table_committer), passing=TidegateError)

    def _carry_out_request(self, table_committer: TableCommitter) -> None:
        with self._publishing(table_committer):
            self.router.carry_out_request(table_committer)

    def _publish_verdicts(
        self, table_committer: TableCommitter, verdicts: tuple[Verdict, ...]
    ) -> None:
        with self._publishing(table_committer):
            if any(verdict.candidate.is_verbatim for verdict in verdicts):
                self._publish_before_outcome(table_committer)
            for verdict in verdicts:
                self.router.publish_verdict(table_committer, verdict)
            if verdicts:
                table_committer.linger.published_s = self.dependencies.clock.boot_s()
                reach("after_outcomes")
            self._publish_versions(table_committer)
        for verdict in verdicts:
            self._deny(table_committer, verdict.candidate)

    def _publish_before_outcome(self, table_committer: TableCommitter) -> None:
        """Publish a verbatim version durably before its outcome.

        Its writer removes the staged file once it has the outcome. By that file a takeover knows
        what came through the gate, of the versions that no registration counts as published.
        """
        if table_committer.is_registered and table_committer.cache.unpublished:
            self._publish_versions(table_committer)
            self.publisher.table(table_committer.record)
            self.publisher.flush()

    def _is_there(self, table_committer: TableCommitter) -> bool:
        """Return whether a table is loaded and its versions published; if not, go on loading it."""
        if table_committer.cache.state is not None or stops_puts(table_committer):
            return True
        self._attempt(table_committer, _load)
        if table_committer.cache.state is not None:
            with self._publishing(table_committer):
                self._publish_versions(table_committer)
        if table_committer.cache.state is not None:
            self._heal(table_committer)
        return table_committer.cache.state is not None

    def _decide_waiting(self, table_committer: TableCommitter) -> tuple[Verdict, ...]:
        if stops_puts(table_committer):
            in_flight = table_committer.in_flight
            has_ended = in_flight is not None and in_flight.future.done()
            return table_committer.land() if has_ended else ()
        self.schedule.audit(table_committer)
        if table_committer.queue:
            return table_committer.decide_waiting()
        self.schedule.probe(table_committer)
        return ()

    def _publish_versions(self, table_committer: TableCommitter) -> None:
        if not table_committer.is_registered or not table_committer.cache.unpublished:
            return
        publisher = self.publisher
        for entry in table_committer.cache.unpublished:
            if is_unsafe(entry, table_committer.record) and self._halts_for(table_committer, entry):
                break
            origin = entry.provenance
            if origin is not None and origin.epoch != self.tables.origin.epoch:
                publisher.recovered(entry, table_committer.record)
            trace = table_committer.traces.pop(entry.version, ())
            table_committer.record = publisher.version(entry, table_committer.record, trace)
        table_committer.cache.unpublished.clear()
        self.registry_due[table_committer.record.table] = None
        reach("after_commits")

    def _halts_for(self, table_committer: TableCommitter, entry: Entry) -> bool:
        """Halt a table, or warn, because an engine that may overwrite versions wrote one."""
        assert table_committer.cache.state is not None, "what is published was read"
        properties = table_committer.cache.state.table_definition.metadata.configuration
        if halts(properties, self.dependencies.settings.unsafe_writers):
            self._halt(table_committer, unsafe_writer_error(entry, table_committer.record))
            return True
        UNSAFE_VERSIONS.labels(table_committer.label).inc()
        level = logging.WARNING
        log_event(
            _log,
            "unsafe_writer",
            level=level,
            table=table_committer.record.name,
            version=entry.version,
        )
        return False

    def _halt(self, table_committer: TableCommitter, error: Exception) -> None:
        """Halt a table until its log can be read; the other tables go on.

        After each unexpected error in a row the pause is longer.
        """
        table_committer.forget()
        self.schedule.forget(table_committer.record.table)
        # If the PUT in flight lands, it is found in the log: no outcome says that it failed.
        table_committer.in_flight = None
        now_s, fault = self.dependencies.clock.boot_s(), error if is_fault(error) else None
        table_committer.rests_until_s = now_s + (
            table_committer.faults.add(now_s) if fault else RETRY_HALTED_S
        )
        fields = {"table": table_committer.record.name, "why": reason_of(error)}
        if fault is not None:
            FAULTS.labels(table_committer.label, class_of(error)).inc()
        if table_committer.halted is None or fault is not None:
            log_event(_log, "halted", level=logging.ERROR, fault=fault, **fields)
        table_committer.halted = reason_of(error)
        waiting = [queued.candidate for queued in table_committer.queue.everybody()]
        waiting += table_committer.give_up_requests() if fault else []
        if not table_committer.is_registered:
            self.router.registrar.send_away(table_committer, waiting, error)
            return
        for candidate in waiting:
            self._deny(table_committer, candidate)
        table_committer.record = table_committer.record.model_copy(
            update={"status": "halted", "reason": table_committer.halted}
        )
        self.registry_due[table_committer.record.table] = None

    def _deny(self, table_committer: TableCommitter, candidate: Candidate) -> None:
        """Deny a candidate of a halted table, unless it has its outcome."""
        if table_committer.halted is not None and self.publisher.awaits(candidate):
            self.publisher.answer(
                table_halted(candidate, table_committer.halted), table_committer.record
            )

    def _heal(self, table_committer: TableCommitter) -> None:
        if table_committer.halted is None and table_committer.record.status != "halted":
            return
        table_committer.halted = None
        healed = {"status": "open", "reason": None, "overwritten": None}
        table_committer.record = table_committer.record.model_copy(update=healed)
        self.registry_due[table_committer.record.table] = None
        log_event(_log, "healed", table=table_committer.record.name)


def _load(table_committer: TableCommitter) -> tuple[Verdict, ...]:
    """Continue the load of a table; return no verdicts."""
    table_committer.load()
    return ()
