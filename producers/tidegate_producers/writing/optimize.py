"""Compacts a table: packs small files of a partition into larger ones, in the order of arrival.

Rows keep their order, so each proposal says where they went (`row_mapping`): deletes of rows beside
it do not conflict with it, in either order. Each proposal is committed for itself, so what an
interrupted run has committed stays, and the next run does the rest.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Any, Final

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from tidegate_delta.data_skipping.partition_predicates import columns_of
from tidegate_delta.errors import InvalidRequest
from tidegate_delta.features import row_tracking
from tidegate_delta.features.clustering import clustering_columns
from tidegate_delta.log.actions import Add, Metadata
from tidegate_delta.schema.field_paths import FieldPath, dotted
from tidegate_delta.schema.partition_values import Partition, partition_kinds, partition_of
from tidegate_delta.schema.types import DataType
from tidegate_delta.snapshots.file_action_columns import rows_to_adds
from tidegate_delta.snapshots.file_packing import packed
from tidegate_delta.snapshots.snapshot import Snapshot
from tidegate_delta.snapshots.table_health import DELETED_LOW
from tidegate_messages.proposal import Operation, ReadSet, RowMapping, Source
from tidegate_producers.cached_clients import clock, store_for
from tidegate_producers.options import TableLocation
from tidegate_producers.parquet.data_file_encoding import layout_of
from tidegate_producers.parquet.file_rewrite import CompactionResult, Compactor, whole_files
from tidegate_producers.parquet.row_sorting import Sorter
from tidegate_producers.writing.clustering import sorted_by
from tidegate_producers.writing.column_checks import (
    Attestation,
    in_table_already,
    with_attestation,
)
from tidegate_producers.writing.table_write import (
    WriteRequest,
    check_open_to,
    propose,
    stamp_for,
)
from tidegate_runtime.client import proposal_builders
from tidegate_runtime.client.client import Client, Rejected
from tidegate_runtime.conditions.sql_condition import predicate_of
from tidegate_runtime.observability.logs import log_event
from tidegate_runtime.table_io.data_file_reader import rows_of
from tidegate_runtime.table_io.open_table import open_snapshot

FILE_BYTES: Final = 128 * 1024 * 1024
"""The size up to which files are packed into one, unless the caller says another."""

SOURCES_MAX: Final = 1_000
"""How many files a proposal replaces at most; its record names each."""

_logger = logging.getLogger("tidegate_producers")

AGAIN: Final = ("rerun", "rebase")
"""The advice of a rejection after which the files are looked at anew."""

ATTEMPTS: Final = 3
"""How often the rest is planned anew after a conflict, as when another compaction was first."""


PROVIDER: Final = "tidegate"
"""The `clusteringProvider` of files that were sorted here. Delta-spark leaves others' files alone.
"""


@dataclass(frozen=True)
class OptimizeRequest:
    """Which files to compact: those of the partitions that `where` chooses. `zone` is the time zone
    of its timestamps. `purges` writes every file with deleted rows anew, and no others; `rewrites`
    every file. `order` are
    the columns of a Z-order. A clustered table needs neither: its files are sorted by its own
    columns, if `sorts` says that the runner can. `is_auto` says that no person requested it.

    Units: `file_bytes` in bytes.
    """

    where: str | None = None
    file_bytes: int = FILE_BYTES
    zone: str = "UTC"
    purges: bool = False
    rewrites: bool = False
    order: tuple[str, ...] = ()
    sorts: bool = False
    is_auto: bool = False

    @property
    def operation(self) -> str:
        """The name of the operation in the table's history."""
        return "REORG" if self.purges or self.rewrites else "OPTIMIZE"


Member = tuple[Add, Mapping[str, Any]]
"""A file: its action, and what reads it, a row of ADD_SCHEMA."""


@dataclass(frozen=True)
class Bin:
    """Files of one partition whose rows go into one file: their actions, and what reads them."""

    adds: tuple[Add, ...]
    files: tuple[Mapping[str, Any], ...]

    @property
    def size(self) -> int:
        """The size of its files. In bytes."""
        return sum(add.size for add in self.adds)


@dataclass
class Optimized:
    """What a run did: its versions, the files that left and those that came.

    `planned` files are to be replaced in the whole run, `considered` ones were looked at.
    """

    versions: list[int] = field(default_factory=list)
    removed: list[Add] = field(default_factory=list)
    added: list[Add] = field(default_factory=list)
    partitions: set[Partition] = field(default_factory=set)
    considered: int = 0
    planned: int = 0


