"""The files that hold a version's row changes: its cdc files, or else its adds and removes.

Spec: "Reader Requirements for AddCDCFile"
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from tidegate_delta.deletion_vectors.descriptors import EVERY_ROW, RowChoice
from tidegate_delta.errors import BrokenLog
from tidegate_delta.log.actions import Add, Cdc, CommitInfo, DeletionVector, Metadata, Remove
from tidegate_delta.log.commit import Commit
from tidegate_delta.log.file_names import Version
from tidegate_delta.log.file_paths import canonical_path
from tidegate_delta.schema.column_mapping import ColumnMappingMode, logical_names, mode_of
from tidegate_delta.schema.types import VOID, ArrayType, DataType, MapType, StructType, parse_schema

ChangeKind = Literal["cdc", "insert", "delete"]

_MERGE_METRICS: Final = ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted")


@dataclass(frozen=True)
class ChangeFile:
    """A file whose rows are changes.

    `change` is the change type of each row; the rows of a `cdc` file carry their own. `rows`
    selects the changed rows. `size` is in bytes, None where a remove does not state it.
    Spec: "Change Data Files"
    """

    change: ChangeKind
    path: str
    partition_values: Mapping[str, str | None]
    rows: RowChoice = EVERY_ROW
    size: int | None = None


@dataclass(frozen=True)
class ChangePlan:
    """The files that hold the changes of one version, deletions first.

    Units: `timestamp_ms` since the Unix epoch, as it is returned to readers of the change feed.
    """

    version: Version
    timestamp_ms: int
    files: tuple[ChangeFile, ...]


def plan(commit: Commit, timestamp_ms: int, *, is_partitioned: bool = True) -> ChangePlan:
    """Return the files to read for the changes of a commit.

    If the commit has cdc files, its adds and removes are ignored. Otherwise actions without
    `dataChange` hold no changes, and neither do those of a MERGE that reports no changed row. For a
    file that stays with another deletion vector, the rows in only one of the vectors changed.
    `is_partitioned` says whether the removed files had partition columns.
    """
    changes = commit.of(Cdc)
    if changes:
        files = tuple(
            ChangeFile("cdc", change.path, change.partition_values, size=change.size)
            for change in changes
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
    adds = {canonical_path(add.path): add for add in commit.adds if add.data_change}
    removes = {
        canonical_path(remove.path): remove for remove in commit.removes if remove.data_change
    }
    kept = [(adds[path], removes[path]) for path in adds if path in removes]
    for path, remove in removes.items():
        if path not in adds:
            yield _deleted(commit.version, remove, is_partitioned)
    for add, remove in kept:
        yield from _between(add, "delete", remove.deletion_vector, add.deletion_vector)
    for path, add in adds.items():
        if path not in removes:
            rows = RowChoice(add.deletion_vector)
            yield ChangeFile("insert", add.path, add.partition_values, rows, add.size)
    for add, remove in kept:
        yield from _between(add, "insert", add.deletion_vector, remove.deletion_vector)


def _between(
    add: Add, change: ChangeKind, left_out: DeletionVector | None, taken: DeletionVector | None
) -> Iterator[ChangeFile]:
    """Yield the change of a file that stays: the rows in one vector that are not in the other."""
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


def is_change_feed_readable_as(written: Metadata, target: Metadata) -> bool:
    """Return whether the changes of one version can be returned in the columns of a later one.

    Under column mapping no column may have been renamed or dropped in between, the mapping may not
    have been turned off, and the partitioning may not have changed.
    """
    before, after = parse_schema(written.schema_string), parse_schema(target.schema_string)
    return _is_mapped_as(written, target, before, after) and is_schema_readable_as(before, after)


def _is_mapped_as(
    written: Metadata, target: Metadata, before: StructType, after: StructType
) -> bool:
    old_mode, new_mode = mode_of(written), mode_of(target)
    if new_mode is ColumnMappingMode.NONE:
        return old_mode is ColumnMappingMode.NONE
    if old_mode not in (ColumnMappingMode.NONE, new_mode):
        return False
    if written.partition_columns != target.partition_columns:
        return False
    names = logical_names(after, new_mode)
    old_names = logical_names(before, old_mode)
    return all(names.get(path) == name for path, name in old_names.items())


def is_schema_readable_as(written: StructType, target: StructType) -> bool:
    """Return whether every row of one schema is valid in the other, with new columns null.

    No column may be missing, have another type, or be non-null where it was nullable.
    """
    fields = {field.name.lower(): field for field in written.fields}
    names = {field.name.lower() for field in target.fields}
    if not fields.keys() <= names:
        return False
    for new in target.fields:
        old = fields.get(new.name.lower())
        if old is None:
            continue
        if old.name != new.name or not _loosens(old.nullable, new.nullable):
            return False
        if not _type_reads_as(old.kind, new.kind):
            return False
    return True


def _type_reads_as(written: DataType, target: DataType) -> bool:
    match written, target:
        case StructType(), StructType():
            return is_schema_readable_as(written, target)
        case ArrayType(), ArrayType():
            return _loosens(written.contains_null, target.contains_null) and _type_reads_as(
                written.element, target.element
            )
        case MapType(), MapType():
            return (
                _loosens(written.value_contains_null, target.value_contains_null)
                and _type_reads_as(written.key, target.key)
                and _type_reads_as(written.value, target.value)
            )
    return written in (VOID, target)


def _loosens(written_nullable: object, wanted_nullable: object) -> bool:
    return bool(wanted_nullable) or not written_nullable
