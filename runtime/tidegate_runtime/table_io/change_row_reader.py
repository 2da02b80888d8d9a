"""Read the change rows of a plan, with change type, commit version and commit timestamp."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from tidegate_delta.change_feed import ChangeFile, ChangePlan, is_change_feed_readable_as, plan
from tidegate_delta.errors import BrokenLog, InvalidRequest, UnsupportedFeature
from tidegate_delta.features.supported_features import check_readable
from tidegate_delta.log.actions import Metadata
from tidegate_delta.log.commit import Commit
from tidegate_delta.properties.table_properties import change_feed_enabled
from tidegate_delta.schema.arrow_types import to_arrow
from tidegate_delta.schema.column_mapping import ColumnMappingMode, mode_of, physical_name
from tidegate_delta.schema.types import LONG, STRING, TIMESTAMP, StructField, StructType
from tidegate_delta.snapshots.snapshot import LiveKeys
from tidegate_runtime.storage.log_store import LogStore
from tidegate_runtime.table_io.data_file_reader import (
    PartitionValues,
    partition_values_of,
    read_rows,
    schema_of,
)
from tidegate_runtime.table_io.open_table import open_keys, read_commit
from tidegate_runtime.table_io.time_travel import commit_timestamps

CHANGE_TYPE: Final = "_change_type"
COMMIT_VERSION: Final = "_commit_version"
COMMIT_TIMESTAMP: Final = "_commit_timestamp"

_TOLD: Final = (
    StructField(CHANGE_TYPE, STRING),
    StructField(COMMIT_VERSION, LONG),
    StructField(COMMIT_TIMESTAMP, TIMESTAMP),
)


def change_schema(metadata: Metadata) -> pa.Schema:
    """Return the schema of change rows: the table's columns, then type, version and timestamp."""
    return to_arrow(change_fields(metadata))


def change_fields(metadata: Metadata) -> StructType:
    """Return the columns of change rows: the table's, then type, version and timestamp."""
    return StructType((*schema_of(metadata).fields, *_TOLD))


@dataclass(frozen=True)
class ChangeRange:
    """What changed in some versions, and the metadata with the schema of the changes."""

    metadata: Metadata
    plans: tuple[ChangePlan, ...]


def read_change_file(
    store: LogStore, of: ChangePlan, file: ChangeFile, metadata: Metadata
) -> Iterator[pa.RecordBatch]:
    """Yield the changes in one file of a plan, in the schema of `metadata`.

    Shape: the table's columns, `_change_type`, `_commit_version`, `_commit_timestamp`.
    Raises: as `data_file_reader.read_file`.
    """
    shape = change_schema(metadata)
    # By position: a table without a change feed may have columns of these names.
    instant = shape.types[-1]
    values = _partition_values(metadata, file)
    fields = schema_of(metadata).fields
    if file.change == "cdc":
        fields = (*fields, StructField(CHANGE_TYPE, STRING))
    for batch in read_rows(store, file.path, fields, values, mode_of(metadata), file.rows):
        size = batch.num_rows
        columns = batch.columns
        if file.change != "cdc":
            columns = [*columns, pa.repeat(pa.scalar(file.change), size)]
        constants = [
            pa.repeat(pa.scalar(int(of.version), pa.int64()), size),
            pa.repeat(pa.scalar(of.timestamp_ms * 1000, instant), size),
        ]
        yield pa.RecordBatch.from_arrays([*columns, *constants], schema=shape)


def read_changes(store: LogStore, start_version: int, end_version: int | None = None) -> pa.Table:
    """Return the changes of the versions from `start_version` to `end_version`, both included.

    Raises: as `stream_changes`.
    """
    shape, batches = stream_changes(store, start_version, end_version)
    return pa.Table.from_batches(batches, schema=shape)


