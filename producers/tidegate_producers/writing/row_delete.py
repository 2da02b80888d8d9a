"""Deletes the rows that match a condition: finds their files, and proposes the deletion.

On a table with deletion vectors it proposes row intents (rows to delete from files that stay),
which do not conflict with deletes of other rows in the same files. On other tables it rewrites the
files that hold matching rows. The read set is exact: the predicate, and the files that were read.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import pyarrow as pa
import pyarrow.compute as pc

from tidegate_delta.data_skipping.partition_predicates import Predicate, columns_of, prune
from tidegate_delta.deletion_vectors.roaring_bitmap import Bitmap
from tidegate_delta.log.actions import Add, Metadata
from tidegate_delta.log.protocol_versions import writer_features
from tidegate_delta.properties.table_properties import (
    change_feed_enabled,
    deletion_vectors_enabled,
)
from tidegate_delta.snapshots.file_action_columns import rows_to_adds
from tidegate_delta.snapshots.snapshot import Snapshot
from tidegate_messages.outcome import Outcome
from tidegate_producers.cached_clients import clock, store_for
from tidegate_producers.options import TableLocation
from tidegate_producers.parquet.data_file_encoding import FileLayout, layout_of
from tidegate_producers.parquet.file_rewrite import Rewriter, Rewritten, whole_files
from tidegate_producers.writing.column_checks import (
    Attestation,
    in_table_already,
    with_attestation,
)
from tidegate_producers.writing.table_write import (
    WriteRequest,
    check_may_remove,
    check_open_to,
    propose,
    stamp_for,
)
from tidegate_runtime.client import proposal_builders
from tidegate_runtime.client.client import Client
from tidegate_runtime.conditions.sql_condition import predicate_of
from tidegate_runtime.table_io.data_file_reader import rows_of
from tidegate_runtime.table_io.open_table import open_snapshot


@dataclass(frozen=True)
class Rewriting:
    """What a task needs to rewrite files, or to find the rows that deletion vectors will delete."""

    place: TableLocation
    metadata: Metadata
    predicate: Predicate
    by: Literal["copies", "vectors"] = "copies"

    @property
    def layout(self) -> FileLayout:
        """The layout of the table's data files."""
        return layout_of(self.metadata)


FILES_AT_ONCE: Final = 10_000
"""Files of one run of a runner: as many are Python objects at once."""

Runner = Callable[[Rewriting, Sequence[Mapping[str, Any]]], Sequence[Rewritten]]
"""Rewrites files, given as rows of ADD_SCHEMA, on executors or in this process."""


@dataclass(frozen=True)
class Deleted:
    """The outcome of a delete, and how many rows it deleted; None where the log does not say."""

    outcome: Outcome
    rows: int | None


def rewrite_here(
    rewriting: Rewriting, files: Sequence[Mapping[str, Any]], task: int = 0
) -> Sequence[Rewritten]:
    """Return the result of each file, rewritten in this process: a `Runner`."""
    store = store_for(rewriting.place)
    rewriter = Rewriter(store, rewriting.metadata, rewriting.predicate, clock(), task)
    handle = rewriter.mark if rewriting.by == "vectors" else rewriter.rewrite
    return [handle(file) for file in files]


def count_matches(place: TableLocation, condition: str, zone: str = "UTC") -> Counter[str]:
    """Return how many rows of which files match a condition; nothing is written.

    Raises: InvalidRequest, UnsupportedFeature, BrokenLog, Unavailable.
    """
    snapshot = open_snapshot(store_for(place))
    predicate = predicate_of(condition, check_open_to(snapshot, place.root), zone)
    check_may_remove(snapshot, place.root)
    candidates = prune(predicate, snapshot.files, snapshot.metadata)
    marking = Rewriting(place, snapshot.metadata, predicate, by="vectors")
    results = (result for file in rows_of(candidates) for result in rewrite_here(marking, [file]))
    return Counter({result.path: result.deleted_rows for result in results if result.deleted_rows})


