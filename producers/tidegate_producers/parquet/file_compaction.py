"""Writes the rows of several small files into one, file after file, each in its order."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Self

import orjson

from tidegate_delta.log.actions import Add, Metadata
from tidegate_producers.parquet.data_file_encoding import layout_of
from tidegate_producers.parquet.data_file_writer import FileWriter, actions_of
from tidegate_producers.parquet.file_rewrite import as_it_is
from tidegate_runtime.clock import Clock
from tidegate_runtime.storage.log_store import LogStore
from tidegate_runtime.table_io.data_file_reader import read_file

_UNBOUNDED: Final = 1 << 62


@dataclass(frozen=True)
class Compacted:
    """The result for one bin of files: the rows that each had, in order, and the file that has them
    now; None if all were deleted.
    """

    rows: tuple[tuple[str, int], ...]
    add: Add | None

    def to_json(self) -> bytes:
        """Return the bytes that a task sends to the driver."""
        return orjson.dumps([self.rows, [self.add.to_row()] if self.add else []])

    @classmethod
    def from_json(cls, content: bytes) -> Self:
        """Return the result that a task sent."""
        rows, adds = orjson.loads(content)
        add = next(iter(actions_of(adds)), None)
        return cls(tuple((str(path), int(count)) for path, count in rows), add)


class Compactor:
    """Compacts files of one table. The rows of a bin are in memory until its file is written."""

    def __init__(self, store: LogStore, metadata: Metadata, clock: Clock, task: int = 0) -> None:
        self._store = store
        self._metadata = metadata
        self._layout = replace(as_it_is(layout_of(metadata)), records_per_file_max=None)
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
            for batch in read_file(self._store, file, self._metadata):
                writer.write(batch)
                count += batch.num_rows
            counts.append((str(file["path"]), count))
        written = writer.finish()
        assert len(written) <= 1, "the files of a bin have the same partition values"
        add = written[0].model_copy(update={"data_change": False}) if written else None
        return Compacted(tuple(counts), add)
