"""The reception of a lane: to whose desk a proposal goes, and what is answered at once.

A table has a desk once it is registered. The proposal that may create one sits at a desk of its own
until its answer is known; only then is the table registered, durably, before anybody is told.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from tidegate.committer import registration, requests, takeover
from tidegate.committer.candidate import Candidate
from tidegate.committer.desk import Desk
from tidegate.committer.doors import Doors, reach
from tidegate.committer.rebase import Origin
from tidegate.committer.registration import Known
from tidegate.committer.state import is_ours
from tidegate.committer.telling import Telling
from tidegate.committer.verdicts import Verdict, denied
from tidegate.delta.errors import (
    BrokenLog,
    InvalidRequest,
    Misconfigured,
    TidegateError,
    Unavailable,
    UnsupportedFeature,
)
from tidegate.pipeline.published import Ruling, TableRecord
from tidegate.runtime.bus import TopicPartition
from tidegate.runtime.registry import read_registry

BROKEN: Final = (BrokenLog, UnsupportedFeature, InvalidRequest, Misconfigured)
"""What says that a table cannot be served, whatever one waits."""

STALE_S: Final = 1.0
"""How old the registry may be that says that a table is unknown, or may not be."""


@dataclass
class Reception:
    """The desks of a topic partition, and the deliveries without an answer: offset -> size.

    A table that was `dropped` has no desk, and keeps its id and its root. `asked` are the requests
    of operators whose turn has not come, each with all that came behind it. `known` is the registry
    as it was read last.
    """

    at: TopicPartition
    doors: Doors
    telling: Telling
    origin: Origin
    desks: dict[UUID, Desk] = field(default_factory=dict)
    unsettled: dict[int, int] = field(default_factory=dict)
    dropped: dict[UUID, TableRecord] = field(default_factory=dict)
    asked: dict[UUID, deque[Candidate]] = field(default_factory=dict)
    opened_s: float = 0.0
    known: Known = field(default_factory=lambda: Known({}, ()))

    def open(self) -> Known:
        """Read the registry, and seat its tables."""
        return self.seat_all(read_registry(self.doors.bus, self.doors.topics))

    def seat_all(self, registry: Mapping[UUID, TableRecord]) -> Known:
        """Give each table of this topic partition a desk, by the registry as it was just read."""
        here, tables = (self.at.topic, self.at.partition), dict(registry)
        self.opened_s = self.doors.clock.boot_s()
        for record in tables.values():
            at = (record.proposals_topic, record.topic_partition)
            if at == here and record.status == "dropped":
                self.dropped[record.table] = record
            elif at == here and record.status != "staged" and record.table not in self.desks:
                self._seat(record)
                self.telling.tables.add(record.table)
        self.known = Known(dict(tables), self.doors.settings.roots)
        tables |= {table: desk.record for table, desk in self.desks.items()}
        return Known(tables, self.doors.settings.roots)

    def bring(self, candidate: Candidate) -> None:
        """Bring a candidate to the desk of its table, or answer it."""
        proposal = candidate.proposal
        if candidate.table not in self.desks and self._is_stale():
            self.open()
        desk = self.desks.get(candidate.table)
        kind = proposal.kind if proposal else "commit"
        if candidate.table in self.asked:
            self.asked[candidate.table].append(candidate)
        elif candidate.table in self.dropped:
            record = self.dropped[candidate.table]
            self.answer(registration.dropped(candidate, record), record)
        elif kind == "register":
            self._register(candidate)
        elif desk is not None and kind in requests.REQUESTS:
            self._ask(candidate, desk)
        elif desk is None and proposal is not None and proposal.is_create:
            self._create(candidate)
        elif desk is None and proposal is None:
            # Nobody can tell whether it would have created the table: what is wrong with it counts.
            self.answer(Verdict(candidate, "denied", rejection=candidate.flaw), _nobody(candidate))
        elif desk is None:
            self.answer(registration.unknown_table(candidate), _nobody(candidate))
        elif desk.record.halted_by_hand is not None:
            self.answer(requests.refused(candidate, desk.record), desk.record)
        elif desk.halted is not None:
            self.answer(registration.halted(candidate, desk.halted), desk.record)
        elif kind == "verbatim" and candidate.flaw is not None:
            # Nothing is written down of such a refusal: what is denied today may do tomorrow.
            self.answer(Verdict(candidate, "denied", rejection=candidate.flaw), desk.record)
        else:
            desk.line.join(candidate, self.doors.clock.boot_s())

    def settled(self, desk: Desk, verdict: Verdict) -> None:
        """Answer what a desk has settled; the first answer decides whether a table is created."""
        creates = not desk.is_registered
        if creates and verdict.status == "committed":
            self._registered(desk)
        entry = None
        if desk.state is not None and verdict.version is not None:
            entry = desk.state.entries.get(verdict.version)
        self.telling.verdict(verdict, desk.record, entry)
        del self.unsettled[verdict.candidate.offset]
        if creates and verdict.status != "committed":
            self._unseat(desk)

    def answer(self, verdict: Verdict, record: TableRecord) -> None:
        """Answer without a desk."""
        self.telling.verdict(verdict, record, None)
        del self.unsettled[verdict.candidate.offset]

    def send_away(self, desk: Desk, error: TidegateError) -> None:
        """Answer who would have a table where there can be none."""
        del self.desks[desk.record.table]
        for one in desk.line.everybody():
            self.answer(registration.unfit(one.candidate, error), desk.record)

    def lets_nothing_off(self, desk: Desk) -> bool:
        """Return whether a halt waits for what flies at a desk, and nothing more may be sent."""
        waiting = self.asked.get(desk.record.table)
        return waiting is not None and requests.is_halt(waiting[0])

    def obey(self, desk: Desk) -> None:
        """Do what an operator asks of a table, if it is his turn; then bring who came behind."""
        table = desk.record.table
        waiting = self.asked.get(table)
        if waiting is None or not requests.is_due(waiting[0], desk):
            return
        del self.asked[table]
        self._grant(waiting.popleft(), desk)
        for candidate in waiting:
            self.bring(candidate)

    def _ask(self, candidate: Candidate, desk: Desk) -> None:
        wrong = requests.objection(candidate, desk)
        if wrong is not None:
            self.answer(wrong, desk.record)
            return
        self.asked[desk.record.table] = deque([candidate])
        self.obey(desk)

    def _grant(self, candidate: Candidate, desk: Desk) -> None:
        assert candidate.proposal is not None, "a request is a proposal"
        why, kind = candidate.proposal.reason, candidate.proposal.kind
        ruling = requests.ruling(candidate, desk.record, self.origin.stream)
        if requests.is_over(candidate, desk.record, self.origin.stream):
            self.answer(requests.granted(candidate, desk.record, repeat=True), desk.record)
        elif kind == "halt" and why is not None:
            self._halt(candidate, desk, requests.halted(desk.record, why, ruling))
        elif kind == "reopen":
            self._reopen(candidate, desk, ruling)
        else:
            record = self.dropped[desk.record.table] = requests.dropped(desk.record, ruling)
            del self.desks[record.table]
            self.telling.dropped(record)
            self.answer(requests.granted(candidate, record), record)

    def _halt(self, candidate: Candidate, desk: Desk, record: TableRecord) -> None:
        is_done = desk.record.halted_by_hand == record.halted_by_hand
        desk.forget()
        desk.record = record
        self.telling.halted(record)
        for one in desk.line.everybody():
            self.answer(requests.refused(one.candidate, record), record)
        self.answer(requests.granted(candidate, desk.record, repeat=is_done), desk.record)

    def _reopen(self, candidate: Candidate, desk: Desk, ruling: Ruling) -> None:
        """Open a table again, if its log can be served: else it is left as it is."""
        if desk.record.status != "halted":
            self.answer(requests.granted(candidate, desk.record, repeat=True), desk.record)
            return
        try:
            desk.load_now()
        except Unavailable as error:
            away = denied(candidate, error.error_class, f"table: {error}", "retry")
            self.answer(away, desk.record)
            return
        except BROKEN as error:
            self.answer(requests.still_closed(candidate, str(error)), desk.record)
            return
        desk.halted, desk.rests_until_s = None, 0.0
        desk.record = requests.reopened(desk.record, ruling)
        self.telling.reopened(desk.record)
        self.answer(requests.granted(candidate, desk.record), desk.record)

    def _register(self, candidate: Candidate) -> None:
        if self._is_answered_at_once(candidate):
            return
        known = self.open()
        if candidate.proposal and self._is_under_way(candidate.proposal.table_root):
            self.answer(registration.under_way(candidate), _nobody(candidate))
            return
        if self._is_known(candidate, known):
            return
        record = registration.new_record(candidate, known, self.at.topic, self.at.partition)
        wrong = registration.objection(candidate, known)
        desk = self.desks.get(candidate.table)
        if desk is not None:
            reason = f"table: {candidate.table} is {desk.record.table_root}; take a new id"
            wrong = denied(candidate, "other_root", reason)
        if wrong is None:
            wrong = self._take_over(candidate, record, known)
        if wrong is not None:
            if desk is None:
                self.desks.pop(record.table, None)
            self.answer(wrong, record)

    def _is_known(self, candidate: Candidate, known: Known) -> bool:
        """Answer who asks for a table that is registered, or was dropped."""
        there = known.under(candidate.proposal.table_root) if candidate.proposal else None
        if there is None or there.status == "staged":
            return False
        there = self.dropped.get(there.table, there)
        if there.table in self.desks:
            # Whoever asks again may have lost the registry, and this is all that is left of it.
            there = self.desks[there.table].record
            self.telling.registered(there)
        self.answer(registration.is_there(candidate, there), there)
        return True

    def _take_over(self, candidate: Candidate, record: TableRecord, known: Known) -> Verdict | None:
        """Register a table as its log stands; return why that can't be, or None."""
        try:
            desk = self._seat(record)
            desk.is_registered = False
            self.doors.vet(desk.store)
            desk.load_now()
            wrong = takeover.objection(candidate, desk, known, self.doors)
        except Unavailable as error:
            return denied(candidate, error.error_class, f"table_root: {error}", "retry")
        except BROKEN as error:
            return denied(candidate, error.error_class, f"table_root: {error}")
        if wrong is not None:
            return wrong
        assert desk.state is not None, "the table was loaded"
        version, sha256 = desk.state.version, None
        if is_ours(desk.state) and desk.news:
            # A gate has served it: under a registration that was lost with what it had not told.
            through = desk.news[0].version - 1
        else:
            head = desk.state.entries.get(version)
            through, sha256 = version, head.sha256 if head else None
            desk.news.clear()
        desk.record = record.model_copy(update={"published_through": through, "sha256": sha256})
        self._registered(desk)
        self.answer(Verdict(candidate, "committed", version=version), desk.record)
        return None

    def _create(self, candidate: Candidate) -> None:
        if self._is_answered_at_once(candidate):
            return
        known = self.open()
        if candidate.table in self.desks:
            self.bring(candidate)
            return
        if candidate.proposal and self._is_under_way(candidate.proposal.table_root):
            self.answer(registration.under_way(candidate), _nobody(candidate))
            return
        record = registration.new_record(candidate, known, self.at.topic, self.at.partition)
        wrong = registration.objection(candidate, known)
        if wrong is not None:
            self.answer(wrong, record)
            return
        try:
            desk = self._seat(record)
        except (Misconfigured, Unavailable) as error:
            self.answer(registration.unfit(candidate, error), record)
            return
        desk.is_registered = False
        desk.line.join(candidate, self.doors.clock.boot_s())

    def _is_answered_at_once(self, candidate: Candidate) -> bool:
        """Answer who may not have a table, or has it, by what was read of the registry just now.

        To read it takes the brokers tens of milliseconds, for which everybody waits: a flood of
        such requests would let nobody else have his turn. Only who may have one is looked up anew.
        """
        assert candidate.proposal is not None, "who asks for a table proposes"
        root = candidate.proposal.table_root
        if self._is_stale() or self._is_under_way(root):
            return False
        if candidate.proposal.kind == "register" and self._is_known(candidate, self.known):
            return True
        wrong = registration.objection(candidate, self.known)
        if wrong is None:
            return False
        record = registration.new_record(candidate, self.known, self.at.topic, self.at.partition)
        self.answer(wrong, record)
        return True

    def _registered(self, desk: Desk) -> None:
        assert desk.state is not None, "what is registered was loaded"
        desk.is_registered = True
        table_id = desk.state.basis.metadata.id
        desk.record = desk.record.model_copy(update={"table_id": table_id})
        self.telling.registered(desk.record)
        reach("after_register")

    def _unseat(self, desk: Desk) -> None:
        """Give up a table that was not created; who waits behind is brought anew."""
        del self.desks[desk.record.table]
        desk.news.clear()
        for one in desk.line.everybody():
            self.bring(one.candidate)

    def _seat(self, record: TableRecord) -> Desk:
        store = self.doors.open_store(record.table_root)
        desk = Desk(record, store, self.doors, self.origin)
        self.desks[record.table] = desk
        return desk

    def _is_under_way(self, root: str) -> bool:
        """Whether a table is being created there: nobody knows yet what will come of it."""
        desks = self.desks.values()
        return any(not desk.is_registered and desk.record.table_root == root for desk in desks)

    def _is_stale(self) -> bool:
        """Whether another committer may have registered tables that we have not heard of."""
        return self.doors.clock.boot_s() - self.opened_s > STALE_S


def _nobody(candidate: Candidate) -> TableRecord:
    """Return a registration for an answer about a table that has none."""
    return TableRecord(
        table=candidate.table,
        table_root="unknown://-",
        name="-",
        proposals_topic="-",
        topic_partition=0,
    )
