"""Overwrites of some rows: those that match a condition, or those of the partitions written to.

Both are a deletion of old rows beside an append of new ones, in one proposal.
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tidegate_delta.data_skipping.partition_predicates import Predicate, columns_of, evaluate, prune
from tidegate_delta.errors import InvalidRequest
from tidegate_delta.log.actions import Add, Metadata
from tidegate_delta.log.protocol_versions import writer_features
from tidegate_delta.properties.table_properties import deletion_vectors_enabled
from tidegate_delta.schema.column_mapping import physical_partition_columns
from tidegate_delta.schema.partition_values import partition_kinds, partition_of
from tidegate_delta.schema.types import DataType, DecimalType, PrimitiveType, parse_schema
from tidegate_delta.snapshots.file_action_columns import rows_to_adds
from tidegate_delta.snapshots.snapshot import Snapshot
from tidegate_producers.parquet.data_file_encoding import layout_of
from tidegate_producers.parquet.file_rewrite import Rewriter, Rewritten, whole_files
from tidegate_producers.writing import column_checks
from tidegate_runtime.client import proposal_builders
from tidegate_runtime.clock import Clock
from tidegate_runtime.storage.log_store import LogStore
from tidegate_runtime.table_io.data_file_reader import rows_of

PARTITIONS_READ_MAX: Final = 500
"""Partitions that a read set names one by one; beyond, every row counts as read."""

THREADS: Final = 4
"""Files that are rewritten at once: the driver's process does it, outside of Spark's tasks."""

_TEXTS: Final = frozenset({"string", "date", "timestamp", "timestamp_ntz"})
_WHOLE: Final = frozenset({"byte", "short", "integer", "long"})


@dataclass(frozen=True)
class ReplaceWhere:
    """The condition of the rows that an overwrite replaces, as SQL text and as a tree."""

    text: str
    predicate: Predicate

    def check(self, rows: pa.Table) -> None:
        """Refuse rows that the overwrite would not have replaced. Raises: InvalidRequest."""
        matches = pc.fill_null(evaluate(self.predicate, rows), False)
        wrong = pc.index(matches, pa.scalar(False)).as_py()
        if wrong >= 0:
            columns = sorted(columns_of(self.predicate))
            row = {name: rows.column(name)[wrong].as_py() for name in columns}
            raise InvalidRequest(
                f"the rows to write do not all match replaceWhere {self.text!r}: one has {row}; "
                "filter them, or widen the condition; nothing was proposed",
                error_class="DELTA_REPLACE_WHERE_MISMATCH",
            )


def rows_where(
    store: LogStore, snapshot: Snapshot, condition: ReplaceWhere, clock: Clock, root: str
) -> proposal_builders.Deletion:
    """Return the deletion of the rows that match a condition.

    It marks rows in the files where the table has deletion vectors, and copies the others' rows
    where it has none. A condition on partition columns opens no file.
    Raises: InvalidRequest; UnsupportedFeature, for copies that would look like new rows.
    """
    metadata, predicate = snapshot.metadata, condition.predicate
    layout = layout_of(metadata)
    _check_columns(condition, metadata, root)
    if columns_of(predicate) <= set(layout.partition_columns):
        removed = rows_to_adds(whole_files(snapshot, predicate, layout))
        rows = proposal_builders.live_rows(removed)
        counted = {} if rows is None else {"numDeletedRows": rows, "numCopiedRows": 0}
        return _of_files(condition.text, predicate, removed, counted)
    candidates = prune(predicate, snapshot.files, metadata)
    live = {add.path: add for add in rows_to_adds(candidates)}
    rewritten = list(_rewritten(store, snapshot, predicate, candidates, clock, root))
    touched = {result.path: result for result in rewritten if result.deleted_rows}
    marked = [
        (live[path], result.marked) for path, result in touched.items() if result.marked is not None
    ]
    removed = [live[path] for path, result in touched.items() if result.marked is None]
    metrics = {
        "numRemovedFiles": len(removed),
        "numDeletedRows": sum(result.deleted_rows for result in touched.values()),
        "numCopiedRows": sum(result.copied_rows for result in touched.values()),
    }
    added = [add for result in touched.values() for add in result.adds]
    return proposal_builders.Deletion(
        condition.text, predicate, list(live), removed, added, metrics, marked
    )


def partitions_written(snapshot: Snapshot, adds: Sequence[Add]) -> proposal_builders.Deletion:
    """Return the deletion of all rows in the partitions to which new files are written."""
    kinds = partition_kinds(snapshot.metadata)
    written = {partition_of(add.partition_values, kinds): add.partition_values for add in adds}
    columns = physical_partition_columns(snapshot.metadata)
    nodes = [_partition(values, columns, kinds) for values in written.values()]
    is_named = len(nodes) <= PARTITIONS_READ_MAX and None not in nodes
    predicate: Predicate = {"op": "or", "args": nodes} if is_named else proposal_builders.EVERYTHING
    if not nodes:
        # Only the definition changes.
        predicate = {"op": "not", "arg": proposal_builders.EVERYTHING}
    removed = [
        add
        for add in rows_to_adds(snapshot.files)
        if partition_of(add.partition_values, kinds) in written
    ]
    return _of_files("", predicate, removed, {})


def _rewritten(
    store: LogStore,
    snapshot: Snapshot,
    predicate: Predicate,
    candidates: pa.Table,
    clock: Clock,
    root: str,
) -> Iterator[Rewritten]:
    """Yield each file's result; a file without a row count in the log is rewritten."""
    metadata, protocol = snapshot.metadata, snapshot.protocol
    marks = "deletionVectors" in writer_features(protocol) and deletion_vectors_enabled(metadata)
    rewriter = Rewriter(store, metadata, predicate, clock, 0)
    counted = [
        marks and proposal_builders.row_count(row) is not None for row in rows_to_adds(candidates)
    ]
    if not all(counted):
        column_checks.check_copies(metadata, root)
    with ThreadPoolExecutor(THREADS) as pool:
        jobs = [
            pool.submit(partial(rewriter.mark if marked else rewriter.rewrite, file))
            for file, marked in zip(rows_of(candidates), counted, strict=True)
        ]
        yield from (job.result() for job in jobs)


