"""Which tables of a partition worker are due, and when.

There may be a hundred thousand tables, most of them idle, so a step must cost as much as there is
to do, not as many tables as there are. Tables with new work are due now. Tables without work are
due again at a set time. Tables that are not loaded yet wait for their turn to read their store.

`BackgroundReads` are the reads of stores that no proposal waits for. Idle tables are
probed for versions by other writers; all tables are audited for versions that were overwritten or
deleted, and while versions come for a folder in which another table was made.
"""

import math
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Final
from uuid import UUID

from tidegate_committer.dependencies import Dependencies
from tidegate_committer.loop.table_committer import TableCommitter
from tidegate_committer.store_executor import store_of
from tidegate_committer.store_reads.log_audit import Audit, IdleProbe, Pace
from tidegate_runtime.observability.metrics import PROBES
from tidegate_runtime.storage.overwrite_detection import overwritten

AUDIT_READS_PER_S: Final = 20.0
PROBES_PER_S: Final = 50.0
"""The most reads a second for audits and for probes, over all tables: with very many tables these
come less often, and cost no more.
"""

VIEW_SHARE: Final = 0.5
"""A probe comes at the latest after this share of `view_age_max_s`, and spares the table to be read
anew: with more idle tables than that allows, there are more probes.
"""


@dataclass
class TableScheduler:
    """Tables that are due now, due later, and not loaded yet, the latter by store.

    `put_off` holds the tables of `later`, each with its earliest time. Times are by `Clock.boot_s`.
    """

    due: dict[UUID, None] = field(default_factory=dict)
    later: list[tuple[float, UUID]] = field(default_factory=list)
    put_off: dict[UUID, float] = field(default_factory=dict)
    unread: dict[str, OrderedDict[UUID, None]] = field(default_factory=dict)

    def wake(self, table: UUID) -> None:
        """Make a table due in the next step."""
        self.due[table] = None

    def clear_due(self, table: UUID) -> None:
        """Make a table no longer due, until it gets new work."""
        self.due.pop(table, None)

    def postpone(self, table: UUID, until_s: float) -> None:
        """Make a table due at `until_s`, or earlier if it gets new work."""
        self.due.pop(table, None)
        if until_s < self.put_off.get(table, float("inf")):
            self.put_off[table] = until_s
            heappush(self.later, (until_s, table))

    def read_in_turn(self, table_committer: TableCommitter) -> None:
        """Queue a table to be loaded, behind others in its store."""
        self.due.pop(table_committer.record.table, None)
        waiting = self.unread.setdefault(store_of(table_committer.store.root), OrderedDict())
        waiting[table_committer.record.table] = None

    def now(self, now_s: float) -> list[UUID]:
        """Return the tables that are due."""
        while self.later and self.later[0][0] <= now_s:
            due_s, table = heappop(self.later)
            # Only the earliest time counts: work on the table sets its next time.
            if self.put_off.get(table) == due_s:
                del self.put_off[table]
                self.due[table] = None
        return list(self.due)

    def next_to_read(
        self, table_committers: Mapping[UUID, TableCommitter], is_free: Callable[[str], bool]
    ) -> TableCommitter | None:
        """Return the first table to be loaded whose store has no other read running; make it
        due.
        """
        for store, tables in list(self.unread.items()):
            table_committer = None
            while tables and not is_unread(
                table_committer := table_committers.get(next(iter(tables)))
            ):
                tables.popitem(last=False)
            if not tables or table_committer is None:
                del self.unread[store]
            elif is_free(table_committer.store.root):
                self.due[tables.popitem(last=False)[0]] = None
                if not tables:
                    del self.unread[store]
                return table_committer
        return None


def is_unread(table_committer: TableCommitter | None) -> bool:
    """Return whether a table is to be loaded, and no proposal waits for that."""
    if (
        table_committer is None
        or table_committer.cache.state is not None
        or table_committer.record.halted_by_hand is not None
    ):
        return False
    return not table_committer.cache.waits_for and not table_committer.queue


