"""What the maintainer knows of a table: a snapshot that is kept, and what was added since.

No data file is opened: sizes, times and deleted rows are in the log.
"""

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from tidegate_delta.checkpoints import file_totals
from tidegate_delta.checkpoints.missing_statistics import lack_statistics
from tidegate_delta.errors import UnsupportedFeature
from tidegate_delta.features.clustering import clustering_columns, unsorted_files
from tidegate_delta.features.supported_features import check_writable
from tidegate_delta.log.actions import Metadata
from tidegate_delta.log.file_names import commit_name
from tidegate_delta.properties.table_properties import (
    checkpoint_interval,
    tombstone_retention_ms,
)
from tidegate_delta.schema.column_mapping import physical_partition_columns
from tidegate_delta.schema.field_paths import dotted
from tidegate_delta.schema.partition_values import Partition, partition_kinds, partition_of
from tidegate_delta.snapshots.chunked_arrays import total
from tidegate_delta.snapshots.file_action_columns import rows_to_adds
from tidegate_delta.snapshots.raw_stats import row_counts
from tidegate_delta.snapshots.replay import LogPart, parse_log_file
from tidegate_delta.snapshots.snapshot import Snapshot
from tidegate_messages.published_records import DamagedFile, TableRecord
from tidegate_producers.maintenance.machine import (
    COLD_AFTER_MS,
    HOUR_MS,
    SAMPLE_FILES,
    TASK_BYTES_MAX,
    FileFacts,
    MaintainedTable,
    PartitionFacts,
    Spent,
)
from tidegate_producers.writing.optimize import FILE_BYTES, is_hollow
from tidegate_runtime.storage.log_store import LogStore
from tidegate_runtime.table_io.log_reader import of_table, read_each
from tidegate_runtime.table_io.open_table import (
    REFRESH_MAX,
    open_snapshot,
    refresh_with_commits,
)

AUTO_COMPACT: Final = "delta.autoOptimize.autoCompact"
TARGET_SIZE: Final = "delta.targetFileSize"
ATTEMPTS_KEPT: Final = 1_000
"""Tasks of which a refusal is remembered; one that is forgotten is found out again, by a cancel."""

LOOKED_AT_MAX: Final = 50_000
"""How many files of a table are looked at one by one: the next ones follow once these are packed.
"""

SLOTS: Final = 24
"""Of so many parts of the retention it is known how much was removed within them."""

_COLUMNS: Final = ["path", "partitionValues", "size", "modificationTime", "deletionVector"]
_TEXT: Final = pa.string()
_SIZE: Final = re.compile(r"(\d{1,18})\s*([kmgt]?)i?b?", re.IGNORECASE)
_UNITS: Final = ("", "k", "m", "g", "t")


@dataclass
class KnownTable:
    """A table that is maintained, as it was last read, and what was counted of it since."""

    record: TableRecord
    store: LogStore
    snapshot: Snapshot | None = None
    facts: MaintainedTable | None = None
    changed_elsewhere_ms: int | None = None
    added_bytes: int = 0
    rewritten_bytes: int = 0
    early_bytes: int = 0
    vacuumed_ms: int | None = None
    checked_ms: int | None = None
    damaged: tuple[DamagedFile, ...] = ()
    spent: Spent = ()
    served_ms: int | None = None
    attempts: dict[UUID, int] = field(default_factory=dict)

    def refused(self, identity: UUID) -> None:
        """Note that the id of a task's proposal was refused for good: the next one gets another."""
        self.attempts[identity] = self.attempts.get(identity, 0) + 1
        if len(self.attempts) > ATTEMPTS_KEPT:
            del self.attempts[next(iter(self.attempts))]

    @property
    def current(self) -> Snapshot:
        """The snapshot of a table that was read."""
        assert self.snapshot is not None, "it was read"
        return self.snapshot

    def read(self, now_ms: int) -> int:
        """Read what is new in the log, and return how many bytes writers have added.

        Raises: as `open_snapshot`.
        """
        former = self.snapshot
        commits: Iterable[LogPart] | None = None
        if former is not None and self.record.table_id in (None, former.metadata.id):
            self.snapshot, commits = refresh_with_commits(self.store, former)
        else:
            self.snapshot = open_snapshot(self.store)
        is_same = former is not None and former.version == self.snapshot.version
        if is_same and self.facts is not None:
            return 0
        if commits is None:
            commits = _recent_commits(self.store, self.snapshot, now_ms - COLD_AFTER_MS)
        self.changed_elsewhere_ms = changed_elsewhere_ms(commits) or self.changed_elsewhere_ms
        written = 0 if former is None else _added_bytes(former, self.snapshot)
        self.facts = facts_of(self.snapshot, self.record)
        if former is None:
            self.added_bytes = max(self.added_bytes, self.facts.written_bytes)
        self.added_bytes += written
        return written


