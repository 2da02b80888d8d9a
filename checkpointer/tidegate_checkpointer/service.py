"""A follower of `commits` that keeps logs short to read: notification, decide, write, evolve.

All its state is the log. An existing file is as good as one that it writes, so it may be killed at
any point and run beside another. A table that it may not summarise, or that fails in another way,
is left alone (`tidegate_runtime.followers.quarantine`).
"""

import logging
from collections.abc import Collection
from dataclasses import dataclass
from math import inf
from typing import Final, assert_never
from uuid import UUID

from tidegate_checkpointer.log_cleaner import CleanedTable
from tidegate_checkpointer.log_cleanup_schedule import CleanupSchedule
from tidegate_checkpointer.machine import (
    CheckpointDue,
    Checkpointed,
    ChecksumDue,
    ChecksumWritten,
    Compacted,
    CompactionDue,
    Done,
    Due,
    Notice,
    SummaryState,
    decide,
    evolve,
)
from tidegate_checkpointer.proposal_file_cleanup import DAY_MS, sweep
from tidegate_checkpointer.settings import CheckpointerSettings
from tidegate_checkpointer.summary_writers import (
    compacted,
    read_version,
    write_checkpoint,
    write_checksum,
    write_compaction,
)
from tidegate_checkpointer.supported_tables import check_checkpointable
from tidegate_delta.checkpoints import last_checkpoint, version_checksum
from tidegate_delta.checkpoints.version_checksum import VersionChecksum
from tidegate_delta.log.file_names import (
    LAST_CHECKPOINT,
    LogFile,
    LogFileKind,
    in_log,
)
from tidegate_delta.log.log_segment import complete_checkpoints
from tidegate_delta.properties.table_properties import checkpoint_interval
from tidegate_messages.published_records import CommitRecord, TableRecord
from tidegate_runtime.failpoints import reach
from tidegate_runtime.followers.quarantine import Quarantine
from tidegate_runtime.kafka.client_protocols import Bus
from tidegate_runtime.observability import metrics
from tidegate_runtime.observability.logs import log_event
from tidegate_runtime.service.runner import Running
from tidegate_runtime.storage.log_store import LogStore
from tidegate_runtime.storage.open_store import open_store
from tidegate_runtime.table_io.checkpoint_presence import whole_checkpoint
from tidegate_runtime.table_io.checkpoint_writer import (
    hinted_version,
    move_hint_forward,
)
from tidegate_runtime.table_io.checksum_verification import stated_checksum
from tidegate_runtime.table_io.log_reader import list_log
from tidegate_runtime.table_io.open_table import head_version, open_snapshot
from tidegate_runtime.table_registry import read_registry

FAILPOINTS: Final = (
    "checkpointer.before_put",
    "checkpointer.after_put",
    "checkpointer.after_hint",
    "checkpointer.before_compaction",
    "checkpointer.before_checksum",
    "checkpointer.before_cleanup",
)
"""Points at which a test may kill the process."""

SWEEP_S: Final = 24 * 60 * 60.0
"""Seconds between two cleanups of files that proposals left behind."""

_FOLLOWED: Final = frozenset({"open", "managed", "halted"})
_log = logging.getLogger(__name__)


@dataclass
class TableView:
    """The summary files in a table's log, and the totals of one version.

    `totals` are those of `version`; `head` is the newest version seen. No file set is kept between
    checkpoints: the totals of the next version follow from those of this one and the commit. For a
    checkpoint the table is opened again.
    """

    store: LogStore
    state: SummaryState
    head: int = -1
    version: int = -1
    totals: VersionChecksum | None = None

    def learn(self, version: int) -> VersionChecksum:
        """Return the totals of a version, reading as little as possible.

        Raises: UnsupportedFeature, for a table that we can't summarise at this version; BrokenLog.
        """
        if self.totals is None or self.version != version:
            self.remember(version, self._totals(version))
        assert self.totals is not None, "remembered"
        return self.totals

    def remember(self, version: int, totals: VersionChecksum) -> None:
        """Keep the totals of a version.

        Raises: UnsupportedFeature, for a table that we can't summarise at this version.
        """
        check_checkpointable(totals.protocol, totals.metadata, self.store.root)
        self.version, self.totals = version, totals

    def _totals(self, version: int) -> VersionChecksum:
        commit = read_version(self.store, version)
        before = (
            self.totals if self.version == version - 1 else stated_checksum(self.store, version - 1)
        )
        after = None if before is None else version_checksum.evolve(before, commit)
        if after is not None:
            return after
        txn_id = commit.info.txn_id if commit.info else None
        # Opening the snapshot reads the commit again, which may be large: hold it only once.
        del commit
        return version_checksum.of(open_snapshot(self.store, version), txn_id)


