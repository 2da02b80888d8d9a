"""Reads the rows of a snapshot, or the changes of a version, in a fixed order.

The order depends on the log alone, so an index names the same row at every reading. Appends and
plain deletes are streamed batch by batch; a version that does both is compared, in buckets of keys.

The rows of a large version are on disk while it is compared, in buckets by key (`Buckets`). Equal
keys are in one bucket, and a key's bucket never changes, so each bucket can be compared for itself,
at every reading alike.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Literal
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc

from tidegate_cdc_publisher.change_batch import Batch, Op
from tidegate_cdc_publisher.json_rows import in_utf8, row_texts
from tidegate_cdc_publisher.key_columns import KeyColumns
from tidegate_cdc_publisher.record_form import PLAIN, RecordForm
from tidegate_cdc_publisher.row_diff import Images, SchemaShift, carried_table, compare, images
from tidegate_delta.change_feed import ChangeFile, ChangePlan
from tidegate_delta.errors import InvalidRequest
from tidegate_delta.log.actions import Metadata
from tidegate_delta.snapshots.snapshot import Snapshot
from tidegate_runtime.storage.log_store import LogStore
from tidegate_runtime.table_io.change_row_reader import change_schema, read_change_file
from tidegate_runtime.table_io.data_file_reader import read_file, rows_of

HELD_BYTES_MAX: Final = 32 * 1024 * 1024
"""How much text of changes is held in memory before it goes to disk."""

_ROWS_AT_ONCE: Final = 20_000


def bucket_numbers(rows: pa.Table, key_columns: Sequence[str] | None, count: int) -> pa.Array:
    """Return each row's bucket, by its key, or by the whole row in a stream without keys."""
    keys = in_utf8(row_texts(rows, key_columns))
    return pa.array([crc32(key) % count for key in keys], pa.int32())


class Buckets:
    """Rows of one side of a version, by bucket, in files of a folder. Rows keep their order."""

    def __init__(self, folder: Path, name: str, schema: pa.Schema) -> None:
        self._folder = folder
        self._name = name
        self._schema = schema
        self._writers: dict[int, pa.ipc.RecordBatchStreamWriter] = {}

    def add(self, rows: pa.Table, numbers: pa.Array) -> None:
        """Add rows, each to the bucket of its number."""
        order = pc.sort_indices(numbers)
        sorted_rows, sorted_numbers = rows.take(order), numbers.take(order)
        begin = 0
        for counted in pc.value_counts(sorted_numbers):
            number, length = counted["values"].as_py(), counted["counts"].as_py()
            self._writer(number).write_table(sorted_rows.slice(begin, length))
            begin += length

    def finish(self) -> None:
        """End the files."""
        for writer in self._writers.values():
            writer.close()

    def take(self, number: int) -> pa.Table:
        """Return the rows of a bucket, and forget them."""
        path = self._path(number)
        if number not in self._writers:
            return self._schema.empty_table()
        with pa.OSFile(str(path)) as source:
            rows = pa.ipc.open_stream(source).read_all()
        path.unlink()
        return rows

    def _writer(self, number: int) -> pa.ipc.RecordBatchStreamWriter:
        if number not in self._writers:
            path = str(self._path(number))
            self._writers[number] = pa.ipc.new_stream(path, self._schema)
        return self._writers[number]

    def _path(self, number: int) -> Path:
        return self._folder / f"{self._name}-{number}"


@dataclass
class KeptImages:
    """Images in the order in which they were added: in memory, or once they are many in a file."""

    path: Path
    length: int = 0
    _held: list[Images] = field(default_factory=list)
    _held_bytes: int = 0
    _writer: pa.ipc.RecordBatchStreamWriter | None = None

    def add(self, images: Images) -> None:
        """Add images."""
        if not len(images):
            return
        self.length += len(images)
        self._held.append(images)
        self._held_bytes += images.texts.nbytes
        if self._held_bytes > HELD_BYTES_MAX:
            self._spill()

    def read(self) -> Iterator[Images]:
        """Yield the images in parts of one size, whatever they were added in."""
        if self._writer is not None:
            self._spill()
            self._writer.close()
            with pa.OSFile(str(self.path)) as source:
                for batch in pa.ipc.open_stream(source):
                    keys = batch.column(1)
                    yield Images(batch.column(0), None if pa.types.is_null(keys.type) else keys)
            return
        for held in self._held:
            for begin in range(0, len(held), _ROWS_AT_ONCE):
                yield held.slice(begin, _ROWS_AT_ONCE)

    def _spill(self) -> None:
        for held in self._held:
            keys = pa.nulls(len(held)) if held.keys is None else held.keys
            rows = pa.table({"texts": held.texts, "keys": keys})
            if self._writer is None:
                self._writer = pa.ipc.new_stream(str(self.path), rows.schema)
            self._writer.write_table(rows, _ROWS_AT_ONCE)
        self._held, self._held_bytes = [], 0


