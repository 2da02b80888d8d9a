"""Routes the candidates of a topic partition to their table committers, or answers them at once.

A proposal that creates a table gets a table committer of its own; the table is registered durably
before its outcome is published. Operators' requests and registrations keep their order among the
proposals.
"""

import logging
import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final
from uuid import UUID

from tidegate_committer.admission.unsafe_writers import what_halts
from tidegate_committer.decision.decision_types import Verdict, denied
from tidegate_committer.dependencies import Dependencies, reach
from tidegate_committer.group_commit.entry_encoding import EntryWriter
from tidegate_committer.intake.candidate import Candidate
from tidegate_committer.intake.refusals import FAULT
from tidegate_committer.loop import operator_requests, table_registration
from tidegate_committer.loop.outcome_publisher import OutcomePublisher
from tidegate_committer.loop.read_ahead import ReadAhead
from tidegate_committer.loop.table_committer import TableCommitter
from tidegate_committer.loop.table_registration import RegisteredTables
from tidegate_committer.loop.table_scheduler import TableScheduler
from tidegate_committer.state.log_entry import Entry
from tidegate_committer.state.table_state import is_ours
from tidegate_committer.store_reads.unique_root_check import is_overtaken
from tidegate_delta.errors import Misconfigured, TidegateError, Unavailable
from tidegate_messages.published_records import Ruling, TableRecord
from tidegate_messages.table_home import Home, home_of, recorded_home
from tidegate_runtime.containment import attempted, class_of, contained, is_fault, reason_of
from tidegate_runtime.kafka.client_protocols import TopicPartition
from tidegate_runtime.observability.logs import log_event
from tidegate_runtime.observability.metrics import FAULTS
from tidegate_runtime.storage.log_store import LogStore
from tidegate_runtime.storage.root_paths import canonical_root
from tidegate_runtime.storage.unavailable_store import UnavailableStore
from tidegate_runtime.table_registry import RegistryReader

_log = logging.getLogger(__name__)

STALE_S: Final = 1.0
"""How old our copy of the registry may be when a proposal is denied because of it."""

CREATION_S: Final = 600.0
"""How long a proposal that creates a table waits for a store that does not answer."""


