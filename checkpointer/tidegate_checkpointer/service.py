"""A follower of `commits` that keeps logs short to read: notification, decide, write, evolve.

All its state is the log. An existing file is as good as one that it writes, so it may be killed at
any point and run beside another. A table that it may not summarise, or that fails in another way,
is left alone (`tidegate_runtime.followers.quarantine`).

`sweep_proposal_files` deletes files that proposals left and that nothing needs. An action file is
needed as long as its proposal can be read from the proposals topic. A staged version is needed
until it is decided and published; an unpublished one is kept, however old.
"""

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Final, assert_never
from uuid import UUID

from tidegate_checkpointer.log_cleaner import CleanedTable, CleanupSchedule
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
    decide,
    evolve,
)
from tidegate_checkpointer.settings import CheckpointerSettings
from tidegate_checkpointer.summary_writers import (
    write_checkpoint,
    write_checksum,
    write_compaction,
)
from tidegate_checkpointer.table_turns import PASS_S, SHORT_S, TableTurns, settle
from tidegate_checkpointer.table_view import BYTES_PER_S, TableView, view_from_log
from tidegate_delta.checkpoints.rows_since_checkpoint import CheckpointState
from tidegate_delta.errors import BrokenLog
from tidegate_delta.log.commit import sha256
from tidegate_delta.log.file_names import STAGED_FOLDER, commit_name, in_log, staged_version
from tidegate_delta.properties.table_properties import checkpoint_interval
from tidegate_messages.published_records import CommitRecord, TableRecord
from tidegate_runtime.failpoints import reach
from tidegate_runtime.followers.quarantine import Quarantine
from tidegate_runtime.kafka.client_protocols import Bus
from tidegate_runtime.observability import metrics
from tidegate_runtime.observability.logs import log_event
from tidegate_runtime.service.runner import Running
from tidegate_runtime.storage.log_store import FileStat, LogStore
from tidegate_runtime.storage.open_store import open_store
from tidegate_runtime.table_io.checkpoint_reader import whole_checkpoint
from tidegate_runtime.table_io.checkpoint_writer import (
    WrittenCheckpoint,
    hinted_version,
    move_hint_forward,
    put_hint,
)
from tidegate_runtime.table_io.open_table import head_version
from tidegate_runtime.table_registry import read_registry

CLAIM_FOLDER: Final = "_tidegate/proposals"
DAY_MS: Final = 24 * 60 * 60 * 1000
"""Added to the retention of proposals, because clocks differ."""


def sweep_proposal_files(store: LogStore, head: int, before_ms: int) -> int:
    """Delete files of proposals that were last modified before a time; return how many.

    `head` is a version that is in the log.
    Units: `before_ms` is a Unix time.
    Raises: Unavailable.
    """
    expired = [
        stat.path
        for folder in (CLAIM_FOLDER, in_log(STAGED_FOLDER))
        for stat in store.list_from(folder, "")
        if stat.modified_ms < before_ms and _is_left_over(stat, head)
    ]
    for path in expired:
        store.delete(path)
    return len(expired)


def _is_left_over(stat: FileStat, head: int) -> bool:
    folder, _, name = stat.path.rpartition("/")
    if folder == CLAIM_FOLDER:
        return name.endswith(".ndjson")
    version = staged_version(name)
    return version is not None and version <= head


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


@dataclass(frozen=True)
class _Table:
    id: UUID
    root: str
    name: str


@dataclass(frozen=True)
class _Work:
    """Something that is due of a table, and how long it is expected to take."""

    expected_s: float
    run: Callable[[], None]


