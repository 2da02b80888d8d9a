"""Deletes rows of one file: finds the matching rows, and copies the others if it must.

A file that is copied is read twice if some rows match: first the condition's columns only, then
all columns. If a deletion vector suffices, nothing is written. On a table with a change feed the
deleted rows of copied files go into change files; copied rows keep their row ids.

Writes the rows of several small files into one, file after file, each in its order.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from tidegate_delta.data_skipping.partition_predicates import Predicate, columns_of, evaluate
from tidegate_delta.deletion_vectors import descriptors, roaring_bitmap
from tidegate_delta.deletion_vectors.roaring_bitmap import Bitmap
from tidegate_delta.log.actions import Add, Cdc, Metadata
from tidegate_delta.properties.table_properties import change_feed_enabled
from tidegate_delta.schema import partition_values
from tidegate_delta.schema.column_mapping import physical_partition_columns
from tidegate_delta.snapshots.snapshot import Snapshot
from tidegate_producers.parquet.data_file_encoding import (
    CHANGE_TYPE,
    FileLayout,
    as_it_is,
    keeping_row_ids,
    layout_of,
    of_changes,
)
from tidegate_producers.parquet.data_file_writer import FileWriter, actions_of, changes_of
from tidegate_runtime.clock import Clock
from tidegate_runtime.storage.log_store import LogStore
from tidegate_runtime.table_io.data_file_reader import read_file
from tidegate_runtime.table_io.deletion_vector_reader import ChosenRows, live_rows, read_vector
from tidegate_runtime.table_io.row_ids import ROW_COMMIT_VERSION, ROW_ID


@dataclass(frozen=True)
class Rewritten:
    """The result for one file: the number of deleted rows, and in `adds` the files with the others.

    `marked` are the positions of the deleted rows if the file stays. `changes` are the change files
    with the deleted rows, where the table has a change feed and the file does not stay.
    """

    path: str
    deleted_rows: int
    copied_rows: int
    adds: tuple[Add, ...]
    marked: Bitmap | None = None
    changes: tuple[Cdc, ...] = ()

    def to_json(self) -> bytes:
        """Return the bytes that a task sends to the driver."""
        rows = [add.to_row() for add in self.adds]
        marked = (
            None
            if self.marked is None
            else descriptors.z85_encode(roaring_bitmap.encode(self.marked))
        )
        changes = [change.to_row() for change in self.changes]
        values = [self.path, self.deleted_rows, self.copied_rows, rows, marked, changes]
        return orjson.dumps(values)

    @classmethod
    def from_json(cls, content: bytes) -> Self:
        """Return the result that a task sent."""
        path, deleted, copied, rows, text, changes = orjson.loads(content)
        marked = None if text is None else roaring_bitmap.decode(descriptors.z85_decode(text))
        adds = tuple(actions_of(rows))
        return cls(path, deleted, copied, adds, marked, tuple(changes_of(changes)))


class Rewriter:
    """Finds the rows of a table's files that match a predicate, and rewrites files without them."""

    def __init__(
        self, store: LogStore, metadata: Metadata, predicate: Predicate, clock: Clock, task: int
    ) -> None:
        self._store = store
        self._metadata = metadata
        self._layout = keeping_row_ids(as_it_is(layout_of(metadata)), metadata)
        self._feeds_changes = change_feed_enabled(metadata)
        self._predicate = predicate
        self._clock = clock
        self._task = task

    def rewrite(self, file: Mapping[str, Any]) -> Rewritten:
        """Rewrite a file, given as a row of ADD_SCHEMA, without the matching rows.

        Raises: BrokenLog (`DataFileMissing`); Unavailable.
        """
        path = str(file["path"])
        names = sorted(columns_of(self._predicate)) or [self._layout.schema.names[0]]
        deleted, total = 0, 0
        for batch in self._read(file, names):
            total += batch.num_rows
            deleted += _count(self._matches(batch))
        if deleted == 0 or (deleted == total and not self._feeds_changes):
            return Rewritten(path, deleted, 0, ())
        copies = FileWriter(self._store, self._layout, self._clock, self._task)
        deletions = self._change_writer()
        for batch in kept_rows(self._store, file, self._metadata, self._layout):
            matches = self._matches(batch)
            copies.write(batch.filter(pc.invert(matches)))
            if deletions is not None:
                deletions.write(_as_deleted(batch.filter(matches)))
        changes = tuple(deletions.finish_changes()) if deletions is not None else ()
        return Rewritten(path, deleted, total - deleted, tuple(copies.finish()), None, changes)

    def mark(self, file: Mapping[str, Any]) -> Rewritten:
        """Return which rows of a file, given as a row of ADD_SCHEMA, match and are not yet deleted.

        Raises: BrokenLog (`DataFileMissing`, `DeletionVectorMissing`); Unavailable.
        """
        names = sorted(columns_of(self._predicate)) or [self._layout.schema.names[0]]
        # Positions count all rows of the file, including those that its deletion vector deletes.
        without_vector = {**file, "deletionVector": None}
        masks = [self._matches(batch) for batch in self._read(without_vector, names)]
        chunks = [chunk for mask in masks for chunk in mask.chunks]
        matching = roaring_bitmap.of_mask(pa.chunked_array(chunks, pa.bool_()).combine_chunks())
        deleted_before = live_rows(self._store, file).without
        marked = (
            matching
            if deleted_before is None
            else matching - read_vector(self._store, deleted_before)
        )
        return Rewritten(str(file["path"]), len(marked), 0, (), marked)

    def copy_without(self, file: Mapping[str, Any], rows: Bitmap) -> Rewritten:
        """Rewrite a file, given as a row of ADD_SCHEMA, without the rows at some positions.

        Raises: as `mark`.
        """
        deleted_before = live_rows(self._store, file).without
        left_out = (
            rows if deleted_before is None else rows | read_vector(self._store, deleted_before)
        )
        without_vector = {**file, "deletionVector": None}
        writer, copied = FileWriter(self._store, self._layout, self._clock, self._task), 0
        batches = _read_kept(self._store, without_vector, self._metadata, self._layout)
        for batch in ChosenRows(left_out, are_left_out=True).of_batches(batches):
            writer.write(_named_as_kept(batch, self._layout))
            copied += batch.num_rows
        return Rewritten(str(file["path"]), len(rows), copied, tuple(writer.finish()))

    def _change_writer(self) -> FileWriter | None:
        if not self._feeds_changes:
            return None
        return FileWriter(self._store, of_changes(self._layout), self._clock, self._task)

    def _read(self, file: Mapping[str, Any], columns: list[str] | None) -> Iterator[pa.Table]:
        for batch in read_file(self._store, file, self._metadata, columns):
            yield pa.Table.from_batches([batch])

    def _matches(self, rows: pa.Table) -> pa.ChunkedArray:
        return pc.fill_null(evaluate(self._predicate, rows), False)


