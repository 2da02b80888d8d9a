"""What the next Kafka transaction will hold: changes, and how far they tell."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from tidegate_cdc_publisher.debezium_envelope import Batch, Op, Records
from tidegate_cdc_publisher.stream_position import Position

CHUNK_BYTES_MAX: Final = 16 * 1024 * 1024
"""Text of images in one Kafka transaction; a chunk of large rows has fewer of them."""


@dataclass
class Chunk:
    """Records, and the position after them; at most `rows_max` changes.

    `whole` is how much of it tells versions to their end: so many records, the position after them,
    how often each kind is among them.
    """

    rows_max: int
    records: Records = field(default_factory=Records)
    position: Position | None = None
    told: Counter[Op] = field(default_factory=Counter)
    size_bytes: int = 0
    whole: tuple[int, Position, Counter[Op]] | None = None

    @property
    def is_full(self) -> bool:
        """Whether it takes no more."""
        return self.told.total() >= self.rows_max or self.size_bytes >= CHUNK_BYTES_MAX

    def fitting(self, batch: Batch, begin: int) -> Batch:
        """Return what there is room for, by count and by the mean size of the rows."""
        assert not self.is_full, "a full chunk is published before it takes more"
        mean_bytes = max(1, batch.size_bytes // len(batch))
        by_size = max(1, (CHUNK_BYTES_MAX - self.size_bytes) // mean_bytes)
        by_count = self.rows_max - self.told.total()
        return batch.slice(begin, min(by_size, by_count, len(batch) - begin))

    def add(self, batch: Batch, records: Records) -> None:
        """Take some changes in, with the records that tell them."""
        self.records += records
        self.told[batch.op] += len(batch)
        self.size_bytes += batch.size_bytes

    def move(self, position: Position) -> None:
        """Say how far the records tell."""
        self.position = position
        if position.complete:
            self.whole = len(self.records), position, self.told.copy()

    def of_whole_versions(self) -> "Chunk":
        """Return the chunk without what tells a version in part."""
        if self.whole is None:
            return Chunk(self.rows_max)
        count, position, told = self.whole
        return Chunk(self.rows_max, self.records[:count], position, told)