@dataclass(frozen=True)
class Compacting:
    """What a runner needs to compact files: with `order`, it sorts rows along these columns.
    `written` is the metadata by which the new files are written, if it is another.

    Units: `file_bytes`, about the size of sorted files, in bytes.
    """

    place: TableLocation
    metadata: Metadata
    order: tuple[FieldPath, ...] = ()
    file_bytes: int = FILE_BYTES
    is_clustered: bool = False
    written: Metadata | None = None


CompactionRunner = Callable[[Compacting, Sequence[Bin]], Sequence[CompactionResult]]
"""Compacts bins, on executors or in this process, and returns their results in order."""


def compact_here(compacting: Compacting, bins: Sequence[Bin]) -> Sequence[CompactionResult]:
    """Compact bins in this process, or sort them: a `CompactionRunner`."""
    if compacting.order:
        store = store_for(compacting.place)
        sorter = Sorter(store, compacting.metadata, compacting.order, clock())
        return [
            sorter.sort(each.files, max(1, ceil(each.size / compacting.file_bytes)))
            for each in bins
        ]
    return compact_files(compacting, [file_bin.files for file_bin in bins])


def compact_files(
    compacting: Compacting, bins: Sequence[Sequence[Mapping[str, Any]]], task: int = 0
) -> list[CompactionResult]:
    """Return the result of each bin, given as rows of ADD_SCHEMA."""
    store, metadata = store_for(compacting.place), compacting.metadata
    compactor = Compactor(store, metadata, clock(), task, compacting.written)
    return [compactor.compact(files) for files in bins]


def survey(place: TableLocation, request: OptimizeRequest) -> list[Bin]:
    """Return what `optimize` would compact; nothing is written. Raises: as `optimize`."""
    snapshot = open_snapshot(store_for(place))
    compacting = _compacting(snapshot, place, request)
    return list(_bins(_chosen(snapshot, place.root, request), request, compacting))


@dataclass(frozen=True)
class Packer:
    """Writes bins of a table anew, each group of them by a proposal of its own."""

    client: Client
    place: TableLocation
    request: OptimizeRequest
    write: WriteRequest
    runner: CompactionRunner

    def commit(self, snapshot: Snapshot, bins: Sequence[Bin]) -> tuple[int, list[Add]]:
        """Write bins of a snapshot anew, propose that, and return the version and the new files.

        Raises: InvalidRequest (`TableNotRegistered`); Rejected; OutcomeUnknown; Unavailable.
        """
        client, place, metadata = self.client, self.place, snapshot.metadata
        record = client.require(place.root, self.write.timeout_s)
        target = proposal_builders.Target(
            record.table, record.table_root, int(snapshot.version), metadata.id
        )
        compacting = _compacting(snapshot, place, self.request)
        began_ms = client.clock.now_ms()
        compacted = [_unchanged(result, compacting) for result in self.runner(compacting, bins)]
        stamp = stamp_for(client, self.write, began_ms)
        body = _body(stamp, self.request, bins, compacted, compacting)
        proposal = proposal_builders.of_body("commit", target, stamp, body)
        is_tracked = row_tracking.is_enabled(metadata)
        moved = tuple(_mappings(compacted, keeps_row_ids=is_tracked))
        proposal = proposal.model_copy(update={"row_mapping": moved})
        attestation = Attestation(in_table_already(metadata, snapshot.protocol))
        proposal = with_attestation(proposal, attestation)
        version = propose(client, store_for(place), proposal, self.write.timeout_s).version
        assert version is not None, "what is committed has a version"
        return version, [add for result in compacted for add in result.adds]


def optimize(
    client: Client,
    place: TableLocation,
    request: OptimizeRequest,
    write: WriteRequest,
    runner: CompactionRunner,
) -> Optimized:
    """Compact the small files of a table, and return what was done; no small files, no commit.

    Raises: InvalidRequest (`TableNotRegistered`, or a condition that needs more than partition
    columns); UnsupportedFeature; Rejected, after ATTEMPTS conflicts; OutcomeUnknown; Unavailable.
    """
    optimized = Optimized()
    client.require(place.root, write.timeout_s)
    packer = Packer(client, place, request, write, runner)
    for attempt in range(1, ATTEMPTS + 1):
        snapshot = open_snapshot(store_for(place))
        files = _chosen(snapshot, place.root, request)
        compacting = _compacting(snapshot, place, request)
        kinds = partition_kinds(snapshot.metadata)
        optimized.considered = optimized.considered or files.num_rows
        try:
            planned = list(_bins(files, request, compacting))
            optimized.planned = len(optimized.removed) + sum(
                len(file_bin.adds) for file_bin in planned
            )
            for bins in _groups(iter(planned)):
                version, added = packer.commit(snapshot, bins)
                optimized.versions.append(version)
                optimized.removed += [add for file_bin in bins for add in file_bin.adds]
                optimized.added += added
                optimized.partitions |= {
                    partition_of(file_bin.adds[0].partition_values, kinds) for file_bin in bins
                }
                _log_progress(place.root, request, optimized)
        except Rejected as rejected:
            rejection = rejected.outcome.rejection
            if rejection is None or rejection.advice not in AGAIN or attempt == ATTEMPTS:
                raise
        else:
            break
    return optimized


