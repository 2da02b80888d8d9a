"""The content of the next Kafka transaction: change records, and the position after them."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from tidegate_cdc_publisher.debezium_envelope import Batch, Op, Records
from tidegate_cdc_publisher.stream_position import Position

CHUNK_BYTES_MAX: Final = 16 * 1024 * 1024
"""Maximum text of images in one Kafka transaction; a chunk of large rows has fewer rows."""


@dataclass
class Chunk:
    """Records, and the position after them; at most `rows_max` changes.

    `whole` describes the part that ends with the last complete version: its number of records, the
    position after them, and the number of changes of each kind.
    """

    rows_max: int
    records: Records = field(default_factory=Records)
    position: Position | None = None
    told: Counter[Op] = field(default_factory=Counter)
    size_bytes: int = 0
    whole: tuple[int, Position, Counter[Op]] | None = None

    @property
    def is_full(self) -> bool:
        """Whether the chunk takes no more changes."""
        return self.told.total() >= self.rows_max or self.size_bytes >= CHUNK_BYTES_MAX

    def fitting(self, batch: Batch, begin: int) -> Batch:
        """Return the changes from `begin` on that fit, by count and by mean row size."""
        assert not self.is_full, "a full chunk is published before it takes more"
        mean_bytes = max(1, batch.size_bytes // len(batch))
        by_size = max(1, (CHUNK_BYTES_MAX - self.size_bytes) // mean_bytes)
        by_count = self.rows_max - self.told.total()
        return batch.slice(begin, min(by_size, by_count, len(batch) - begin))

    def add(self, batch: Batch, records: Records) -> None:
        """Add changes with their records."""
        self.records += records
        self.told[batch.op] += len(batch)
        self.size_bytes += batch.size_bytes

    def move(self, position: Position) -> None:
        """Set the position after the records."""
        self.position = position
        if position.complete:
            self.whole = len(self.records), position, self.told.copy()

    def of_whole_versions(self) -> "Chunk":
        """Return the chunk without the changes of an incomplete version."""
        if self.whole is None:
            return Chunk(self.rows_max)
        count, position, told = self.whole
        return Chunk(self.rows_max, self.records[:count], position, told)
