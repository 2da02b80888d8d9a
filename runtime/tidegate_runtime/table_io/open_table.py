"""Open a table: list its log, choose the files of a version, read and replay them.

A snapshot is compared with its version checksum. A contradiction is logged and does not end a read,
since the checksum itself may be wrong. Nor does it keep checkpoints from being written: while the
commits are there these can be made again.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from tidegate_delta.checkpoints import version_checksum
from tidegate_delta.checkpoints.version_checksum import VersionChecksum, validate_checksum
from tidegate_delta.errors import BrokenLog, InvalidRequest, UnsupportedFeature
from tidegate_delta.features.supported_features import check_readable
from tidegate_delta.log.actions import CommitInfo, Protocol
from tidegate_delta.log.commit import Commit
from tidegate_delta.log.file_names import LogFile, LogFileKind, checksum_name, commit_name, in_log
from tidegate_delta.log.log_segment import LogSegment, choose, complete_checkpoints
from tidegate_delta.log.protocol_versions import reader_features
from tidegate_delta.properties.table_properties import in_commit_timestamps_enabled
from tidegate_delta.snapshots.file_action_columns import KEY_SCHEMA
from tidegate_delta.snapshots.replay import (
    LogPart,
    Replayed,
    defining,
    parse_log_file,
    parse_log_files,
    replay,
)
from tidegate_delta.snapshots.snapshot import (
    ABSENT,
    ChecksumVerdict,
    LiveKeys,
    Snapshot,
    evolve_parts,
    from_replay,
)
from tidegate_runtime import gc_control
from tidegate_runtime.containment import about
from tidegate_runtime.observability.logs import log_event
from tidegate_runtime.storage.log_store import LogStore
from tidegate_runtime.table_io.checkpoint_reader import KEYS, WHOLE, FileColumns, read_checkpoint
from tidegate_runtime.table_io.log_reader import (
    defined_in,
    find_segment,
    list_log,
    of_table,
    read_content,
    read_deltas,
    span_of,
)
from tidegate_runtime.table_io.time_travel import find_version

_REMEMBERED: Final = 1_024
_DERIVED: Final = (LogFileKind.CHECKSUM, LogFileKind.COMPACTED)
"""A log compaction holds no version of its own, and checksums are written later."""

_log = logging.getLogger(__name__)


def verdict_on(store: LogStore, snapshot: Snapshot, listed: LogFile | None) -> ChecksumVerdict:
    """Return whether a snapshot agrees with the checksum file that was listed with its version.

    A contradiction is logged, once for each version. Raises: Unavailable.
    """
    content = None if listed is None else store.read(in_log(listed.name))
    if content is None:
        return ABSENT
    verdict = validate_checksum(content, snapshot)
    if verdict.is_doubtful:
        _warn_once(store.root, int(snapshot.version), str(verdict))
    return verdict


def stated_checksum(store: LogStore, version: int) -> VersionChecksum | None:
    """Return the checksum of a version, or None without a readable checksum file.

    Raises: Unavailable.
    """
    content = store.read(in_log(checksum_name(version))) if version >= 0 else None
    if content is None:
        return None
    try:
        return version_checksum.decode(content)
    except BrokenLog:
        # A checksum is only a check: its values can be computed from the table instead.
        return None


def checksum_contradiction(store: LogStore, snapshot: Snapshot) -> str:
    """Return what the checksum file of a snapshot's version states otherwise, or "".

    Raises: Unavailable.
    """
    return contradiction_of(store, snapshot.version, version_checksum.of(snapshot))


def contradiction_of(store: LogStore, version: int, computed: VersionChecksum) -> str:
    """Return what the checksum file of a version states otherwise than what was found, or "".

    A version without a readable checksum file has no contradiction. Raises: Unavailable.
    """
    stated = stated_checksum(store, version)
    if stated is None:
        return ""
    names = version_checksum.differences(stated, computed)
    if not names:
        return ""
    listed = ", ".join(
        f"{name} {_shown(getattr(stated, name))}, not {_shown(getattr(computed, name))}"
        for name in names
    )
    return (
        f"{checksum_name(version)} of table {store.root} contradicts the log up to "
        f"version {version}: it states {listed}. Compare the table with a backup; if "
        "the log is right, delete the checksum file"
    )


@lru_cache(maxsize=_REMEMBERED)
def _warn_once(root: str, version: int, contradiction: str) -> None:
    """Log a contradiction; the cache limits it to once for each version."""
    log_event(
        _log,
        "checksum_doubted",
        level=logging.WARNING,
        root=root,
        version=version,
        why=contradiction,
    )


def _shown(value: object) -> str:
    return str(value) if isinstance(value, int) else "another"


Checkpoint = TypeVar("Checkpoint")
"""What is read of a checkpoint."""

REFRESH_MAX: Final = 1_000
"""Number of new commits above which opening the table again is cheaper than reading them by name.
"""


def open_snapshot(
    store: LogStore, version: int | None = None, timestamp_ms: int | None = None
) -> Snapshot:
    """Return the table at a version, at a point in time, or at its newest version.

    If the version has a checksum file, `checksum` says whether it agrees. A contradiction is logged
    once for each version, and the snapshot is returned nevertheless.
    Raises: InvalidRequest (`NotADeltaTable`, `VersionNotFound`, `TimestampBeforeEarliest`,
    `TimestampAfterLatest`); BrokenLog (`LogGap`, `CorruptCommit`, `CorruptCheckpoint`,
    `MissingProtocol`, `MissingMetadata`); UnsupportedFeature; Unavailable.
    """
    if version is not None and timestamp_ms is not None:
        raise InvalidRequest("give a version or a timestamp, not both")
    if timestamp_ms is not None:
        return _open(store, version_at(store, timestamp_ms))
    return _open(store, version)


def version_at(store: LogStore, timestamp_ms: int) -> int:
    """Return the version that was the newest at a point in time.

    Raises: as `open_snapshot`.
    """
    return find_version(store, open_keys(store), timestamp_ms)


def head_version(store: LogStore, at_least: int = -1) -> int | None:
    """Return the newest version, or None if there is no table.

    `at_least` is a version that was seen before: the listing begins there.
    Raises: Unavailable.
    """
    for start in dict.fromkeys((max(at_least, 0), 0)):
        listed = list_log(store, f"{start:020d}")
        versions = [file.version for file, _ in listed if file.kind not in _DERIVED]
        if versions:
            return max(versions)
    return None


class LogExtent(NamedTuple):
    """What a listing of a whole log says of a table. Without a table, `is_empty`.

    `oldest_commit` is the oldest version that still has its commit file, or None. To open the
    newest version takes about `opened_bytes`: the newest checkpoint and the commits after it; None
    after a V2 checkpoint, whose sidecars are not listed.
    """

    is_empty: bool
    oldest_commit: int | None
    opened_bytes: int | None


def log_extent(store: LogStore) -> LogExtent:
    """List a table's whole log, and return what the names and sizes say. Raises: Unavailable."""
    is_empty, oldest, checkpoint = True, None, -1
    opened_bytes: int | None = 0
    for file, stat in list_log(store):
        if file.kind in _DERIVED:
            continue
        is_empty = False
        if file.kind is LogFileKind.COMMIT and oldest is None:
            oldest = int(file.version)
        if file.is_checkpoint and file.version > checkpoint:
            checkpoint, opened_bytes = file.version, 0
        if file.kind is LogFileKind.CHECKPOINT_V2:
            opened_bytes = None
        elif opened_bytes is not None:
            opened_bytes += stat.size
    return LogExtent(is_empty, oldest, opened_bytes)


