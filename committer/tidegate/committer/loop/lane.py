"""A lane: one topic partition of proposals, from its assignment to this process to its revocation.

Each record becomes a candidate in the line of its table's desk. What a desk settles is published as
an outcome; the offset moves on once that is durable. Losing the lane at any point loses nothing:
the next owner starts from the tables' logs.
"""

import logging
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import Final
from uuid import UUID

from tidegate.committer.admission.external_writers import halts, is_unsafe, unsafe
from tidegate.committer.doors import Doors, reach
from tidegate.committer.judging.verdicts import Verdict
from tidegate.committer.loop.agenda import is_unread
from tidegate.committer.loop.desk import Desk, seat_of
from tidegate.committer.loop.poison import at_fault, read_poison
from tidegate.committer.loop.registration import table_halted
from tidegate.committer.loop.routing import Routing
from tidegate.committer.loop.trials import Trials
from tidegate.committer.loop.unsettled import IN_ORDER, OTHERS, Flow, size_of
from tidegate.committer.loop.watch import Watch
from tidegate.committer.proposals.candidate import Candidate
from tidegate.committer.proposals.intake import Letter, read_record
from tidegate.committer.tables.entries import Entry
from tidegate.delta.errors import Contended, TidegateError, Unavailable
from tidegate.runtime.bus import Offset, Record
from tidegate.runtime.containment import attempted, class_of, contained, is_fault, reason_of
from tidegate.runtime.logs import log_event
from tidegate.runtime.metrics import FAULTS, RESTS, UNSAFE_VERSIONS

RETRY_HALTED_S: Final = 30.0
"""How long a halted table is left alone before its log is read again; after an error that nobody
foresaw see `containment.Faults`."""

Work = Callable[[Desk], tuple[Verdict, ...]]
_log = logging.getLogger(__name__)


