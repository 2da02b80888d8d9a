"""Runs a change of rows on Spark: tasks write the new rows, and return where the old ones were.

The driver receives bitmaps of positions and add actions only.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final

import orjson
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from tidegate_delta.deletion_vectors import descriptors, roaring_bitmap
from tidegate_delta.deletion_vectors.roaring_bitmap import Bitmap
from tidegate_delta.log.actions import Add, Cdc, Metadata
from tidegate_producers.cached_clients import clock, store_for
from tidegate_producers.options import TableLocation
from tidegate_producers.parquet.data_file_encoding import CHANGE_TYPE, FileLayout, of_changes
from tidegate_producers.parquet.data_file_writer import FileWriter, actions_of, changes_of
from tidegate_producers.parquet.file_rewrite import Rewriter, Rewritten
from tidegate_producers.table.spark_jobs import naming_refusals, tasks_at_once
from tidegate_producers.table.target_frame import FILE, POSITION, ROW_ID, quoted

ACTION: Final = "__tidegate_action"
"""The column that says what happens to a row: one of DELETED, UPDATED and INSERTED."""

OLD: Final = "__tidegate_old_{}"
"""The columns with a row before its change, by the number of the column in the table."""

DELETED, UPDATED, INSERTED = 1, 2, 3
_BEFORE: Final = pa.array([None, "delete", "update_preimage", None])
_AFTER: Final = pa.array([None, None, "update_postimage", "insert"])
_TRUE: Final = {"op": "true"}


@dataclass(frozen=True)
class ChangedRows:
    """What the tasks did: the changed rows of each file, by its number, and the new files.

    `counts` has the number of rows of each action; `updated` are files with updated rows; `changes`
    are the change files, if they were asked for.
    """

    marked: Mapping[int, Bitmap]
    updated: frozenset[int]
    added: Sequence[Add]
    counts: Mapping[int, int]
    changes: Sequence[Cdc] = ()

    @property
    def has_duplicates(self) -> bool:
        """Whether several rows of the frame were about one row of the table."""
        changed_rows_count = self.counts.get(DELETED, 0) + self.counts.get(UPDATED, 0)
        return changed_rows_count > sum(map(len, self.marked.values()))


def changed_rows(frame: DataFrame, place: TableLocation, layout: FileLayout) -> ChangedRows:
    """Write the new rows of a frame with ACTION, FILE, POSITION and the table's columns.

    A frame of deleted rows alone needs no columns of the table. Updated rows keep the ids in
    ROW_ID, if the layout has a column for them. A frame with the columns OLD has its changes
    written into change files, too. Raises: as `FileWriter`.
    """
    names = [name for name in frame.columns if name not in (ACTION, FILE, POSITION)]
    # mapInArrow takes no column with a dot in its name.
    plain = (F.col(quoted(name)).alias(f"_{index}") for index, name in enumerate(names))
    numbered = frame.select(ACTION, FILE, POSITION, *plain)

    def on_executor(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = TaskContext.get()
        number = task.partitionId() if task is not None else 0
        writer = _ChangeWriter(place, layout, names, number)
        with naming_refusals():
            for batch in batches:
                writer.write(batch)
        yield pa.record_batch([pa.array([writer.finish()], pa.binary())], names=["changed"])

    rows = numbered.mapInArrow(on_executor, "changed binary").collect()
    return _together([orjson.loads(bytes(row["changed"])) for row in rows])


class _ChangeWriter:
    """Writes the new rows of one task, its changes, and notes where the old rows were."""

    def __init__(
        self, place: TableLocation, layout: FileLayout, names: Sequence[str], task: int
    ) -> None:
        index_by_name = {name: index for index, name in enumerate(names, start=3)}
        columns = layout.schema.names
        self._new = {name: index_by_name[name] for name in columns if name in index_by_name}
        self._old = {
            name: index_by_name[OLD.format(index)]
            for index, name in enumerate(columns)
            if OLD.format(index) in index_by_name
        }
        self._ids = (
            {layout.row_ids[0]: index_by_name[ROW_ID]} if layout.row_ids and self._new else {}
        )
        store = store_for(place)
        self._rows = FileWriter(store, layout, clock(), task)
        self._changes = FileWriter(store, of_changes(layout), clock(), task)
        self._parts: list[pa.RecordBatch] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Write the rows of a batch of the numbered frame."""
        self._parts.append(batch.select([ACTION, FILE, POSITION]))
        actions = batch.column(ACTION)
        if self._new:
            new = batch.filter(pc.not_equal(actions, DELETED))
            self._rows.write(_columns(new, {**self._new, **self._ids}))
            if self._old:
                self._changes.write(_with_type(new, self._new, _AFTER))
        if self._old:
            old_rows = batch.filter(pc.not_equal(actions, INSERTED))
            self._changes.write(_with_type(old_rows, self._old, _BEFORE))

    def finish(self) -> bytes:
        """Return what the driver needs to know."""
        added = [add.to_row() for add in self._rows.finish()]
        changes = [change.to_row() for change in self._changes.finish_changes()]
        return orjson.dumps([_told(self._parts), added, changes])