_LEAVING: Final = pa.array(["delete", "update_preimage"])
_JOINING: Final = pa.array(["insert", "update_postimage"])
_TOLD_COLUMNS: Final = 3

BUCKET_BYTES: Final = 4 * 1024 * 1024
"""The size in files of a bucket's rows; in memory, as rows and as text, they are many times that.
"""

BUCKETS_MAX: Final = 512


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
    last_batch: Batch | None = None
    for batch in _numbered("r", rows, wanted):
        if last_batch is not None:
            yield last_batch
        last_batch = batch
    if last_batch is not None:
        yield Batch(last_batch.op, last_batch.start, last_batch.before, last_batch.after, ends=True)


def version_batches(
    store: LogStore, change: VersionChange, wanted: Wanted
) -> Iterator[Batch | None]:
    """Yield the wanted changes of a version, and None where work was done and no change is ready.

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
            batch_images = images(batch.slice(skipped), wanted.keys, wanted.form)
            first = index + skipped
            yield (
                Batch(op, first, before=batch_images)
                if op == "d"
                else Batch(op, first, after=batch_images)
            )
        index += batch.num_rows


def _compared(store: LogStore, change: VersionChange, wanted: Wanted) -> Iterator[Batch | None]:
    """Compare deleted with inserted rows; a large version bucket by bucket, by way of the disk.

    None stands for work done while no change is ready.
    """
    count = bucket_count(change.plan)
    if count == 1:
        sides = list(_sides(store, change, wanted))
        old = _table([rows for side, rows in sides if side == "old"], change.before)
        new = _table([rows for side, rows in sides if side == "new"], change.after)
        changes = compare(old, new, wanted.keys, wanted.form, wanted.shift)
        updated = [(changes.updated_before, changes.updated_after)]
        yield from _parts(wanted.start, [changes.deleted], updated, [changes.inserted])
        return
    with TemporaryDirectory(prefix="tidegate-cdc-") as folder:
        old_rows = Buckets(Path(folder), "old", _table([], change.before).schema)
        new_rows = Buckets(Path(folder), "new", _table([], change.after).schema)
        for side, batch in _sides(store, change, wanted):
            rows = pa.Table.from_batches([batch])
            shift = wanted.shift if side == "old" else None
            as_new = rows if shift is None else carried_table(rows, shift.columns, shift.schema)
            to = old_rows if side == "old" else new_rows
            to.add(rows, bucket_numbers(as_new, wanted.keys, count))
            yield None
        kinds = ("deleted", "updated_before", "updated_after", "inserted")
        kept_images = {kind: KeptImages(Path(folder, kind)) for kind in kinds}
        old_rows.finish()
        new_rows.finish()
        for number in range(count):
            bucket_changes = compare(
                old_rows.take(number), new_rows.take(number), wanted.keys, wanted.form, wanted.shift
            )
            for kind in kinds:
                kept_images[kind].add(getattr(bucket_changes, kind))
            yield None
        before, after = kept_images["updated_before"].read(), kept_images["updated_after"].read()
        pairs = zip(before, after, strict=True)
        yield from _parts(
            wanted.start, kept_images["deleted"].read(), pairs, kept_images["inserted"].read()
        )


def bucket_count(plan: ChangePlan) -> int:
    """Return into how many parts the rows of a version are cut to be compared.

    Law: it follows from the commit alone, so every reading has the same order
    """
    size = sum(BUCKET_BYTES if file.size is None else file.size for file in plan.files)
    return max(1, min(BUCKETS_MAX, size // BUCKET_BYTES))


def _sides(
    store: LogStore, change: VersionChange, wanted: Wanted
) -> Iterator[tuple[Literal["old", "new"], pa.RecordBatch]]:
    """Yield the rows that leave and those that join, of each file in turn."""
    for file in change.plan.files:
        is_both = file.change == "cdc" and wanted.shift is None
        if is_both or file.change != "insert":
            for batch in read_change_file(store, change.plan, file, change.before):
                yield "old", _data(batch).filter(pc.is_in(_kinds(batch), _LEAVING))
                if is_both:
                    yield "new", _data(batch).filter(pc.is_in(_kinds(batch), _JOINING))
        if not is_both and file.change != "delete":
            for batch in read_change_file(store, change.plan, file, change.after):
                yield "new", _data(batch).filter(pc.is_in(_kinds(batch), _JOINING))


def _parts(
    start: int,
    deleted: Iterable[Images],
    updated: Iterable[tuple[Images, Images]],
    inserted: Iterable[Images],
) -> Iterator[Batch]:
    """Yield the changes from `start` on: deletes, updates, inserts, numbered in this order."""
    index = 0
    parts: Iterator[tuple[Op, Images | None, Images | None]] = chain(
        (("d", part, None) for part in deleted),
        (("u", *pair) for pair in updated),
        (("c", None, part) for part in inserted),
    )
    for op, before, after in parts:
        batch = Batch(op, index, before, after)
        index += len(batch)
        skipped = max(0, start - batch.start)
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
