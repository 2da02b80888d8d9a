"""Rows on disk while a large version is compared: cut into buckets by key, and the changes found.

Equal keys are in one bucket, and a key's bucket never changes, so each bucket can be compared for
itself, at every reading alike.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc

from tidegate_cdc_publisher.json_rows import in_utf8, row_texts
from tidegate_cdc_publisher.row_diff import Images

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
        for images in self._held:
            for begin in range(0, len(images), _ROWS_AT_ONCE):
                yield images.slice(begin, _ROWS_AT_ONCE)

    def _spill(self) -> None:
        for images in self._held:
            keys = pa.nulls(len(images)) if images.keys is None else images.keys
            rows = pa.table({"texts": images.texts, "keys": keys})
            if self._writer is None:
                self._writer = pa.ipc.new_stream(str(self.path), rows.schema)
            self._writer.write_table(rows, _ROWS_AT_ONCE)
        self._held, self._held_bytes = [], 0