def view_from_log(store: LogStore, compaction_interval: int) -> TableView:
    """Return a table's view from its log, listed from `_last_checkpoint` on, or all without it."""
    last = last_checkpoint.decode(store.read(in_log(LAST_CHECKPOINT)) or b"")
    files = [file for file, _ in list_log(store, f"{last.version if last else 0:020d}")]
    checkpoints = complete_checkpoints(files)
    # Only a checkpoint that is read whole counts as done.
    is_whole = last is not None and whole_checkpoint(store, last.version) is not None
    hinted = last.version if last is not None and is_whole else -1
    # Versions below the oldest readable one are gone, so nothing of them is due.
    oldest = min((file.version for file in files if file.kind is LogFileKind.COMMIT), default=0)
    below = max(oldest, min(checkpoints, default=0) if oldest > 0 else 0) - 1
    state = SummaryState(
        compaction_interval,
        checkpoint=max(hinted, below),
        compacted=max(_newest(files, LogFileKind.COMPACTED), below),
        checksummed=max(_newest(files, LogFileKind.CHECKSUM), below),
    )
    return TableView(store, state, head=_newest(files, LogFileKind.COMMIT))


def _newest(files: list[LogFile], kind: LogFileKind) -> int:
    return max((file.version for file in files if file.kind is kind), default=-1)


@dataclass(frozen=True)
class _Table:
    id: UUID
    root: str
    name: str


class Checkpointer:
    """Handles notifications. Called from threads, never twice at once for one table."""

    name = "checkpointer"

    def __init__(self, settings: CheckpointerSettings, bus: Bus, running: Running) -> None:
        self._settings = settings
        self._bus = bus
        self._running = running
        self._views: dict[UUID, TableView] = {}
        self._swept_s: dict[UUID, float] = {}
        topics = settings.kafka.topics
        self._cleanups = CleanupSchedule(bus, topics, running)
        self._quarantine = Quarantine(self.name, bus, topics, running.clock, self._release)

    @property
    def poll_interval_s(self) -> float:
        """Seconds between two passes."""
        return self._settings.checkpointer.look_s

    @property
    def unfinished(self) -> Collection[UUID]:
        """Always empty: one turn does everything that is due of a table."""
        return ()

    def go_on(self, table: UUID) -> None:
        """Do nothing, as a turn leaves nothing unfinished."""

    def notice(self, record: CommitRecord) -> None:
        """Do what is due at a version; a quarantined table waits for the next pass."""
        view = self._views.get(record.table)
        told = view is not None and record.version <= view.head
        if told or self._quarantine.holds(record.table):
            return
        table = _Table(record.table, record.table_root, record.name or str(record.table))
        with self._quarantine.around(table.id, table.name):
            self._attend(table, record.version)
        self._quarantine.tell()

    def poll(self) -> None:
        """Do what is due for every registered table, notified or not."""
        registry = read_registry(self._bus, self._settings.kafka.topics).values()
        followed = [one for one in registry if _is_followed(one)]
        for name in {one.name for one in registry} - {one.name for one in followed}:
            _remove_metrics(name)
        self._quarantine.refresh({one.table for one in followed})
        self._cleanups.begin_pass({one.table for one in followed})
        for record in followed:
            if self._quarantine.waits(record.table) or self._running.stopping.is_set():
                continue
            table = _table(record)
            with self._quarantine.around(table.id, table.name):
                self._attend(table, max(0, record.published_through))
                self._sweep(table)
                self._clean(record)
                if not self._running.stopping.is_set():
                    self._quarantine.heal(table.id)
        self._quarantine.tell()

    def _sweep(self, table: _Table) -> None:
        """Delete files of expired proposals of a table, once a day."""
        now_s, view = self._running.clock.boot_s(), self._views.get(table.id)
        if view is None or now_s - self._swept_s.get(table.id, -inf) < SWEEP_S:
            return
        self._swept_s[table.id] = now_s
        before_ms = self._running.clock.now_ms() - self._kept_ms
        if swept := sweep(view.store, view.head, before_ms):
            log_event(_log, "swept", table=table.name, files=swept)

    def _clean(self, record: TableRecord) -> None:
        """Delete expired and replaced files of a table's log, if that is due."""
        view = self._views.get(record.table)
        if view is None or view.head < 0 or not self._cleanups.is_due(record.table):
            return
        totals = view.totals or view.learn(view.head)
        cleaned = CleanedTable(view.store, view.head, totals.protocol, totals.metadata)
        self._cleanups.clean(record, cleaned)

    @property
    def _kept_ms(self) -> int:
        """How long files of a proposal are kept: the retention of the proposals topic and a day."""
        topics = self._settings.kafka.topics
        [proposals] = [one for one in topics.declared() if one.name == topics.proposals]
        return proposals.retention_ms + DAY_MS

    def _attend(self, table: _Table, version: int) -> None:
        view = self._views.get(table.id)
        if view is None:
            store = open_store(table.root, self._settings.storage)
            view = view_from_log(store, self._settings.checkpointer.compaction_interval)
            self._views[table.id] = view
        head = head_version(view.store, max(version, view.head))
        if head is None:
            return
        if head < view.head:
            # The table was replaced or restored to an older state: read its log from scratch.
            self._views[table.id] = view = view_from_log(view.store, view.state.compaction_interval)
        view.head = head
        while due := decide(view.state, Notice(view.head, _interval(view))):
            for one in due:
                if self._running.stopping.is_set():
                    return
                view.state = evolve(view.state, self._do(table, view, one))
                self._running.health.progress("commits")
        _measure(table, view)

    def _do(self, table: _Table, view: TableView, due: Due) -> Done:
        match due:
            case CheckpointDue(version):
                return self._checkpoint(table, view, version)
            case ChecksumDue(version):
                return _sum(table, view, version)
            case CompactionDue():
                return _compact(table, view, due)
            case _:
                assert_never(due)

    def _checkpoint(self, table: _Table, view: TableView, version: int) -> Checkpointed:
        # One checkpoint of a version is enough, whoever wrote it.
        if (hinted := hinted_version(view.store, version)) >= version:
            return Checkpointed(hinted)
        if there := whole_checkpoint(view.store, version):
            move_hint_forward(view.store, there)
            return Checkpointed(version)
        began_s = self._running.clock.boot_s()
        snapshot = open_snapshot(view.store, version)
        check_checkpointable(snapshot.protocol, snapshot.metadata, view.store.root)
        self._cleanups.note_checksum(table.id, table.name, view.store, snapshot)
        reach("checkpointer.before_put")
        hint = write_checkpoint(view.store, snapshot, self._running.clock)
        self._cleanups.note_written(table.id, hint.size_in_bytes or 0)
        reach("checkpointer.after_put")
        moved = move_hint_forward(view.store, hint)
        reach("checkpointer.after_hint")
        took_s = self._running.clock.boot_s() - began_s
        metrics.CHECKPOINT_WRITE.labels(table.name).observe(took_s)
        log_event(
            _log,
            "checkpointed",
            table=table.name,
            version=version,
            actions=hint.size,
            hint="moved" if moved else "ahead",
            took_ms=round(took_s * 1000),
        )
        commit = read_version(view.store, version)
        view.remember(
            version, version_checksum.of(snapshot, commit.info.txn_id if commit.info else None)
        )
        return Checkpointed(version)

    def _release(self, table: UUID, name: str) -> None:
        """Forget a table's view, so that its log is read again."""
        self._views.pop(table, None)
        metrics.CHECKPOINT_AGE.labels(name).set(inf)