@dataclass
class Lane:
    """The work on one topic partition.

    Offsets: `read_to` is the next to read, `position` the next to judge, `committed` the one last
    committed to the group; None where there is none yet. `registry_due` are the tables of which a
    changed registration is still to be published. `busy` are the desks that had, after the last
    step, proposals waiting, a PUT in flight or a read under way: most tables are idle at any time.
    `grouped_at` is how many desks there had been when held records were last grouped by them.
    """

    doors: Doors
    routing: Routing
    trials: Trials
    read_to: int = 0
    position: Offset | None = None
    committed: Offset | None = None
    registry_due: dict[UUID, None] = field(default_factory=dict)
    watch: Watch = field(init=False)
    busy: list[Desk] = field(default_factory=list)
    grouped_at: int = 0

    def __post_init__(self) -> None:
        self.watch = Watch(self.doors)

    def take(self, record: Record, *, may_judge: bool = True) -> bool:
        """Judge a record, or hold it back: where records are under suspicion (`trials`), where its
        table has enough to decide on (`Unsettled`), or where it may not be judged in this step.

        Return whether it was judged.
        """
        if self.trials.holds(record):
            self.trials.held.append(record)
            return False
        self._regroup()
        flow = self._flow(record)
        if may_judge and self.routing.unsettled.is_next(flow):
            self.judge(record)
            return True
        self.routing.unsettled.hold(record, flow)
        self.position = Offset(record.offset + 1)
        return False

    def judge_held(self, most: int) -> None:
        """Judge records that were held back, as far as there is room, `most` of them at most."""
        self._regroup()
        for record in self.routing.unsettled.release(most):
            self._judge(record)

    def _regroup(self) -> None:
        """Let held records join the flow that is theirs by now, before a newer record does: once no
        death is on record any more, and once a table is served that was not when they were read.
        """
        unsettled = self.routing.unsettled
        if unsettled.held(IN_ORDER) and not self._is_in_order:
            unsettled.part(IN_ORDER, self._flow)
        if unsettled.held(OTHERS) and self.grouped_at != self.routing.seats_given:
            unsettled.part(OTHERS, self._flow)
        self.grouped_at = self.routing.seats_given

    def next_suspect(self) -> Record | None:
        """Return the suspected record that is to be judged next, alone; None while other work is
        under way, or where none is held.
        """
        if not self.trials.note.alone or not self._is_quiet:
            return None
        if self.trials.is_over():
            self.trials.note = self.trials.note.at_peace()
            innocent, self.trials.held = self.trials.held, deque()
            for record in innocent:
                self.take(record)
        self.trials.name_next()
        return self.trials.held.popleft() if self.trials.held else None

    def judge(self, record: Record) -> None:
        """Route a record to its table, or set it aside as a dead letter where it can't be read."""
        self.routing.unsettled.judge(record, self._flow(record))
        self.position = Offset(record.offset + 1)
        self._judge(record)

    def _judge(self, record: Record) -> None:
        read = attempted(partial(self._read, record), partial(self._failed_over, record))
        if isinstance(read, Letter):
            self._set_aside(record, read)
        else:
            # An error of ours comes from the bus, and concerns all tables.
            with contained(partial(self._misrouted, record, read), passing=TidegateError):
                self.routing.route(read)
        reach("after_take")

    def _failed_over(self, record: Record, error: Exception) -> Letter:
        """Return the dead letter of a record over which we failed."""
        where = f"{record.at}@{record.offset}"
        told = {"record": where, "why": reason_of(error), "error_class": class_of(error)}
        log_event(_log, "record_fault", level=logging.ERROR, fault=error, **told)
        return at_fault(record, error)

    def _set_aside(self, record: Record, letter: Letter) -> None:
        def shorter(error: Exception) -> None:
            self.routing.telling.letter(self._failed_over(record, error), record)

        with contained(shorter, passing=TidegateError):
            self.routing.telling.letter(letter, record)
        self.routing.unsettled.discard(record.offset)

    def _misrouted(self, record: Record, candidate: Candidate, error: Exception) -> None:
        """Set a record aside over which we failed while it was given to its table, which halts."""
        self.routing.unsettled.discard(record.offset)
        self._set_aside(record, self._failed_over(record, error))
        desk = self.routing.desks.get(candidate.table)
        if desk is not None:
            self._halt(desk, error)

    @property
    def _is_in_order(self) -> bool:
        """Whether records are judged in the order of their offsets, over all tables: processes died
        over some of them, and which it was must be among the first few (`trials`).
        """
        return self.trials.note.deaths > 0 or self.trials.note.alone

    def _flow(self, record: Record) -> Flow:
        """Return the records with which a record keeps its order: those of the table that its key
        names. A key is believed for no more than that.
        """
        if self._is_in_order:
            return IN_ORDER
        try:
            table = UUID((record.key or b"").decode("ascii"))
        except ValueError:
            return OTHERS
        return table if table in self.routing.desks else OTHERS

    def _read(self, record: Record) -> Candidate | Letter:
        guilt = self.trials.guilt(record)
        if guilt is not None:
            where = f"{record.at}@{record.offset}"
            log_event(_log, "poison", level=logging.ERROR, record=where, set_aside=guilt)
            return read_poison(record, even_refusing_kills=guilt)
        sent_ms = record.timestamp_ms if record.timestamp_ms > 0 else None
        read = read_record(record.value, record.offset, self.doors.policy, record.headers, sent_ms)
        reach("after_read", "" if isinstance(read, Letter) else read.id)
        return read

    @property
    def _is_quiet(self) -> bool:
        """Whether every table was read and has no work left, save those that rest or are halted."""
        now_s = self.doors.clock.boot_s()
        return not self.routing.reading and all(
            desk.rests_until_s > now_s
            or desk.record.halted_by_hand is not None
            or (desk.state and not desk.line and desk.flying is None and not desk.is_behind)
            for desk in self.routing.desks.values()
        )

    def work(self) -> bool:
        """Let each desk settle one entry, and publish it; return whether more is to do at once."""
        now_s, agenda = self.doors.clock.boot_s(), self.routing.agenda
        due = self._due(now_s)
        # One a step of those for which nobody waits, so that polls and busy tables go on between
        # the loads of many tables.
        unread = agenda.next_to_read(self.routing.desks, self.doors.loads.is_free)
        busy = unread is not None and bool(agenda.unread)
        for desk in sorted((*due, *([unread] if unread else ())), key=seat_of):
            busy = self._look_at(desk, now_s) or busy
        desks = self.routing.desks
        looked = (desks[table] for table in agenda.due if table in desks)
        self.busy = [one for one in looked if one.line or one.flying or one.waits_for]
        return busy or self.routing.unsettled.may_go_on

    def _look_at(self, desk: Desk, now_s: float) -> bool:
        """Do what there is to do at a desk; return whether more could be done at once."""
        agenda, table = self.routing.agenda, desk.record.table
        if self.routing.desks.get(table) is not desk:
            # It was left while others were looked at: its table has another home.
            return False
        if table in self.routing.reading:
            self._carry_out_request(desk)
            return False
        if desk.record.halted_by_hand is not None:
            # The operator may be moving its files: the store is not asked for anything.
            self.watch.forget(table)
            agenda.look_no_more(table)
            return False
        if desk.rests_until_s > self.doors.clock.boot_s():
            if not desk.line and not desk.waits_for and desk.flying is None:
                agenda.look_later(table, desk.rests_until_s)
            return False
        is_busy = self._attend(desk)
        if desk.idle_until_s > now_s and not desk.line:
            agenda.look_later(table, desk.idle_until_s)
        return is_busy

    def _due(self, now_s: float) -> list[Desk]:
        """Return the desks at which something may have to be done, besides those to be read."""
        agenda, desks, found = self.routing.agenda, self.routing.desks, list[Desk]()
        for table in agenda.now(now_s):
            desk = desks.get(table)
            if desk is None:
                self.watch.forget(table)
                agenda.look_no_more(table)
            elif desk.idle_until_s > now_s and not desk.line:
                agenda.look_later(table, desk.idle_until_s)
            elif is_unread(desk) and desk.rests_until_s <= now_s:
                agenda.read_in_turn(desk)
            else:
                found.append(desk)
        return found

    def make_durable(self) -> Offset | None:
        """Flush what was published, then the registry; return the offset to commit, if it moved."""
        telling = self.routing.telling
        if telling.unflushed:
            telling.flush()
        desks = self.routing.desks
        if self.registry_due:
            for table in self.registry_due:
                if table in desks:
                    self._publish(desks[table])
            self.registry_due.clear()
            telling.flush()
            reach("after_state")
        return self._safe if self._safe != self.committed else None

    def _publish(self, desk: Desk) -> None:
        """Publish a table's registration; without what its log said, if that can't be written."""

        def cut(error: Exception) -> None:
            self._halt(desk, error)
            desk.record = desk.record.model_copy(update={"table_id": None})
            self.routing.telling.table(desk.record)

        with contained(cut, passing=TidegateError):
            self.routing.telling.table(desk.record)

    @property
    def lags(self) -> bool:
        """Whether something published is not durable yet, or the offset has moved."""
        return bool(
            self.routing.telling.unflushed or self.registry_due or self._safe != self.committed
        )

    @property
    def _safe(self) -> Offset | None:
        """The offset to commit: every record before it has its outcome."""
        first = self.routing.unsettled.first
        return self.position if first is None else Offset(first)

    @property
    def unsettled(self) -> int:
        """How many records have no outcome yet."""
        return len(self.routing.unsettled) + len(self.trials.held)

    @property
    def unsettled_bytes(self) -> int:
        """Their size in bytes."""
        held = sum(map(size_of, self.trials.held))
        return self.routing.unsettled.size_bytes + held

    @property
    def waits_until_s(self) -> float | None:
        """When the first busy desk has to be looked at again, or None. By `Clock.boot_s`."""
        waits = (desk.waits_until_s for desk in self.busy)
        return min((until_s for until_s in waits if until_s is not None), default=None)

    @property
    def flies(self) -> bool:
        """Whether a PUT is in flight."""
        return any(desk.flying is not None for desk in self.busy)

    @property
    def put_s(self) -> float:
        """How long a PUT takes lately, in seconds: the least of the tables with one in flight."""
        flying = (desk for desk in self.busy if desk.flying is not None)
        return min((desk.pace.put_s for desk in flying), default=0.0)

    def land(self) -> None:
        """Publish what has landed, and decide on nothing new."""
        for table, desk in list(self.routing.desks.items()):
            if (
                self.routing.desks.get(table) is desk
                and desk.flying is not None
                and desk.flying.flight.done()
            ):
                self._tell(desk, self._attempt(desk, Desk.land))

    def _attend(self, desk: Desk) -> bool:
        verdicts = self._attempt(desk, self._settle) if self._is_there(desk) else ()
        self._tell(desk, verdicts)
        self._carry_out_request(desk)
        desk.idle_until_s = self.watch.idle_until_s(desk)
        return bool(verdicts and desk.line)

    def _attempt(self, desk: Desk, work: Work) -> tuple[Verdict, ...]:
        """Run one piece of a table's work; on an error that table halts or rests, others go on.

        It publishes nothing: an error of the bus would be taken for the table's.
        """

        def treat(error: Exception) -> tuple[Verdict, ...]:
            self._halt_or_rest(desk, error)
            return ()

        return attempted(lambda: work(desk), treat)

    def _halt_or_rest(self, desk: Desk, error: Exception) -> None:
        if not isinstance(error, Unavailable | Contended):
            self._halt(desk, error)
        elif not self.routing.gives_up(desk, error):
            desk.rest(self.doors.clock.boot_s())
            RESTS.labels(desk.label, type(error).__name__).inc()
            log_event(_log, "resting", level=logging.WARNING, table=desk.record.name, why=error)

    def _publishing(self, desk: Desk) -> AbstractContextManager[None]:
        """Halt a table over which we fail while we publish what is new of it. An error of ours is
        the bus's there, and concerns all tables: it ends the loop.
        """
        return contained(partial(self._halt, desk), passing=TidegateError)

    def _carry_out_request(self, desk: Desk) -> None:
        with self._publishing(desk):
            self.routing.carry_out_request(desk)

    def _tell(self, desk: Desk, verdicts: tuple[Verdict, ...]) -> None:
        with self._publishing(desk):
            for verdict in verdicts:
                self.routing.settled(desk, verdict)
            if verdicts:
                desk.pace.told_s = self.doors.clock.boot_s()
                reach("after_outcomes")
            self._tell_news(desk)
        for verdict in verdicts:
            self._deny(desk, verdict.candidate)

    def _is_there(self, desk: Desk) -> bool:
        """Return whether a table is loaded and its versions published; if not, go on loading it."""
        if desk.state is not None or self.routing.awaits_halt(desk):
            return True
        self._attempt(desk, _load)
        if desk.state is not None:
            with self._publishing(desk):
                self._tell_news(desk)
        if desk.state is not None:
            self._heal(desk)
        return desk.state is not None

    def _settle(self, desk: Desk) -> tuple[Verdict, ...]:
        if self.routing.awaits_halt(desk):
            is_down = desk.flying is not None and desk.flying.flight.done()
            return desk.land() if is_down else ()
        self.watch.audit(desk)
        if desk.line:
            return desk.settle()
        self.watch.probe(desk)
        return ()

    def _tell_news(self, desk: Desk) -> None:
        if not desk.is_registered or not desk.news:
            return
        telling = self.routing.telling
        for entry in desk.news:
            if is_unsafe(entry, desk.record) and self._halts_for(desk, entry):
                break
            origin = entry.provenance
            if origin is not None and origin.epoch != self.routing.origin.epoch:
                telling.recovered(entry, desk.record)
            trace = desk.traces.pop(entry.version, ())
            desk.record = telling.version(entry, desk.record, trace)
        desk.news.clear()
        self.registry_due[desk.record.table] = None
        reach("after_commits")

    def _halts_for(self, desk: Desk, entry: Entry) -> bool:
        """Halt a table, or warn, for a version by an engine that may overwrite one."""
        assert desk.state is not None, "what is news was read"
        properties = desk.state.basis.metadata.configuration
        if halts(properties, self.doors.settings.unsafe_writers):
            self._halt(desk, unsafe(entry, desk.record))
            return True
        UNSAFE_VERSIONS.labels(desk.label).inc()
        level = logging.WARNING
        log_event(_log, "unsafe_writer", level=level, table=desk.record.name, version=entry.version)
        return False

    def _halt(self, desk: Desk, error: Exception) -> None:
        """Serve this table no more until its log can be read; the other tables go on.

        After an error that nobody foresaw it is left alone longer each time.
        """
        desk.forget()
        self.watch.forget(desk.record.table)
        # Should the PUT in flight land, it is found in the log: no writer was told that it failed.
        desk.flying = None
        now_s, fault = self.doors.clock.boot_s(), error if is_fault(error) else None
        desk.rests_until_s = now_s + (desk.faults.add(now_s) if fault else RETRY_HALTED_S)
        told = {"table": desk.record.name, "why": reason_of(error)}
        if fault is not None:
            FAULTS.labels(desk.label, class_of(error)).inc()
        if desk.halted is None or fault is not None:
            log_event(_log, "halted", level=logging.ERROR, fault=fault, **told)
        desk.halted = reason_of(error)
        waiting = [one.candidate for one in desk.line.everybody()]
        waiting += self.routing.give_up(desk.record.table) if fault else []
        if not desk.is_registered:
            self.routing.send_away(desk, waiting, error)
            return
        for candidate in waiting:
            self._deny(desk, candidate)
        desk.record = desk.record.model_copy(update={"status": "halted", "reason": desk.halted})
        self.registry_due[desk.record.table] = None

    def _deny(self, desk: Desk, candidate: Candidate) -> None:
        """Answer a candidate of a halted table, if it has no answer yet."""
        if desk.halted is not None and candidate.offset in self.routing.unsettled:
            self.routing.answer(table_halted(candidate, desk.halted), desk.record)

    def _heal(self, desk: Desk) -> None:
        if desk.halted is None and desk.record.status != "halted":
            return
        desk.halted = None
        healed = {"status": "open", "reason": None, "overwritten": None}
        desk.record = desk.record.model_copy(update=healed)
        self.registry_due[desk.record.table] = None
        log_event(_log, "healed", table=desk.record.name)


def _load(desk: Desk) -> tuple[Verdict, ...]:
    """Go on with the load of a table; nothing is decided by it."""
    desk.load()
    return ()