def bins_at(snapshot: Snapshot, paths: Sequence[Sequence[str]]) -> list[Bin] | None:
    """Return bins of exactly these files, in their order; None if one of them is live no more."""
    wanted = pa.array([path for group in paths for path in group], pa.string())
    files = snapshot.files.filter(pc.is_in(snapshot.files["path"], wanted))
    found = zip(rows_to_adds(files), rows_of(files), strict=True)
    members: dict[str, Member] = {member[0].path: member for member in found}
    if len(members) < len(wanted):
        return None
    return [_bin_of([members[path] for path in group]) for group in paths]


def _bin_of(members: Sequence[Member]) -> Bin:
    return Bin(tuple(add for add, _ in members), tuple(row for _, row in members))


def bins_of(files: pa.Table, file_bytes: int, kinds: Mapping[str, DataType]) -> Iterator[Bin]:
    """Yield the bins that are worth writing: of several files, or with many deleted rows.

    `files` have ADD_SCHEMA, and `kinds` the types of the partition columns. Those of a partition
    come in the order in which they were written, and follow each other into bins of at most
    `file_bytes`.
    """
    small = pc.or_(pc.less(files["size"], file_bytes), pc.is_valid(files["deletionVector"]))
    files = files.filter(small).sort_by([("modificationTime", "ascending"), ("path", "ascending")])
    by_partition: dict[Partition, list[Member]] = {}
    for member in zip(rows_to_adds(files), rows_of(files), strict=True):
        if member[0].size < file_bytes or is_hollow(member[0]):
            partition = partition_of(member[0].partition_values, kinds)
            by_partition.setdefault(partition, []).append(member)
    for members in by_partition.values():
        for group in packed(members, lambda member: member[0].size, file_bytes, SOURCES_MAX):
            if len(group) > 1 or is_hollow(group[0][0]):
                yield _bin_of(group)


def _bins(files: pa.Table, request: OptimizeRequest, compacting: Compacting) -> Iterator[Bin]:
    kinds = partition_kinds(compacting.metadata)
    if request.purges or request.rewrites:
        hollow = pc.is_valid(files["deletionVector"])
        yield from single_bins(files if request.rewrites else files.filter(hollow))
    elif compacting.order:
        if compacting.is_clustered:
            files = files.filter(pc.is_null(files["clusteringProvider"]))
        by_partition: dict[Partition, list[Member]] = {}
        for member in zip(rows_to_adds(files), rows_of(files), strict=True):
            partition = partition_of(member[0].partition_values, kinds)
            by_partition.setdefault(partition, []).append(member)
        for members in by_partition.values():
            yield _bin_of(members)
    else:
        yield from bins_of(files, request.file_bytes, kinds)


def _compacting(snapshot: Snapshot, place: TableLocation, request: OptimizeRequest) -> Compacting:
    """Return what a runner needs. Raises: InvalidRequest, for columns that order no files."""
    metadata, size = snapshot.metadata, request.file_bytes
    clustered = clustering_columns(metadata, snapshot.domains)
    if request.purges or request.rewrites or not (request.order or (clustered and request.sorts)):
        return Compacting(place, metadata, file_bytes=size)
    if not request.order:
        return Compacting(place, metadata, clustered, size, is_clustered=True)
    if clustered:
        raise InvalidRequest(
            f"{place.root} is clustered by {', '.join(map(dotted, clustered))}, and its files have "
            "that order: call executeCompaction(), which sorts them; nothing was proposed",
            error_class="DELTA_CLUSTERING_WITH_ZORDER_BY",
        )
    order = sorted_by(metadata, request.order, "executeZOrderBy")
    return Compacting(place, metadata, order, size)


def _unchanged(compacted: CompactionResult, compacting: Compacting) -> CompactionResult:
    """Return a result whose files say that they change no data, and by whom they are clustered."""
    add_fields: dict[str, Any] = {"data_change": False}
    if compacting.is_clustered:
        add_fields["clustering_provider"] = PROVIDER
    return replace(compacted, adds=tuple(add.with_(**add_fields) for add in compacted.adds))


def single_bins(files: pa.Table) -> Iterator[Bin]:
    """Yield a bin for each file of a table of ADD_SCHEMA."""
    for add, row in zip(rows_to_adds(files), rows_of(files), strict=True):
        yield Bin((add,), (row,))


