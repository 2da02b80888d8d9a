"""A lane: one topic partition of proposals that is ours, from its assignment to its loss.

Records become candidates on the desks of their tables; what is settled is told; what is told and
durable moves the offset. Losing the lane at any point loses nothing: the next owner starts from the
logs of the tables.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from tidegate.committer.admission.external_writers import halts, is_unsafe, unsafe
from tidegate.committer.doors import Doors, reach
from tidegate.committer.judging.verdicts import Verdict
from tidegate.committer.loop.desk import Desk
from tidegate.committer.loop.poison import read_poison
from tidegate.committer.loop.registration import halted
from tidegate.committer.loop.routing import BROKEN, Routing
from tidegate.committer.loop.trials import Trials
from tidegate.committer.loop.watch import Watch
from tidegate.committer.proposals.candidate import Candidate
from tidegate.committer.proposals.intake import Letter, read_record
from tidegate.committer.tables.entries import Entry
from tidegate.delta.errors import Contended, TidegateError, Unavailable
from tidegate.runtime.bus import Offset, Record
from tidegate.runtime.logs import log_event
from tidegate.runtime.metrics import RESTS, UNSAFE_VERSIONS

RETRY_HALTED_S: Final = 30.0
"""How long a halted table is left alone before its log is read again."""

Work = Callable[[Desk], tuple[Verdict, ...]]
_log = logging.getLogger(__name__)


@dataclass
class Lane:
    """What is done with one topic partition.

    `read_to` is the next offset to read, `position` to judge, `committed` the one last recorded for
    the group; None where there is none yet. `moved` are the tables whose registration is to be
    told. Where somebody waits or a PUT flies is known from one step to the next: most tables are
    idle at any time.
    """

    doors: Doors
    routing: Routing
    trials: Trials
    read_to: int = 0
    position: Offset | None = None
    committed: Offset | None = None
    moved: dict[UUID, None] = field(default_factory=dict)
    watch: Watch = field(init=False)
    busy: list[Desk] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.watch = Watch(self.doors)

    def take(self, record: Record) -> None:
        """Bring a record to the desk of its table; who is under suspicion waits to be called."""
        if self.trials.holds(record):
            self.trials.held.append(record)
        else:
            self.judge(record)

    def call(self) -> Record | None:
        """Return the record that is judged next, and alone, once nothing else is under way."""
        if not self.trials.note.alone or not self._is_quiet:
            return None
        if self.trials.is_over():
            self.trials.note = self.trials.note.at_peace()
            while self.trials.held:
                self.judge(self.trials.held.popleft())
        self.trials.call()
        return self.trials.held.popleft() if self.trials.held else None

    def judge(self, record: Record) -> None:
        """Bring a record to the desk of its table, or answer it where it has none."""
        self.routing.unsettled[record.offset] = len(record.value or b"")
        self.position = Offset(record.offset + 1)
        read = self._read(record)
        if isinstance(read, Letter):
            self.routing.telling.letter(read, record)
            del self.routing.unsettled[record.offset]
        else:
            self.routing.bring(read)
        reach("after_take")

    def _read(self, record: Record) -> Candidate | Letter:
        guilt = self.trials.guilt(record)
        if guilt is not None:
            where = f"{record.at.topic}/{record.at.partition}@{record.offset}"
            log_event(_log, "poison", level=logging.ERROR, record=where, set_aside=guilt)
            return read_poison(record, even_refusing_kills=guilt)
        read = read_record(record.value, record.offset, self.doors.policy, record.headers)
        reach("after_read", "" if isinstance(read, Letter) else read.id)
        return read

    @property
    def _is_quiet(self) -> bool:
        """Whether every table was read, and nothing is judged but what its store keeps waiting."""
        now_s = self.doors.clock.boot_s()
        return not self.routing.reading and all(
            desk.rests_until_s > now_s
            or desk.record.halted_by_hand is not None
            or (desk.state and not desk.line and desk.flying is None and not desk.is_behind)
            for desk in self.routing.desks.values()
        )

    def work(self) -> bool:
        """Let each desk settle one entry, and tell; return whether more could be done at once."""
        busy = has_loaded = False
        for desk in self._due(self.doors.clock.boot_s()):
            if desk.record.table in self.routing.reading:
                self.routing.obey(desk)
                continue
            if desk.record.halted_by_hand is not None:
                # Its files are moved meanwhile.
                self.watch.forget(desk)
                continue
            if desk.rests_until_s > self.doors.clock.boot_s():
                continue
            if desk.state is None and not desk.waits_for and not desk.line:
                # There may be many: between two the group hears from us, and who is waited for.
                if has_loaded or not self.doors.loads.is_free(desk.store.root):
                    busy = busy or has_loaded
                    continue
                has_loaded = True
            busy = self._attend(desk) or busy
        desks = self.routing.desks.values()
        self.busy = [one for one in desks if one.line.waiting or one.flying or one.waits_for]
        return busy

    def _due(self, now_s: float) -> list[Desk]:
        """Return the desks at which something may have to be done."""
        desks = self.routing.desks.values()
        return [desk for desk in desks if desk.idle_until_s <= now_s or desk.line.waiting]

    def make_durable(self) -> Offset | None:
        """Flush what was told, then the registry; return the offset to record, if it has moved."""
        telling = self.routing.telling
        if telling.waiting:
            telling.flush()
        desks = self.routing.desks
        if self.moved:
            for table in self.moved:
                if table in desks:
                    telling.table(desks[table].record)
            self.moved.clear()
            telling.flush()
            reach("after_state")
        return self._safe if self._safe != self.committed else None

    @property
    def lags(self) -> bool:
        """Whether something was told that is not known to be durable, or an offset may move."""
        return bool(self.routing.telling.waiting or self.moved or self._safe != self.committed)

    @property
    def _safe(self) -> Offset | None:
        """The next offset to read for whoever comes after us: all before it have their answer."""
        first = next(iter(self.routing.unsettled), None)
        return self.position if first is None else Offset(first)

    @property
    def unsettled(self) -> int:
        """How many deliveries have no answer yet."""
        return len(self.routing.unsettled) + len(self.trials.held)

    @property
    def unsettled_bytes(self) -> int:
        """How large they are together."""
        held = sum(len(record.value or b"") for record in self.trials.held)
        return sum(self.routing.unsettled.values()) + held

    @property
    def waits_until_s(self) -> float | None:
        """Until when the desks with work linger or rest, or None. By `Clock.boot_s`."""
        waits = (desk.waits_until_s for desk in self.busy)
        return min((until_s for until_s in waits if until_s is not None), default=None)

    @property
    def flies(self) -> bool:
        """Whether a PUT is on its way."""
        return any(desk.flying is not None for desk in self.busy)

    @property
    def put_s(self) -> float:
        """How long the shortest PUT of a table takes just now, of those whose PUT is on its way."""
        flying = (desk for desk in self.busy if desk.flying is not None)
        return min((desk.pace.put_s for desk in flying), default=0.0)

    def land(self) -> None:
        """Tell what has landed, and decide on nothing new."""
        for desk in list(self.routing.desks.values()):
            if desk.flying is not None and desk.flying.flight.done():
                self._told(desk, self._attempt(desk, Desk.land))

    def _attend(self, desk: Desk) -> bool:
        verdicts = self._attempt(desk, self._work_at)
        # What fails from here on is the bus, for all tables: it is not for a table to wait it out.
        self._told(desk, verdicts)
        self.routing.obey(desk)
        desk.idle_until_s = self.watch.idle_until_s(desk)
        return bool(verdicts and desk.line)

    def _attempt(self, desk: Desk, work: Work) -> tuple[Verdict, ...]:
        """Return what stands in the log; a table that fails halts or rests, the others go on."""
        try:
            return work(desk)
        except BROKEN as error:
            self._halt(desk, error)
        except (Unavailable, Contended) as error:
            if self.routing.gives_up(desk, error):
                return ()
            desk.rest(self.doors.clock.boot_s())
            RESTS.labels(desk.label, type(error).__name__).inc()
            log_event(_log, "resting", level=logging.WARNING, table=desk.record.name, why=error)
        return ()

    def _told(self, desk: Desk, verdicts: tuple[Verdict, ...]) -> None:
        for verdict in verdicts:
            self.routing.settled(desk, verdict)
        if verdicts:
            desk.pace.told_s = self.doors.clock.boot_s()
            reach("after_outcomes")
        self._tell_news(desk)

    def _work_at(self, desk: Desk) -> tuple[Verdict, ...]:
        if self.routing.lets_nothing_off(desk):
            is_down = desk.flying is not None and desk.flying.flight.done()
            return desk.land() if is_down else ()
        if desk.state is None:
            if not desk.load():
                return ()
            self._tell_news(desk)
            if desk.state is None:
                return ()
            self._heal(desk)
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
        self.moved[desk.record.table] = None
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

    def _halt(self, desk: Desk, error: TidegateError) -> None:
        """Serve this table no more until its log can be read; the other tables go on."""
        desk.forget()
        self.watch.forget(desk)
        # What flies is found in the log, should it land: nobody was promised that it does not.
        desk.flying = None
        desk.rests_until_s = self.doors.clock.boot_s() + RETRY_HALTED_S
        if desk.halted is None:
            log_event(_log, "halted", level=logging.ERROR, table=desk.record.name, why=error)
        desk.halted = str(error)
        if not desk.is_registered:
            self.routing.send_away(desk, error)
            return
        for one in desk.line.everybody():
            self.routing.answer(halted(one.candidate, desk.halted), desk.record)
        desk.record = desk.record.model_copy(update={"status": "halted", "reason": desk.halted})
        self.moved[desk.record.table] = None

    def _heal(self, desk: Desk) -> None:
        if desk.halted is None and desk.record.status != "halted":
            return
        desk.halted = None
        healed = {"status": "open", "reason": None, "overwritten": None}
        desk.record = desk.record.model_copy(update=healed)
        self.moved[desk.record.table] = None
        log_event(_log, "healed", table=desk.record.name)
