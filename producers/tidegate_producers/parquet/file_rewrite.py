"""Deletes rows of one file: finds the matching rows, and copies the others if it must.

A file that is copied is read twice if some rows match: first the condition's columns only, then
all columns. If a deletion vector suffices, nothing is written.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from tidegate_delta.data_skipping.partition_predicates import Predicate, columns_of, evaluate
from tidegate_delta.deletion_vectors import roaring_bitmap, z85
from tidegate_delta.deletion_vectors.roaring_bitmap import Bitmap
from tidegate_delta.log.actions import Add, Metadata
from tidegate_delta.schema import partition_values
from tidegate_delta.schema.char_varchar import limited
from tidegate_delta.schema.types import StructType
from tidegate_delta.snapshots.snapshot import Snapshot
from tidegate_producers.parquet.data_file_encoding import FileLayout, layout_of
from tidegate_producers.parquet.data_file_writer import FileWriter, actions_of
from tidegate_runtime.clock import Clock
from tidegate_runtime.storage.log_store import LogStore
from tidegate_runtime.table_io.data_file_reader import read_file
from tidegate_runtime.table_io.deletion_vector_reader import ChosenRows, live_rows, read_vector


@dataclass(frozen=True)
class Rewritten:
    """The result for one file: the number of deleted rows, and in `adds` the files with the others.

    `marked` are the positions of the deleted rows if the file stays.
    """

    path: str
    deleted_rows: int
    copied_rows: int
    adds: tuple[Add, ...]
    marked: Bitmap | None = None

    def to_json(self) -> bytes:
        """Return the bytes that a task sends to the driver."""
        rows = [add.to_row() for add in self.adds]
        marked = None if self.marked is None else z85.encode(roaring_bitmap.encode(self.marked))
        return orjson.dumps([self.path, self.deleted_rows, self.copied_rows, rows, marked])

    @classmethod
    def from_json(cls, content: bytes) -> Self:
        """Return the result that a task sent."""
        path, deleted, copied, rows, text = orjson.loads(content)
        marked = None if text is None else roaring_bitmap.decode(z85.decode(text))
        return cls(path, deleted, copied, tuple(actions_of(rows)), marked)


class Rewriter:
    """Finds the rows of a table's files that match a predicate, and rewrites files without them."""

    def __init__(
        self, store: LogStore, metadata: Metadata, predicate: Predicate, clock: Clock, task: int
    ) -> None:
        self._store = store
        self._metadata = metadata
        self._layout = as_it_is(layout_of(metadata))
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
        if deleted in (0, total):
            return Rewritten(path, deleted, 0, ())
        writer = FileWriter(self._store, self._layout, self._clock, self._task)
        for batch in self._read(file, None):
            writer.write(batch.filter(pc.invert(self._matches(batch))))
        return Rewritten(path, deleted, total - deleted, tuple(writer.finish()))

    def mark(self, file: Mapping[str, Any]) -> Rewritten:
        """Return which rows of a file, given as a row of ADD_SCHEMA, match and are not yet deleted.

        Raises: BrokenLog (`DataFileMissing`, `DeletionVectorMissing`); Unavailable.
        """
        names = sorted(columns_of(self._predicate)) or [self._layout.schema.names[0]]
        # Positions count all rows of the file, including those that its deletion vector deletes.
        whole = {**file, "deletionVector": None}
        masks = [self._matches(batch) for batch in self._read(whole, names)]
        chunks = [chunk for mask in masks for chunk in mask.chunks]
        matching = roaring_bitmap.of_mask(pa.chunked_array(chunks, pa.bool_()).combine_chunks())
        gone = live_rows(self._store, file).without
        marked = matching if gone is None else matching - read_vector(self._store, gone)
        return Rewritten(str(file["path"]), len(marked), 0, (), marked)

    def copy_without(self, file: Mapping[str, Any], rows: Bitmap) -> Rewritten:
        """Rewrite a file, given as a row of ADD_SCHEMA, without the rows at some positions.

        Raises: as `mark`.
        """
        gone = live_rows(self._store, file).without
        left_out = rows if gone is None else rows | read_vector(self._store, gone)
        whole = {**file, "deletionVector": None}
        writer, copied = FileWriter(self._store, self._layout, self._clock, self._task), 0
        batches = read_file(self._store, whole, self._metadata)
        for batch in ChosenRows(left_out, are_left_out=True).of_batches(batches):
            writer.write(batch)
            copied += batch.num_rows
        return Rewritten(str(file["path"]), len(rows), copied, tuple(writer.finish()))

    def _read(self, file: Mapping[str, Any], columns: list[str] | None) -> Iterator[pa.Table]:
        for batch in read_file(self._store, file, self._metadata, columns):
            yield pa.Table.from_batches([batch])

    def _matches(self, rows: pa.Table) -> pa.ChunkedArray:
        return pc.fill_null(evaluate(self._predicate, rows), False)


def whole_files(snapshot: Snapshot, predicate: Predicate, layout: FileLayout) -> pa.Table:
    """Return the files whose rows all match a predicate over partition columns alone."""
    files = snapshot.files
    by_name = {field.name: field.kind for field in layout.schema.fields}
    values = files["partitionValues"].to_pylist()
    columns = {
        name: partition_values.column(
            [dict(value or ()).get(name) for value in values], by_name[name]
        )
        for name in layout.partition_columns
    }
    rows = pa.table(columns) if columns else pa.table({"path": files["path"]})
    return files.filter(pc.fill_null(evaluate(predicate, rows), False))


def as_it_is(layout: FileLayout) -> FileLayout:
    """Return a layout without limits on string length: existing rows keep their values."""
    fields = tuple(limited(field, {}) for field in layout.schema.fields)
    return replace(layout, schema=StructType(fields))


def _count(mask: pa.ChunkedArray) -> int:
    return int(pc.sum(mask).as_py() or 0)
