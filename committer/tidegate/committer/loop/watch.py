"""The watch over tables: scheduled reads of their stores, apart from proposals.

Idle tables are probed for versions by other writers; all tables are audited for versions that were
overwritten or deleted.
"""

from dataclasses import dataclass, field
from uuid import UUID

from tidegate.committer.doors import Doors
from tidegate.committer.loop.desk import Desk
from tidegate.committer.reading.audits import Audit
from tidegate.committer.reading.idle_probes import IdleProbe
from tidegate.runtime.metrics import PROBES
from tidegate.runtime.stores.overwriting import overwritten


@dataclass
class Watch:
    """The audits and probes of a lane's tables, by table id."""

    doors: Doors
    audits: dict[UUID, Audit] = field(default_factory=dict)
    probes: dict[UUID, IdleProbe] = field(default_factory=dict)

    def audit(self, desk: Desk) -> None:
        """Begin or finish an audit of recent versions, if it is due and no PUT is in flight.

        Raises: BrokenLog, where a version was overwritten or is gone.
        """
        state, section, now_s = desk.state, self.doors.settings, self.doors.clock.boot_s()
        if state is None or not desk.is_registered:
            return
        audit = self.audits.get(desk.record.table)
        if audit is None:
            audit = self.audits[desk.record.table] = Audit(now_s + section.audit_s)
        desk.wants_calm = audit.wants_calm(now_s)
        if desk.flying is not None or desk.fetch is not None:
            return
        found = audit.end(state, desk.store.root, desk.label)
        if found is not None:
            desk.record = desk.record.model_copy(update={"overwritten": found})
            raise overwritten(desk.store.root, found)
        if audit.answer is None and now_s >= audit.due_s:
            audit.due_s = now_s + section.audit_s
            audit.begin(desk.store, state, section.audit_versions, self.doors.background)

    def probe(self, desk: Desk) -> None:
        """Probe an idle table for the version after its head, and catch up if there is one.

        Raises: as `Desk.load`.
        """
        now_s, state = self.doors.clock.boot_s(), desk.state
        if state is None or now_s - desk.viewed_s > self.doors.settings.view_age_max_s:
            desk.forget()
            return
        probe = self.probes.setdefault(desk.record.table, IdleProbe())
        is_due = now_s - desk.viewed_s >= self.doors.settings.external_probe_s
        if is_due and probe.answer is None and not desk.is_behind:
            PROBES.labels(desk.label).inc()
            probe.begin(desk.store, state.version + 1, now_s, self.doors.background)
        is_there = probe.end(state.version + 1)
        if is_there or desk.is_behind:
            desk.is_behind = True
            desk.catch_up()
        elif is_there is False:
            desk.viewed_s = max(desk.viewed_s, probe.asked_s)

    def idle_until_s(self, desk: Desk) -> float:
        """Return when an idle desk is next due for a probe or an audit; 0 where it is not idle."""
        table = desk.record.table
        audit, probe = self.audits.get(table), self.probes.get(table)
        if desk.line or desk.news or desk.flying is not None or desk.state is None:
            return 0.0
        if audit is None or audit.answer is not None or (probe and probe.answer is not None):
            return 0.0
        section = self.doors.settings
        look_s = min(section.external_probe_s, section.view_age_max_s)
        return 0.0 if desk.is_behind else min(audit.due_s, desk.viewed_s + look_s)

    def forget(self, table: UUID) -> None:
        """Drop a table's audit and probe: their answers may not hold any more."""
        self.audits.pop(table, None)
        self.probes.pop(table, None)
