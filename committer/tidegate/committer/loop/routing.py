"""The routing of a lane: to which table's desk a proposal goes, or what is answered at once.

A proposal that creates a table has a desk of its own; the table is registered, durably, before its
writer hears of it. Operators' requests and registrations take their turn among the proposals.
"""

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from uuid import UUID

from tidegate.committer.admission.external_writers import what_halts
from tidegate.committer.judging.verdicts import Verdict, denied
from tidegate.committer.loop import registration, requests
from tidegate.committer.loop.desk import Desk
from tidegate.committer.loop.registration import Registry
from tidegate.committer.loop.served_tables import ServedTables
from tidegate.committer.proposals.candidate import Candidate
from tidegate.committer.reading.root_owner import is_overtaken
from tidegate.committer.tables.state import is_ours
from tidegate.delta.errors import Misconfigured, Unavailable
from tidegate.pipeline.homes import recorded_home
from tidegate.pipeline.published import Ruling, TableRecord
from tidegate.runtime.containment import attempted, class_of, is_fault, reason_of
from tidegate.runtime.logs import log_event
from tidegate.runtime.metrics import FAULTS

_log = logging.getLogger(__name__)


@dataclass
class Routing(ServedTables):
    """Brings each candidate to its desk, or answers it.

    `asked` holds, by table, a request that is not carried out yet, and all candidates that came
    after it; `reading` the tables whose logs are being read for such a request.
    """

    asked: dict[UUID, deque[Candidate]] = field(default_factory=dict)
    reading: set[UUID] = field(default_factory=set)

    def route(self, candidate: Candidate) -> None:
        """Put a candidate into the line of its table's desk, or answer it at once."""
        proposal = candidate.proposal
        self.agenda.wake(candidate.table)
        if candidate.table not in self.desks and self._is_stale():
            self.open()
        desk = self.desks.get(candidate.table)
        kind = proposal.kind if proposal else "commit"
        if candidate.table in self.asked:
            self._wait(candidate)
        elif candidate.table in self.dropped:
            record = self.dropped[candidate.table]
            self.answer(registration.table_dropped(candidate, record), record)
        elif desk is None and self._is_away(candidate):
            return
        elif kind == "register":
            self._register(candidate)
        elif desk is None:
            self._route_unregistered(candidate)
        elif kind in requests.REQUESTS:
            self._request(candidate, desk)
        elif desk.record.halted_by_hand is not None:
            self.answer(requests.denied_by_halt(candidate, desk.record), desk.record)
        elif desk.halted is not None:
            self.answer(registration.table_halted(candidate, desk.halted), desk.record)
        elif kind == "verbatim" and candidate.flaw is not None:
            # Not written into the log: the same ready bytes may be allowed another time.
            self.answer(Verdict(candidate, "denied", rejection=candidate.flaw), desk.record)
        else:
            desk.line.join(candidate, self.doors.clock.boot_s())

    def _route_unregistered(self, candidate: Candidate) -> None:
        proposal = candidate.proposal
        if proposal is not None and proposal.is_create:
            self._create(candidate)
        elif proposal is None:
            # It may have been one that creates the table: its flaw is told, not `unknown_table`.
            flaw = Verdict(candidate, "denied", rejection=candidate.flaw)
            self.answer(flaw, registration.unregistered(candidate))
        else:
            self.answer(registration.unknown_table(candidate), registration.unregistered(candidate))

    def settled(self, desk: Desk, verdict: Verdict) -> None:
        """Publish a verdict of a desk; the first one decides whether its table is registered."""
        creates = not desk.is_registered
        is_made = creates and verdict.status == "committed" and self._other_life(desk) is None
        if is_made:
            # The table exists now: where its name was taken meanwhile, it gets another one.
            desk.record = registration.named_once(desk.record, self.registry)
            there = self._claim(desk)
            if there is None:
                self._registered(desk)
            else:
                is_made = False
                verdict = registration.claimed_elsewhere(verdict.candidate, there, self.here)
        entry = None
        if desk.state is not None and verdict.version is not None:
            entry = desk.state.entries.get(verdict.version)
        self.tell(verdict, desk.record, entry)
        if creates and not is_made:
            for one in self._close(desk):
                self.route(one)

    def awaits_halt(self, desk: Desk) -> bool:
        """Return whether a halt waits for the PUT in flight: then no other may be sent."""
        waiting = self.asked.get(desk.record.table, ())
        return any(map(requests.is_halt, waiting))

    def carry_out_request(self, desk: Desk) -> None:
        """Carry out the request that waits at a table, once it is due; then route those behind."""
        table = desk.record.table
        waiting = self.asked.get(table)
        if waiting is None or not requests.is_due(waiting, desk):
            return
        if desk.is_registered and self._is_stale():
            self.open()
        if self.desks.get(table) is not desk:
            # Its table has another home: what waits has its answer.
            return
        if not self._carry_out(waiting[0], desk):
            return
        del self.asked[table]
        waiting.popleft()
        for candidate in waiting:
            self.route(candidate)

    def give_up(self, table: UUID) -> list[Candidate]:
        """Forget the requests of a table; return them, and what waits behind them."""
        self.reading.discard(table)
        return list(self.asked.pop(table, ()))

    def _wait(self, candidate: Candidate) -> None:
        """Let a candidate wait behind a request; a halt may end that request's own waiting."""
        self.asked[candidate.table].append(candidate)
        if requests.is_halt(candidate):
            self.carry_out_request(self.desks[candidate.table])

    def _leave(self, desk: Desk, record: TableRecord) -> None:
        super()._leave(desk, record)
        self.reading.discard(record.table)
        for candidate in self.asked.pop(record.table, ()):
            self.answer(registration.elsewhere(candidate, record, self.here), record)

    def _is_away(self, candidate: Candidate) -> bool:
        """Answer a proposal whose table has another home, by the registry as last read; whether so.

        A table that is not registered has one all the same: the one that its id chooses.
        """
        table, proposal = candidate.table, candidate.proposal
        record = self.registry.tables.get(table)
        if record is not None and record.status != "staged":
            if recorded_home(record) != self.here:
                self.answer(registration.elsewhere(candidate, record, self.here), record)
            return recorded_home(record) != self.here
        asks = proposal is not None and (proposal.is_create or proposal.kind == "register")
        if not asks or self.is_home(table):
            return False
        away = registration.other_partition(candidate, self.home_of(table), self.here)
        self.answer(away, registration.unregistered(candidate))
        return True

    def _request(self, candidate: Candidate, desk: Desk) -> None:
        wrong = requests.objection(candidate, desk)
        if wrong is not None:
            self.answer(wrong, desk.record)
            return
        self.asked[desk.record.table] = deque([candidate])
        self.carry_out_request(desk)

    def _carry_out(self, candidate: Candidate, desk: Desk) -> bool:
        """Carry out a request and answer it; False while the table's log is still being read."""
        assert candidate.proposal is not None, "a request is a proposal"
        why, kind = candidate.proposal.reason, candidate.proposal.kind
        if kind == "register":
            return self._take_over(candidate, desk)
        ruling = requests.ruling(candidate, desk.record, self.origin.stream)
        if requests.is_over(candidate, desk.record, self.origin.stream):
            self.answer(requests.granted(candidate, desk.record, repeat=True), desk.record)
        elif kind == "halt":
            assert why is not None, "a halt gives its reason"
            self._halt(candidate, desk, requests.halted(desk.record, why, ruling))
        elif kind == "reopen":
            return self._reopen(candidate, desk, ruling)
        else:
            self._drop(candidate, desk, requests.dropped(desk.record, ruling))
        return True

    def _drop(self, candidate: Candidate, desk: Desk, record: TableRecord) -> None:
        self.dropped[record.table] = record
        del self.desks[record.table]
        self.telling.dropped(record)
        desk.forget()
        for one in desk.line.everybody():
            self.answer(registration.table_dropped(one.candidate, record), record)
        self.answer(requests.granted(candidate, record), record)
        self.telling.tables.discard(record.table)

    def _halt(self, candidate: Candidate, desk: Desk, record: TableRecord) -> None:
        is_done = desk.record.halted_by_hand == record.halted_by_hand
        desk.forget()
        desk.record = record
        self.telling.halted(record)
        for one in desk.line.everybody():
            self.answer(requests.denied_by_halt(one.candidate, record), record)
        self.answer(requests.granted(candidate, desk.record, repeat=is_done), desk.record)

    def _reopen(self, candidate: Candidate, desk: Desk, ruling: Ruling) -> bool:
        """Reopen a halted table once its log was read and can be served; False while it is read."""
        if desk.record.status != "halted":
            self.answer(requests.granted(candidate, desk.record, repeat=True), desk.record)
            return True
        found = self._has_read(desk)
        if found is True and desk.state is not None:
            said = desk.state.basis.metadata.configuration
            word = self.doors.settings.unsafe_writers
            found = what_halts(desk.news, desk.record, said, word) or found
        if isinstance(found, Unavailable):
            away = denied(candidate, found.error_class, f"table: {found}", "retry")
            self.answer(away, desk.record)
        elif isinstance(found, Exception):
            desk.forget()
            desk.news.clear()
            self.answer(requests.still_closed(candidate, reason_of(found)), desk.record)
        elif found:
            desk.halted, desk.rests_until_s = None, 0.0
            desk.record = requests.reopened(desk.record, ruling)
            self.telling.reopened(desk.record)
            self.answer(requests.granted(candidate, desk.record), desk.record)
        return found is not False

    def _has_read(self, desk: Desk) -> bool | Exception:
        """Return whether the log was read since a request first asked for it, or what failed."""
        table = desk.record.table
        if table not in self.reading:
            desk.forget()
            self.reading.add(table)
        load: Callable[[], bool | Exception] = desk.load
        found = attempted(load, partial(self._unread, desk))
        if found is not False:
            self.reading.discard(table)
        return found

    def _unread(self, desk: Desk, error: Exception) -> Exception:
        """Return what came up while a log was read for a request, after a line in ours."""
        if is_fault(error):
            FAULTS.labels(desk.label, class_of(error)).inc()
            told = {"table": desk.record.name, "why": reason_of(error)}
            log_event(_log, "request_fault", level=logging.ERROR, fault=error, **told)
        return error

    def _register(self, candidate: Candidate) -> None:
        if self._waits_behind(candidate) or self._is_answered_at_once(candidate):
            return
        registry = self.open()
        if self._is_away(candidate):
            return
        if candidate.proposal and self._is_under_way(candidate.proposal.table_root):
            self.answer(registration.being_created(candidate), registration.unregistered(candidate))
            return
        if self._is_known(candidate, registry):
            return
        record = registration.new_record(candidate, registry, self.at.topic, self.at.partition)
        wrong = self._objection(candidate, registry)
        there = self.desks.get(candidate.table)
        if there is not None:
            reason = f"table: {candidate.table} is {there.record.table_root}; take a new id"
            wrong = denied(candidate, "other_root", reason)
        desk = self._new_desk(candidate, record) if wrong is None else wrong
        if isinstance(desk, Verdict):
            self.answer(desk, record)
            return
        desk.others = tuple(registry.tables.values())
        self.asked[record.table] = deque([candidate])
        self.carry_out_request(desk)

    def _new_desk(self, candidate: Candidate, record: TableRecord) -> Desk | Verdict:
        """Return a desk for a table yet to be registered, or why its store can't be opened."""
        try:
            desk = self._serve(record)
        except (Misconfigured, Unavailable) as error:
            return registration.unfit(candidate, error)
        desk.is_registered = False
        return desk

    def _objection(self, candidate: Candidate, registry: Registry) -> Verdict | None:
        """Return why a table may not be registered, or None."""
        wrong = registration.objection(candidate, registry)
        desks = self.desks.values()
        names = {desk.record.name for desk in desks if not desk.is_registered}
        if registration.is_named_so(wrong, names):
            # The table with that name may still fail to be created: the writer may ask again.
            return registration.name_being_given(candidate)
        return wrong

    def _waits_behind(self, candidate: Candidate) -> bool:
        """Let a request for a table wait while another one registers the same root; whether so."""
        assert candidate.proposal is not None, "who asks for a table proposes"
        root = candidate.proposal.table_root
        for table in self.reading:
            desk = self.desks[table]
            if desk.record.table_root == root and not desk.is_registered:
                self.asked[table].append(candidate)
                return True
        return False

    def _is_known(self, candidate: Candidate, registry: Registry) -> bool:
        """Answer a request to register a table that is registered, or was dropped; whether so."""
        there = registry.under(candidate.proposal.table_root) if candidate.proposal else None
        if there is None or there.status == "staged":
            return False
        there = self.dropped.get(there.table, there)
        if there.table in self.desks:
            # Publish the record again: the topic may have lost it, and ours may be the last copy.
            there = self.desks[there.table].record
            self.telling.registered(there)
        self.answer(registration.registered_before(candidate, there), there)
        return True

    def _take_over(self, candidate: Candidate, desk: Desk) -> bool:
        """Register the table that a log holds, or answer why not; False while the log is read.

        Where another table was registered in this folder meanwhile, the request is routed anew.
        """
        found = self._has_read(desk)
        if found is False:
            return False
        record, state = desk.record, desk.state
        if isinstance(found, Exception):
            del self.desks[record.table]
            self.answer(registration.unfit(candidate, found), record)
            return True
        if state is None or state.version < 0:
            del self.desks[record.table]
            reason = f"table_root: {record.table_root} holds no Delta table; create it first"
            self.answer(denied(candidate, "NotADeltaTable", reason), record)
            return True
        if is_overtaken(record, state.basis.metadata.id, desk.others, self.open().tables.values()):
            del self.desks[record.table]
            self.asked[record.table].insert(1, candidate)
            return True
        version, sha256 = state.version, None
        if is_ours(state) and desk.news:
            # A committer wrote to it under a registration that was lost: publish its last versions.
            through = desk.news[0].version - 1
        else:
            head = state.entries.get(version)
            through, sha256 = version, head.sha256 if head else None
            desk.news.clear()
        desk.record = record.model_copy(update={"published_through": through, "sha256": sha256})
        there = self._claim(desk)
        if there is not None:
            del self.desks[record.table]
            self.answer(registration.claimed_elsewhere(candidate, there, self.here), record)
            return True
        self._registered(desk)
        self.answer(Verdict(candidate, "committed", version=version), desk.record)
        return True

    def _create(self, candidate: Candidate) -> None:
        if self._waits_behind(candidate) or self._is_answered_at_once(candidate):
            return
        registry = self.open()
        if candidate.table in self.desks:
            self.route(candidate)
            return
        if self._is_away(candidate):
            return
        if candidate.proposal and self._is_under_way(candidate.proposal.table_root):
            self.answer(registration.being_created(candidate), registration.unregistered(candidate))
            return
        record = registration.new_record(candidate, registry, self.at.topic, self.at.partition)
        wrong = self._objection(candidate, registry)
        if wrong is not None:
            self.answer(wrong, record)
            return
        desk = self._new_desk(candidate, record)
        if isinstance(desk, Verdict):
            self.answer(desk, record)
        else:
            desk.line.join(candidate, self.doors.clock.boot_s())

    def _is_answered_at_once(self, candidate: Candidate) -> bool:
        """Answer a request that the registry, as last read, refuses or has answered; whether so.

        Reading it anew takes tens of milliseconds for which the loop waits: a flood would stall it.
        """
        assert candidate.proposal is not None, "who asks for a table proposes"
        root = candidate.proposal.table_root
        if self._is_stale() or self._is_under_way(root):
            return False
        if candidate.proposal.kind == "register" and self._is_known(candidate, self.registry):
            return True
        wrong = registration.objection(candidate, self.registry)
        if wrong is None:
            return False
        record = registration.new_record(candidate, self.registry, self.at.topic, self.at.partition)
        self.answer(wrong, record)
        return True
