"""Lists a table's log, verifies checkpoints, and deletes what the plan says goes.

Other engines clean up, too: a file that is already gone is as good as one that we deleted.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tidegate_checkpointer.log_cleanup import (
    DAY_MS,
    Circumstances,
    CleanupPlan,
    ListedFile,
    LogListing,
    cutoff_ms,
    plan,
)
from tidegate_checkpointer.supported_tables import check_checkpointable
from tidegate_delta.checkpoints.checkpoint_comparison import differences
from tidegate_delta.errors import BrokenLog, InvalidRequest
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
from tidegate_messages.version_gate import Gate
from tidegate_runtime.observability.logs import log_event
from tidegate_runtime.storage.log_store import LogStore
from tidegate_runtime.table_io.checkpoint_reader import read_sidecar_names
from tidegate_runtime.table_io.checksum_verification import stated_checksum
from tidegate_runtime.table_io.open_table import (
    lacks_older_files,
    open_checkpoint,
    open_without_checkpoint,
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
    a version to what its checksum file states otherwise than the log.
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
    """Return what a checksum file states otherwise than the log, or "" if none is left that does.

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
