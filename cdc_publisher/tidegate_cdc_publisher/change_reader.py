"""Reads the rows of a snapshot, or the changes of a version, in a fixed order.

The order depends on the log alone, so an index names the same row at every reading. Appends and
plain deletes are streamed batch by batch; a version that does both is compared in memory.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

import pyarrow as pa
import pyarrow.compute as pc

from tidegate_cdc_publisher.change_batch import Batch
from tidegate_cdc_publisher.key_columns import KeyColumns
from tidegate_cdc_publisher.record_form import PLAIN, RecordForm
from tidegate_cdc_publisher.row_diff import SchemaShift, compare, images
from tidegate_delta.change_feed import ChangeFile, ChangePlan
from tidegate_delta.errors import InvalidRequest
from tidegate_delta.log.actions import Metadata
from tidegate_delta.snapshots.snapshot import Snapshot
from tidegate_runtime.storage.log_store import LogStore
from tidegate_runtime.table_io.change_row_reader import change_schema, read_change_file
from tidegate_runtime.table_io.data_file_reader import read_file, rows_of

_LEAVING: Final = pa.array(["delete", "update_preimage"])
_JOINING: Final = pa.array(["insert", "update_postimage"])
_TOLD_COLUMNS: Final = 3


@dataclass(frozen=True)
class VersionChange:
    """A version to be published: its files, and the table's metadata before and after it."""

    plan: ChangePlan
    before: Metadata
    after: Metadata


@dataclass(frozen=True)
class Wanted:
    """What a reading yields: changes from `start` on, with these key columns, in this form.

    `shift` is set if the version changes the schema: deletes come in the old one, with its keys.
    """

    keys: KeyColumns
    start: int = 0
    form: RecordForm = PLAIN
    shift: SchemaShift | None = None


def snapshot_batches(store: LogStore, snapshot: Snapshot, wanted: Wanted) -> Iterator[Batch]:
    """Yield the wanted rows of a snapshot; files are ordered by path."""
    order = pc.sort_indices(snapshot.files["path"])
    files = rows_of(snapshot.files.select(_FILE_COLUMNS).take(order))
    rows = (batch for file in files for batch in read_file(store, file, snapshot.metadata))
    held: Batch | None = None
    for batch in _numbered("r", rows, wanted):
        if held is not None:
            yield held
        held = batch
    if held is not None:
        yield Batch(held.op, held.start, held.before, held.after, ends=True)


def version_batches(store: LogStore, change: VersionChange, wanted: Wanted) -> Iterator[Batch]:
    """Yield the wanted changes of a version.

    Deletes come first, then updates, then inserts.
    Raises: InvalidRequest (`KeyColumnsMissing`), if deleted rows lack a key column.
    """
    kinds = {file.change for file in change.plan.files}
    old_keys = wanted.keys if wanted.shift is None else wanted.shift.old_keys
    _check_keys(change, kinds, old_keys)
    if kinds <= {"insert"}:
        rows = _rows(store, change, change.plan.files)
        yield from _numbered("c", rows, wanted)
    elif kinds == {"delete"}:
        rows = _rows(store, change, change.plan.files)
        yield from _numbered("d", rows, replace(wanted, keys=old_keys))
    else:
        yield from _compared(store, change, wanted)


_FILE_COLUMNS: Final = ["path", "partitionValues", "size", "deletionVector"]


def _numbered(
    op: Literal["r", "c", "d"], rows: Iterable[pa.RecordBatch], wanted: Wanted
) -> Iterator[Batch]:
    index = 0
    for batch in rows:
        skipped = max(0, wanted.start - index)
        if skipped < batch.num_rows:
            told = images(batch.slice(skipped), wanted.keys, wanted.form)
            first = index + skipped
            yield Batch(op, first, before=told) if op == "d" else Batch(op, first, after=told)
        index += batch.num_rows


def _compared(store: LogStore, change: VersionChange, wanted: Wanted) -> Iterator[Batch]:
    """Compare deleted with inserted rows, holding all rows of the version's files in memory."""
    leaving: list[pa.RecordBatch] = []
    joining: list[pa.RecordBatch] = []
    for file in change.plan.files:
        is_both = file.change == "cdc" and wanted.shift is None
        if is_both or file.change != "insert":
            for batch in read_change_file(store, change.plan, file, change.before):
                leaving.append(_data(batch).filter(pc.is_in(_kinds(batch), _LEAVING)))
                if is_both:
                    joining.append(_data(batch).filter(pc.is_in(_kinds(batch), _JOINING)))
        if not is_both and file.change != "delete":
            for batch in read_change_file(store, change.plan, file, change.after):
                joining.append(_data(batch).filter(pc.is_in(_kinds(batch), _JOINING)))
    old, new = _table(leaving, change.before), _table(joining, change.after)
    changes = compare(old, new, wanted.keys, wanted.form, wanted.shift)
    updates, inserts = len(changes.deleted), len(changes.deleted) + len(changes.updated_after)
    for batch in (
        Batch("d", 0, before=changes.deleted),
        Batch("u", updates, before=changes.updated_before, after=changes.updated_after),
        Batch("c", inserts, after=changes.inserted),
    ):
        skipped = max(0, wanted.start - batch.start)
        if skipped < len(batch):
            yield batch.slice(skipped, len(batch) - skipped)


def _rows(
    store: LogStore, change: VersionChange, files: Sequence[ChangeFile]
) -> Iterator[pa.RecordBatch]:
    for file in files:
        for batch in _typed_rows(store, change, file):
            yield _data(batch)


def _typed_rows(
    store: LogStore, change: VersionChange, file: ChangeFile
) -> Iterator[pa.RecordBatch]:
    metadata = change.before if file.change == "delete" else change.after
    return read_change_file(store, change.plan, file, metadata)


def _kinds(batch: pa.RecordBatch) -> pa.Array:
    """Return each row's change type, by position: the table may have a column of that name."""
    return batch.column(batch.num_columns - _TOLD_COLUMNS)


def _data(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the table's own columns, without the three change columns."""
    return batch.select(range(batch.num_columns - _TOLD_COLUMNS))


def _table(batches: list[pa.RecordBatch], metadata: Metadata) -> pa.Table:
    if batches:
        return pa.Table.from_batches(batches)
    shape = change_schema(metadata)
    return pa.schema(list(shape)[: len(shape) - _TOLD_COLUMNS]).empty_table()


def _check_keys(change: VersionChange, kinds: Collection[str], keys: KeyColumns) -> None:
    if "delete" not in kinds or keys is None:
        return
    names = change_schema(change.before).names
    absent = [name for name in keys if name not in names]
    if absent:
        raise InvalidRequest(
            f"version {change.plan.version} deletes rows that have no column {absent[0]!r}, which "
            "is a key column since this version: begin again with a topic of another name, or "
            "choose key columns that the rows of before have",
            error_class="KeyColumnsMissing",
        )