def _groups(bins: Iterator[Bin]) -> Iterator[list[Bin]]:
    """Yield the bins of one proposal after the other."""
    group: list[Bin] = []
    for file_bin in bins:
        if sum(len(grouped.adds) for grouped in group) + len(file_bin.adds) > SOURCES_MAX:
            yield group
            group = []
        group.append(file_bin)
    if group:
        yield group


def _chosen(snapshot: Snapshot, root: str, request: OptimizeRequest) -> pa.Table:
    """Return the files of the partitions to compact, after checking that we may write the table."""
    schema = check_open_to(snapshot, root)
    metadata = snapshot.metadata
    if request.where is None:
        return snapshot.files
    predicate = predicate_of(request.where, schema, request.zone)
    other_columns = sorted(columns_of(predicate) - set(metadata.partition_columns))
    if other_columns:
        raise InvalidRequest(
            f"where: {request.where!r} names {other_columns[0]!r}, which is no partition column: "
            "choose by partition columns "
            f"({', '.join(metadata.partition_columns) or 'there are none'}), or leave the "
            "condition out; nothing was proposed",
            error_class="DELTA_NON_PARTITION_COLUMN_REFERENCE",
        )
    return whole_files(snapshot, predicate, layout_of(metadata))


def is_hollow(add: Add) -> bool:
    """Return whether a file is written anew, as more than DELETED_LOW of its rows are deleted."""
    rows = proposal_builders.row_count(add)
    deleted_rows = add.deletion_vector.cardinality if add.deletion_vector else 0
    return deleted_rows > 0 and (not rows or deleted_rows / rows > DELETED_LOW)


def _body(
    stamp: proposal_builders.Stamp,
    request: OptimizeRequest,
    bins: Sequence[Bin],
    compacted: Sequence[CompactionResult],
    compacting: Compacting,
) -> proposal_builders.Body:
    removed = [add for file_bin in bins for add in file_bin.adds]
    added = [add for result in compacted for add in result.adds]
    removes = [
        proposal_builders.removal(add, stamp.created_ms).with_(data_change=False) for add in removed
    ]
    conditions = [request.where] if request.where else []
    parameters = {"predicate": orjson.dumps(conditions).decode()}
    if request.purges or request.rewrites:
        parameters["applyPurge"] = "true" if request.purges else "false"
    else:
        columns = orjson.dumps(list(map(dotted, compacting.order))).decode()
        by, unused = ("clusterBy", "zOrderBy")[:: 1 if compacting.is_clustered else -1]
        parameters |= {by: columns, unused: "[]", "auto": str(request.is_auto).lower()}
    # Who removes a file that is removed here conflicts anyway; so many names would make it coarser.
    read = tuple(add.path for add in removed) if len(removed) <= SOURCES_MAX else ()
    return proposal_builders.Body(
        Operation(name=request.operation, parameters=parameters, metrics=_metrics(removed, added)),
        tuple(action.to_row() for action in (*removes, *added)),
        ReadSet(files=read, delete_insensitive=not compacting.order),
    )


def _mappings(
    compacted: Sequence[CompactionResult], *, keeps_row_ids: bool
) -> Iterator[RowMapping]:
    for result in compacted:
        if not (result.adds and result.rows):
            continue
        sources, offset = [], 0
        for path, rows in result.rows:
            if rows:
                sources.append(Source(path=path, offset=offset, rows=rows))
            offset += rows
        path, row_sources = result.adds[0].path, tuple(sources)
        yield RowMapping(path=path, sources=row_sources, keeps_row_ids=keeps_row_ids)


def _metrics(removed: Sequence[Add], added: Sequence[Add]) -> dict[str, str]:
    """Return the metrics of a version, by delta-spark's names."""
    sizes = sorted(add.size for add in added) or [0]
    counts = {
        "numRemovedFiles": len(removed),
        "numRemovedBytes": sum(add.size for add in removed),
        "numAddedFiles": len(added),
        "numAddedBytes": sum(sizes),
        "minFileSize": sizes[0],
        "p25FileSize": sizes[len(sizes) // 4],
        "p50FileSize": sizes[len(sizes) // 2],
        "p75FileSize": sizes[len(sizes) * 3 // 4],
        "maxFileSize": sizes[-1],
        "numDeletionVectorsRemoved": sum(add.deletion_vector is not None for add in removed),
    }
    return {name: str(value) for name, value in counts.items()}


def _log_progress(root: str, request: OptimizeRequest, optimized: Optimized) -> None:
    log_event(
        _logger,
        "optimize_progress",
        table=root,
        operation=request.operation,
        version=optimized.versions[-1],
        files_done=len(optimized.removed),
        files_planned=optimized.planned,
    )