def read_commit(store: LogStore, version: int) -> tuple[Commit, bytes] | None:
    """Return a commit and its bytes, or None if there is no such version.

    Raises: BrokenLog (`CorruptCommit`); Unavailable.
    """
    content = read_content(store, commit_name(version))
    return None if content is None else (decode_commit(store, version, content), content)


def decode_commit(store: LogStore, version: int, content: bytes) -> Commit:
    """Return the commit of a version's bytes. Raises: BrokenLog (`CorruptCommit`)."""
    with of_table(store.root), about(f"version {version}"):
        return Commit.decode(version, content)


def refresh(store: LogStore, snapshot: Snapshot) -> Snapshot:
    """Return the newest snapshot, given an older one, by reading the commits N+1, N+2, ... by name.

    Law: the result is that of `open_snapshot`, whatever the versions in between hold.
    Raises: as `open_snapshot`.
    """
    return refresh_with_commits(store, snapshot)[0]


def refresh_with_commits(
    store: LogStore, snapshot: Snapshot
) -> tuple[Snapshot, list[LogPart] | None]:
    """Return the newest snapshot as `refresh`, and the commits that came since, oldest first.

    There is None instead of these where they are so many that the table was opened again.
    Raises: as `open_snapshot`.
    """
    contents: list[tuple[str, bytes]] = []
    while content := read_content(store, commit_name(snapshot.version + 1 + len(contents))):
        contents.append((commit_name(snapshot.version + 1 + len(contents)), content))
        if len(contents) > REFRESH_MAX:
            return open_snapshot(store), None
    if not contents:
        return snapshot, []
    with gc_control.paused(), of_table(store.root), about(span_of(contents)):
        parts = parse_log_files(contents)
    after = evolve_parts(snapshot, parts)
    if changed := defining(parts):
        with defined_in(changed):
            check_readable(after.protocol, after.metadata, store.root)
    check_vectors(store, after.protocol, after.version, after.files)
    return after, parts


