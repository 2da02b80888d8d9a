"""Compacts a table: packs small files of a partition into larger ones, in the order of arrival.

Rows keep their order, so each proposal says where they went (`row_mapping`): deletes of rows beside
it do not conflict with it, in either order. Each proposal is committed for itself, so what an
interrupted run has committed stays, and the next run does the rest.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from tidegate_delta.data_skipping.partition_predicates import columns_of
from tidegate_delta.errors import InvalidRequest, UnsupportedFeature
from tidegate_delta.features import active_features
from tidegate_delta.log.actions import Add, Metadata
from tidegate_delta.schema.types import parse_schema
from tidegate_delta.snapshots.file_action_columns import rows_to_adds
from tidegate_delta.snapshots.snapshot import Snapshot
from tidegate_messages.proposal import Operation, Proposal
from tidegate_messages.read_set import ReadSet
from tidegate_messages.row_mapping import RowMapping, Source
from tidegate_producers.cached_clients import clock, store_for
from tidegate_producers.conditions.sql_condition import predicate_of
from tidegate_producers.options import TableLocation
from tidegate_producers.parquet.data_file_encoding import layout_of
from tidegate_producers.parquet.file_compaction import Compacted, Compactor
from tidegate_producers.parquet.file_rewrite import whole_files
from tidegate_producers.writing.constraint_attestation import (
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
from tidegate_runtime.client import proposal_drafts
from tidegate_runtime.client.client import Client, Rejected
from tidegate_runtime.table_io.data_file_reader import rows_of
from tidegate_runtime.table_io.open_table import open_snapshot

FILE_BYTES: Final = 128 * 1024 * 1024
"""The size up to which files are packed into one, unless the caller says another."""

DELETED_SHARE_MAX: Final = 0.05
"""A file of which more rows are deleted is written anew, whatever its size; delta-spark's default.
"""

SOURCES_MAX: Final = 1_000
"""How many files a proposal replaces at most; its record names each."""

_AGAIN: Final = ("rerun", "rebase")
ATTEMPTS: Final = 3
"""How often the rest is planned anew after a conflict, as when another compaction was first."""


Partition = tuple[tuple[str, str | None], ...]
"""Partition values, in the log's form, by column."""


@dataclass(frozen=True)
class OptimizeRequest:
    """Which files to compact: those of the partitions that `where` chooses. `zone` is the time zone
    of its timestamps.

    Units: `file_bytes` in bytes.
    """

    where: str | None = None
    file_bytes: int = FILE_BYTES
    zone: str = "UTC"


Member = tuple[Add, Mapping[str, Any]]
"""A file: its action, and what reads it, a row of ADD_SCHEMA."""


@dataclass(frozen=True)
class Bin:
    """Files of one partition whose rows go into one file: their actions, and what reads them."""

    adds: tuple[Add, ...]
    files: tuple[Mapping[str, Any], ...]

    @property
    def partition(self) -> Partition:
        """The partition values of its files."""
        return _partition(self.adds[0])

    @property
    def size(self) -> int:
        """The size of its files. In bytes."""
        return sum(add.size for add in self.adds)


@dataclass
class Optimized:
    """What a run did: its versions, the files that left and those that came."""

    versions: list[int] = field(default_factory=list)
    removed: list[Add] = field(default_factory=list)
    added: list[Add] = field(default_factory=list)
    partitions: set[Partition] = field(default_factory=set)
    considered: int = 0


@dataclass(frozen=True)
class Compacting:
    """What a task needs to compact files."""

    place: TableLocation
    metadata: Metadata


CompactionRunner = Callable[[Compacting, Sequence[Bin]], Sequence[Compacted]]
"""Compacts bins, on executors or in this process, and returns their results in order."""


def compact_here(compacting: Compacting, bins: Sequence[Bin]) -> Sequence[Compacted]:
    """Compact bins in this process: a `CompactionRunner`."""
    return compact_files(compacting, [one.files for one in bins])


def compact_files(
    compacting: Compacting, bins: Sequence[Sequence[Mapping[str, Any]]], task: int = 0
) -> list[Compacted]:
    """Return the result of each bin, given as rows of ADD_SCHEMA."""
    compactor = Compactor(store_for(compacting.place), compacting.metadata, clock(), task)
    return [compactor.compact(files) for files in bins]


def survey(place: TableLocation, request: OptimizeRequest) -> list[Bin]:
    """Return what `optimize` would compact; nothing is written. Raises: as `optimize`."""
    snapshot = open_snapshot(store_for(place))
    return list(bins_of(_chosen(snapshot, place.root, request), request.file_bytes))


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
    done = Optimized()
    record = client.require(place.root, write.timeout_s)
    for attempt in range(1, ATTEMPTS + 1):
        began_ms = client.clock.now_ms()
        snapshot = open_snapshot(store_for(place))
        files = _chosen(snapshot, place.root, request)
        done.considered = done.considered or files.num_rows
        target = proposal_drafts.Target(
            record.table, record.table_root, int(snapshot.version), snapshot.metadata.id
        )
        try:
            for bins in _groups(bins_of(files, request.file_bytes)):
                compacted = runner(Compacting(place, snapshot.metadata), bins)
                stamp = stamp_for(client, write, began_ms)
                proposal = _draft(target, stamp, request, bins, compacted)
                held = Attestation(in_table_already(snapshot.metadata, snapshot.protocol))
                proposal = with_attestation(proposal, held)
                outcome = propose(client, store_for(place), proposal, write.timeout_s)
                _note(done, bins, compacted, outcome.version)
        except Rejected as rejected:
            told = rejected.outcome.rejection
            if told is None or told.advice not in _AGAIN or attempt == ATTEMPTS:
                raise
        else:
            break
    return done