@dataclass
class ServedTables:
    """The table committers of a topic partition.

    `unsettled` are the records without an outcome. `dropped` are the registrations of dropped
    tables: they have no table committer, but keep their ids and roots. `registry` is the registry
    as last read, at `opened_s` by `Clock.boot_s`; `partitions` is how many partitions the proposals
    topic had then.
    """

    at: TopicPartition
    dependencies: Dependencies
    publisher: OutcomePublisher
    origin: EntryWriter
    registry_reader: RegistryReader
    table_committers: dict[UUID, TableCommitter] = field(default_factory=dict)
    unsettled: ReadAhead = field(default_factory=ReadAhead)
    dropped: dict[UUID, TableRecord] = field(default_factory=dict)
    scheduler: TableScheduler = field(default_factory=TableScheduler)
    seats_given: int = 0
    opened_s: float = 0.0
    registry: RegisteredTables = field(default_factory=lambda: RegisteredTables({}, ()))
    partitions: int = 1

    @property
    def here(self) -> Home:
        """The home of the tables that are served here."""
        return Home(self.at.topic, self.at.partition)

    def open(self) -> RegisteredTables:
        """Read new registry records, start table committers for this partition's tables, and close
        those of tables that are dropped or registered elsewhere.
        """
        partitions = self.dependencies.bus.partitions(self.at.topic)
        return self.serve_all(self.registry_reader.read(), partitions)

    def serve_all(self, records: Mapping[UUID, TableRecord], partitions: int) -> RegisteredTables:
        """Do as `open`, with registry records that were just read."""
        tables, self.partitions = dict(records), partitions
        self.opened_s = self.dependencies.clock.boot_s()
        self.registry = RegisteredTables(dict(tables), self.dependencies.settings.roots)
        for record in records.values():
            is_here, table_committer = (
                recorded_home(record) == self.here,
                self.table_committers.get(record.table),
            )
            if table_committer is not None and table_committer.is_registered:
                if record.status == "dropped" or not (is_here or record.status == "staged"):
                    self._leave(table_committer, record)
            elif table_committer is None and is_here and record.status not in ("dropped", "staged"):
                self._serve(record)
                self.publisher.tables.add(record.table)
            if is_here and record.status == "dropped":
                self.dropped[record.table] = record
        tables |= {
            table: table_committer.record
            for table, table_committer in self.table_committers.items()
        }
        return RegisteredTables(tables, self.dependencies.settings.roots)

    def home_of(self, table: UUID) -> Home:
        """Return the home of a table, by the registry as it was last read."""
        return home_of(table, self.registry.tables, self.at.topic, self.partitions)

    def is_home(self, table: UUID) -> bool:
        """Return whether this is the home of a table."""
        return self.home_of(table) == self.here

    def answer(self, verdict: Verdict, record: TableRecord) -> None:
        """Publish a verdict that no table committer decided."""
        self.tell(verdict, record, None)

    def tell(self, verdict: Verdict, record: TableRecord, entry: Entry | None) -> None:
        """Publish a verdict. If building its outcome fails, publish a denial instead: that is the
        proposal's fault, not the table's. A denial promises nothing, so it contradicts nothing in
        the log.

        Raises: the errors of the bus.
        """

        def deny(error: Exception) -> None:
            told = {"table": record.name, "proposal": candidate.id, "why": reason_of(error)}
            log_event(_log, "answer_fault", level=logging.ERROR, fault=error, **told)
            reason = f"(record): its answer could not be published: {reason_of(error)}"
            plain = replace(candidate, trace=())
            with contained(lambda _: None, passing=TidegateError):
                self.publisher.verdict(denied(plain, FAULT, reason), record, None)

        candidate = verdict.candidate
        with contained(deny, passing=TidegateError):
            self.publisher.verdict(verdict, record, entry)
        self.unsettled.discard(candidate.offset)

    def send_away(
        self, table_committer: TableCommitter, waiting: Iterable[Candidate], error: Exception
    ) -> None:
        """Deny all proposals for a table that cannot be created, and remove its table committer."""
        self.table_committers.pop(table_committer.record.table, None)
        for one in waiting:
            self.answer(table_registration.unfit(one, error), table_committer.record)

    def gives_up(self, table_committer: TableCommitter, error: TidegateError) -> bool:
        """Deny a proposal that creates a table if its store has not answered by the proposal's
        deadline or within `CREATION_S`. Return whether it was denied.

        An unregistered table cannot be halted or dropped, and without an outcome the offset could
        not advance. While a PUT is in doubt, only the store knows its result, so the proposal
        waits.
        """
        if table_committer.is_registered or table_committer.has_sent or not table_committer.queue:
            return False
        first, clock = table_committer.queue[0], self.dependencies.clock
        deadline_ms = first.candidate.proposal.deadline_ms if first.candidate.proposal else None
        is_over = deadline_ms is not None and clock.now_ms() > deadline_ms
        if not is_over and clock.boot_s() - first.since_s <= CREATION_S:
            return False
        table_committer.forget()
        self.send_away(
            table_committer, [one.candidate for one in table_committer.queue.everybody()], error
        )
        return True

    def _other_table_at_root(self, table_committer: TableCommitter) -> TableRecord | None:
        """Return another table that was registered at the same root meanwhile, or None.

        It may belong to another topic partition and committer: only the registry knows.
        """
        root, own = table_committer.record.table_root, table_committer.record.table
        others = (table for table in self.open().tables.values() if table.table_root == root)
        closed = ("staged", "dropped")
        return next(
            (other for other in others if other.table != own and other.status not in closed), None
        )

    def withdraw_claims(self) -> None:
        """Withdraw claims that earlier owners of this topic partition published and did not follow
        with a registration. The proposals behind them are delivered again.
        """
        for record in self.registry_reader.written_by(self.here):
            if table_registration.is_claim(record):
                self.publisher.withdrawn(record)

    def _claim(self, table_committer: TableCommitter) -> TableRecord | None:
        """Claim a table before its registration; return None once no other partition may register
        it.

        Otherwise return the record by which another topic partition has registered or claimed this
        table or root. Two partitions may claim one table if their owners count the topic's
        partitions differently. Each publishes its claim before it looks for others, so at most one
        finds none.
        """
        other = self._rival(table_committer.record)
        if other is not None:
            return other
        self.publisher.claimed(table_registration.claim_to(table_committer.record))
        reach("after_claim")
        self.open()
        # The registry that was just read holds our own claim, so it must be read again next time.
        self.opened_s = -math.inf
        other = self._rival(table_committer.record)
        if other is not None:
            self.publisher.withdrawn(table_committer.record)
        return other

    def _rival(self, record: TableRecord) -> TableRecord | None:
        other = self.registry_reader.elsewhere(record.table, self.here)
        if other is not None:
            return other
        for table in self.registry.tables.values():
            is_other = table.table != record.table and recorded_home(table) != self.here
            if is_other and table.table_root == record.table_root and table.status != "dropped":
                return table
        return None

    def _leave(self, table_committer: TableCommitter, record: TableRecord) -> None:
        """Close the table committer of a table that was dropped or has another home. Write nothing
        more for it, and deny the waiting proposals.

        If the PUT in flight lands, it is found in the log: no writer was told that it failed.
        """
        table = table_committer.record.table
        del self.table_committers[table]
        self.publisher.tables.discard(table)
        table_committer.forget()
        table_committer.in_flight = None
        table_committer.cache.unpublished.clear()
        log_event(
            _log, "left", level=logging.WARNING, table=record.name, home=recorded_home(record)
        )
        for one in table_committer.queue.everybody():
            self.answer(table_registration.elsewhere(one.candidate, record, self.here), record)

    def _registered(self, table_committer: TableCommitter) -> None:
        assert table_committer.cache.state is not None, "what is registered was loaded"
        table_committer.is_registered = True
        table_id = table_committer.cache.state.table_definition.metadata.id
        table_committer.record = table_committer.record.model_copy(update={"table_id": table_id})
        self.publisher.registered(table_committer.record)
        reach("after_register")

    def _serve(self, record: TableRecord) -> TableCommitter:
        table_committer = TableCommitter(
            record, self._store_of(record.table_root), self.dependencies, self.origin
        )
        table_committer.seat = self.seats_given
        self.seats_given += 1
        self.table_committers[record.table] = table_committer
        self.scheduler.wake(record.table)
        return table_committer

    def _close(self, table_committer: TableCommitter) -> list[Candidate]:
        """Remove the table committer of a table that was not created; return the queued candidates,
        which are to be routed again.
        """
        del self.table_committers[table_committer.record.table]
        table_committer.cache.unpublished.clear()
        return [one.candidate for one in table_committer.queue.everybody()]

    def _store_of(self, root: str) -> LogStore:
        """Return the store of a registered table.

        A root that this release cannot parse, or that fails unexpectedly, halts only its own table.
        An error in our settings (`Misconfigured` from `open_store`) ends the process instead.
        """
        try:
            canonical_root(root)
        except Misconfigured as error:
            return UnavailableStore(root, error)
        unopened = partial(UnavailableStore, root)
        return attempted(
            lambda: self.dependencies.open_store(root), unopened, passing=TidegateError
        )

    def _is_under_way(self, root: str) -> bool:
        """Whether a table at this root is being created or registered, and not decided yet."""
        table_committers = self.table_committers.values()
        return any(
            not table_committer.is_registered and table_committer.record.table_root == root
            for table_committer in table_committers
        )

    def _is_stale(self) -> bool:
        """Whether other committers may have registered tables since the registry was last read."""
        return self.dependencies.clock.boot_s() - self.opened_s > STALE_S


