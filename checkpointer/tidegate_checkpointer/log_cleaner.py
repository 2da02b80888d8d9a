"""Lists a table's log, verifies checkpoints, and deletes what the plan says goes.

Other engines clean up, too: a file that is already gone is as good as one that we deleted.

`CleanupSchedule` says when each table's log is cleaned, how long one turn may take, and reports it.
"""

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from tidegate_checkpointer.log_cleanup_plan import (
    DAY_MS,
    HOUR_MS,
    Blocked,
    Circumstances,
    CleanupPlan,
    ListedFile,
    LogListing,
    cutoff_ms,
    is_due,
    plan,
)
from tidegate_checkpointer.summary_writers import check_checkpointable
from tidegate_delta.checkpoints.checkpoint_comparison import differences
from tidegate_delta.checkpoints.version_checksum import VersionChecksum
from tidegate_delta.errors import BrokenLog, InvalidRequest, Misconfigured, Unavailable
from tidegate_delta.log.actions import Metadata, Protocol
from tidegate_delta.log.file_names import (
    LOG_FOLDER,
    SIDECAR_FOLDER,
    STAGED_FOLDER,
    LogFileKind,
    in_log,
    parse,
)
from tidegate_delta.log.protocol_versions import writer_features
from tidegate_delta.properties.table_properties import (
    checkpoint_protection_version,
    log_cleanup_enabled,
    log_retention_ms,
)
from tidegate_messages.published_records import Gate, TableRecord
from tidegate_messages.topics import Topics
from tidegate_runtime.failpoints import reach
from tidegate_runtime.followers.version_gates import GateReader
from tidegate_runtime.kafka.client_protocols import Bus
from tidegate_runtime.observability import metrics
from tidegate_runtime.observability.logs import log_event
from tidegate_runtime.service.runner import Running
from tidegate_runtime.storage.log_store import LogStore
from tidegate_runtime.table_io.checkpoint_reader import read_sidecar_names
from tidegate_runtime.table_io.open_table import (
    contradiction_of,
    lacks_older_files,
    open_checkpoint,
    open_without_checkpoint,
    stated_checksum,
)
from tidegate_runtime.table_io.time_travel import TableHead, find_version

PROTECTION: Final = "checkpointProtection"
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class CleanedTable:
    """A table whose log is cleaned, as of its newest version."""

    store: LogStore
    version: int
    protocol: Protocol
    metadata: Metadata


