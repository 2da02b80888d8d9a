"""A delete, update, merge or overwrite that Spark evaluates: pruned files to one proposal."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType as SparkType

from tidegate_delta.constraints.row_constraints import (
    WriteRequirements,
    expressions,
    hashes,
    requirements,
)
from tidegate_delta.data_skipping.partition_predicates import Predicate, prune
from tidegate_delta.errors import InvalidRequest
from tidegate_delta.features import row_tracking
from tidegate_delta.log.actions import Action, Add, Metadata, Protocol
from tidegate_delta.properties.table_properties import change_feed_enabled
from tidegate_delta.schema.types import StructType, parse_schema
from tidegate_delta.schema_evolution.evolve_on_write import evolved
from tidegate_delta.snapshots.file_action_columns import rows_to_adds
from tidegate_delta.snapshots.snapshot import Snapshot
from tidegate_messages.outcome import Outcome
from tidegate_producers.cached_clients import client_for, store_for
from tidegate_producers.options import WriteOptions
from tidegate_producers.parquet.data_file_encoding import keeping_row_ids, layout_of
from tidegate_producers.parquet.file_rewrite import Rewritten
from tidegate_producers.table.identity_values import (
    Leasing,
    Numbered,
    check_before_lease,
    numbered,
)
from tidegate_producers.table.new_rows import checked
from tidegate_producers.table.row_changes import (
    ACTION,
    DELETED,
    INSERTED,
    OLD,
    UPDATED,
    ChangedRows,
    changed_rows,
    copied_files,
)
from tidegate_producers.table.spark_jobs import refusals_of_tasks
from tidegate_producers.table.target_frame import ROW_ID, target_frame
from tidegate_producers.writing.column_checks import (
    Attestation,
    with_attestation,
)
from tidegate_producers.writing.row_delete import files_read, takes_vectors, vector_counts
from tidegate_producers.writing.table_write import (
    WriteRequest,
    check_may_remove,
    check_open_to,
    check_typed,
    propose,
    redefined,
    stamp_for,
)
from tidegate_runtime.client import proposal_builders
from tidegate_runtime.client.client import Client
from tidegate_runtime.table_io.data_file_reader import rows_of
from tidegate_runtime.table_io.open_table import open_snapshot

MULTIPLE_MATCHES: Final = "DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE"


@dataclass(frozen=True)
class Opened:
    """A table that a change has opened: the version that it read, and what the table is after it.

    `definition` is the metadata, and the protocol, that the change brings. `keeps_old_rows` says
    that change files are written, so that the change must return the columns OLD; `tracks_rows`
    that it must return ROW_ID.
    """

    snapshot: Snapshot
    metadata: Metadata
    schema: StructType
    required: WriteRequirements
    definition: tuple[Action, ...] = ()
    keeps_old_rows: bool = False
    tracks_rows: bool = False

    def kept(self, old: Iterable[Column]) -> list[Column]:
        """Return the columns that a change passes on: row ids, and the rows as they were."""
        row_id = [F.col(ROW_ID)] if self.tracks_rows else []
        if not self.keeps_old_rows:
            return row_id
        return [*row_id, *(column.alias(OLD.format(index)) for index, column in enumerate(old))]


@dataclass(frozen=True)
class NewRows:
    """The rows that change: ACTION, FILE, POSITION, the table's columns, and `Opened.kept`.

    `given` are the columns with a given value: a generated one among them is checked, not computed.
    """

    frame: DataFrame
    given: Sequence[str] = ()


@dataclass(frozen=True)
class RowChange:
    """A change of rows: `changed` maps the target frame to the rows that change.

    `predicate_of` returns what the change reads of the table, given its schema. `text` is the
    condition for the history. `depends_on_table_only` says that it may run again on a newer
    version: no row comes from a DataFrame that was computed from an older one. `evolving` returns,
    given the table's columns, those of the source that the table shall have.
    """

    operation: str
    text: str
    predicate_of: Callable[[StructType], Predicate]
    changed: Callable[[DataFrame, Opened], NewRows]
    parameters: Mapping[str, str] = field(default_factory=dict)
    is_row_by_row: bool = True
    depends_on_table_only: bool = True
    evolving: Callable[[StructType], StructType] | None = None

    @property
    def adds_rows(self) -> bool:
        """Whether new rows come with it."""
        return self.operation != "DELETE"

    @property
    def inserts(self) -> bool:
        """Whether rows may come with it that replace no other."""
        return self.operation in ("MERGE", "WRITE")


@refusals_of_tasks()
def change_rows(
    spark: SparkSession, options: WriteOptions, change: RowChange, request: WriteRequest
) -> Outcome | None:
    """Change the rows of a table; return None, proposing nothing, if no row or column changes.

    Raises: Rejected, OutcomeUnknown, InvalidRequest, UnsupportedFeature, BrokenLog, Unavailable;
    Spark's own errors for a condition or expression.
    """
    place = options.place
    client, store = client_for(options.kafka), store_for(place)
    record = client.require(place.root, request.timeout_s)
    began_ms = client.clock.now_ms()
    opened = _open(client, options, change)
    snapshot, metadata = opened.snapshot, opened.metadata
    predicate = change.predicate_of(opened.schema)
    candidates = prune(predicate, snapshot.files, snapshot.metadata)
    target = proposal_builders.Target(
        record.table, record.table_root, int(snapshot.version), snapshot.metadata.id
    )
    frame = target_frame(spark, place, metadata, candidates)
    new = change.changed(frame, opened)
    layout = keeping_row_ids(layout_of(metadata, options.compression), metadata)
    leasing = Leasing(client, place, target, request)
    with _numbered(new, frame.schema, change, opened, leasing) as complete:
        opened, target = _after_lease(opened, target, complete)
        rows = complete.rows
        if change.adds_rows:
            rows = checked(rows, opened.required, new.given, frame.schema)
        changed = changed_rows(rows, place, layout)
    _check_matches(changed)
    if changed.marked:
        # A merge may only insert, which its clauses do not tell.
        check_may_remove(snapshot, place.root)
    if not (changed.marked or changed.added or opened.definition):
        return None
    deletion = _deletion(spark, options, change, (opened, predicate, candidates), changed)
    stamp = stamp_for(client, request, began_ms)
    vectors, content = proposal_builders.vectors_of(deletion, client.new_id())
    if content is not None:
        store.put(*content)
    # New rows were checked by Spark; copied ones are in the table, so they meet its constraints.
    enforced = tuple(hashes(expressions(opened.required))) if deletion.added else ()
    attestation = Attestation(enforced, None, complete.usages)
    proposal = with_attestation(
        proposal_builders.delete(target, stamp, deletion, vectors), attestation
    )
    return propose(client, store, proposal, request.timeout_s)


@contextmanager
def _numbered(
    new: NewRows, table: SparkType, change: RowChange, opened: Opened, leasing: Leasing
) -> Iterator[Numbered]:
    """Yield rows of which the inserted ones have values in identity columns."""
    columns = opened.required.identities
    if not (change.inserts and columns):
        yield Numbered(new.frame)
        return
    cached = new.frame.persist()
    try:
        check_before_lease(cached, opened.required, new.given, table)
        is_inserted = F.col(ACTION) == INSERTED
        inserted = numbered(cached.where(is_inserted), columns, leasing)
        yield replace(inserted, rows=cached.where(~is_inserted).unionByName(inserted.rows))
    finally:
        cached.unpersist()


def _after_lease(
    opened: Opened, target: proposal_builders.Target, complete: Numbered
) -> tuple[Opened, proposal_builders.Target]:
    """Return a change of the definition that builds on the version of the lease.

    Only where that version follows the one that was read: else another commit may matter, which
    the committer says.
    """
    if not opened.definition or complete.version != target.read_version + 1:
        return opened, target
    definition = tuple(
        complete.marked(action) if isinstance(action, Metadata) else action
        for action in opened.definition
    )
    return replace(opened, definition=definition), replace(target, read_version=complete.version)


def _open(client: Client, options: WriteOptions, change: RowChange) -> Opened:
    """Return the newest version of the table, if the change is possible there.

    Raises: UnsupportedFeature, InvalidRequest.
    """
    root = options.place.root
    snapshot = open_snapshot(store_for(options.place))
    schema = check_open_to(snapshot, root)
    if change.operation != "MERGE":
        check_may_remove(snapshot, root)
    metadata, protocol = snapshot.metadata, snapshot.protocol
    definition: tuple[Action, ...] = ()
    if change.evolving is not None:
        data = change.evolving(schema)
        check_typed(data, schema, root)
        wider = evolved(metadata, protocol, data, keeps_types=True)
        definition = redefined(client, snapshot, wider, root)
        metadata = next((action for action in definition if isinstance(action, Metadata)), metadata)
        protocol = next((action for action in definition if isinstance(action, Protocol)), protocol)
    may_write = change.adds_rows or not takes_vectors(snapshot) or not _are_counted(snapshot)
    return Opened(
        snapshot,
        metadata,
        parse_schema(metadata.schema_string),
        requirements(metadata, protocol),
        definition,
        keeps_old_rows=change_feed_enabled(metadata) and may_write,
        tracks_rows=row_tracking.is_enabled(metadata),
    )


def _are_counted(snapshot: Snapshot) -> bool:
    """Return whether each file states how many rows it has, which a deletion vector requires."""
    counted = pc.match_substring(snapshot.files["stats"], '"numRecords"')
    return bool(pc.all(pc.fill_null(counted, False)).as_py())


def _check_matches(changed: ChangedRows) -> None:
    if changed.has_duplicates:
        raise InvalidRequest(
            "several rows of the source match one row of the table and would change it: keep one "
            "source row for each key, for example with dropDuplicates, or make the conditions "
            "stricter; nothing was proposed",
            error_class=MULTIPLE_MATCHES,
        )


def _deletion(
    spark: SparkSession,
    options: WriteOptions,
    change: RowChange,
    read: tuple[Opened, Predicate, Any],
    changed: ChangedRows,
) -> proposal_builders.Deletion:
    opened, predicate, candidates = read
    # Only touched files become objects; of the others the proposal names the paths.
    numbers = sorted(changed.marked)
    touched = candidates.take(pa.array(numbers, pa.int64()))
    adds = dict(zip(numbers, rows_to_adds(touched), strict=True))
    files = dict(zip(numbers, rows_of(touched), strict=True))
    is_counted = {
        number: proposal_builders.row_count(add) is not None for number, add in adds.items()
    }
    may_mark = takes_vectors(opened.snapshot)
    by_vector = {number for number in adds if may_mark and is_counted[number]}
    copied = copied_files(
        spark,
        options.place,
        opened.metadata,
        [(files[number], changed.marked[number]) for number in numbers if number not in by_vector],
    )
    removed = [add for number, add in adds.items() if number not in by_vector]
    added = [*changed.added, *(add for rewritten in copied for add in rewritten.adds)]
    marked = [(adds[number], changed.marked[number]) for number in numbers if number in by_vector]
    return proposal_builders.Deletion(
        change.text,
        predicate,
        files_read(candidates),
        removed,
        added,
        _metrics(change.operation, changed, removed, added, copied, marked),
        marked,
        change.operation,
        change.parameters,
        frozenset(adds[number].path for number in changed.updated),
        change.is_row_by_row,
        changed.changes if added and (removed or marked) else (),
        opened.definition,
    )


def _metrics(
    operation: str,
    changed: ChangedRows,
    removed: Sequence[Add],
    added: Sequence[Add],
    copied: Sequence[Rewritten],
    marked: Sequence[tuple[Add, Any]],
) -> dict[str, int]:
    """Return the metrics of an operation, by delta-spark's names."""
    copied_rows = sum(rewritten.copied_rows for rewritten in copied)
    vectors = vector_counts(marked)
    removed_files = len(removed) + vectors.emptied_files
    counts = {action: changed.counts.get(action, 0) for action in (DELETED, UPDATED, INSERTED)}
    if operation == "MERGE":
        return {
            "numTargetRowsInserted": counts[INSERTED],
            "numTargetRowsUpdated": counts[UPDATED],
            "numTargetRowsDeleted": counts[DELETED],
            "numTargetRowsCopied": copied_rows,
            "numOutputRows": counts[INSERTED] + counts[UPDATED] + copied_rows,
            "numTargetFilesAdded": len(added),
            "numTargetFilesRemoved": removed_files,
            **vectors.metrics("numTargetDeletionVectors"),
        }
    if operation == "WRITE":
        return {
            "numFiles": len(added),
            "numOutputRows": counts[INSERTED] + copied_rows,
            "numRemovedFiles": removed_files,
            "numDeletedRows": counts[DELETED],
            "numCopiedRows": copied_rows,
        }
    # An update counts each touched file as removed, also one that stays with a vector.
    is_update = operation == "UPDATE"
    action, name = (UPDATED, "numUpdatedRows") if is_update else (DELETED, "numDeletedRows")
    return {
        "numRemovedFiles": len(removed) + len(marked) if is_update else removed_files,
        "numAddedFiles": len(added),
        name: counts[action],
        "numCopiedRows": copied_rows,
        **vectors.metrics("numDeletionVectors"),
    }
