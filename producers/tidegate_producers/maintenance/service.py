"""The maintainer: looks at the tables, decides, proposes one task of each table after the other.

A vacuum lists a whole table and may take long: it runs beside the tasks of other tables.

It holds no state that it needs: whoever kills it at any point, the next one reads the logs, finds
the same tasks, and proposes them under the same ids. A table whose task gives way to a writer, or
fails, rests; the others go on.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from math import inf
from typing import Final
from uuid import UUID

from tidegate_delta.log.actions import Add
from tidegate_delta.snapshots.raw_stats import row_counts
from tidegate_messages.proposal import Operation
from tidegate_messages.published_records import (
    DamagedFile,
    MaintenanceChore,
    MaintenanceRecord,
    TableRecord,
)
from tidegate_producers.cached_clients import store_for
from tidegate_producers.maintenance.machine import (
    DAY_MS,
    TASK_BYTES_MAX,
    Budget,
    Chore,
    Plan,
    Policy,
    briefly,
    plan,
)
from tidegate_producers.maintenance.maintenance_topic import (
    Records,
    publish_maintenance,
    read_maintenance,
)
from tidegate_producers.maintenance.settings import MaintainSettings
from tidegate_producers.maintenance.table_facts import (
    KnownTable,
    sample_of,
    target_file_bytes,
)
from tidegate_producers.options import TableLocation
from tidegate_producers.parquet.file_rewrite import CompactionResult
from tidegate_producers.vacuum.vacuum import VacuumRequest, claims_on, vacuum
from tidegate_producers.writing.compute_statistics import (
    NOT_AS_READ,
    add_again,
    with_statistics,
)
from tidegate_producers.writing.optimize import (
    AGAIN,
    Bin,
    Compacting,
    CompactionRunner,
    OptimizeRequest,
    Packer,
    bins_at,
    compact_here,
)
from tidegate_producers.writing.table_write import WriteRequest
from tidegate_runtime.client import proposal_builders
from tidegate_runtime.client.client import Client, Rejected
from tidegate_runtime.containment import Faults, class_of, contained, is_fault, reason_of
from tidegate_runtime.failpoints import reach
from tidegate_runtime.kafka.client_protocols import Bus
from tidegate_runtime.observability import metrics
from tidegate_runtime.observability.logs import log_event
from tidegate_runtime.service.runner import Running
from tidegate_runtime.table_io.data_file_checks import file_findings
from tidegate_runtime.table_io.data_file_reader import rows_of
from tidegate_runtime.table_registry import RegistryReader

NAME: Final = "maintain"
TIMEOUT_S: Final = 60.0
"""How long an outcome is waited for. A task whose outcome is unknown is planned again, with its id.
"""

COMMITTED: Final = "committed"
GONE: Final = "files_gone"
"""The outcome of a task some of whose files are live no more."""

DEATHS_MAX: Final = 3
DIED: Final = (
    f"{DEATHS_MAX} processes have died within its tasks, perhaps for lack of memory: give them "
    "more, or lower its delta.targetFileSize, and `tidegate maintain resume` it"
)

STALLED_S: Final = 1_800.0
"""How long a task may take before the service counts as stalled."""

VACUUM: Final = "vacuum"
VACUUM_MAX_S: Final = 6 * 3_600.0
"""How long a vacuum may take before the service counts as stalled."""

VACUUMED: Final = "it is being vacuumed"
_TICK_S: Final = 1.0

DAMAGED_MAX: Final = 100
WHAT_MAX: Final = 500
"""How many damaged files a report names, and how many characters it has of each."""

ID_REUSED: Final = "id_reused"
_GIVES_WAY: Final = NOT_AS_READ | {ID_REUSED}
_SERVED: Final = ("open", "managed")
_log = logging.getLogger(__name__)


class Stopped(Exception):
    """The service is to end, and a task was given up before its proposal."""


class Maintainer:
    """The maintainer of all tables that the settings name. `spark` writes files anew that are too
    large for this process; without it they are left to others.
    """

    def __init__(
        self,
        settings: MaintainSettings,
        bus: Bus,
        running: Running,
        spark: CompactionRunner | None = None,
    ) -> None:
        self._settings, self._section = settings, settings.maintain
        self._bus, self._topics, self._running = bus, settings.kafka.topics, running
        self._client = Client(bus, self._topics, running.clock, producer=NAME)
        self._registry = RegistryReader(bus, self._topics)
        self._budget = Budget(self._section.hour_bytes_max, self._section.day_bytes_max)
        self._spark = spark
        self._tables: dict[UUID, KnownTable] = {}
        self._resting: dict[UUID, tuple[float, str]] = {}
        self._faults: dict[UUID, Faults] = {}
        self._reports: Records | None = None
        self._changed: Records = {}
        self._deaths: dict[UUID, int] = {}
        self._vacuuming: dict[UUID, tuple[Chore, int, Future[None]]] = {}
        interval_s = self._section.vacuum_interval_s
        self._policy = Policy(
            round(1000 * self._section.file_age_s),
            None if interval_s is None else round(1000 * interval_s),
            DAY_MS,
            self._section.hour_bytes_max if self._section.spark else TASK_BYTES_MAX,
        )

    def run(self, *, once: bool) -> None:
        """Do what is due until the service is stopped, or with `once` until nothing is.

        Raises: Unavailable; Misconfigured, when a topic is missing.
        """
        try:
            with ThreadPoolExecutor(1, thread_name_prefix=VACUUM) as vacuums:
                self._vacuums = vacuums
                self._run_rounds(once=once)
        except Stopped as given_up:
            log_event(_log, "given_up", why=given_up)
        finally:
            self._client.close()
        self._end_vacuums()
        self._publish()

    def _run_rounds(self, *, once: bool) -> None:
        health, stopping = self._running.health, self._running.stopping
        health.expect(NAME, STALLED_S + self._section.pause_s)
        while not stopping.is_set():
            done = self._round(once=once)
            health.ready(True)
            if once and not done:
                return
            if not done:
                self._pause()

    def _pause(self) -> None:
        """Wait, at most until a vacuum has ended, so that the next table's can begin."""
        clock, stopping = self._running.clock, self._running.stopping
        until_s = clock.boot_s() + self._section.pause_s
        while not stopping.is_set() and (left_s := until_s - clock.boot_s()) > 0:
            if any(vacuuming.done() for *_, vacuuming in self._vacuuming.values()):
                return
            stopping.wait(min(left_s, _TICK_S))

    def planned(self, only: UUID | None = None) -> Plan:
        """Return what would be done now, with one table or all. Raises: as `run`."""
        return self._plan(self._look(only))

    @property
    def last(self) -> dict[UUID, MaintenanceChore]:
        """The last task of each table that was looked at, by whichever process."""
        reports = self._reports or {}
        return {
            table: report.last
            for table, report in reports.items()
            if report.last is not None and table in self._tables
        }

    @property
    def damaged(self) -> dict[UUID, tuple[DamagedFile, ...]]:
        """The damaged files of each table that was looked at, as the last check found them."""
        return {table: known.damaged for table, known in self._tables.items() if known.damaged}

    def _round(self, *, once: bool) -> int:
        """Do the first task of each table, and return how many were committed.

        A table whose only task is done rests, so that its next small files are packed together.
        """
        done = self._end_vacuums()
        planned = self._plan(self._look())
        counts = Counter(task.table for task in planned.tasks)
        for task in planned.turn(with_vacuums=not self._vacuuming):
            if self._running.stopping.is_set() or self._section.is_quiet(self._now_ms()):
                break
            with self._of_table(task.table):
                if task.kind == VACUUM:
                    if not self._vacuuming:
                        self._begin_vacuum(task)
                    if once:
                        wait([vacuuming for *_, vacuuming in self._vacuuming.values()])
                        done += self._end_vacuums()
                    continue
                outcome = self._done(task)
                done += outcome == COMMITTED
                self._note(task, outcome)
                if outcome == COMMITTED and counts[task.table] == 1 and not once:
                    self._rest(task.table, self._section.pause_s, "it has just been maintained")
            self._running.health.progress(NAME)
        self._running.health.progress(NAME)
        self._report(planned)
        return done

    def _look(self, only: UUID | None = None) -> Records:
        """Read the registry, the pauses, and the logs of tables that have new versions."""
        pauses, reports = read_maintenance(self._bus, self._topics)
        self._deaths = {table: report.deaths for table, report in reports.items()}
        if self._reports is None:
            self._reports = reports
            self._budget = _spent_before(self._budget, reports)
        registered = self._registry.read()
        wanted = {
            table: record
            for table, record in registered.items()
            if record.status in _SERVED and self._section.includes(record.name)
            if only in (None, table)
        }
        for table in self._tables.keys() - wanted.keys():
            metrics.forget_maintenance(self._tables.pop(table).record.name)
        now_s = self._running.clock.boot_s()
        for table, record in wanted.items():
            known = self._known(record)
            if now_s < self._resting.get(table, (now_s, ""))[0]:
                continue
            with self._of_table(table):
                self._read(known)
        return pauses

    def _known(self, record: TableRecord) -> KnownTable:
        known = self._tables.get(record.table)
        if known is None or known.record.table_root != record.table_root:
            place = TableLocation(record.table_root, self._settings.storage)
            known = self._tables[record.table] = KnownTable(record, store_for(place))
            report = (self._reports or {}).get(record.table)
            if report is not None:
                known.vacuumed_ms, known.checked_ms = report.vacuumed_ms, report.checked_ms
                known.damaged, known.spent = report.damaged, report.spent
        known.record = record
        return known

    def _read(self, known: KnownTable) -> None:
        """Read a table's log, if it has a version that was not read."""
        record = known.record
        if known.snapshot is None or known.snapshot.version < record.published_through:
            self._refresh(known)
        facts = known.facts
        assert facts is not None, "it was read"
        known.facts = replace(
            facts,
            changed_elsewhere_ms=known.changed_elsewhere_ms,
            written_bytes=known.added_bytes,
            rewritten_bytes=known.rewritten_bytes,
            early_bytes=known.early_bytes,
            vacuumed_ms=known.vacuumed_ms,
            checked_ms=known.checked_ms,
            served_ms=known.served_ms,
        )
        metrics.MAINTAIN_HEALTH.labels(record.name).set(facts.health)
        metrics.MAINTAIN_DAMAGED.labels(record.name).set(len(known.damaged))

    def _refresh(self, known: KnownTable) -> None:
        metrics.MAINTAIN_WRITTEN.labels(known.record.name).inc(known.read(self._now_ms()))

    def _plan(self, pauses: Records) -> Plan:
        """Return the plan for tables that are neither paused nor resting."""
        held, now_ms = self._held(pauses), self._now_ms()
        every = [known.facts for known in self._tables.values() if known.facts is not None]
        free = [facts for facts in every if facts.table not in held]
        left_bytes = self._budget.left_bytes(now_ms)
        metrics.MAINTAIN_BUDGET.set(left_bytes)
        planned = plan(free, self._policy, left_bytes, now_ms)
        due = plan(every, self._policy, left_bytes, now_ms) if held else planned
        backlog = dict.fromkeys(self._tables, 0)
        for task in due.tasks:
            backlog[task.table] += task.cost_bytes
        for table, size_bytes in backlog.items():
            metrics.MAINTAIN_BACKLOG.labels(self._tables[table].record.name).set(size_bytes)
        return replace(planned, reasons={**planned.reasons, **held})

    def _held(self, pauses: Records) -> dict[UUID, str]:
        """Return the tables that are left alone now, and why."""
        now_s = self._running.clock.boot_s()
        if self._section.is_quiet(self._now_ms()):
            return dict.fromkeys(self._tables, f"quiet hours, {self._section.quiet_hours}")
        held = {table: why for table, (until_s, why) in self._resting.items() if now_s < until_s}
        held |= {table: DIED for table, deaths in self._deaths.items() if deaths >= DEATHS_MAX}
        held |= dict.fromkeys(self._vacuuming, VACUUMED)
        held |= {
            table: f"paused: {record.reason or 'no reason was given'}"
            for table, record in pauses.items()
        }
        return {table: why for table, why in held.items() if table in self._tables}

    def _done(self, task: Chore) -> str:
        """Do a task, and return its outcome. A process that dies within leaves a note of that,
        and of what it may have spent.

        Raises: as `_do`.
        """
        known = self._tables[task.table]
        self._begin(task)
        try:
            return self._do(task)
        finally:
            self._keep(task.table, deaths=0, spent=known.spent)

    def _begin(self, task: Chore) -> None:
        """Leave a note that a task runs, and of what it may spend."""
        spent = briefly(self._tables[task.table].spent, self._now_ms(), task.cost_bytes)
        self._keep(task.table, deaths=self._deaths.get(task.table, 0) + 1, spent=spent)
        self._publish()

    def _begin_vacuum(self, task: Chore) -> None:
        """Vacuum a table in a thread. Nothing else is done with it meanwhile."""
        self._begin(task)
        self._running.health.expect(VACUUM, VACUUM_MAX_S)
        record, now_ms = self._tables[task.table].record, self._now_ms()
        vacuuming = self._vacuums.submit(self._vacuum, record, task, now_ms)
        self._vacuuming[task.table] = task, now_ms, vacuuming

    def _vacuum(self, record: TableRecord, task: Chore, now_ms: int) -> None:
        place = TableLocation(record.table_root, self._settings.storage)
        claims = partial(claims_on, self._bus, self._topics, now_ms=now_ms)
        with closing(Client(self._bus, self._topics, self._running.clock, producer=NAME)) as client:
            vacuum(client, place, VacuumRequest(), claims, _request(task))

    def _end_vacuums(self) -> int:
        """Note the vacuums that have ended, and return how many did what they should."""
        done = 0
        for table, (task, began_ms, vacuuming) in list(self._vacuuming.items()):
            known = self._tables.get(table)
            if not vacuuming.done():
                continue
            del self._vacuuming[table]
            self._running.health.expect(VACUUM, inf)
            if known is None:
                continue
            with self._of_table(table):
                known.vacuumed_ms = began_ms
                self._keep(table, deaths=0, spent=known.spent)
                vacuuming.result()
                self._refresh(known)
                self._note(task, COMMITTED)
                done += 1
        return done

    def _do(self, task: Chore) -> str:
        """Do a task, and return its outcome: COMMITTED, or why it gave way.

        Raises: Stopped; Rejected, for what no writer caused; OutcomeUnknown; Unavailable.
        """
        known = self._tables[task.table]
        self._refresh(known)
        if task.kind == "check":
            self._check(known)
            outcome = COMMITTED
        else:
            bins = bins_at(known.current, task.bins)
            by_kind = {"statistics": self._count}
            do = by_kind.get(task.kind, self._rewrite)
            outcome = GONE if bins is None else do(known, task, bins, _request(task))
        self._refresh(known)
        return outcome

    def _check(self, known: KnownTable) -> None:
        """Check a sample of a table's files, and report those that are damaged."""
        now_ms = known.checked_ms = self._now_ms()
        formerly = [file.path for file in known.damaged]
        sample = sample_of(known.current, formerly, now_ms // DAY_MS)
        damaged: list[DamagedFile] = []
        for row, rows in zip(rows_of(sample), row_counts(sample).to_pylist(), strict=True):
            self._check_stop(known)
            for found in file_findings(known.store, row, rows):
                damaged.append(
                    DamagedFile(path=found.about, kind=found.kind, what=found.what[:WHAT_MAX])
                )
                log_event(
                    _log,
                    "file_damaged",
                    level=logging.WARNING,
                    table=known.record.name,
                    kind=found.kind,
                    path=found.about,
                    why=found.what,
                )
            self._running.health.progress(NAME)
        known.damaged = tuple(damaged[:DAMAGED_MAX])
        self._keep(known.record.table, damaged=known.damaged, checked_ms=now_ms)

    def _rewrite(
        self, known: KnownTable, task: Chore, bins: Sequence[Bin], write: WriteRequest
    ) -> str:
        """Write files anew, propose that, and return the outcome."""
        place = TableLocation(known.record.table_root, self._settings.storage)
        request = OptimizeRequest(
            purges=task.kind == "purge",
            sorts=task.kind == "recluster",
            file_bytes=target_file_bytes(known.current.metadata),
            is_auto=True,
        )

        added = list[Add]()

        def commit(identified: WriteRequest) -> None:
            packer = Packer(self._client, place, request, identified, partial(self._compact, known))
            added.extend(packer.commit(known.current, bins)[1])

        outcome = self._proposed(known, task, commit, write)
        if outcome == COMMITTED:
            # Small files are mostly footers: what comes of them is far smaller.
            rewritten_bytes = sum(add.size for add in added) or task.cost_bytes
            known.rewritten_bytes += rewritten_bytes
            known.early_bytes += rewritten_bytes * task.early_bytes // max(1, task.cost_bytes)
        return outcome

    def _count(
        self, known: KnownTable, task: Chore, bins: Sequence[Bin], write: WriteRequest
    ) -> str:
        """Compute statistics of files, propose these, and return the outcome."""
        place = TableLocation(known.record.table_root, self._settings.storage)
        snapshot, adds = known.current, list[Add]()
        for each in bins:
            self._check_stop(known)
            adds += with_statistics(known.store, snapshot, [add.path for add in each.adds])
            self._spend(known, each.size)
        return self._proposed(
            known, task, partial(add_again, self._client, place, snapshot, adds), write
        )

    def _proposed(
        self,
        known: KnownTable,
        task: Chore,
        commit: Callable[[WriteRequest], None],
        write: WriteRequest,
    ) -> str:
        """Make one proposal with the task's id, and return the outcome."""
        identity = task.proposal_id(0)
        attempt = known.attempts.get(identity, 0)
        try:
            commit(replace(write, proposal_id=task.proposal_id(attempt)))
        except Rejected as rejected:
            is_reused = rejected.rule == ID_REUSED
            if not is_reused or not self._is_committed(known, task, attempt):
                if is_reused or rejected.outcome.status == "rejected":
                    known.refused(identity)
                return _gave_way(rejected)
        reach("after_rewrite")
        return COMMITTED

    def _compact(
        self, known: KnownTable, compacting: Compacting, bins: Sequence[Bin]
    ) -> Sequence[CompactionResult]:
        """Compact bins one by one, at the expense of the budget, whatever the proposal's outcome.

        Raises: Stopped, if the service is to end.
        """
        results: list[CompactionResult] = []
        for each in bins:
            self._check_stop(known)
            is_large = each.size > TASK_BYTES_MAX
            run = self._spark if is_large and self._spark is not None else compact_here
            results += run(compacting, [each])
            self._spend(known, each.size)
            metrics.MAINTAIN_REWRITTEN.labels(known.record.name).inc(each.size)
        reach("after_compact")
        return results

    def _check_stop(self, known: KnownTable) -> None:
        """Give up the task if the service is to end. Raises: Stopped."""
        if self._running.stopping.is_set():
            root = known.record.table_root
            raise Stopped(f"{root}: the task is given up; nothing was proposed")

    def _spend(self, known: KnownTable, size_bytes: int) -> None:
        now_ms = self._now_ms()
        self._budget = self._budget.after(now_ms, size_bytes)
        known.spent = briefly(known.spent, now_ms, size_bytes)
        self._running.health.progress(NAME)

    def _is_committed(self, known: KnownTable, task: Chore, attempt: int) -> bool:
        """Return whether the proposal of this id that came first is in the table.

        A killed maintainer, or another one, has proposed the same task with other bytes. A cancel
        answers what became of that.
        """
        record, snapshot = known.record, known.current
        target = proposal_builders.Target(
            record.table, record.table_root, int(snapshot.version), snapshot.metadata.id
        )
        stamp = proposal_builders.Stamp(task.proposal_id(attempt), self._now_ms())
        earlier = proposal_builders.note(target, stamp, Operation(name=task.kind))
        return self._client.cancel(earlier, TIMEOUT_S).status == "committed"

    def _note(self, task: Chore, outcome: str) -> None:
        """Count a task that was done or gave way, and log it."""
        known, now_ms = self._tables[task.table], self._now_ms()
        metrics.MAINTAIN_TASKS.labels(task.name, task.kind, outcome).inc()
        if outcome == COMMITTED:
            known.served_ms = now_ms
            self._faults.pop(task.table, None)
        else:
            # It is planned anew from what the table has then.
            self._rest(task.table, self._section.pause_s, f"a task gave way: {outcome}")
        log_event(
            _log, "maintained", table=task.name, kind=task.kind, outcome=outcome, why=task.why
        )
        self._keep(task.table, last=_shown(task, outcome, now_ms))

    def _report(self, planned: Plan) -> None:
        """Publish what comes next of each table, or why nothing does, where that has changed."""
        following = {task.table: task for task in reversed(planned.tasks)}
        for table, known in self._tables.items():
            task = following.get(table)
            reason = None if task else planned.reasons.get(table)
            self._keep(
                table,
                next=None if task is None else _shown(task),
                reason=reason,
                vacuumed_ms=known.vacuumed_ms,
            )
        self._publish()

    def _publish(self) -> None:
        """Publish the reports that have changed, durably. Raises: Unavailable."""
        if self._changed:
            publish_maintenance(self._bus, self._topics, *self._changed.values())
            self._changed.clear()

    def _keep(self, table: UUID, **changed: object) -> None:
        """Change a table's report; it is published if it says something else now."""
        name, now_ms = self._tables[table].record.name, self._now_ms()
        assert self._reports is not None, "the topic was read"
        former = self._reports.get(table)
        fresh = MaintenanceRecord(table=table, name=name, about="report", at_ms=now_ms)
        report = (former or fresh).model_copy(update=changed)
        if report != former:
            report = report.model_copy(update={"at_ms": now_ms, "name": name})
            self._reports[table] = self._changed[table] = report

    @contextmanager
    def _of_table(self, table: UUID) -> Iterator[None]:
        """Let a table rest after any error of the body, which concerns no other table."""

        def rest(error: Exception) -> None:
            known = self._tables.get(table)
            name = known.record.name if known else str(table)
            pause_s = self._faults.setdefault(table, Faults()).add(self._running.clock.boot_s())
            if known is not None:
                known.snapshot = known.facts = None
            self._rest(table, pause_s, reason_of(error))
            if is_fault(error):
                metrics.FAULTS.labels(name, class_of(error)).inc()
            log_event(
                _log,
                "resting",
                level=logging.WARNING,
                fault=error if is_fault(error) else None,
                table=name,
                after_s=pause_s,
                why=reason_of(error),
            )

        with contained(rest, Stopped):
            yield

    def _rest(self, table: UUID, pause_s: float, why: str) -> None:
        self._resting[table] = (self._running.clock.boot_s() + pause_s, why)

    def _now_ms(self) -> int:
        return self._running.clock.now_ms()


def _spent_before(budget: Budget, reports: Records) -> Budget:
    """Return the budget after what was spent before this process began."""
    spent = sorted(entry for report in reports.values() for entry in report.spent)
    return replace(budget, spent=tuple(spent))


def _request(task: Chore) -> WriteRequest:
    """Return how a task is proposed. The table's history shows its reason."""
    return WriteRequest(TIMEOUT_S, user_metadata=f"tidegate {NAME}: {task.why}")


def _gave_way(rejected: Rejected) -> str:
    """Return the rule by which a task gave way to a writer. Raises: Rejected, for other reasons."""
    rejection = rejected.outcome.rejection
    if rejected.rule in _GIVES_WAY or (rejection is not None and rejection.advice in AGAIN):
        return rejected.rule
    raise rejected


def _shown(task: Chore, outcome: str | None = None, at_ms: int | None = None) -> MaintenanceChore:
    return MaintenanceChore(
        kind=task.kind,
        partitions=task.partitions[:8],
        size_bytes=task.cost_bytes,
        why=task.why,
        outcome=outcome,
        at_ms=at_ms,
    )