def bins_of(files: pa.Table, file_bytes: int) -> Iterator[Bin]:
    """Yield the bins that are worth writing: of several files, or with many deleted rows.

    `files` have ADD_SCHEMA. Those of a partition come in the order in which they were written, and
    follow each other into bins of at most `file_bytes`.
    """
    small = pc.or_(pc.less(files["size"], file_bytes), pc.is_valid(files["deletionVector"]))
    files = files.filter(small).sort_by([("modificationTime", "ascending"), ("path", "ascending")])
    by_partition: dict[Partition, list[Member]] = {}
    for one in zip(rows_to_adds(files), rows_of(files), strict=True):
        if one[0].size < file_bytes or _is_hollow(one[0]):
            by_partition.setdefault(_partition(one[0]), []).append(one)
    for members in by_partition.values():
        for some in _packed(members, file_bytes):
            if len(some) > 1 or _is_hollow(some[0][0]):
                yield Bin(tuple(add for add, _ in some), tuple(row for _, row in some))


def _packed(members: Sequence[Member], file_bytes: int) -> Iterator[list[Member]]:
    some: list[Member] = []
    size = 0
    for one in members:
        if some and (size + one[0].size > file_bytes or len(some) == SOURCES_MAX):
            yield some
            some, size = [], 0
        some.append(one)
        size += one[0].size
    if some:
        yield some


def _groups(bins: Iterator[Bin]) -> Iterator[list[Bin]]:
    """Yield the bins of one proposal after the other."""
    group: list[Bin] = []
    for one in bins:
        if sum(len(other.adds) for other in group) + len(one.adds) > SOURCES_MAX:
            yield group
            group = []
        group.append(one)
    if group:
        yield group


def _chosen(snapshot: Snapshot, root: str, request: OptimizeRequest) -> pa.Table:
    """Return the files of the partitions to compact, after checking that we may write the table."""
    schema = check_open_to(snapshot, root)
    metadata = snapshot.metadata
    if active_features.row_tracking(metadata, parse_schema(metadata.schema_string)):
        raise UnsupportedFeature(
            f"{root} tracks rows, and this writer does not keep their ids when it compacts: "
            "compact it with delta-spark; nothing was proposed",
            feature="rowTracking",
        )
    if request.where is None:
        return snapshot.files
    predicate = predicate_of(request.where, schema, request.zone)
    others = sorted(columns_of(predicate) - set(metadata.partition_columns))
    if others:
        raise InvalidRequest(
            f"where: {request.where!r} names {others[0]!r}, which is no partition column: choose "
            f"by partition columns ({', '.join(metadata.partition_columns) or 'there are none'}), "
            "or leave the condition out; nothing was proposed",
            error_class="DELTA_NON_PARTITION_COLUMN_REFERENCE",
        )
    return whole_files(snapshot, predicate, layout_of(metadata))


def _is_hollow(add: Add) -> bool:
    """Return whether more of a file's rows are deleted than DELETED_SHARE_MAX."""
    rows = proposal_drafts.row_count(add)
    gone = add.deletion_vector.cardinality if add.deletion_vector else 0
    return gone > 0 and (not rows or gone / rows > DELETED_SHARE_MAX)


def _partition(add: Add) -> Partition:
    return tuple(sorted(add.partition_values.items()))


def _draft(
    target: proposal_drafts.Target,
    stamp: proposal_drafts.Stamp,
    request: OptimizeRequest,
    bins: Sequence[Bin],
    compacted: Sequence[Compacted],
) -> Proposal:
    removed = [add for one in bins for add in one.adds]
    added = [one.add for one in compacted if one.add is not None]
    removes = [
        proposal_drafts.removal(add, stamp.created_ms).model_copy(update={"data_change": False})
        for add in removed
    ]
    conditions = [request.where] if request.where else []
    parameters = {
        "predicate": orjson.dumps(conditions).decode(),
        "zOrderBy": "[]",
        "clusterBy": "[]",
        "auto": "false",
    }
    operation = Operation(name="OPTIMIZE", parameters=parameters, metrics=_metrics(removed, added))
    body = proposal_drafts.Body(
        operation,
        tuple(action.to_row() for action in (*removes, *added)),
        ReadSet(files=tuple(add.path for add in removed), delete_insensitive=True),
    )
    proposal = proposal_drafts.of_body("commit", target, stamp, body)
    return proposal.model_copy(update={"row_mapping": tuple(_mappings(compacted))})


def _mappings(compacted: Sequence[Compacted]) -> Iterator[RowMapping]:
    for one in compacted:
        if one.add is None:
            continue
        sources, offset = [], 0
        for path, rows in one.rows:
            if rows:
                sources.append(Source(path=path, offset=offset, rows=rows))
            offset += rows
        yield RowMapping(path=one.add.path, sources=tuple(sources))


def _metrics(removed: Sequence[Add], added: Sequence[Add]) -> dict[str, str]:
    """Return the metrics of a version, by delta-spark's names."""
    sizes = sorted(add.size for add in added) or [0]
    told = {
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
    return {name: str(value) for name, value in told.items()}


def _note(
    done: Optimized, bins: Sequence[Bin], compacted: Sequence[Compacted], version: int | None
) -> None:
    assert version is not None, "what is committed has a version"
    done.versions.append(version)
    done.removed += [add for one in bins for add in one.adds]
    done.added += [one.add for one in compacted if one.add is not None]
    done.partitions |= {one.partition for one in bins}