def _of_files(
    text: str, predicate: Predicate, removed: Sequence[Add], counted: Mapping[str, int]
) -> proposal_builders.Deletion:
    """Return the deletion of whole files."""
    metrics = {"numRemovedFiles": len(removed), **counted}
    paths = [add.path for add in removed]
    return proposal_builders.Deletion(text, predicate, paths, removed, (), metrics)


def _check_columns(condition: ReplaceWhere, metadata: Metadata, root: str) -> None:
    names = set(parse_schema(metadata.schema_string).names)
    new = sorted(columns_of(condition.predicate) - names)
    if new:
        raise InvalidRequest(
            f"replaceWhere {condition.text!r} names the column {new[0]!r}, which {root} gets with "
            "this write: no old row can match; add the column first, or leave it out of the "
            "condition",
            error_class="DELTA_COLUMN_NOT_FOUND",
        )


def _partition(
    values: Mapping[str, str | None], columns: Mapping[str, str], kinds: Mapping[str, DataType]
) -> Predicate | None:
    """Return the predicate of a partition, None for a type that the grammar can't name.

    `columns` has the key of each column's value.
    """
    nodes = [_equals(name, values.get(key), kinds[key]) for name, key in columns.items()]
    return None if None in nodes else {"op": "and", "args": nodes}


def _equals(name: str, text: str | None, kind: DataType) -> Predicate | None:
    if not text:
        return {"op": "is_null", "column": [name]}
    value: Any
    if isinstance(kind, DecimalType) or (isinstance(kind, PrimitiveType) and kind.name in _TEXTS):
        value = text
    elif not isinstance(kind, PrimitiveType):
        return None
    elif kind.name in _WHOLE:
        value = int(text)
    elif kind.name == "boolean":
        value = text.lower() == "true"
    else:
        return None
    return {"op": "=", "column": [name], "value": value, "type": str(kind)}
