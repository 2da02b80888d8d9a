"""Routes the candidates of a topic partition to their table committers, or answers them at once.

A proposal that creates a table gets a table committer of its own; the table is registered durably
before its outcome is published. Operators' requests and registrations keep their order among the
proposals.
"""

from dataclasses import dataclass, field

from tidegate_committer.decision.decision_types import Verdict
from tidegate_committer.intake.candidate import Candidate
from tidegate_committer.loop import operator_requests, registration_rules
from tidegate_committer.loop.operator_requests import OperatorRequests
from tidegate_committer.loop.outcome_publisher import OutcomePublisher
from tidegate_committer.loop.registrar import Registrar
from tidegate_committer.loop.served_tables import ServedTables
from tidegate_committer.loop.table_committer import TableCommitter
from tidegate_messages.proposal import OPERATOR_REQUESTS
from tidegate_messages.table_home import recorded_home


@dataclass
class TableRouter:
    """Routes each candidate to its table committer, or to what answers it."""

    tables: ServedTables
    publisher: OutcomePublisher = field(init=False)
    registrar: Registrar = field(init=False)
    operator_requests: OperatorRequests = field(init=False)

    def __post_init__(self) -> None:
        self.publisher = self.tables.publisher
        self.registrar = Registrar(self.tables)
        self.operator_requests = OperatorRequests(self.tables)

    def route(self, candidate: Candidate) -> None:
        """Queue a candidate at its table's committer, or answer it at once."""
        tables, table = self.tables, candidate.table
        if operator_requests.is_misplaced(candidate):
            self._deny_misplaced(candidate)
            return
        tables.scheduler.wake(table)
        # A request may be about a table that was moved here since the registry was last read.
        if table not in tables.committers and (tables.is_stale or candidate.is_admin):
            tables.open()
        table_committer = tables.committers.get(table)
        if table_committer is not None and table_committer.requests:
            self._wait(candidate, table_committer)
        elif table in tables.dropped:
            record = tables.dropped[table]
            self.publisher.answer(registration_rules.table_dropped(candidate, record), record)
        elif table_committer is None:
            self._route_unserved(candidate)
        elif candidate.proposal is not None and candidate.proposal.kind == "register":
            self._register(candidate)
        else:
            self._route_to(candidate, table_committer)

    def publish_verdict(self, table_committer: TableCommitter, verdict: Verdict) -> None:
        """Publish a table's verdict; the first one decides whether a new table is registered."""
        creates = not table_committer.is_registered
        if creates:
            verdict = self.registrar.created(table_committer, verdict)
        entry, state = None, table_committer.cache.state
        if state is not None and verdict.version is not None:
            entry = state.entries.get(verdict.version)
        self.publisher.answer(verdict, table_committer.record, entry)
        if creates and not table_committer.is_registered:
            for candidate in self.registrar.remove(table_committer):
                self.route(candidate)

    def carry_out_request(self, table_committer: TableCommitter) -> None:
        """Carry out the request that waits at a table, if it is due; then route those behind."""
        tables, waiting = self.tables, table_committer.requests
        if not waiting or not operator_requests.is_due(waiting, table_committer):
            return
        if table_committer.is_registered and tables.is_stale:
            tables.open()
        if tables.committers.get(table_committer.record.table) is not table_committer:
            # The table has another home: the waiting candidates were answered when it was closed.
            return
        proposal = waiting[0].proposal
        assert proposal is not None, "a request is a proposal"
        is_registration = proposal.kind == "register"
        carry_out = (
            self.registrar.take_over if is_registration else self.operator_requests.carry_out
        )
        if not carry_out(waiting[0], table_committer):
            return
        _, *behind = table_committer.give_up_requests()
        for candidate in behind:
            self.route(candidate)

    def _wait(self, candidate: Candidate, table_committer: TableCommitter) -> None:
        """Queue a candidate behind a request; if it is a halt, the request may be due at once."""
        table_committer.requests.append(candidate)
        if operator_requests.is_halt(candidate):
            self.carry_out_request(table_committer)

    def _route_to(self, candidate: Candidate, table_committer: TableCommitter) -> None:
        """Queue a candidate at a table committer, or answer why not."""
        record, kind = table_committer.record, "commit"
        if candidate.proposal is not None:
            kind = candidate.proposal.kind
        if kind in OPERATOR_REQUESTS:
            self._request(candidate, table_committer)
        elif record.halted_by_hand is not None:
            self.publisher.answer(operator_requests.denied_by_halt(candidate, record), record)
        elif table_committer.halted is not None:
            halted = registration_rules.table_halted(candidate, table_committer.halted)
            self.publisher.answer(halted, record)
        elif kind == "verbatim" and candidate.flaw is not None:
            # Do not write the refusal into the log: the same bytes may be allowed another time.
            refused = Verdict(candidate, "denied", rejection=candidate.flaw)
            self.publisher.answer(refused, record)
        else:
            table_committer.queue.join(candidate, self.tables.dependencies.clock.boot_s())

    def _deny_misplaced(self, candidate: Candidate) -> None:
        served = self.tables.committers.get(candidate.table)
        record = served.record if served else registration_rules.unregistered(candidate)
        topics = self.tables.dependencies.topics
        self.publisher.answer(operator_requests.misplaced_denial(candidate, topics), record)

    def _request(self, candidate: Candidate, table_committer: TableCommitter) -> None:
        wrong = operator_requests.objection(candidate, table_committer)
        if wrong is not None:
            self.publisher.answer(wrong, table_committer.record)
            return
        table_committer.requests.append(candidate)
        self.carry_out_request(table_committer)

    def _route_unserved(self, candidate: Candidate) -> None:
        """Create or register the table that has no table committer, or answer why not."""
        if self._is_away(candidate):
            return
        proposal = candidate.proposal
        if proposal is not None and proposal.kind == "register":
            self._register(candidate)
        elif proposal is None or (candidate.is_verbatim and candidate.flaw is not None):
            # It may have been a proposal that creates the table, so report its own error, not
            # `unknown_table`.
            flaw = Verdict(candidate, "denied", rejection=candidate.flaw)
            self.publisher.answer(flaw, registration_rules.unregistered(candidate))
        elif proposal.is_create:
            self._create(candidate)
        else:
            unknown = registration_rules.unknown_table(candidate)
            self.publisher.answer(unknown, registration_rules.unregistered(candidate))

    def _create(self, candidate: Candidate) -> None:
        if self.registrar.queues_or_answers(candidate):
            return
        registry = self.tables.open()
        if candidate.table in self.tables.committers:
            self.route(candidate)
        elif not self._is_away(candidate):
            self.registrar.create(candidate, registry)

    def _register(self, candidate: Candidate) -> None:
        if self.registrar.queues_or_answers(candidate):
            return
        registry = self.tables.open()
        if self._is_away(candidate):
            return
        table_committer = self.registrar.register(candidate, registry)
        if table_committer is not None:
            self.carry_out_request(table_committer)

    def _is_away(self, candidate: Candidate) -> bool:
        """Deny a proposal whose table has another home, by the registry as last read; return
        whether so.

        The home of a table that is not registered follows from its id.
        """
        tables, proposal = self.tables, candidate.proposal
        record = tables.registry.tables.get(candidate.table)
        if record is not None and record.status != "staged":
            is_away = recorded_home(record) != tables.here
            if is_away:
                verdict = registration_rules.elsewhere(candidate, record, tables.here)
                self.publisher.answer(verdict, record)
            return is_away
        is_new_table = proposal is not None and (proposal.is_create or proposal.kind == "register")
        if not is_new_table or tables.is_home(candidate.table):
            return False
        home = tables.home_of(candidate.table)
        verdict = registration_rules.other_partition(candidate, home, tables.here)
        self.publisher.answer(verdict, registration_rules.unregistered(candidate))
        return True