def delete(
    client: Client,
    place: TableLocation,
    condition: str,
    request: WriteRequest,
    runner: Runner,
    zone: str = "UTC",
) -> Outcome | None:
    """Return the outcome of `delete_rows`, or None if no row matches."""
    deleted = delete_rows(client, place, condition, request, runner, zone)
    return deleted.outcome if deleted else None


def delete_rows(
    client: Client,
    place: TableLocation,
    condition: str,
    request: WriteRequest,
    runner: Runner,
    zone: str = "UTC",
) -> Deleted | None:
    """Delete the rows that match a condition; return None, proposing nothing, if no row does.

    `zone` is the time zone of timestamps without one.
    Raises: Rejected, OutcomeUnknown, InvalidRequest, UnsupportedFeature, BrokenLog, Unavailable.
    """
    store = store_for(place)
    record = client.require(place.root, request.timeout_s)
    began_ms = client.clock.now_ms()
    snapshot = open_snapshot(store)
    schema = check_open_to(snapshot, place.root)
    predicate = predicate_of(condition, schema, zone)
    check_may_remove(snapshot, place.root)
    rewriting = Rewriting(place, snapshot.metadata, predicate)
    deletion = _deletion(snapshot, rewriting, condition, runner)
    if not (deletion.removed or deletion.marked):
        return None
    target = proposal_builders.Target(
        record.table, record.table_root, int(snapshot.version), snapshot.metadata.id
    )
    stamp = stamp_for(client, request, began_ms)
    vectors, content = proposal_builders.vectors_of(deletion, client.new_id())
    if content is not None:
        store.put(*content)
    # Copied rows are already in the table, so they meet its constraints.
    attestation = Attestation(
        in_table_already(snapshot.metadata, snapshot.protocol) if deletion.added else ()
    )
    proposal = with_attestation(
        proposal_builders.delete(target, stamp, deletion, vectors), attestation
    )
    outcome = propose(client, store, proposal, request.timeout_s)
    return Deleted(outcome, _rows_deleted(deletion, outcome))


def _rows_deleted(deletion: proposal_builders.Deletion, outcome: Outcome) -> int | None:
    deleted_first = outcome.assigned.get("rows_deleted")
    if isinstance(deleted_first, int) and not deletion.removed:
        return deleted_first  # another delete may have been there first
    return deletion.metrics.get("numDeletedRows")


def _deletion(
    snapshot: Snapshot, rewriting: Rewriting, condition: str, runner: Runner
) -> proposal_builders.Deletion:
    layout, predicate = rewriting.layout, rewriting.predicate
    if columns_of(predicate) <= set(layout.partition_columns):
        return _by_file(snapshot, rewriting, condition)
    candidates = prune(predicate, snapshot.files, snapshot.metadata)
    touched = dict(_found(rewriting, candidates, snapshot, runner))
    # Only touched files become objects; a table may have a million others.
    numbers = pa.array(touched, pa.int64())
    live = dict(zip(touched, rows_to_adds(candidates.take(numbers)), strict=True))
    marked = [
        (live[number], result.marked)
        for number, result in touched.items()
        if result.marked is not None
    ]
    removed = [live[number] for number, result in touched.items() if result.marked is None]
    added = [add for result in touched.values() for add in result.adds]
    vectors = vector_counts(marked)
    metrics = {
        "numRemovedFiles": len(removed) + vectors.emptied_files,
        "numAddedFiles": len(added),
        "numDeletedRows": sum(result.deleted_rows for result in touched.values()),
        "numCopiedRows": sum(result.copied_rows for result in touched.values()),
        **vectors.metrics("numDeletionVectors"),
    }
    changes = [change for result in touched.values() for change in result.changes] if added else []
    return proposal_builders.Deletion(
        condition,
        predicate,
        files_read(candidates),
        removed,
        added,
        metrics,
        marked,
        changes=changes,
    )