@dataclass
class BackgroundReads:
    """The audits and probes of a partition worker's tables, by table id, and their paces."""

    dependencies: Dependencies
    audits: dict[UUID, Audit] = field(default_factory=dict)
    probes: dict[UUID, IdleProbe] = field(default_factory=dict)
    looks: Pace = field(default_factory=Pace)
    audits_pace: Pace = field(default_factory=lambda: Pace(AUDIT_READS_PER_S))
    probes_pace: Pace = field(default_factory=lambda: Pace(PROBES_PER_S))

    def audit(self, table_committer: TableCommitter) -> None:
        """Start or finish an audit of recent versions, if it is due and no PUT is in flight.

        Raises: BrokenLog, if a version was overwritten or is gone.
        """
        state, section, now_s = (
            table_committer.cache.state,
            self.dependencies.settings,
            self.dependencies.clock.boot_s(),
        )
        if state is None or not table_committer.is_registered:
            return
        audit = self.audits.get(table_committer.record.table)
        rulings = table_committer.record.rulings
        if audit is None or audit.rulings != rulings:
            # After an operator's request another table may be served, by the same registration.
            audit = Audit(self._next_audit_s(now_s), rulings=rulings, looks=self.looks)
            self.audits[table_committer.record.table] = audit
        if table_committer.in_flight is not None or audit.is_behind(state):
            audit.look_again(table_committer.store, state, now_s, self.dependencies.background)
        table_committer.pause_for_audit = audit.pause_for_audit(now_s)
        if table_committer.in_flight is not None or table_committer.cache.fetch is not None:
            return
        overwritten_version = audit.end(state, table_committer.store.root, table_committer.label)
        if overwritten_version is not None:
            table_committer.record = table_committer.record.model_copy(
                update={"overwritten": overwritten_version}
            )
            raise overwritten(table_committer.store.root, overwritten_version)
        if audit.answer is None and now_s >= audit.due_s:
            audit.due_s = self._next_audit_s(now_s)
            audit.begin(
                table_committer.store, state, section.audit_versions, self.dependencies.background
            )

    def probe(self, table_committer: TableCommitter) -> None:
        """Probe an idle table for the version after its head, and catch up if there is one.

        Raises: as `TableCommitter.load`.
        """
        now_s, state = self.dependencies.clock.boot_s(), table_committer.cache.state
        if (
            state is None
            or now_s - table_committer.cache.viewed_s > self.dependencies.settings.view_age_max_s
        ):
            table_committer.forget()
            return
        table, viewed_s = table_committer.record.table, table_committer.cache.viewed_s
        probe = self.probes.get(table)
        if probe is None:
            probe = self.probes[table] = IdleProbe(self._next_probe_s(now_s, viewed_s))
        is_due = now_s >= max(probe.due_s, viewed_s + self.dependencies.settings.external_probe_s)
        if is_due and probe.answer is None and not table_committer.cache.is_behind:
            PROBES.labels(table_committer.label).inc()
            probe.due_s = self._next_probe_s(now_s, now_s)
            probe.begin(
                table_committer.store, state.version + 1, now_s, self.dependencies.background
            )
        is_there = probe.take_result(state.version + 1)
        if is_there or table_committer.cache.is_behind:
            table_committer.cache.is_behind = True
            table_committer.cache.catch_up()
        elif is_there is False:
            table_committer.cache.viewed_s = max(table_committer.cache.viewed_s, probe.asked_s)

    def idle_until_s(self, table_committer: TableCommitter) -> float:
        """Return when an idle table is next due for a probe or an audit; 0 if it is not idle."""
        table = table_committer.record.table
        audit, probe = self.audits.get(table), self.probes.get(table)
        if (
            table_committer.queue
            or table_committer.cache.unpublished
            or table_committer.in_flight is not None
            or table_committer.cache.state is None
        ):
            return 0.0
        if audit is None or audit.answer is not None or (probe and probe.answer is not None):
            return 0.0
        if audit.look is not None or audit.replaced is not None:
            return 0.0
        section, viewed_s = self.dependencies.settings, table_committer.cache.viewed_s
        probe_s = max(viewed_s + section.external_probe_s, probe.due_s if probe else 0.0)
        return (
            0.0
            if table_committer.cache.is_behind
            else min(
                audit.due_s,
                probe_s,
                viewed_s + section.view_age_max_s,
                audit.look_s if audit.is_behind(table_committer.cache.state) else math.inf,
            )
        )

    def _next_audit_s(self, now_s: float) -> float:
        section = self.dependencies.settings
        return self.audits_pace.turn_s(now_s, now_s + section.audit_s, section.audit_versions)

    def _next_probe_s(self, now_s: float, viewed_s: float) -> float:
        section = self.dependencies.settings
        needed_per_s = len(self.probes) / (VIEW_SHARE * section.view_age_max_s)
        self.probes_pace.reads_per_s = max(PROBES_PER_S, needed_per_s)
        return self.probes_pace.turn_s(now_s, viewed_s + section.external_probe_s)

    def forget(self, table: UUID) -> None:
        """Drop a table's audit and probe: their results may be outdated."""
        self.audits.pop(table, None)
        self.probes.pop(table, None)