def open_checkpoint(store: LogStore, version: int) -> Snapshot:
    """Return what the checkpoint of a version holds, without any commit.

    Raises: BrokenLog (`CorruptCheckpoint`), also where there is none; UnsupportedFeature;
    Unavailable.
    """
    listed = (file for file, _ in list_log(store, f"{version:020d}") if file.version == version)
    parts = complete_checkpoints(listed).get(version)
    if parts is None:
        raise BrokenLog(
            f"table {store.root} has no complete checkpoint of version {version}",
            error_class="CorruptCheckpoint",
        )
    below = read_checkpoint(store, parts, WHOLE)
    with of_table(store.root):
        return from_replay(version, replay([], below), None)


def open_without_checkpoint(store: LogStore, version: int) -> Snapshot:
    """Return the table at a version, built without that version's checkpoint and log compactions.

    It comes from the checkpoint before it and from commits.
    Raises: BrokenLog (`LogGap`, `CorruptCommit`, `CorruptCheckpoint`); InvalidRequest
    (`VersionNotFound`), if commits or a checkpoint before it are not there any more; Unavailable.
    """
    segment = _segment_without_checkpoint(store, version)
    below = read_checkpoint(store, segment.checkpoint, WHOLE) if segment.checkpoint else None
    deltas = read_deltas(store, segment.deltas, WHOLE.files)
    with of_table(store.root):
        return from_replay(version, replay(deltas, below), None)


def lacks_older_files(store: LogStore, version: int) -> bool:
    """Return whether commits or an older checkpoint are gone that `open_without_checkpoint` needs.

    Raises: Unavailable.
    """
    try:
        _segment_without_checkpoint(store, version)
    except (BrokenLog, InvalidRequest):
        return True
    return False


def _segment_without_checkpoint(store: LogStore, version: int) -> LogSegment:
    listed = [
        file
        for file, _ in list_log(store)
        if file.kind is not LogFileKind.COMPACTED
        and not (file.is_checkpoint and file.version >= version)
    ]
    with of_table(store.root):
        return choose(listed, version)