def _sum(table: _Table, view: TableView, version: int) -> ChecksumWritten:
    totals = view.learn(version)
    reach("checkpointer.before_checksum", table.name)
    write_checksum(view.store, version, totals)
    return ChecksumWritten(version)


def _compact(table: _Table, view: TableView, due: CompactionDue) -> Compacted:
    content = compacted(view.store, due.start, due.end)
    reach("checkpointer.before_compaction")
    if content:
        # Commits of commitInfo alone compact to nothing, and an empty file reads as a torn one.
        write_compaction(view.store, due.start, due.end, content)
        log_event(_log, "compacted", table=table.name, start=due.start, end=due.end)
    return Compacted(due.start, due.end)


def _interval(view: TableView) -> int:
    """Return the table's checkpoint interval, as of the newest totals that are known."""
    totals = view.totals or view.learn(view.head)
    return checkpoint_interval(totals.metadata)


def _measure(table: _Table, view: TableView) -> None:
    age = view.head - view.state.checkpoint
    metrics.CHECKPOINT_AGE.labels(table.name).set(age)
    metrics.LOG_TAIL.labels(table.name).set(age)
    metrics.TABLE_VERSION.labels(table.name).set(view.head)


def _remove_metrics(name: str) -> None:
    """Remove the metrics of a table that is left alone, so that they raise no alert."""
    metrics.CHECKPOINT_AGE.remove(name)
    metrics.LOG_TAIL.remove(name)
    metrics.LOG_CLEANUP_TIME.remove(name)
    metrics.LOG_CLEANUP_BLOCKED.remove_by_labels({"table": name})


def _is_followed(record: TableRecord) -> bool:
    """Whether a table is to be summarised.

    A table whose log was overwritten, or that an operator has halted, is left as it is.
    """
    is_left_alone = record.overwritten is not None or record.halted_by_hand is not None
    return record.status in _FOLLOWED and not is_left_alone


def _table(record: TableRecord) -> _Table:
    return _Table(record.table, record.table_root, record.name)