def changed_elsewhere_ms(commits: Iterable[LogPart]) -> int | None:
    """Return when rows were last changed or removed by a version that is no proposal of ours.

    An unmodified job wrote it, or a writer past the gate. None if there is none.
    """
    foreign = (each for each in commits if each.info is None or each.info.tidegate is None)
    return max((_left_ms(each.tombstones) for each in foreign), default=0) or None


def _recent_commits(store: LogStore, snapshot: Snapshot, since_ms: int) -> Iterator[LogPart]:
    """Yield the commits since a time, the newest first, if rows were changed or removed since, and
    not more than are read at a refresh.
    """
    if _left_ms(snapshot.tombstones) < since_ms:
        return
    newest = int(snapshot.version)
    versions = range(newest, max(-1, newest - REFRESH_MAX), -1)
    names = list(map(commit_name, versions))
    for name, content in zip(names, read_each(store, names), strict=True):
        if content is None:
            return
        with of_table(store.root):
            commit = parse_log_file(name, content)
        yield commit
        if commit.info is not None and (commit.info.timestamp or since_ms) < since_ms:
            return


def facts_of(snapshot: Snapshot, record: TableRecord) -> MaintainedTable:
    """Return what a snapshot says of a table. Raises: InvalidRequest, for an invalid property."""
    metadata, files = snapshot.metadata, snapshot.files
    target_bytes = target_file_bytes(metadata)
    partitions = tuple(_partitions(files, metadata, target_bytes))
    deletions = file_totals.deletions_of_files(files)
    unsorted = unsorted_files(snapshot)
    is_unsorted = pc.is_in(files["path"], unsorted["path"])
    small = files["size"].filter(pc.or_(_is_small(files, target_bytes), is_unsorted))
    return MaintainedTable(
        table=record.table,
        table_id=metadata.id,
        name=record.name,
        version=int(snapshot.version),
        interval=checkpoint_interval(metadata),
        target_bytes=target_bytes,
        retention_ms=tombstone_retention_ms(metadata),
        files=files.num_rows,
        size_bytes=total(files["size"]) or 0,
        rows=total(row_counts(files)) or 0,
        deleted_rows=deletions.records if deletions else 0,
        partitions=partitions,
        removed=tuple(_removed(snapshot.tombstones, tombstone_retention_ms(metadata))),
        uncounted=tuple(_by_arrival(files.filter(lack_statistics(files, metadata)))),
        clustered_by=", ".join(map(dotted, clustering_columns(metadata, snapshot.domains))),
        unsorted=tuple(_by_arrival(unsorted)),
        arrived_ms=_arrived_ms(snapshot),
        is_packed_always=_auto_compact(metadata) == "true",
        hindrance=_hindrance(snapshot, record),
        written_bytes=total(small) or 0,
    )


def sample_of(snapshot: Snapshot, damaged: Collection[str], day: int) -> pa.Table:
    """Return files that are checked on a day: some that are drawn, and those found damaged."""
    files = snapshot.files
    count = min(files.num_rows, SAMPLE_FILES)
    drawn = Random(f"{snapshot.metadata.id}/{day}").sample(range(files.num_rows), count)
    is_damaged = pc.is_in(files["path"], pa.array(damaged, _TEXT))
    others = pc.indices_nonzero(is_damaged).to_pylist()
    return files.take(pa.array(sorted({*drawn, *others}), pa.int64()))


def target_file_bytes(metadata: Metadata) -> int:
    """Return the size to which files are packed: the table's `delta.targetFileSize`, such as
    `64mb`, or that of `optimize`; what this process can't have in memory is left out.
    """
    found = _SIZE.fullmatch(metadata.configuration.get(TARGET_SIZE, "").strip())
    size = FILE_BYTES
    if found is not None and int(found[1]) > 0:
        size = int(found[1]) * 1024 ** _UNITS.index(found[2].lower())
    return min(size, TASK_BYTES_MAX)