class Checkpointer:
    """Handles notifications. Called from threads, never twice at once for one table."""

    name = "checkpointer"

    def __init__(self, settings: CheckpointerSettings, bus: Bus, running: Running) -> None:
        self._settings = settings
        self._bus = bus
        self._running = running
        self._views: dict[UUID, TableView] = {}
        self._swept_s: dict[UUID, float] = {}
        self._turns = TableTurns(running.clock)
        self._tables: dict[UUID, _Table] = {}
        self._to_clean: dict[UUID, TableRecord] = {}
        topics = settings.kafka.topics
        self._cleanups = CleanupSchedule(bus, topics, running)
        self._quarantine = Quarantine(self.name, bus, topics, running.clock, self._release)

    @property
    def poll_interval_s(self) -> float:
        """Seconds between two passes."""
        return self._settings.checkpointer.look_s

    @property
    def unfinished(self) -> Collection[UUID]:
        """The tables whose due work takes longer than a notification may."""
        return self._turns.unfinished()

    def urgency(self, table: UUID) -> float:
        """Return what readers of a table lose while it waits."""
        return self._turns.urgency(table)

    def go_on(self, table: UUID) -> None:
        """Do the next long work of a table, and the short work after it."""
        known = self._tables.get(table)
        if known is None or table not in self._views or self._quarantine.waits(table):
            self._turns.forget(table)
            return
        began_s = self._running.clock.boot_s()
        with self._quarantine.around(table, known.name):
            self._work(known, SHORT_S, is_turn=True)
        self._turns.took(table, self._running.clock.boot_s() - began_s)
        self._quarantine.tell()

    def notice(self, record: CommitRecord) -> None:
        """Do what is due at a version, if that is short; else it waits for a turn of the table.

        A quarantined table waits for the next pass.
        """
        view = self._views.get(record.table)
        is_old = view is not None and record.version <= view.head
        if is_old or self._quarantine.holds(record.table):
            return
        table = _Table(record.table, record.table_root, record.name or str(record.table))
        with self._quarantine.around(table.id, table.name):
            if view is None or not self._sees(view, record):
                self._look(table, record.version)
            self._work(table, SHORT_S)
        self._quarantine.tell()

    def poll(self) -> None:
        """Look at every registered table, notified or not, and do what is due if that is short."""
        registry = read_registry(self._bus, self._settings.kafka.topics).values()
        followed = [record for record in registry if _is_followed(record)]
        for name in {record.name for record in registry} - {record.name for record in followed}:
            _remove_metrics(name)
        self._quarantine.refresh({record.table for record in followed})
        self._cleanups.begin_pass({record.table for record in followed})
        for gone in self._tables.keys() - {record.table for record in followed}:
            self._turns.forget(gone)
        until_s = self._running.clock.boot_s() + PASS_S
        for record in followed:
            if self._quarantine.waits(record.table) or self._running.stopping.is_set():
                continue
            table = _table(record)
            with self._quarantine.around(table.id, table.name):
                self._look(table, max(0, record.published_through))
                self._sweep(table)
                if self._cleanups.is_due(table.id):
                    self._to_clean[table.id] = record
                left_s = until_s - self._running.clock.boot_s()
                self._work(table, max(0.0, min(SHORT_S, left_s)))
        self._count_readers(followed)
        self._quarantine.tell()

    def _count_readers(self, followed: Sequence[TableRecord]) -> None:
        """Count who is known to read each table that waits, if there are several."""
        waiting = set(self._turns.unfinished())
        if len(waiting) > 1:
            tables = [record for record in followed if record.table in waiting]
            self._turns.readers = self._cleanups.readers(tables)

    def _work(self, table: _Table, short_s: float, is_turn: bool = False) -> None:
        """Do what is due of a table as long as it is short; a turn begins with one long work.

        The table leaves the quarantine when nothing is left.
        """
        view = self._views[table.id]
        until_s = self._running.clock.boot_s() + short_s
        for work in self._due(table, view):
            now_s = self._running.clock.boot_s()
            if self._running.stopping.is_set():
                return
            is_long = now_s + work.expected_s > until_s
            if is_long and not is_turn:
                self._turns.wait(table.id, view.opening_s)
                return
            work.run()
            if is_long:
                is_turn, until_s = False, self._running.clock.boot_s() + short_s
            self._running.health.progress("commits")
        self._turns.finish(table.id)
        self._quarantine.heal(table.id)

    def _sweep(self, table: _Table) -> None:
        """Delete files of expired proposals of a table, once a day."""
        now_s, view = self._running.clock.boot_s(), self._views.get(table.id)
        if view is None or now_s - self._swept_s.get(table.id, -inf) < SWEEP_S:
            return
        self._swept_s[table.id] = now_s
        before_ms = self._running.clock.now_ms() - self._kept_ms
        if swept := sweep_proposal_files(view.store, view.head, before_ms):
            log_event(_log, "swept", table=table.name, files=swept)

    def _due(self, table: _Table, view: TableView) -> Iterator[_Work]:
        """Yield what is due of a table, each after the one before was done."""
        if view.head >= 0:
            while due := decide(view.state, _notice(view)):
                for task in due:
                    yield _Work(_expected_s(view, task), partial(self._write, table, view, task))
            view.forget_contents(max(view.state.checkpoint, view.state.compacted))
            settle(list(self._views.values()), self._settings.checkpointer.state_bytes_max)
            _measure(table, view)
        record = self._to_clean.pop(table.id, None)
        if record is not None and view.head >= 0:
            # It lists the log and folds the table.
            expected_s = view.reading_s() + 2 * view.checkpoint_bytes / BYTES_PER_S
            self._to_clean[table.id] = record
            yield _Work(expected_s, partial(self._clean, record))

    def _write(self, table: _Table, view: TableView, due: Due) -> None:
        """Write a summary that is due of a table."""
        view.state = evolve(view.state, self._do(table, view, due))

    def _clean(self, record: TableRecord) -> None:
        """Delete expired and replaced files of a table's log."""
        view = self._views[record.table]
        del self._to_clean[record.table]
        # The retention is read from the log: what a checksum file states is a hint.
        state = view.at(view.head)
        fresh = state.fresh
        self._cleanups.note_checksum(
            record.table, record.name, view.store, view.head, state.checksum
        )
        cleaned = CleanedTable(view.store, view.head, fresh.protocol, fresh.metadata)
        self._cleanups.clean(record, cleaned)

    @property
    def _kept_ms(self) -> int:
        """How long files of a proposal are kept: the retention of the proposals topic and a day."""
        topics = self._settings.kafka.topics
        [proposals] = [topic for topic in topics.declared() if topic.name == topics.proposals]
        return proposals.retention_ms + DAY_MS

    def _sees(self, view: TableView, record: CommitRecord) -> bool:
        """Read the version of a notification, and return whether it is what was published.

        So a version costs no listing. One that follows others, or that was replaced, costs one.
        """
        content = view.store.read(in_log(commit_name(record.version)))
        is_next = record.version == view.head + 1
        if content is None or not is_next or sha256(content) != record.sha256:
            return False
        view.saw(record.version, content)
        view.head = record.version
        return True

    def _look(self, table: _Table, version: int) -> None:
        """List a table's log for its newest version, which is `version` or a later one."""
        view = self._views.get(table.id)
        if view is None:
            store = open_store(table.root, self._settings.storage)
            view = view_from_log(store, self._settings.checkpointer.compaction_interval)
            self._views[table.id] = view
        head = head_version(view.store, max(version, view.head))
        if head is not None and head < view.head:
            # The table was replaced or restored to an older state: read its log from scratch.
            self._views[table.id] = view = view_from_log(view.store, view.state.compaction_interval)
        view.head = view.head if head is None else head
        self._tables[table.id] = table

    def _do(self, table: _Table, view: TableView, due: Due) -> Done:
        match due:
            case CheckpointDue(version):
                return self._checkpoint(table, view, version)
            case ChecksumDue(version):
                return self._sum(table, view, version)
            case CompactionDue():
                return _compact(table, view, due)
            case _:
                assert_never(due)

    def _checkpoint(self, table: _Table, view: TableView, version: int) -> Checkpointed:
        # One checkpoint of a version is enough, whoever wrote it.
        if not view.is_alone:
            if (hinted := hinted_version(view.store, version)) >= version:
                view.wrote_checkpoint(hinted, view.checkpoint_bytes, None)
                return Checkpointed(hinted)
            if existing := whole_checkpoint(view.store, version):
                move_hint_forward(view.store, existing)
                view.wrote_checkpoint(version, existing.size_in_bytes or 0, None)
                return Checkpointed(version)
            view.start_from(hinted)
        began_s = self._running.clock.boot_s()
        state = view.at(version)
        if view.state.checksummed >= version:
            self._note_checksum(table, view, state)
        reach("checkpointer.before_put")
        written = self._written(view, version)
        self._cleanups.note_written(table.id, written.written_bytes)
        reach("checkpointer.after_put")
        reached = self._move_hint(view, written)
        reach("checkpointer.after_hint")
        took_s = self._running.clock.boot_s() - began_s
        metrics.CHECKPOINT_WRITE.labels(table.name).observe(took_s)
        view.wrote_checkpoint(version, written.hint.size_in_bytes or 0, took_s)
        log_event(
            _log,
            "checkpointed",
            table=table.name,
            version=version,
            actions=written.hint.size,
            bytes=written.written_bytes,
            hint="moved" if reached == version else "ahead",
            took_ms=round(took_s * 1000),
        )
        return Checkpointed(version)

    def _written(self, view: TableView, version: int) -> WrittenCheckpoint:
        """Write a checkpoint; if a file is gone that its rows are read from, read the log again."""
        try:
            written = write_checkpoint(view.store, view.at(version), self._running.clock)
        except BrokenLog as error:
            if error.error_class != "CorruptCheckpoint":
                raise
            view.warm = None
            written = write_checkpoint(view.store, view.at(version), self._running.clock)
        view.keep(written.state)
        return written

    def _move_hint(self, view: TableView, written: WrittenCheckpoint) -> int:
        """Move `_last_checkpoint`, and return the version to which it points."""
        version = written.hint.version
        if view.is_alone:
            reached = put_hint(view.store, written.hint)
        else:
            moved = move_hint_forward(view.store, written.hint)
            reached = version if moved else hinted_version(view.store)
        view.is_alone = reached == version and written.is_ours
        return reached

    def _sum(self, table: _Table, view: TableView, version: int) -> ChecksumWritten:
        state = view.at(version)
        reach("checkpointer.before_checksum", table.name)
        if not write_checksum(view.store, state):
            self._note_checksum(table, view, state)
        return ChecksumWritten(version)

    def _note_checksum(self, table: _Table, view: TableView, state: CheckpointState) -> None:
        """Compare what another writer stated of a version with what we found."""
        version, checksum = int(state.version), state.checksum
        self._cleanups.note_checksum(table.id, table.name, view.store, version, checksum)

    def _release(self, table: UUID, name: str) -> None:
        """Forget a table's view, so that its log is read again."""
        self._views.pop(table, None)
        self._to_clean.pop(table, None)
        self._turns.forget(table)
        metrics.CHECKPOINT_AGE.labels(name).set(inf)


def _compact(table: _Table, view: TableView, due: CompactionDue) -> Compacted:
    content = view.compacted(due.start, due.end)
    reach("checkpointer.before_compaction")
    if content:
        # Commits of commitInfo alone compact to nothing, and an empty file reads as a torn one.
        if write_compaction(view.store, due.start, due.end, content):
            view.wrote_compaction(due.start, due.end)
        log_event(_log, "compacted", table=table.name, start=due.start, end=due.end)
    return Compacted(due.start, due.end)


def _notice(view: TableView) -> Notice:
    """Return what decides of a table: the property, and without it the weight of the tail."""
    _, metadata = view.definition()
    is_set = checkpoint_interval.key in metadata.configuration
    return Notice(view.head, checkpoint_interval(metadata), view.is_heavy and not is_set)


def _expected_s(view: TableView, due: Due) -> float:
    """Return how long it is expected to take to write a summary."""
    writing_s = view.writing_s() if isinstance(due, CheckpointDue) else 0.0
    return view.reading_s() + writing_s


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
