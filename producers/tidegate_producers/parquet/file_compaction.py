"""Writes the rows of several small files into one, file after file, each in its order."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import orjson

from tidegate_delta.log.actions import Add, Metadata
from tidegate_producers.parquet.data_file_encoding import as_it_is, keeping_row_ids, layout_of
from tidegate_producers.parquet.data_file_writer import FileWriter, actions_of
from tidegate_producers.parquet.file_rewrite import kept_rows
from tidegate_runtime.clock import Clock
from tidegate_runtime.storage.log_store import LogStore

_UNBOUNDED: Final = 1 << 62


@dataclass(frozen=True)
class Compacted:
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

    def compact(self, files: Sequence[Mapping[str, Any]]) -> Compacted:
        """Write the rows of some files of one partition, given as rows of ADD_SCHEMA, into one.

        Raises: BrokenLog (`DataFileMissing`, `DeletionVectorMissing`); Unavailable.
        """
        writer = FileWriter(self._store, self._layout, self._clock, self._task, _UNBOUNDED)
        counts = []
        for file in files:
            count = 0
            for rows in kept_rows(self._store, file, self._metadata, self._layout):
                writer.write(rows)
                count += rows.num_rows
            counts.append((str(file["path"]), count))
        written = writer.finish()
        assert len(written) <= 1, "the files of a bin have the same partition values"
        return Compacted(tuple(counts), tuple(written))