@dataclass
class TableRouter(ServedTables):
    """Routes each candidate to its table committer, or answers it.

    `asked` holds, by table, an operator's request or a registration that is not carried out yet,
    and all candidates behind it. `reading` are the tables whose logs are being read for that.
    """

    asked: dict[UUID, deque[Candidate]] = field(default_factory=dict)
    reading: set[UUID] = field(default_factory=set)

    def route(self, candidate: Candidate) -> None:
        """Queue a candidate at its table's committer, or answer it at once."""
        proposal = candidate.proposal
        self.scheduler.wake(candidate.table)
        if candidate.table not in self.table_committers and self._is_stale():
            self.open()
        table_committer = self.table_committers.get(candidate.table)
        kind = proposal.kind if proposal else "commit"
        if candidate.table in self.asked:
            self._wait(candidate)
        elif candidate.table in self.dropped:
            record = self.dropped[candidate.table]
            self.answer(table_registration.table_dropped(candidate, record), record)
        elif table_committer is None and self._is_away(candidate):
            return
        elif kind == "register":
            self._register(candidate)
        elif table_committer is None:
            self._route_unregistered(candidate)
        elif kind in operator_requests.REQUESTS:
            self._request(candidate, table_committer)
        elif table_committer.record.halted_by_hand is not None:
            self.answer(
                operator_requests.denied_by_halt(candidate, table_committer.record),
                table_committer.record,
            )
        elif table_committer.halted is not None:
            self.answer(
                table_registration.table_halted(candidate, table_committer.halted),
                table_committer.record,
            )
        elif kind == "verbatim" and candidate.flaw is not None:
            # Do not write the refusal into the log: the same bytes may be allowed another time.
            self.answer(
                Verdict(candidate, "denied", rejection=candidate.flaw), table_committer.record
            )
        else:
            table_committer.queue.join(candidate, self.dependencies.clock.boot_s())

    def _route_unregistered(self, candidate: Candidate) -> None:
        proposal = candidate.proposal
        if proposal is not None and proposal.is_create:
            self._create(candidate)
        elif proposal is None:
            # It may have been a proposal that creates the table, so report its own error, not
            # `unknown_table`.
            flaw = Verdict(candidate, "denied", rejection=candidate.flaw)
            self.answer(flaw, table_registration.unregistered(candidate))
        else:
            self.answer(
                table_registration.unknown_table(candidate),
                table_registration.unregistered(candidate),
            )

    def settled(self, table_committer: TableCommitter, verdict: Verdict) -> None:
        """Publish a table's verdict; the first one decides whether a new table is registered."""
        creates = not table_committer.is_registered
        is_made = (
            creates
            and verdict.status == "committed"
            and self._other_table_at_root(table_committer) is None
        )
        if is_made:
            # The table exists by now, so if its name was taken meanwhile, it gets another name.
            table_committer.record = table_registration.named_once(
                table_committer.record, self.registry
            )
            there = self._claim(table_committer)
            if there is None:
                self._registered(table_committer)
            else:
                is_made = False
                verdict = table_registration.claimed_elsewhere(verdict.candidate, there, self.here)
        entry = None
        if table_committer.cache.state is not None and verdict.version is not None:
            entry = table_committer.cache.state.entries.get(verdict.version)
        self.tell(verdict, table_committer.record, entry)
        if creates and not is_made:
            for one in self._close(table_committer):
                self.route(one)

    def awaits_halt(self, table_committer: TableCommitter) -> bool:
        """Return whether a halt waits for the PUT in flight: then no further PUT may be sent."""
        waiting = self.asked.get(table_committer.record.table, ())
        return any(map(operator_requests.is_halt, waiting))

    def carry_out_request(self, table_committer: TableCommitter) -> None:
        """Carry out the request that waits at a table, if it is due; then route those behind."""
        table = table_committer.record.table
        waiting = self.asked.get(table)
        if waiting is None or not operator_requests.is_due(waiting, table_committer):
            return
        if table_committer.is_registered and self._is_stale():
            self.open()
        if self.table_committers.get(table) is not table_committer:
            # The table has another home: the waiting candidates were answered when it was closed.
            return
        if not self._carry_out(waiting[0], table_committer):
            return
        del self.asked[table]
        waiting.popleft()
        for candidate in waiting:
            self.route(candidate)

    def give_up(self, table: UUID) -> list[Candidate]:
        """Forget the requests of a table; return them and the candidates behind them."""
        self.reading.discard(table)
        return list(self.asked.pop(table, ()))

    def _wait(self, candidate: Candidate) -> None:
        """Queue a candidate behind a request; if it is a halt, the request may be due at once."""
        self.asked[candidate.table].append(candidate)
        if operator_requests.is_halt(candidate):
            self.carry_out_request(self.table_committers[candidate.table])

    def _leave(self, table_committer: TableCommitter, record: TableRecord) -> None:
        super()._leave(table_committer, record)
        self.reading.discard(record.table)
        for candidate in self.asked.pop(record.table, ()):
            self.answer(table_registration.elsewhere(candidate, record, self.here), record)

    def _is_away(self, candidate: Candidate) -> bool:
        """Deny a proposal whose table has another home, by the registry as last read; return
        whether so.

        The home of a table that is not registered follows from its id.
        """
        table, proposal = candidate.table, candidate.proposal
        record = self.registry.tables.get(table)
        if record is not None and record.status != "staged":
            if recorded_home(record) != self.here:
                self.answer(table_registration.elsewhere(candidate, record, self.here), record)
            return recorded_home(record) != self.here
        asks = proposal is not None and (proposal.is_create or proposal.kind == "register")
        if not asks or self.is_home(table):
            return False
        away = table_registration.other_partition(candidate, self.home_of(table), self.here)
        self.answer(away, table_registration.unregistered(candidate))
        return True

    def _request(self, candidate: Candidate, table_committer: TableCommitter) -> None:
        wrong = operator_requests.objection(candidate, table_committer)
        if wrong is not None:
            self.answer(wrong, table_committer.record)
            return
        self.asked[table_committer.record.table] = deque([candidate])
        self.carry_out_request(table_committer)

    def _carry_out(self, candidate: Candidate, table_committer: TableCommitter) -> bool:
        """Carry out a request and answer it; return False while the table's log is being read."""
        assert candidate.proposal is not None, "a request is a proposal"
        why, kind = candidate.proposal.reason, candidate.proposal.kind
        if kind == "register":
            return self._take_over(candidate, table_committer)
        ruling = operator_requests.ruling(candidate, table_committer.record, self.origin.stream)
        if operator_requests.is_over(candidate, table_committer.record, self.origin.stream):
            self.answer(
                operator_requests.granted(candidate, table_committer.record, repeat=True),
                table_committer.record,
            )
        elif kind == "halt":
            assert why is not None, "a halt gives its reason"
            self._halt(
                candidate,
                table_committer,
                operator_requests.halted(table_committer.record, why, ruling),
            )
        elif kind == "reopen":
            return self._reopen(candidate, table_committer, ruling)
        else:
            self._drop(
                candidate,
                table_committer,
                operator_requests.dropped(table_committer.record, ruling),
            )
        return True

    def _drop(
        self, candidate: Candidate, table_committer: TableCommitter, record: TableRecord
    ) -> None:
        self.dropped[record.table] = record
        del self.table_committers[record.table]
        self.publisher.dropped(record)
        table_committer.forget()
        for one in table_committer.queue.everybody():
            self.answer(table_registration.table_dropped(one.candidate, record), record)
        self.answer(operator_requests.granted(candidate, record), record)
        self.publisher.tables.discard(record.table)

    def _halt(
        self, candidate: Candidate, table_committer: TableCommitter, record: TableRecord
    ) -> None:
        is_done = table_committer.record.halted_by_hand == record.halted_by_hand
        table_committer.forget()
        table_committer.record = record
        self.publisher.halted(record)
        for one in table_committer.queue.everybody():
            self.answer(operator_requests.denied_by_halt(one.candidate, record), record)
        self.answer(
            operator_requests.granted(candidate, table_committer.record, repeat=is_done),
            table_committer.record,
        )

    def _reopen(
        self, candidate: Candidate, table_committer: TableCommitter, ruling: Ruling
    ) -> bool:
        """Reopen a halted table if its log proves sound; return False while it is being read."""
        if table_committer.record.status != "halted":
            self.answer(
                operator_requests.granted(candidate, table_committer.record, repeat=True),
                table_committer.record,
            )
            return True
        found = self._has_read(table_committer)
        if found is True and table_committer.cache.state is not None:
            said = table_committer.cache.state.table_definition.metadata.configuration
            word = self.dependencies.settings.unsafe_writers
            found = (
                what_halts(table_committer.cache.unpublished, table_committer.record, said, word)
                or found
            )
        if isinstance(found, Unavailable):
            away = denied(candidate, found.error_class, f"table: {found}", "retry")
            self.answer(away, table_committer.record)
        elif isinstance(found, Exception):
            table_committer.forget()
            table_committer.cache.unpublished.clear()
            self.answer(
                operator_requests.still_closed(candidate, reason_of(found)), table_committer.record
            )
        elif found:
            table_committer.halted, table_committer.rests_until_s = None, 0.0
            table_committer.record = operator_requests.reopened(table_committer.record, ruling)
            self.publisher.reopened(table_committer.record)
            self.answer(
                operator_requests.granted(candidate, table_committer.record), table_committer.record
            )
        return found is not False

    def _has_read(self, table_committer: TableCommitter) -> bool | Exception:
        """Return whether the log was read since a request first needed it, or the error."""
        table = table_committer.record.table
        if table not in self.reading:
            table_committer.forget()
            self.reading.add(table)
        load: Callable[[], bool | Exception] = table_committer.load
        found = attempted(load, partial(self._unread, table_committer))
        if found is not False:
            self.reading.discard(table)
        return found

    def _unread(self, table_committer: TableCommitter, error: Exception) -> Exception:
        """Return an error of reading a log for a request; log it first if it was unexpected."""
        if is_fault(error):
            FAULTS.labels(table_committer.label, class_of(error)).inc()
            told = {"table": table_committer.record.name, "why": reason_of(error)}
            log_event(_log, "request_fault", level=logging.ERROR, fault=error, **told)
        return error

    def _register(self, candidate: Candidate) -> None:
        if self._waits_behind(candidate) or self._is_answered_at_once(candidate):
            return
        registry = self.open()
        if self._is_away(candidate):
            return
        if candidate.proposal and self._is_under_way(candidate.proposal.table_root):
            self.answer(
                table_registration.being_created(candidate),
                table_registration.unregistered(candidate),
            )
            return
        if self._is_known(candidate, registry):
            return
        record = table_registration.new_record(
            candidate, registry, self.at.topic, self.at.partition
        )
        wrong = self._objection(candidate, registry)
        there = self.table_committers.get(candidate.table)
        if there is not None:
            reason = f"table: {candidate.table} is {there.record.table_root}; take a new id"
            wrong = denied(candidate, "other_root", reason)
        table_committer = self._new_table_committer(candidate, record) if wrong is None else wrong
        if isinstance(table_committer, Verdict):
            self.answer(table_committer, record)
            return
        table_committer.others = tuple(registry.tables.values())
        self.asked[record.table] = deque([candidate])
        self.carry_out_request(table_committer)

    def _new_table_committer(
        self, candidate: Candidate, record: TableRecord
    ) -> TableCommitter | Verdict:
        """Return a table committer for an unregistered table, or a denial if its store won't
        open.
        """
        try:
            table_committer = self._serve(record)
        except (Misconfigured, Unavailable) as error:
            return table_registration.unfit(candidate, error)
        table_committer.is_registered = False
        return table_committer

    def _objection(self, candidate: Candidate, registry: RegisteredTables) -> Verdict | None:
        """Return why a table may not be registered, or None."""
        wrong = table_registration.objection(candidate, registry)
        table_committers = self.table_committers.values()
        names = {
            table_committer.record.name
            for table_committer in table_committers
            if not table_committer.is_registered
        }
        if table_registration.is_named_so(wrong, names):
            # The table with that name may still fail to be created, so the writer may try again.
            return table_registration.name_being_given(candidate)
        return wrong

    def _waits_behind(self, candidate: Candidate) -> bool:
        """Queue a candidate behind a registration of the same root that is in progress; return
        whether there is one.
        """
        assert candidate.proposal is not None, "who asks for a table proposes"
        root = candidate.proposal.table_root
        for table in self.reading:
            table_committer = self.table_committers[table]
            if table_committer.record.table_root == root and not table_committer.is_registered:
                self.asked[table].append(candidate)
                return True
        return False

    def _is_known(self, candidate: Candidate, registry: RegisteredTables) -> bool:
        """Answer a registration of a root that is registered or dropped; return whether it is."""
        there = registry.under(candidate.proposal.table_root) if candidate.proposal else None
        if there is None or there.status == "staged":
            return False
        there = self.dropped.get(there.table, there)
        if there.table in self.table_committers:
            # Publish the record again: if the topic has lost it, ours may be the last copy.
            there = self.table_committers[there.table].record
            self.publisher.registered(there)
        self.answer(table_registration.registered_before(candidate, there), there)
        return True

    def _take_over(self, candidate: Candidate, table_committer: TableCommitter) -> bool:
        """Register the table that a log holds, or answer why not; return False while reading the
        log.

        If another table was registered in this folder meanwhile, route the request again.
        """
        found = self._has_read(table_committer)
        if found is False:
            return False
        record, state = table_committer.record, table_committer.cache.state
        if isinstance(found, Exception):
            del self.table_committers[record.table]
            self.answer(table_registration.unfit(candidate, found), record)
            return True
        if state is None or state.version < 0:
            del self.table_committers[record.table]
            reason = f"table_root: {record.table_root} holds no Delta table; create it first"
            self.answer(denied(candidate, "NotADeltaTable", reason), record)
            return True
        if is_overtaken(
            record,
            state.table_definition.metadata.id,
            table_committer.others,
            self.open().tables.values(),
        ):
            del self.table_committers[record.table]
            self.asked[record.table].insert(1, candidate)
            return True
        version, sha256 = state.version, None
        if is_ours(state) and table_committer.cache.unpublished:
            # A committer wrote this log under a registration that was lost: publish its last
            # versions.
            through = table_committer.cache.unpublished[0].version - 1
        else:
            head = state.entries.get(version)
            through, sha256 = version, head.sha256 if head else None
            table_committer.cache.unpublished.clear()
        table_committer.record = record.model_copy(
            update={"published_through": through, "sha256": sha256}
        )
        there = self._claim(table_committer)
        if there is not None:
            del self.table_committers[record.table]
            self.answer(table_registration.claimed_elsewhere(candidate, there, self.here), record)
            return True
        self._registered(table_committer)
        self.answer(Verdict(candidate, "committed", version=version), table_committer.record)
        return True

    def _create(self, candidate: Candidate) -> None:
        if self._waits_behind(candidate) or self._is_answered_at_once(candidate):
            return
        registry = self.open()
        if candidate.table in self.table_committers:
            self.route(candidate)
            return
        if self._is_away(candidate):
            return
        if candidate.proposal and self._is_under_way(candidate.proposal.table_root):
            self.answer(
                table_registration.being_created(candidate),
                table_registration.unregistered(candidate),
            )
            return
        record = table_registration.new_record(
            candidate, registry, self.at.topic, self.at.partition
        )
        wrong = self._objection(candidate, registry)
        if wrong is not None:
            self.answer(wrong, record)
            return
        table_committer = self._new_table_committer(candidate, record)
        if isinstance(table_committer, Verdict):
            self.answer(table_committer, record)
        else:
            table_committer.queue.join(candidate, self.dependencies.clock.boot_s())

    def _is_answered_at_once(self, candidate: Candidate) -> bool:
        """Answer a candidate that the registry as last read refuses or has answered; return whether
        so.

        Reading the registry takes tens of milliseconds in which the loop stands still, so a flood
        of such candidates would stall it.
        """
        assert candidate.proposal is not None, "who asks for a table proposes"
        root = candidate.proposal.table_root
        if self._is_stale() or self._is_under_way(root):
            return False
        if candidate.proposal.kind == "register" and self._is_known(candidate, self.registry):
            return True
        wrong = table_registration.objection(candidate, self.registry)
        if wrong is None:
            return False
        record = table_registration.new_record(
            candidate, self.registry, self.at.topic, self.at.partition
        )
        self.answer(wrong, record)
        return True
