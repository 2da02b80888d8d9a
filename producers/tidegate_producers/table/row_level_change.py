"""A delete, update or merge that Spark evaluates: from the pruned files to one proposal."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tidegate_delta.constraints.row_constraints import WriteRequirements, requirements
from tidegate_delta.data_skipping.partition_predicates import Predicate, prune
from tidegate_delta.errors import InvalidRequest, UnsupportedFeature
from tidegate_delta.features import active_features
from tidegate_delta.log.actions import Add
from tidegate_delta.schema.types import StructType
from tidegate_delta.snapshots.file_action_columns import rows_to_adds
from tidegate_delta.snapshots.snapshot import Snapshot
from tidegate_messages.outcome import Outcome
from tidegate_producers.cached_clients import client_for, store_for
from tidegate_producers.options import WriteOptions
from tidegate_producers.parquet.data_file_encoding import layout_of
from tidegate_producers.parquet.file_rewrite import Rewritten
from tidegate_producers.table.new_rows import VIOLATED, violation_in
from tidegate_producers.table.row_changes import (
    DELETED,
    INSERTED,
    UPDATED,
    ChangedRows,
    changed_rows,
    copied_files,
)
from tidegate_producers.table.target_frame import target_frame
from tidegate_producers.writing import writer_support
from tidegate_producers.writing.constraint_attestation import (
    Attestation,
    in_table_already,
    with_attestation,
)
from tidegate_producers.writing.row_delete import takes_vectors
from tidegate_producers.writing.table_write import (
    WriteRequest,
    check_may_remove,
    check_open_to,
    propose,
    stamp_for,
)
from tidegate_runtime.client import proposal_drafts
from tidegate_runtime.table_io.data_file_reader import rows_of
from tidegate_runtime.table_io.open_table import open_snapshot

MULTIPLE_MATCHES: Final = "DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE"


@dataclass(frozen=True)
class Opened:
    """A table that a change has opened."""

    snapshot: Snapshot
    schema: StructType
    required: WriteRequirements


@dataclass(frozen=True)
class RowChange:
    """A change of rows: `changed` maps the target frame to the rows that change.

    `predicate_of` returns what the change reads of the table, given its schema. `text` is the
    condition for the history. `depends_on_table_only` says that it may run again on a newer
    version: no row comes from a DataFrame that was computed from an older one.
    """

    operation: str
    text: str
    predicate_of: Callable[[StructType], Predicate]
    changed: Callable[[DataFrame, Opened], DataFrame]
    parameters: Mapping[str, str] = field(default_factory=dict)
    is_row_by_row: bool = True
    depends_on_table_only: bool = True

    @property
    def adds_rows(self) -> bool:
        """Whether new rows come with it."""
        return self.operation != "DELETE"


def change_rows(
    spark: SparkSession, options: WriteOptions, change: RowChange, request: WriteRequest
) -> Outcome | None:
    """Change the rows of a table; return None, proposing nothing, if no row changes.

    Raises: Rejected, OutcomeUnknown, InvalidRequest, UnsupportedFeature, BrokenLog, Unavailable;
    Spark's own errors for a condition or expression.
    """
    place = options.place
    client, store = client_for(options.kafka), store_for(place)
    record = client.require(place.root, request.timeout_s)
    began_ms = client.clock.now_ms()
    opened = _open(options, change)
    snapshot = opened.snapshot
    predicate = change.predicate_of(opened.schema)
    candidates = prune(predicate, snapshot.files, snapshot.metadata)
    frame = target_frame(spark, place, snapshot.metadata, candidates)
    rows = change.changed(frame, opened)
    try:
        found = changed_rows(rows, place, layout_of(snapshot.metadata, options.compression))
    except PySparkException as error:
        told = violation_in(error)
        if told is None:
            raise
        raise InvalidRequest(told, error_class=VIOLATED) from error
    _check_matches(found)
    if not (found.marked or found.added):
        return None
    deletion = _deletion(spark, options, change, (snapshot, predicate, candidates), found)
    target = proposal_drafts.Target(
        record.table, record.table_root, int(snapshot.version), snapshot.metadata.id
    )
    stamp = stamp_for(client, request, began_ms)
    vectors, content = proposal_drafts.vectors_of(deletion, client.new_id())
    if content is not None:
        store.put(*content)
    # New rows were checked by Spark; copied ones are in the table, so they meet its constraints.
    held = Attestation(
        in_table_already(snapshot.metadata, snapshot.protocol) if deletion.added else ()
    )
    proposal = with_attestation(proposal_drafts.delete(target, stamp, deletion, vectors), held)
    return propose(client, store, proposal, request.timeout_s)


def _open(options: WriteOptions, change: RowChange) -> Opened:
    """Return the newest version of the table, if the change is possible there.

    Raises: UnsupportedFeature, InvalidRequest.
    """
    root = options.place.root
    snapshot = open_snapshot(store_for(options.place))
    schema = check_open_to(snapshot, root)
    check_may_remove(snapshot, root)
    metadata, protocol = snapshot.metadata, snapshot.protocol
    if change.adds_rows:
        _check_updatable(snapshot, schema, root, change.operation)
    elif not takes_vectors(snapshot):
        writer_support.check_copies(protocol, metadata, root)
    return Opened(snapshot, schema, requirements(metadata, protocol))


def _check_updatable(snapshot: Snapshot, schema: StructType, root: str, operation: str) -> None:
    """Refuse a table whose change feed or row ids an update or merge would have to write."""
    for feature, is_used in (
        ("changeDataFeed", active_features.change_data_feed),
        ("rowTracking", active_features.row_tracking),
    ):
        if is_used(snapshot.metadata, schema):
            raise UnsupportedFeature(
                f"{root} uses the feature {feature!r}, for which {operation} would have to write "
                "more than this release does: use an engine that does, or turn the feature off; "
                "nothing was proposed",
                feature=feature,
            )


def _check_matches(found: ChangedRows) -> None:
    if found.has_duplicates:
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
    read: tuple[Snapshot, Predicate, Any],
    found: ChangedRows,
) -> proposal_drafts.Deletion:
    snapshot, predicate, candidates = read
    # Only touched files become objects; of the others the proposal names the paths.
    numbers = sorted(found.marked)
    touched = candidates.take(pa.array(numbers, pa.int64()))
    adds = dict(zip(numbers, rows_to_adds(touched), strict=True))
    files = dict(zip(numbers, rows_of(touched), strict=True))
    may_mark = takes_vectors(snapshot)
    by_vector = {
        number
        for number, add in adds.items()
        if may_mark and proposal_drafts.row_count(add) is not None
    }
    copied = copied_files(
        spark,
        options.place,
        snapshot.metadata,
        [(files[number], found.marked[number]) for number in numbers if number not in by_vector],
    )
    removed = [add for number, add in adds.items() if number not in by_vector]
    added = [*found.added, *(add for one in copied for add in one.adds)]
    marked = [(adds[number], found.marked[number]) for number in numbers if number in by_vector]
    return proposal_drafts.Deletion(
        change.text,
        predicate,
        candidates["path"].to_pylist(),
        removed,
        added,
        _metrics(change.operation, found, removed, added, copied, marked),
        marked,
        change.operation,
        change.parameters,
        frozenset(adds[number].path for number in found.updated),
        change.is_row_by_row,
    )


def _metrics(
    operation: str,
    found: ChangedRows,
    removed: Sequence[Add],
    added: Sequence[Add],
    copied: Sequence[Rewritten],
    marked: Sequence[tuple[Add, Any]],
) -> dict[str, int]:
    """Return the metrics of an operation, by delta-spark's names."""
    copied_rows = sum(one.copied_rows for one in copied)
    replaced = sum(1 for add, _ in marked if add.deletion_vector)
    vectors = {"Added": len(marked) - replaced, "Updated": replaced}
    counts = {action: found.counts.get(action, 0) for action in (DELETED, UPDATED, INSERTED)}
    if operation == "MERGE":
        return {
            "numTargetRowsInserted": counts[INSERTED],
            "numTargetRowsUpdated": counts[UPDATED],
            "numTargetRowsDeleted": counts[DELETED],
            "numTargetRowsCopied": copied_rows,
            "numOutputRows": counts[INSERTED] + counts[UPDATED] + copied_rows,
            "numTargetFilesAdded": len(added),
            "numTargetFilesRemoved": len(removed),
            **{f"numTargetDeletionVectors{what}": count for what, count in vectors.items()},
        }
    changed = (
        {"numUpdatedRows": counts[UPDATED]}
        if operation == "UPDATE"
        else {"numDeletedRows": counts[DELETED]}
    )
    return {
        "numRemovedFiles": len(removed),
        "numAddedFiles": len(added),
        **changed,
        "numCopiedRows": copied_rows,
        **{f"numDeletionVectors{what}": count for what, count in vectors.items()},
    }
