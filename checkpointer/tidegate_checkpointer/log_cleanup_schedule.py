"""When each table's log is cleaned, how long one turn may take, and what is reported of it."""

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from tidegate_checkpointer.log_cleaner import (
    CleanedTable,
    CleanupMemory,
    delete,
    doubted,
    survey,
    verify,
)
from tidegate_checkpointer.log_cleanup import HOUR_MS, Blocked, is_due
from tidegate_delta.checkpoints.version_checksum import VersionChecksum
from tidegate_delta.errors import Misconfigured, Unavailable
from tidegate_messages.published_records import TableRecord
from tidegate_messages.topics import Topics
from tidegate_runtime.failpoints import reach
from tidegate_runtime.followers.version_gates import GateReader
from tidegate_runtime.kafka.client_protocols import Bus
from tidegate_runtime.observability import metrics
from tidegate_runtime.observability.logs import log_event
from tidegate_runtime.service.runner import Running
from tidegate_runtime.storage.log_store import LogStore
from tidegate_runtime.table_io.checksum_verification import contradiction_of

TURN_S: Final = 20.0
"""Seconds of deletions after which the other tables have their turn."""

_CAUSES: Final = (
    "disabled",
    "gap",
    "held",
    "protected",
    "unreadable",
    "unverifiable",
    "contradicted",
)
_log = logging.getLogger(__name__)


@dataclass
class _Cleanup:
    """One table's. `next_s` is by `Clock.boot_s`; a heavy log is due before it."""

    next_s: float
    written_bytes: int = 0
    rest_bytes: int = 0
    memory: CleanupMemory = field(default_factory=CleanupMemory)


class CleanupSchedule:
    """The cleanups of all tables of one checkpointer."""

    def __init__(self, bus: Bus, topics: Topics, running: Running) -> None:
        self._gates = GateReader(bus, topics)
        self._running = running
        self._tables: dict[UUID, _Cleanup] = {}

    def begin_pass(self, followed: Collection[UUID]) -> None:
        """Forget tables that are not followed any more, and what was read of gates."""
        self._gates.forget()
        for table in self._tables.keys() - set(followed):
            del self._tables[table]

    def readers(self, records: Sequence[TableRecord]) -> Mapping[UUID, int]:
        """Return how many are known to read each of some tables; nothing if it can't be asked."""
        now_ms = self._running.clock.now_ms()
        try:
            gates = {record.table: self._gates.of(record, now_ms) for record in records}
        except (Misconfigured, Unavailable) as error:
            log_event(_log, "readers_unknown", level=logging.WARNING, why=error)
            return {}
        return {table: sum(gate.reads_rows for gate in each) for table, each in gates.items()}

    def note_written(self, table: UUID, size_bytes: int) -> None:
        """Note the size of a checkpoint that was written."""
        self._of(table).written_bytes += size_bytes

    def note_checksum(
        self, table: UUID, name: str, store: LogStore, version: int, checksum: VersionChecksum
    ) -> None:
        """Compare a version with its checksum file; a contradiction stops the table's cleanup.

        Checkpoints go on: a wrong checksum costs readers nothing, and a missing checkpoint much.
        Raises: Unavailable.
        """
        contradiction = contradiction_of(store, version, checksum)
        doubts = self._of(table).memory.doubts
        if not contradiction or doubts.get(version) == contradiction:
            return
        doubts[version] = contradiction
        metrics.CHECKSUM_CONTRADICTIONS.labels(name).inc()
        log_event(_log, "checksum_contradicted", level=logging.ERROR, table=name, why=contradiction)

    def is_due(self, table: UUID) -> bool:
        """Return whether a table's log is to be cleaned now."""
        cleanup, now_s = self._of(table), self._running.clock.boot_s()
        # Sidecars of a table that was not looked through yet may weigh anything.
        return now_s >= cleanup.next_s or (
            cleanup.rest_bytes > 0 and is_due(0, cleanup.written_bytes, cleanup.rest_bytes)
        )

    def clean(self, record: TableRecord, table: CleanedTable) -> None:
        """Clean a table's log for a while; what is left is due at the next pass.

        Raises: UnsupportedFeature; BrokenLog; Unavailable.
        """
        cleanup, clock = self._of(record.table), self._running.clock
        now_ms = clock.now_ms()
        cleanup.written_bytes, cleanup.next_s = 0, clock.boot_s() + HOUR_MS / 1000
        try:
            gates = self._gates.of(record, now_ms)
        except (Misconfigured, Unavailable) as error:
            # Who needs what is not known, so nothing goes; the table itself is all right.
            reason = f"it is not known who needs which versions: {error}"
            _report(record.name, [Blocked("held", reason)], cleanup.memory)
            return
        due = survey(table, cleanup.memory, gates, now_ms)
        cleanup.rest_bytes = due.rest_bytes
        metrics.LOG_CLEANUP_TIME.labels(record.name).set(now_ms / 1000)
        is_sure = not doubted(table.store, cleanup.memory)
        is_right = is_sure and verify(table.store, due, cleanup.memory, now_ms)
        _report(record.name, due.blocked, cleanup.memory)
        if not due.goes or not is_right:
            return
        reach("checkpointer.before_cleanup")
        until_s = clock.boot_s() + TURN_S
        cleaned = delete(table.store, due, lambda: self._may_go_on(until_s))
        if not cleaned.is_finished:
            cleanup.next_s = clock.boot_s()
        metrics.LOG_CLEANUP_FILES.labels(record.name).inc(cleaned.files)
        metrics.LOG_CLEANUP_BYTES.labels(record.name).inc(cleaned.size_bytes)
        log_event(
            _log,
            "cleaned",
            table=record.name,
            files=cleaned.files,
            bytes=cleaned.size_bytes,
            left=len(due.goes) - cleaned.files,
            floor=due.floor,
        )

    def _may_go_on(self, until_s: float) -> bool:
        self._running.health.progress("commits")
        return self._running.clock.boot_s() < until_s and not self._running.stopping.is_set()

    def _of(self, table: UUID) -> _Cleanup:
        cleanup = self._tables.get(table)
        if cleanup is None:
            # Tables that are met together begin at different times of the hour.
            now_s = self._running.clock.boot_s()
            offset_s = table.int % (HOUR_MS // 1000)
            cleanup = self._tables[table] = _Cleanup(now_s + offset_s)
        return cleanup


def _report(name: str, blocked: Sequence[Blocked], memory: CleanupMemory) -> None:
    """Publish why less goes than a table's properties allow."""
    reasons: dict[str, str] = {blocked_cause.cause: blocked_cause.why for blocked_cause in blocked}
    if reason := memory.contradiction or next(iter(memory.doubts.values()), ""):
        reasons["contradicted"] = reason
    if memory.unverifiable:
        reasons["unverifiable"] = memory.unverifiable
    for cause in _CAUSES:
        metrics.LOG_CLEANUP_BLOCKED.labels(name, cause).set(cause in reasons)
    for cause, reason in reasons.items():
        log_event(_log, "cleanup_blocked", table=name, cause=cause, why=reason)
