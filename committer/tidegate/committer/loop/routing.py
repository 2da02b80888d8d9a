"""The routing of a lane: to whose desk a proposal goes, and what is answered at once.

The proposal that may create a table sits at a desk of its own until its answer is known; only then
is the table registered, durably, before anybody is told. What is asked of a table has its turn.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from tidegate.committer.admission.external_writers import what_halts
from tidegate.committer.judging.verdicts import Verdict, denied
from tidegate.committer.loop import registration, requests
from tidegate.committer.loop.desk import Desk
from tidegate.committer.loop.registration import Known
from tidegate.committer.loop.served_tables import ServedTables
from tidegate.committer.proposals.candidate import Candidate
from tidegate.committer.reading.root_owner import is_overtaken
from tidegate.committer.tables.state import is_ours
from tidegate.delta.errors import (
    BrokenLog,
    InvalidRequest,
    Misconfigured,
    TidegateError,
    Unavailable,
    UnsupportedFeature,
)
from tidegate.pipeline.published import Ruling, TableRecord

BROKEN: Final = (BrokenLog, UnsupportedFeature, InvalidRequest, Misconfigured)
"""What says that a table cannot be served, whatever one waits."""


@dataclass
class Routing(ServedTables):
    """Who comes in: to whose desk he goes, or what he is told.

    `asked` are the requests about tables whose turn has not come, each with all that came behind
    it; `reading` the tables whose logs are being read for theirs.
    """

    asked: dict[UUID, deque[Candidate]] = field(default_factory=dict)
    reading: set[UUID] = field(default_factory=set)

    def bring(self, candidate: Candidate) -> None:
        """Bring a candidate to the desk of its table, or answer it."""
        proposal = candidate.proposal
        if candidate.table not in self.desks and self._is_stale():
            self.open()
        desk = self.desks.get(candidate.table)
        kind = proposal.kind if proposal else "commit"
        if candidate.table in self.asked:
            self._wait(candidate)
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
            self.answer(
                Verdict(candidate, "denied", rejection=candidate.flaw),
                registration.nobody(candidate),
            )
        elif desk is None:
            self.answer(registration.unknown_table(candidate), registration.nobody(candidate))
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
        is_made = creates and verdict.status == "committed" and self._other_life(desk) is None
        if is_made:
            # It may have taken its time, and nobody can refuse it its name any more.
            desk.record = registration.named_once(desk.record, self.known)
            self._registered(desk)
        entry = None
        if desk.state is not None and verdict.version is not None:
            entry = desk.state.entries.get(verdict.version)
        self.telling.verdict(verdict, desk.record, entry)
        del self.unsettled[verdict.candidate.offset]
        if creates and not is_made:
            self._unseat(desk)

    def lets_nothing_off(self, desk: Desk) -> bool:
        """Return whether a halt waits for what flies at a desk, and nothing more may be sent."""
        waiting = self.asked.get(desk.record.table, ())
        return any(map(requests.is_halt, waiting))

    def obey(self, desk: Desk) -> None:
        """Do what an operator asks of a table, if it is his turn; then bring who came behind."""
        table = desk.record.table
        waiting = self.asked.get(table)
        if waiting is None or not requests.is_due(waiting, desk):
            return
        if not self._grant(waiting[0], desk):
            return
        del self.asked[table]
        waiting.popleft()
        for candidate in waiting:
            self.bring(candidate)

    def _wait(self, candidate: Candidate) -> None:
        """Let who comes behind a request wait for it; a halt may be what it waits for."""
        self.asked[candidate.table].append(candidate)
        if requests.is_halt(candidate):
            self.obey(self.desks[candidate.table])

    def _ask(self, candidate: Candidate, desk: Desk) -> None:
        wrong = requests.objection(candidate, desk)
        if wrong is not None:
            self.answer(wrong, desk.record)
            return
        self.asked[desk.record.table] = deque([candidate])
        self.obey(desk)

    def _grant(self, candidate: Candidate, desk: Desk) -> bool:
        """Do what is asked of a table, and answer; return False while its log is read for that."""
        assert candidate.proposal is not None, "a request is a proposal"
        why, kind = candidate.proposal.reason, candidate.proposal.kind
        if kind == "register":
            return self._take_over(candidate, desk)
        ruling = requests.ruling(candidate, desk.record, self.origin.stream)
        if requests.is_over(candidate, desk.record, self.origin.stream):
            self.answer(requests.granted(candidate, desk.record, repeat=True), desk.record)
        elif kind == "halt" and why is not None:
            self._halt(candidate, desk, requests.halted(desk.record, why, ruling))
        elif kind == "reopen":
            return self._reopen(candidate, desk, ruling)
        else:
            record = self.dropped[desk.record.table] = requests.dropped(desk.record, ruling)
            del self.desks[record.table]
            self.telling.dropped(record)
            desk.forget()
            for one in desk.line.everybody():
                self.answer(registration.dropped(one.candidate, record), record)
            self.answer(requests.granted(candidate, record), record)
        return True

    def _halt(self, candidate: Candidate, desk: Desk, record: TableRecord) -> None:
        is_done = desk.record.halted_by_hand == record.halted_by_hand
        desk.forget()
        desk.record = record
        self.telling.halted(record)
        for one in desk.line.everybody():
            self.answer(requests.refused(one.candidate, record), record)
        self.answer(requests.granted(candidate, desk.record, repeat=is_done), desk.record)

    def _reopen(self, candidate: Candidate, desk: Desk, ruling: Ruling) -> bool:
        """Open a table again, if its log can be served: else it is left as it is."""
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
        elif isinstance(found, TidegateError):
            desk.forget()
            desk.news.clear()
            self.answer(requests.still_closed(candidate, str(found)), desk.record)
        elif found:
            desk.halted, desk.rests_until_s = None, 0.0
            desk.record = requests.reopened(desk.record, ruling)
            self.telling.reopened(desk.record)
            self.answer(requests.granted(candidate, desk.record), desk.record)
        return found is not False

    def _has_read(self, desk: Desk) -> bool | TidegateError:
        """Return whether a table's log was read, from when this was asked first, or what failed."""
        table, found = desk.record.table, False
        if table not in self.reading:
            desk.forget()
            self.reading.add(table)
        try:
            found = desk.load()
        except (Unavailable, *BROKEN) as error:
            self.reading.discard(table)
            return error
        if found:
            self.reading.discard(table)
        return found

    def _register(self, candidate: Candidate) -> None:
        if self._waits_behind(candidate) or self._is_answered_at_once(candidate):
            return
        known = self.open()
        if candidate.proposal and self._is_under_way(candidate.proposal.table_root):
            self.answer(registration.under_way(candidate), registration.nobody(candidate))
            return
        if self._is_known(candidate, known):
            return
        record = registration.new_record(candidate, known, self.at.topic, self.at.partition)
        wrong = self._objection(candidate, known)
        there = self.desks.get(candidate.table)
        if there is not None:
            reason = f"table: {candidate.table} is {there.record.table_root}; take a new id"
            wrong = denied(candidate, "other_root", reason)
        desk = self._seat_anew(candidate, record) if wrong is None else wrong
        if isinstance(desk, Verdict):
            self.answer(desk, record)
            return
        desk.others = tuple(known.tables.values())
        self.asked[record.table] = deque([candidate])
        self.obey(desk)

    def _seat_anew(self, candidate: Candidate, record: TableRecord) -> Desk | Verdict:
        """Return a desk for a table that may be registered, or why there can be none."""
        try:
            desk = self._serve(record)
        except (Misconfigured, Unavailable) as error:
            return registration.unfit(candidate, error)
        desk.is_registered = False
        return desk

    def _objection(self, candidate: Candidate, known: Known) -> Verdict | None:
        """Return why a table may not be registered, or None."""
        wrong = registration.objection(candidate, known)
        desks = self.desks.values()
        names = {desk.record.name for desk in desks if not desk.is_registered}
        if registration.is_named_so(wrong, names):
            # Nobody knows yet whether the other one comes to be.
            return registration.name_under_way(candidate)
        return wrong

    def _waits_behind(self, candidate: Candidate) -> bool:
        """Let who asks for a table wait while one is being registered at the same root."""
        assert candidate.proposal is not None, "who asks for a table proposes"
        root = candidate.proposal.table_root
        for table in self.reading:
            desk = self.desks[table]
            if desk.record.table_root == root and not desk.is_registered:
                self.asked[table].append(candidate)
                return True
        return False

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

    def _take_over(self, candidate: Candidate, desk: Desk) -> bool:
        """Register a table as its log stands, or say why that can't be.

        Reading takes its time: where another table got in its way meanwhile, it is asked for anew.
        """
        found = self._has_read(desk)
        if found is False:
            return False
        record, state = desk.record, desk.state
        if isinstance(found, TidegateError):
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
            # A gate has served it: under a registration that was lost with what it had not told.
            through = desk.news[0].version - 1
        else:
            head = state.entries.get(version)
            through, sha256 = version, head.sha256 if head else None
            desk.news.clear()
        desk.record = record.model_copy(update={"published_through": through, "sha256": sha256})
        self._registered(desk)
        self.answer(Verdict(candidate, "committed", version=version), desk.record)
        return True

    def _create(self, candidate: Candidate) -> None:
        if self._waits_behind(candidate) or self._is_answered_at_once(candidate):
            return
        known = self.open()
        if candidate.table in self.desks:
            self.bring(candidate)
            return
        if candidate.proposal and self._is_under_way(candidate.proposal.table_root):
            self.answer(registration.under_way(candidate), registration.nobody(candidate))
            return
        record = registration.new_record(candidate, known, self.at.topic, self.at.partition)
        wrong = self._objection(candidate, known)
        if wrong is not None:
            self.answer(wrong, record)
            return
        desk = self._seat_anew(candidate, record)
        if isinstance(desk, Verdict):
            self.answer(desk, record)
        else:
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

    def _unseat(self, desk: Desk) -> None:
        """Give up a table that was not created, or is another's; who waits is brought anew."""
        del self.desks[desk.record.table]
        desk.news.clear()
        for one in desk.line.everybody():
            self.bring(one.candidate)