@dataclass(frozen=True)
class VectorCounts:
    """What row deletes do to deletion vectors, counted as delta-spark does.

    A vector that grows is added, removed and updated. `emptied_files` lose their last row: the
    committer removes them.
    """

    added: int
    removed: int
    updated: int
    emptied_files: int

    def metrics(self, prefix: str) -> dict[str, int]:
        """Return the metrics of an operation whose names begin with `prefix`."""
        return {
            f"{prefix}Added": self.added,
            f"{prefix}Removed": self.removed,
            f"{prefix}Updated": self.updated,
        }


def vector_counts(marked: Sequence[tuple[Add, Bitmap]]) -> VectorCounts:
    """Return the counts for files that lose the rows at some positions, none deleted before."""
    growing = emptied = emptied_with_vector = 0
    for add, rows in marked:
        vector = add.deletion_vector
        deleted_rows = len(rows) + (vector.cardinality if vector else 0)
        if deleted_rows == proposal_builders.row_count(add):
            emptied += 1
            emptied_with_vector += vector is not None
        else:
            growing += vector is not None
    return VectorCounts(
        added=len(marked) - emptied,
        removed=growing + emptied_with_vector,
        updated=growing,
        emptied_files=emptied,
    )


def files_read(candidates: pa.Table) -> list[str] | None:
    """Return the paths of files that were read, or None for more than a record can name."""
    if candidates.num_rows > proposal_builders.READ_FILES_MAX:
        return None
    paths: list[str] = candidates["path"].to_pylist()
    return paths


def _found(
    rewriting: Rewriting, candidates: pa.Table, snapshot: Snapshot, runner: Runner
) -> Iterator[tuple[int, Rewritten]]:
    """Yield the files that lose rows: the number of each among the candidates, and its result.

    A file without a row count in the log is rewritten: Delta requires `numRecords` of a file with
    a deletion vector.
    """
    may_mark, has_feed = takes_vectors(snapshot), change_feed_enabled(snapshot.metadata)
    # Change files of some rows would hide the other ones from readers of the change feed.
    starts = range(0, candidates.num_rows, FILES_AT_ONCE)
    parts = [(start, candidates.slice(start, FILES_AT_ONCE)) for start in starts]
    if may_mark and has_feed:
        may_mark = all(_are_counted(part).false_count == 0 for _, part in parts)
    for start, part in parts:
        numbers = pa.array(range(start, start + part.num_rows), pa.int64())
        marks = _are_counted(part) if may_mark else pa.array([False] * part.num_rows, pa.bool_())
        marking, copying = replace(rewriting, by="vectors"), replace(rewriting, by="copies")
        for way, chosen in ((marking, marks), (copying, pc.invert(marks))):
            files = list(rows_of(part.filter(chosen)))
            if files:
                results = runner(way, files)
                for number, result in zip(numbers.filter(chosen).to_pylist(), results, strict=True):
                    if result.deleted_rows:
                        yield number, result


def _are_counted(files: pa.Table) -> pa.BooleanArray:
    """Return which files state how many rows they have."""
    counts = [
        proposal_builders.row_count_of(text) is not None for text in files["stats"].to_pylist()
    ]
    # Arrow can't infer the type of a list that may be empty.
    return pa.array(counts, pa.bool_())


def takes_vectors(snapshot: Snapshot) -> bool:
    """Return whether rows of the table may be deleted by deletion vectors."""
    listed = "deletionVectors" in writer_features(snapshot.protocol)
    return listed and deletion_vectors_enabled(snapshot.metadata)


def _by_file(
    snapshot: Snapshot, rewriting: Rewriting, condition: str
) -> proposal_builders.Deletion:
    """Return the removal of whole files for a predicate on partition columns; opens no file."""
    whole = whole_files(snapshot, rewriting.predicate, rewriting.layout)
    removed: list[Add] = rows_to_adds(whole)
    paths = [add.path for add in removed]
    metrics = {
        "numRemovedFiles": len(removed),
        "numAddedFiles": 0,
        "numCopiedRows": 0,
        **vector_counts(()).metrics("numDeletionVectors"),
    }
    rows = proposal_builders.live_rows(removed)
    if rows is not None:
        metrics["numDeletedRows"] = rows
    return proposal_builders.Deletion(condition, rewriting.predicate, paths, removed, (), metrics)