def _columns(rows: pa.RecordBatch, places: Mapping[str, int]) -> pa.RecordBatch:
    columns = [rows.column(place) for place in places.values()]
    return pa.RecordBatch.from_arrays(columns, names=list(places))


def _with_type(rows: pa.RecordBatch, places: Mapping[str, int], types: pa.Array) -> pa.RecordBatch:
    """Return columns of changed rows, with the change type of each row behind them."""
    plain = _columns(rows, places)
    kinds = types.take(rows.column(ACTION))
    return pa.RecordBatch.from_arrays([*plain.columns, kinds], names=[*places, CHANGE_TYPE])


def _told(parts: Sequence[pa.RecordBatch]) -> list[list[Any]]:
    """Return the file, action, number and positions of a task's rows."""
    if not parts:
        return []
    groups = pa.Table.from_batches(parts).group_by([FILE, ACTION]).aggregate([(POSITION, "list")])
    summaries = []
    for row in groups.to_pylist():
        positions = row[f"{POSITION}_list"]
        marked = None
        if row[ACTION] != INSERTED:
            marked = descriptors.z85_encode(
                roaring_bitmap.encode(roaring_bitmap.of_rows(positions))
            )
        summaries.append([row[FILE], row[ACTION], len(positions), marked])
    return summaries


def _together(tasks: Sequence[Sequence[Any]]) -> ChangedRows:
    marked: dict[int, list[Bitmap]] = {}
    counts: dict[int, int] = {}
    updated = set()
    for summaries, _, _ in tasks:
        for file, action, count, text in summaries:
            counts[action] = counts.get(action, 0) + count
            if text is not None:
                marked.setdefault(file, []).append(
                    roaring_bitmap.decode(descriptors.z85_decode(text))
                )
            if action == UPDATED:
                updated.add(file)
    return ChangedRows(
        marked={file: reduce(Bitmap.__or__, bitmaps) for file, bitmaps in marked.items()},
        updated=frozenset(updated),
        added=[add for _, rows, _ in tasks for add in actions_of(rows)],
        counts=counts,
        changes=[change for _, _, rows in tasks for change in changes_of(rows)],
    )


def copied_files(
    spark: SparkSession,
    place: TableLocation,
    metadata: Metadata,
    files: Sequence[tuple[Mapping[str, Any], Bitmap]],
) -> list[Rewritten]:
    """Copy the other rows of files that lose the rows at some positions, on the executors."""
    texts = [
        (orjson.dumps([file, descriptors.z85_encode(roaring_bitmap.encode(rows))]).decode(),)
        for file, rows in files
    ]
    if not texts:
        return []

    def on_executor(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = TaskContext.get()
        number = task.partitionId() if task is not None else 0
        rewriter = Rewriter(store_for(place), metadata, _TRUE, clock(), number)
        for batch in batches:
            results = []
            for text in batch.column(0).to_pylist():
                file, rows = orjson.loads(text)
                positions = roaring_bitmap.decode(descriptors.z85_decode(rows))
                results.append(rewriter.copy_without(file, positions).to_json())
            yield pa.record_batch([pa.array(results, pa.binary())], names=["copied"])

    count = min(len(files), tasks_at_once(spark))
    listed = spark.createDataFrame(texts, "file string").repartition(count)
    rows = listed.mapInArrow(on_executor, "copied binary").collect()
    return [Rewritten.from_json(bytes(row["copied"])) for row in rows]