def _hindrance(snapshot: Snapshot, record: TableRecord) -> str:
    """Return why files of a table can't be written anew here, or an empty text."""
    metadata = snapshot.metadata
    try:
        check_writable(snapshot.protocol, metadata, record.table_root)
    except UnsupportedFeature as error:
        return str(error)
    if _auto_compact(metadata) == "false":
        return f"its property {AUTO_COMPACT} is false"
    return ""


def _auto_compact(metadata: Metadata) -> str:
    return metadata.configuration.get(AUTO_COMPACT, "auto").strip().lower()


def _partitions(files: pa.Table, metadata: Metadata, target_bytes: int) -> Iterator[PartitionFacts]:
    """Yield the small and hollow files by partition; of very many, those that came first."""
    kinds, columns = partition_kinds(metadata), physical_partition_columns(metadata)
    has_vector = pc.is_valid(files["deletionVector"])
    hollow = {add.path for add in rows_to_adds(files.filter(has_vector)) if is_hollow(add)}
    chosen = pc.or_(
        _is_small(files, target_bytes), pc.is_in(files["path"], pa.array(hollow, _TEXT))
    )
    files = files.filter(chosen).sort_by([("modificationTime", "ascending"), ("path", "ascending")])
    names: dict[Partition, str] = {}
    found: dict[Partition, list[FileFacts]] = {}
    for row in files.slice(0, LOOKED_AT_MAX).select(_COLUMNS).to_pylist():
        values = dict(row["partitionValues"] or ())
        partition = partition_of(values, kinds)
        if partition not in names:
            names[partition] = ", ".join(f"{name}={values.get(k)}" for name, k in columns.items())
        deleted = (row["deletionVector"] or {}).get("cardinality") or 0
        path, size, modified_ms = row["path"], row["size"], row["modificationTime"]
        file = FileFacts(path, size, modified_ms, deleted, path in hollow)
        found.setdefault(partition, []).append(file)
    for partition, members in found.items():
        yield PartitionFacts(names[partition], tuple(members))


def _by_arrival(files: pa.Table) -> Iterator[FileFacts]:
    """Yield files as they came; of very many, those that came first."""
    files = files.select(["path", "size", "modificationTime"]).sort_by("modificationTime")
    for row in files.slice(0, LOOKED_AT_MAX).to_pylist():
        yield FileFacts(row["path"], row["size"], row["modificationTime"])


def _arrived_ms(snapshot: Snapshot) -> int:
    """Return when a file came last that was not sorted here, or one left with its rows."""
    came = snapshot.files.filter(pc.is_null(snapshot.files["clusteringProvider"]))
    return max(pc.max(came["modificationTime"]).as_py() or 0, _left_ms(snapshot.tombstones))


def _left_ms(tombstones: pa.Table) -> int:
    """Return when a file left last because its rows were changed or removed, or 0."""
    left = tombstones.filter(pc.fill_null(tombstones["dataChange"], True))
    return pc.max(left["deletionTimestamp"]).as_py() or 0


def _is_small(files: pa.Table, target_bytes: int) -> pa.ChunkedArray:
    return pc.less(files["size"], (target_bytes + 1) // 2)


def _removed(tombstones: pa.Table, retention_ms: int) -> Iterator[tuple[int, int, int]]:
    """Yield until when files were removed, their number and bytes: by the hour, or more finely
    where they are kept for less than a day.
    """
    slot_ms = max(1, min(HOUR_MS, retention_ms // SLOTS))
    removed_ms = pc.fill_null(tombstones["deletionTimestamp"], 0)
    slots = pc.divide(removed_ms, pa.scalar(slot_ms, pa.int64()))
    sizes = pc.fill_null(tombstones["size"], 0)
    grouped = pa.table({"slot": slots, "size": sizes}).group_by("slot")
    rows: list[dict[str, Any]] = grouped.aggregate([("size", "count"), ("size", "sum")]).to_pylist()
    for row in sorted(rows, key=lambda row: row["slot"]):
        yield (row["slot"] + 1) * slot_ms, row["size_count"], row["size_sum"]


def _added_bytes(former: Snapshot, snapshot: Snapshot) -> int:
    """Return the bytes of files that came since, and that no compaction brought."""
    files = snapshot.files
    is_new = pc.invert(pc.is_in(files["path"], former.files["path"]))
    chosen = files.filter(pc.and_(is_new, pc.fill_null(files["dataChange"], True)))
    return total(chosen["size"]) or 0
