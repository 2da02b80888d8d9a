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

from tidegate_delta.deletion_vectors import roaring_bitmap, z85
from tidegate_delta.deletion_vectors.roaring_bitmap import Bitmap
from tidegate_delta.log.actions import Add, Metadata
from tidegate_producers.cached_clients import clock, store_for
from tidegate_producers.options import TableLocation
from tidegate_producers.parquet.data_file_encoding import FileLayout
from tidegate_producers.parquet.data_file_writer import FileWriter, actions_of
from tidegate_producers.parquet.file_rewrite import Rewriter, Rewritten
from tidegate_producers.table.target_frame import FILE, POSITION, quoted

ACTION: Final = "__tidegate_action"
"""The column that says what happens to a row: one of DELETED, UPDATED and INSERTED."""

DELETED, UPDATED, INSERTED = 1, 2, 3
_TRUE: Final = {"op": "true"}


@dataclass(frozen=True)
class ChangedRows:
    """What the tasks did: the changed rows of each file, by its number, and the new files.

    `counts` has the number of rows of each action; `updated` are files with updated rows.
    """

    marked: Mapping[int, Bitmap]
    updated: frozenset[int]
    added: Sequence[Add]
    counts: Mapping[int, int]

    @property
    def has_duplicates(self) -> bool:
        """Whether several rows of the frame were about one row of the table."""
        named = self.counts.get(DELETED, 0) + self.counts.get(UPDATED, 0)
        return named > sum(map(len, self.marked.values()))


def changed_rows(frame: DataFrame, place: TableLocation, layout: FileLayout) -> ChangedRows:
    """Write the new rows of a frame with ACTION, FILE, POSITION and the table's columns.

    A frame of deleted rows alone needs no columns of the table. Raises: as `FileWriter`.
    """

    names = [name for name in frame.columns if name not in (ACTION, FILE, POSITION)]

    def on_executor(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = TaskContext.get()
        number = task.partitionId() if task is not None else 0
        writer = FileWriter(store_for(place), layout, clock(), number)
        parts = []
        for batch in batches:
            parts.append(batch.select([ACTION, FILE, POSITION]))
            if names:
                new = batch.filter(pc.not_equal(batch.column(ACTION), DELETED))
                writer.write(pa.RecordBatch.from_arrays(new.columns[3:], names=names))
        found = orjson.dumps([_told(parts), [add.to_row() for add in writer.finish()]])
        yield pa.record_batch([pa.array([found], pa.binary())], names=["changed"])

    # mapInArrow takes no column with a dot in its name.
    plain = (F.col(quoted(name)).alias(f"_{at}") for at, name in enumerate(names))
    numbered = frame.select(ACTION, FILE, POSITION, *plain)
    rows = numbered.mapInArrow(on_executor, "changed binary").collect()
    return _together([orjson.loads(bytes(row["changed"])) for row in rows])


def _told(parts: Sequence[pa.RecordBatch]) -> list[list[Any]]:
    """Return the file, action, number and positions of a task's rows."""
    if not parts:
        return []
    groups = pa.Table.from_batches(parts).group_by([FILE, ACTION]).aggregate([(POSITION, "list")])
    told = []
    for row in groups.to_pylist():
        positions = row[f"{POSITION}_list"]
        marked = None
        if row[ACTION] != INSERTED:
            marked = z85.encode(roaring_bitmap.encode(roaring_bitmap.of_rows(positions)))
        told.append([row[FILE], row[ACTION], len(positions), marked])
    return told


def _together(tasks: Sequence[Sequence[Any]]) -> ChangedRows:
    marked: dict[int, list[Bitmap]] = {}
    counts: dict[int, int] = {}
    updated = set()
    for told, _ in tasks:
        for file, action, count, text in told:
            counts[action] = counts.get(action, 0) + count
            if text is not None:
                marked.setdefault(file, []).append(roaring_bitmap.decode(z85.decode(text)))
            if action == UPDATED:
                updated.add(file)
    return ChangedRows(
        marked={file: reduce(Bitmap.__or__, bitmaps) for file, bitmaps in marked.items()},
        updated=frozenset(updated),
        added=[add for _, rows in tasks for add in actions_of(rows)],
        counts=counts,
    )


def copied_files(
    spark: SparkSession,
    place: TableLocation,
    metadata: Metadata,
    files: Sequence[tuple[Mapping[str, Any], Bitmap]],
) -> list[Rewritten]:
    """Copy the other rows of files that lose the rows at some positions, on the executors."""
    texts = [
        (orjson.dumps([file, z85.encode(roaring_bitmap.encode(rows))]).decode(),)
        for file, rows in files
    ]
    if not texts:
        return []

    def on_executor(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = TaskContext.get()
        number = task.partitionId() if task is not None else 0
        rewriter = Rewriter(store_for(place), metadata, _TRUE, clock(), number)
        for batch in batches:
            done = []
            for text in batch.column(0).to_pylist():
                file, rows = orjson.loads(text)
                gone = roaring_bitmap.decode(z85.decode(rows))
                done.append(rewriter.copy_without(file, gone).to_json())
            yield pa.record_batch([pa.array(done, pa.binary())], names=["copied"])

    count = min(len(files), spark.sparkContext.defaultParallelism)
    listed = spark.createDataFrame(texts, "file string").repartition(count)
    rows = listed.mapInArrow(on_executor, "copied binary").collect()
    return [Rewritten.from_json(bytes(row["copied"])) for row in rows]