def kept_rows(
    store: LogStore, file: Mapping[str, Any], metadata: Metadata, layout: FileLayout
) -> Iterator[pa.Table]:
    """Yield the live rows of a file, given as a row of ADD_SCHEMA, with the ids that they keep.

    Raises: as `read_file`.
    """
    for batch in _read_kept(store, file, metadata, layout):
        yield _named_as_kept(batch, layout)


def _read_kept(
    store: LogStore, file: Mapping[str, Any], metadata: Metadata, layout: FileLayout
) -> Iterator[pa.RecordBatch]:
    every = [*layout.schema.names, ROW_ID, ROW_COMMIT_VERSION] if layout.row_ids else None
    yield from read_file(store, file, metadata, every)


def _named_as_kept(batch: pa.RecordBatch, layout: FileLayout) -> pa.Table:
    """Return rows whose ids and commit versions have the names that files use."""
    rows = pa.Table.from_batches([batch])
    if not layout.row_ids:
        return rows
    return rows.rename_columns([*layout.schema.names, *layout.row_ids])


def whole_files(snapshot: Snapshot, predicate: Predicate, layout: FileLayout) -> pa.Table:
    """Return the files whose rows all match a predicate over partition columns alone."""
    files = snapshot.files
    by_name = {field.name: field.kind for field in layout.schema.fields}
    values = files["partitionValues"].to_pylist()
    keys = physical_partition_columns(snapshot.metadata)
    columns = {
        name: partition_values.column(
            [dict(value or ()).get(keys[name]) for value in values], by_name[name]
        )
        for name in layout.partition_columns
    }
    rows = pa.table(columns) if columns else pa.table({"path": files["path"]})
    return files.filter(pc.fill_null(evaluate(predicate, rows), False))


def _as_deleted(rows: pa.Table) -> pa.Table:
    return rows.append_column(CHANGE_TYPE, pa.repeat(pa.scalar("delete"), rows.num_rows))


def _count(mask: pa.ChunkedArray) -> int:
    return int(pc.sum(mask).as_py() or 0)


UNBOUNDED: Final = 1 << 62


@dataclass(frozen=True)
class CompactionResult:
    """The result for one bin of files: the files that have its rows now, none if all were deleted.

    `rows` says how many rows each old file had, in order, if one new file has them in that order.
    """

    rows: tuple[tuple[str, int], ...]
    adds: tuple[Add, ...]

    def to_json(self) -> bytes:
        """Return the bytes that a task sends to the driver."""
        return orjson.dumps([self.rows, [add.to_row() for add in self.adds]])

    @classmethod
    def from_json(cls, content: bytes) -> Self:
        """Return the result that a task sent."""
        rows, adds = orjson.loads(content)
        counts = tuple((str(path), int(count)) for path, count in rows)
        return cls(counts, tuple(actions_of(adds)))


class Compactor:
    """Compacts files of one table. The rows of a bin are in memory until its file is written.

    `written` is the metadata by which the new files are written, if it is another.
    """

    def __init__(
        self,
        store: LogStore,
        metadata: Metadata,
        clock: Clock,
        task: int = 0,
        written: Metadata | None = None,
    ) -> None:
        self._store = store
        self._metadata = metadata
        by = written or metadata
        self._layout = keeping_row_ids(as_it_is(layout_of(by)), by)
        self._clock = clock
        self._task = task

    def compact(self, files: Sequence[Mapping[str, Any]]) -> CompactionResult:
        """Write the rows of some files of one partition, given as rows of ADD_SCHEMA, into one.

        Raises: BrokenLog (`DataFileMissing`, `DeletionVectorMissing`); Unavailable.
        """
        writer = FileWriter(self._store, self._layout, self._clock, self._task, UNBOUNDED)
        counts = []
        for file in files:
            count = 0
            for rows in kept_rows(self._store, file, self._metadata, self._layout):
                writer.write(rows)
                count += rows.num_rows
            counts.append((str(file["path"]), count))
        written = writer.finish()
        assert len(written) <= 1, "the files of a bin have the same partition values"
        return CompactionResult(tuple(counts), tuple(written))
