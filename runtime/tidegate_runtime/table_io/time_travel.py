"""When each version was committed: its in-commit timestamp, or else its file's modification time.

Modification times may repeat or step back. Each is raised to at least a millisecond after the one
before.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tidegate_delta.errors import BrokenLog, InvalidRequest
from tidegate_delta.log.actions import Metadata
from tidegate_delta.log.file_names import LogFile, LogFileKind, commit_name
from tidegate_delta.log.log_segment import complete_checkpoints
from tidegate_delta.properties.table_properties import (
    ict_enablement_timestamp_ms,
    ict_enablement_version,
    in_commit_timestamps_enabled,
)
from tidegate_delta.snapshots.replay import parse_log_file
from tidegate_delta.snapshots.snapshot import LiveKeys, Snapshot
from tidegate_runtime.clock import instant
from tidegate_runtime.storage.log_store import LogStore
from tidegate_runtime.table_io.log_reader import list_log, of_table, read_content

UNEVEN: Final = 100
"""How many commits before the first requested one are listed, too: raising a modification time may
raise later ones. delta-spark lists as many.
"""


@dataclass(frozen=True)
class TableHead:
    """The newest version of a table and its metadata: all that a search by time needs of it."""

    version: int
    metadata: Metadata


Opened = Snapshot | LiveKeys | TableHead
"""A table at its newest version."""


def find_version(store: LogStore, head: Opened, timestamp_ms: int) -> int:
    """Return the version that was the newest at a point in time.

    With in-commit timestamps it reads a few commits and lists only the start of the log. Without
    them the modification times come from a listing.
    Raises: InvalidRequest (`TimestampBeforeEarliest`, `TimestampAfterLatest`); Unavailable.
    """
    bound = _ict_from(head)
    oldest = oldest_travelable(store)
    versions: Sequence[int]
    if bound is None or timestamp_ms < bound[1]:
        aged = _commits(store, head.version if bound is None else bound[0] - 1)
        kept = {
            v: modified_ms for v, modified_ms in aged.items() if oldest is not None and v >= oldest
        }
        versions, modified = list(kept), _rising(list(kept.values()))
        index = bisect_right(modified, timestamp_ms) - 1
        found_ms = modified[index] if index >= 0 else None
    else:
        first = head.version + 1 if oldest is None else max(bound[0], oldest)
        versions = range(first, head.version + 1)
        index = bisect_right(versions, timestamp_ms, key=lambda v: own_timestamp(store, v)) - 1
        found_ms = own_timestamp(store, versions[index]) if index >= 0 else None
    requested = f"{instant(timestamp_ms)} UTC"
    if found_ms is None:
        raise InvalidRequest(
            f"table {store.root} has no version as old as {requested}: the oldest that can be read "
            f"is {'gone' if oldest is None else f'version {oldest}'}; ask for a later time",
            error_class="TimestampBeforeEarliest",
        )
    if versions[index] == head.version and found_ms < timestamp_ms:
        raise InvalidRequest(
            f"the newest version of table {store.root}, {head.version}, is of {instant(found_ms)} "
            f"UTC, before the {requested} asked for: leave the timestamp out to read the newest "
            "version",
            error_class="TimestampAfterLatest",
        )
    return versions[index]


def versions_between(
    store: LogStore, head: Opened, start_ms: int, end_ms: int | None = None
) -> tuple[int, int | None]:
    """Return the first and last version committed between two points in time, both included.

    Without `end_ms` the last one is None.
    Raises: InvalidRequest (`TimestampAfterLatest` for a start or an end past the newest version,
    `TimestampBeforeEarliest` for an end before the oldest, `InvalidVersionRange` if no version was
    committed in between); BrokenLog; Unavailable.
    """
    start = _first_from(store, head, start_ms)
    if end_ms is None:
        return start, None
    end = find_version(store, head, end_ms)
    if end < start:
        raise InvalidRequest(
            f"no version of table {store.root} was made between {instant(start_ms)} and "
            f"{instant(end_ms)} UTC: ask for a longer time",
            error_class="InvalidVersionRange",
        )
    return start, end


def commit_timestamps(store: LogStore, head: Opened, start: int, end: int) -> Mapping[int, int]:
    """Return when each version from `start` to `end`, both included, was committed.

    Units: ms since the Unix epoch. Versions whose commit file is gone are left out.
    Raises: BrokenLog; Unavailable.
    """
    bound = _ict_from(head)
    if bound and start >= bound[0]:
        timestamps = (
            (version, _stated_timestamp(store, version)) for version in range(start, end + 1)
        )
        return {version: timestamp for version, timestamp in timestamps if timestamp is not None}
    commits = _commits(store, end, max(start - UNEVEN, 0))
    times = zip(commits, _rising(list(commits.values())), strict=True)
    return {
        version: own_timestamp(store, version) if bound and version >= bound[0] else modified
        for version, modified in times
        if start <= version <= end
    }


def own_timestamp(store: LogStore, version: int) -> int:
    """Return the in-commit timestamp of a version, in ms since the Unix epoch.

    Raises: BrokenLog (`CorruptCommit`) if the table requires one and the commit has none, `LogGap`
    if the commit file is missing.
    """
    timestamp = _stated_timestamp(store, version)
    if timestamp is None:
        raise BrokenLog(
            f"{commit_name(version)} of table {store.root} is not there any more: open the table "
            "again",
            error_class="LogGap",
        )
    return timestamp


def _stated_timestamp(store: LogStore, version: int) -> int | None:
    """Return the in-commit timestamp of a version, or None if its commit file is missing."""
    name = commit_name(version)
    content = read_content(store, name)
    if content is None:
        return None
    with of_table(store.root):
        info = parse_log_file(name, content).info
    if info is None or info.in_commit_timestamp is None:
        raise BrokenLog(
            f"{name} of table {store.root} has no in-commit timestamp, although the table has them "
            "since an earlier version: read by version instead",
            error_class="CorruptCommit",
        )
    return info.in_commit_timestamp


def _first_from(store: LogStore, head: Opened, timestamp_ms: int) -> int:
    """Return the oldest version that was committed at a point in time or later."""
    bound = _ict_from(head)
    if bound is None or timestamp_ms < bound[1]:
        commits = _commits(store, head.version if bound is None else bound[0] - 1)
        index = bisect_left(_rising(list(commits.values())), timestamp_ms)
        if index < len(commits):
            return list(commits)[index]
    own: Sequence[int] = ()
    if bound is not None:
        listed = list_log(store)
        first = next((file.version for file, _ in listed if file.kind is LogFileKind.COMMIT), 0)
        own = range(max(bound[0], first), head.version + 1)
    index = bisect_left(own, timestamp_ms, key=lambda version: own_timestamp(store, version))
    if index < len(own):
        return own[index]
    raise InvalidRequest(
        f"table {store.root} has no version of {instant(timestamp_ms)} UTC or later: its newest "
        f"is {head.version}; ask for an earlier time",
        error_class="TimestampAfterLatest",
    )


def _ict_from(head: Opened) -> tuple[int, int] | None:
    """Return the version and time from which commits have in-commit timestamps, or None."""
    if not in_commit_timestamps_enabled(head.metadata):
        return None
    version = ict_enablement_version(head.metadata)
    time_ms = ict_enablement_timestamp_ms(head.metadata)
    return (0, -1) if version is None or time_ms is None else (version, time_ms)


def oldest_travelable(store: LogStore) -> int | None:
    """Return the oldest commit whose snapshot can be built: 0, or that of the oldest checkpoint."""
    checkpoints: list[LogFile] = []
    for file, _ in list_log(store):
        if file.is_checkpoint:
            checkpoints.append(file)
        is_reached = file.version == 0 or bool(complete_checkpoints(checkpoints))
        if file.kind is LogFileKind.COMMIT and is_reached:
            return file.version
    return None


def _commits(store: LogStore, last: int, first: int = 0) -> dict[int, int]:
    """Return the modification time of each commit between two versions, both included."""
    modified_by_version: dict[int, int] = {}
    for file, stat in list_log(store, f"{first:020d}" if first else ""):
        if file.start > last:
            break
        if file.kind is LogFileKind.COMMIT:
            modified_by_version[file.version] = stat.modified_ms
    return modified_by_version


def _rising(times: Sequence[int]) -> list[int]:
    rising: list[int] = []
    for time_ms in times:
        rising.append(max(time_ms, rising[-1] + 1) if rising else time_ms)
    return rising
