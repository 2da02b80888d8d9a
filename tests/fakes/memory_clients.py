"""Producer and group-less reader of the in-memory bus."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from tidegate_delta.errors import InvalidRequest
from tidegate_runtime.kafka.client_protocols import (
    ANSWER_S,
    Headers,
    Offset,
    Record,
    Starts,
    TopicPartition,
)


class Cluster(Protocol):
    """The records of every topic partition."""

    def append(
        self,
        topic_partition: TopicPartition,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
    ) -> Offset:
        """Append a record and return its offset. Raises: Misconfigured for a missing partition."""

    def log(self, topic_partition: TopicPartition) -> list[Record]:
        """Return a partition's records. Raises: Misconfigured for a missing partition."""

    def bytes_max(self, topic: str) -> int:
        """Return the maximal record size of a topic."""


class MemoryProducer:
    """Queues records; `flush` appends them. Drop the producer to simulate a crash."""

    def __init__(self, bus: Cluster) -> None:
        self._bus = bus
        self.queued: list[tuple[TopicPartition, bytes | None, bytes | None, Headers]] = []

    def publish(
        self,
        topic_partition: TopicPartition,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
    ) -> None:
        """Queue a record.

        Raises: Misconfigured for a missing partition; InvalidRequest for a record that is too
        large (Kafka's producer may raise this in `flush` instead).
        """
        self._bus.log(topic_partition)
        size = len(key or b"") + len(value or b"")
        size += sum(len(name) + len(content) for name, content in headers)
        if size > self._bus.bytes_max(topic_partition.topic):
            raise InvalidRequest(
                f"{size} bytes are more than topic {topic_partition.topic!r} takes; send less at "
                "once",
                error_class="RecordTooLarge",
            )
        self.queued.append((topic_partition, key, value, headers))

    def deliver(self, records_max: int) -> None:
        """Append the first queued records only, as a crash during a flush does."""
        for topic_partition, key, value, headers in self.queued[:records_max]:
            self._bus.append(topic_partition, key, value, headers)
        del self.queued[:records_max]

    def flush(self, timeout_s: float) -> None:
        """Append all queued records."""
        self.deliver(len(self.queued))

    def close(self) -> None:
        """Flush."""
        self.flush(0.0)


class MemoryReader:
    """Reads a partition from an offset, outside any group."""

    def __init__(self, bus: Cluster) -> None:
        self._bus = bus

    def bounds(
        self, topic_partition: TopicPartition, timeout_s: float = ANSWER_S
    ) -> tuple[Offset, Offset]:
        """Return the first offset and the end offset."""
        return Offset(0), Offset(len(self._bus.log(topic_partition)))

    def bounds_of(
        self, topic_partitions: Sequence[TopicPartition], timeout_s: float = ANSWER_S
    ) -> Mapping[TopicPartition, tuple[Offset, Offset]]:
        """Return the bounds of several partitions."""
        return {each: self.bounds(each, timeout_s) for each in topic_partitions}

    def read(
        self, topic_partition: TopicPartition, start: Offset, timeout_s: float
    ) -> Sequence[Record]:
        """Return all records from offset `start` on."""
        return tuple(self._bus.log(topic_partition)[start:])

    def read_several(self, starts: Starts, timeout_s: float) -> Sequence[Record]:
        """Return all records of several partitions from their start offsets on."""
        return [
            record
            for topic_partition, start in starts.items()
            for record in self.read(topic_partition, start, timeout_s)
        ]

    def end_seen(self, topic_partition: TopicPartition) -> Offset:
        """Return 0: it has no transactions, so the last record is the end."""
        return Offset(0)

    def close(self) -> None:
        """Do nothing."""
