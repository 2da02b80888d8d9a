"""Which files hold the changes of a version: change files, or else what was added and removed."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from tidegate.delta.actions import Add, Cdc, CommitInfo, DeletionVector, Remove
from tidegate.delta.commit import Commit
from tidegate.delta.errors import BrokenLog
from tidegate.delta.files.deletion_vectors import EVERY_ROW, RowChoice
from tidegate.delta.names import Version
from tidegate.delta.paths import canonical_path

Change = Literal["cdc", "insert", "delete"]

_MERGE_METRICS: Final = ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted")


@dataclass(frozen=True)
class ChangeFile:
    """A file whose rows are changes.

    `change` says what each row is; in a `cdc` file the rows say it themselves. `rows` says which of
    them changed. `size` in bytes, None where a remove does not state it.
    Spec: "Change Data Files"
    """

    change: Change
    path: str
    partition_values: Mapping[str, str | None]
    rows: RowChoice = EVERY_ROW
    size: int | None = None


@dataclass(frozen=True)
class ChangePlan:
    """The files that hold the changes of one version, deletions first.

    Units: `timestamp_ms` since the Unix epoch, as the reader of changes is told it.
    Spec: "Reader Requirements for AddCDCFile"
    """

    version: Version
    timestamp_ms: int
    files: tuple[ChangeFile, ...]


def plan(commit: Commit, timestamp_ms: int, *, is_partitioned: bool = True) -> ChangePlan:
    """Return where the changes of a commit are to be read; what is removed was partitioned or not.

    Change files hide all that was added and removed. Without them, actions that change no data
    hold no changes, nor do those of a MERGE that says it changed no row. Of a file that stays with
    another deletion vector, the rows of the one and not of the other changed.
    Spec: "Reader Requirements for AddCDCFile"
    """
    changes = commit.of(Cdc)
    if changes:
        files = tuple(
            ChangeFile("cdc", one.path, one.partition_values, size=one.size) for one in changes
        )
    elif _changed_nothing(commit.info):
        files = ()
    else:
        files = tuple(_from_data(commit, is_partitioned))
    return ChangePlan(commit.version, timestamp_ms, files)


def _changed_nothing(info: CommitInfo | None) -> bool:
    if info is None or info.operation != "MERGE":
        return False
    metrics = info.operation_metrics or {}
    return all(str(metrics.get(name)) == "0" for name in _MERGE_METRICS)


def _from_data(commit: Commit, is_partitioned: bool) -> Iterator[ChangeFile]:
    adds = {canonical_path(one.path): one for one in commit.adds if one.data_change}
    removes = {canonical_path(one.path): one for one in commit.removes if one.data_change}
    stays = [(adds[path], removes[path]) for path in adds if path in removes]
    for path, remove in removes.items():
        if path not in adds:
            yield _deleted(commit.version, remove, is_partitioned)
    for add, remove in stays:
        yield from _between(add, "delete", remove.deletion_vector, add.deletion_vector)
    for path, add in adds.items():
        if path not in removes:
            rows = RowChoice(add.deletion_vector)
            yield ChangeFile("insert", add.path, add.partition_values, rows, add.size)
    for add, remove in stays:
        yield from _between(add, "insert", add.deletion_vector, remove.deletion_vector)


def _between(
    add: Add, change: Change, left_out: DeletionVector | None, taken: DeletionVector | None
) -> Iterator[ChangeFile]:
    """Yield the change of a file that stays: rows of one vector that the other does not hold."""
    if taken is not None and taken != left_out:
        rows = RowChoice(without=left_out, only=taken)
        yield ChangeFile(change, add.path, add.partition_values, rows, add.size)


def _deleted(version: int, remove: Remove, is_partitioned: bool) -> ChangeFile:
    if remove.partition_values is None and is_partitioned:
        raise BrokenLog(
            f"version {version} removes {remove.path!r} without saying its partition values, so "
            "its rows can't be told as changes: read the changes from a later version on",
            error_class="CorruptCommit",
        )
    rows = RowChoice(remove.deletion_vector)
    values = remove.partition_values or {}
    return ChangeFile("delete", remove.path, values, rows, remove.size)