@dataclass
class CleanupMemory:
    """What is kept of one table between two cleanups.

    `verified` maps the version of a verified checkpoint to the time of its verification.
    `unverifiable` says which checkpoint has nothing left to be compared with.
    `contradiction` says what was wrong with a checkpoint, found at `contradicted_ms`. `doubts` maps
    a version to how its checksum file contradicts the log.
    """

    verified: dict[int, int] = field(default_factory=dict)
    unverifiable: str = ""
    contradiction: str = ""
    contradicted_ms: int = 0
    doubts: dict[int, str] = field(default_factory=dict)
    sidecars: dict[tuple[str, int], frozenset[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Cleaned:
    """What was deleted. `is_finished` is False if time ran out."""

    files: int = 0
    size_bytes: int = 0
    is_finished: bool = True


def survey(
    table: CleanedTable, memory: CleanupMemory, gates: Sequence[Gate], now_ms: int
) -> CleanupPlan:
    """Return the plan of a table's cleanup; it verifies nothing and deletes nothing.

    Raises: UnsupportedFeature, for a table whose log we may not touch; BrokenLog; Unavailable.
    """
    store, metadata = table.store, table.metadata
    check_checkpointable(table.protocol, metadata, store.root)
    # Sidecars first: see `LogListing`.
    sidecars = _list(store, in_log(SIDECAR_FOLDER))
    listing = LogListing(_list(store, LOG_FOLDER), sidecars, _list(store, in_log(STAGED_FOLDER)))
    is_protected = PROTECTION in writer_features(table.protocol)
    sidecars_of, unread = _references(store, memory, listing) if sidecars else ({}, frozenset())
    circumstances = Circumstances(
        now_ms=now_ms,
        cutoff_version=_cutoff_version(table, cutoff_ms(now_ms, log_retention_ms(metadata))),
        is_enabled=log_cleanup_enabled(metadata),
        protected_before=checkpoint_protection_version(metadata) if is_protected else 0,
        gates=tuple(gates),
        verified=frozenset(memory.verified),
        sidecars_of=sidecars_of,
        unread=unread,
    )
    return plan(listing, circumstances)


def verify(store: LogStore, due: CleanupPlan, memory: CleanupMemory, now_ms: int) -> bool:
    """Return whether the checkpoints that the plan depends on are right.

    A contradiction is remembered for a day, so that a table is folded once a day at most. After a
    cleanup that was interrupted, or another engine's, the commits that led to a checkpoint may be
    gone; then nothing goes before a newer one can be verified.
    Raises: Unavailable.
    """
    memory.unverifiable = ""
    if memory.contradiction:
        if now_ms - memory.contradicted_ms < DAY_MS:
            return False
        memory.contradiction = ""
    for version in due.to_verify:
        if lacks_older_files(store, version):
            memory.unverifiable = (
                f"the checkpoint of version {version} can't be verified, because older files of "
                "the log are gone; what is below it goes once a newer checkpoint is verified"
            )
            return False
        if problem := contradiction(store, version, now_ms):
            memory.contradiction, memory.contradicted_ms = problem, now_ms
            log_event(
                _log, "checkpoint_contradicted", level=logging.ERROR, root=store.root, why=problem
            )
            return False
        memory.verified[version] = now_ms
        log_event(_log, "checkpoint_verified", root=store.root, version=version)
    return True


def doubted(store: LogStore, memory: CleanupMemory) -> str:
    """Return how a checksum file contradicts the log, or "" if none does any more.

    Deleting the file, or one that is unreadable, ends the doubt. Raises: Unavailable.
    """
    for version in list(memory.doubts):
        if stated_checksum(store, version) is None:
            del memory.doubts[version]
    return next(iter(memory.doubts.values()), "")


def delete(store: LogStore, due: CleanupPlan, may_go_on: Callable[[], bool]) -> Cleaned:
    """Delete what goes, in the order of the plan, as long as there is time.

    Raises: Unavailable.
    """
    files = size_bytes = 0
    for verdict in due.goes:
        if not may_go_on():
            return Cleaned(files, size_bytes, is_finished=False)
        store.delete(verdict.file.path)
        files, size_bytes = files + 1, size_bytes + verdict.file.size_bytes
    return Cleaned(files, size_bytes)


def _list(store: LogStore, folder: str) -> tuple[ListedFile, ...]:
    return tuple(
        ListedFile(stat.path, stat.size, stat.modified_ms) for stat in store.list_from(folder, "")
    )


def _cutoff_version(table: CleanedTable, at_ms: int) -> int:
    """Return the newest version that was committed at a time or before, or -1."""
    try:
        return find_version(table.store, TableHead(table.version, table.metadata), at_ms)
    except InvalidRequest as error:
        return table.version if error.error_class == "TimestampAfterLatest" else -1


def _references(
    store: LogStore, memory: CleanupMemory, listing: LogListing
) -> tuple[Mapping[str, frozenset[str]], frozenset[str]]:
    """Return the sidecars of each checkpoint file, and the files of which they are not known."""
    sidecars_of: dict[str, frozenset[str]] = {}
    unread: set[str] = set()
    remembered = memory.sidecars
    memory.sidecars = {}
    for file in _checkpoint_files(listing):
        parsed, key = parse(file.name), (file.name, file.modified_ms)
        assert parsed is not None, "a checkpoint's name"
        try:
            names = remembered[key] if key in remembered else read_sidecar_names(store, parsed)
        except BrokenLog:
            unread.add(file.name)
            continue
        if names is not None:
            sidecars_of[file.name] = memory.sidecars[key] = names
    return sidecars_of, frozenset(unread)


def _checkpoint_files(listing: LogListing) -> Iterator[ListedFile]:
    """Yield the files that may name sidecars; a part of a multi-part checkpoint never does."""
    for file in listing.log:
        parsed = parse(file.name)
        if parsed and parsed.kind in (LogFileKind.CHECKPOINT_V2, LogFileKind.CHECKPOINT_CLASSIC):
            yield file


def contradiction(store: LogStore, version: int, now_ms: int) -> str:
    """Return what is wrong with a checkpoint, or "" if an independent fold equals it.

    Raises: Unavailable.
    """
    try:
        checkpoint = open_checkpoint(store, version)
        problems = differences(checkpoint, open_without_checkpoint(store, version), now_ms)
    except (BrokenLog, InvalidRequest) as error:
        return f"the checkpoint of version {version} can't be verified: {error}"
    if not problems:
        return ""
    return f"the checkpoint of version {version} contradicts the log: {'; '.join(problems)}"


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