def stream_changes(
    store: LogStore, start_version: int, end_version: int | None = None
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Return the schema of the changes of some versions, both ends included, and their batches.

    They are in the table's newest schema. If columns are mapped, they are in that of the range's
    end, so that a later rename does not matter. An end past the newest version means the newest.
    The range is checked at once. Data is read as batches are requested, and at most one batch is
    held in memory.
    Raises: as `plan_changes`; as `read_file`.
    """
    changes = plan_changes(store, start_version, end_version)
    batches = (
        batch
        for version_plan in changes.plans
        for file in version_plan.files
        for batch in read_change_file(store, version_plan, file, changes.metadata)
    )
    return change_schema(changes.metadata), batches


def plan_changes(
    store: LogStore, start_version: int, end_version: int | None = None
) -> ChangeRange:
    """Return what changed in some versions, both ends included; no data file is read.

    Raises: InvalidRequest (`InvalidVersionRange`, `VersionNotFound`, `CdfNotEnabled`);
    UnsupportedFeature if a schema in the range can't be read as that one; BrokenLog; Unavailable.
    """
    # Keys suffice: there may be a million files, and the commits name those that changed.
    head = open_keys(store)
    end = _checked_range(store, head, start_version, end_version)
    first = open_keys(store, start_version)
    _check_recorded(store, first.metadata, start_version)
    schema_snapshot = _schema_snapshot(store, first, end, head)
    times = commit_timestamps(store, head, start_version, end)
    plans = []
    metadata = first.metadata
    for version in range(start_version, end + 1):
        commit = _commit(store, version)
        is_partitioned = bool(metadata.partition_columns)
        if version > start_version:
            metadata = commit.metadata or metadata
            _check_followable(store, commit, metadata, schema_snapshot)
        at_ms = _timestamp_ms(commit, times[version])
        plans.append(plan(commit, at_ms, is_partitioned=is_partitioned))
    _check_schema(store, first.metadata, start_version, schema_snapshot)
    return ChangeRange(schema_snapshot.metadata, tuple(plans))


def _partition_values(metadata: Metadata, file: ChangeFile) -> PartitionValues:
    """Return the partition values that the log states for a file.

    The table may have been partitioned otherwise when the file was written: a present partition
    column may be in the file, and a former one may be in the log only.
    """
    mode, logged = mode_of(metadata), file.partition_values
    named = {field.name: physical_name(field, mode) for field in schema_of(metadata).fields}
    by_name = partition_values_of(metadata, logged)
    not_null = {name: text for name, text in by_name.items() if text is not None}
    return {**not_null, **{name: logged[key] for name, key in named.items() if key in logged}}


def _schema_snapshot(store: LogStore, first: LiveKeys, end: int, head: LiveKeys) -> LiveKeys:
    """Return the snapshot whose schema the changes are read in."""
    if end == head.version:
        return head
    last = open_keys(store, end)
    modes = {mode_of(snapshot.metadata) for snapshot in (first, last, head)}
    return head if modes == {ColumnMappingMode.NONE} else last


def _checked_range(store: LogStore, head: LiveKeys, start: int, end: int | None) -> int:
    """Return the last version to read."""
    if start < 0 or (end is not None and end < start):
        raise InvalidRequest(
            f"changes of table {store.root} from version {start} to {end}: the range must begin "
            "at 0 or later and not end before it begins",
            error_class="InvalidVersionRange",
        )
    if start > head.version:
        raise InvalidRequest(
            f"changes of table {store.root} from version {start} on: its newest is {head.version}",
            error_class="VersionNotFound",
        )
    return head.version if end is None else min(end, head.version)


def _commit(store: LogStore, version: int) -> Commit:
    read = read_commit(store, version)
    if read is None:
        raise BrokenLog(
            f"version {version} of table {store.root} is not in the log, although later ones are: "
            "read the changes from a later version on",
            error_class="LogGap",
        )
    return read[0]


def _check_recorded(store: LogStore, metadata: Metadata, version: int) -> None:
    if not change_feed_enabled(metadata):
        raise InvalidRequest(
            f"table {store.root} does not record its changes at version {version}: ask for "
            "versions at which it does, or set the property delta.enableChangeDataFeed=true, which "
            "records those that follow",
            error_class="CdfNotEnabled",
        )


def _check_followable(
    store: LogStore, commit: Commit, metadata: Metadata, schema_snapshot: LiveKeys
) -> None:
    """Refuse a commit whose changes are not recorded, or can't be read in the schema of the
    snapshot.
    """
    if commit.protocol is not None:
        check_readable(commit.protocol, metadata, store.root)
    if commit.metadata is not None:
        _check_recorded(store, commit.metadata, commit.version)
        _check_schema(store, commit.metadata, commit.version, schema_snapshot)


def _check_schema(
    store: LogStore, metadata: Metadata, version: int, schema_snapshot: LiveKeys
) -> None:
    if not is_change_feed_readable_as(metadata, schema_snapshot.metadata):
        raise UnsupportedFeature(
            f"changes of table {store.root}: the schema of version {version} can't be told in "
            f"that of version {schema_snapshot.version} (a column was dropped, renamed or has "
            "another type); ask for versions after the change",
            feature="changes across schemas",
        )


def _timestamp_ms(commit: Commit, modified_ms: int) -> int:
    stamp = commit.info.in_commit_timestamp if commit.info else None
    return modified_ms if stamp is None else stamp
