"""Files of tables: Parquet files, protocols that list features, and a store that notes listings."""

import io
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.builders import Row, protocol
from tests.fakes.memory_store import MemoryStore
from tidegate_runtime.storage.log_store import FileStat


def parquet(table: pa.Table, **options: Any) -> bytes:
    """Return a table as a Parquet file; the options are those of `write_table`."""
    buffer = io.BytesIO()
    pq.write_table(table, buffer, **options)
    return buffer.getvalue()


def protocol_listing(*features: str) -> Row:
    """Return a protocol that lists features for readers and writers."""
    return protocol(3, 7, readerFeatures=features, writerFeatures=features)


class NotingListings(MemoryStore):
    """A store with the files of another that notes the paths it lists."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__()
        self.files, self.modified = store.files, store.modified
        self.listed: list[str] = []

    def list_from(self, folder: str, start: str) -> Iterator[FileStat]:
        """List files, and note their paths."""
        for stat in super().list_from(folder, start):
            self.listed.append(stat.path)
            yield stat