def open_keys(store: LogStore, version: int | None = None) -> LiveKeys:
    """Return a table at a version, or at its newest, with only the keys of its files.

    This is enough for the committer, and for callers that need only metadata and protocol.

    Raises: as `open_snapshot`.
    """
    read = _read(store, version, KEYS)
    check_vectors(store, read.state.protocol, read.segment.version, read.state.files)
    live = LiveKeys(
        version=read.segment.version,
        protocol=read.state.protocol,
        metadata=read.state.metadata,
        files=read.state.files.select(KEY_SCHEMA.names),
        app_transactions=read.state.app_transactions,
        domains=read.state.domains,
        in_commit_timestamp=read.timestamp,
    )
    return live.with_keys(read.state.file_keys)


def _open(store: LogStore, version: int | None) -> Snapshot:
    read = _read(store, version, WHOLE)
    snapshot = from_replay(read.segment.version, read.state, read.timestamp)
    check_vectors(store, snapshot.protocol, snapshot.version, snapshot.files)
    return snapshot.checked(verdict_on(store, snapshot, read.segment.checksum))


@dataclass(frozen=True)
class _Read:
    segment: LogSegment
    state: Replayed
    timestamp: int | None


def _read(store: LogStore, version: int | None, columns: FileColumns) -> _Read:
    segment, deltas, below = read_segment(
        store, version, lambda parts: read_checkpoint(store, parts, columns), columns.files
    )
    with of_table(store.root):
        state = replay(deltas, below)
    with defined_in(state.defined_in):
        check_readable(state.protocol, state.metadata, store.root)
    timestamp = None
    if in_commit_timestamps_enabled(state.metadata):
        info = info_of(store, segment, deltas)
        timestamp = info.in_commit_timestamp if info else None
    return _Read(segment, state, timestamp)


def read_segment(
    store: LogStore,
    version: int | None,
    read: Callable[[Sequence[LogFile]], Checkpoint],
    files: pa.Schema,
) -> tuple[LogSegment, list[LogPart], Checkpoint | None]:
    """Return a version's log segment, its commits and log compactions, and its checkpoint.

    `read` returns the content of a checkpoint, `files` are the columns of the others' live files.
    A checkpoint or log compaction that can't be read is ignored if the version can be built without
    it: from an older checkpoint, and from the commits.
    Raises: as `open_snapshot`.
    """
    passed_over: set[str] = set()
    first: BrokenLog | None = None
    while True:
        try:
            segment = find_segment(store, version, passed_over)
        except (BrokenLog, InvalidRequest) as error:
            raise first or error from error
        doubted = [file.name for file in segment.checkpoint]
        try:
            below = read(segment.checkpoint) if doubted else None
            doubted = [file.name for file in segment.deltas if file.kind is LogFileKind.COMPACTED]
            return segment, read_deltas(store, segment.deltas, files), below
        except BrokenLog as error:
            if not doubted:
                raise
            first = first or error
            passed_over.update(doubted)


def info_of(store: LogStore, segment: LogSegment, deltas: list[LogPart]) -> CommitInfo | None:
    """Return the commitInfo of the segment's own version, which only its commit file holds."""
    if segment.deltas and segment.deltas[-1].kind is LogFileKind.COMMIT:
        return deltas[-1].info
    content = read_content(store, commit_name(segment.version))
    return parse_log_file(commit_name(segment.version), content).info if content else None


def check_vectors(store: LogStore, protocol: Protocol, version: int, files: pa.Table) -> None:
    """Refuse deletion vectors that the protocol does not list: other readers would ignore them.

    Raises: UnsupportedFeature.
    """
    vectors = files["deletionVector"]
    if vectors.null_count < len(vectors) and "deletionVectors" not in reader_features(protocol):
        first = files["path"].filter(pc.is_valid(vectors))[0]
        raise UnsupportedFeature(
            f"table {store.root} has files with deletion vectors at version {version}, {first} "
            "for one, although its protocol does not list the feature 'deletionVectors': add the "
            "feature to the protocol, or restore the table to a version without them",
            feature="deletionVectors",
        )
