"""The door to Kafka, as the services need it: values in and out, rebalances as values.

Implementations: `kafka.bus` (confluent-kafka) and `memory` (tests and simulation).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NewType, Protocol

Offset = NewType("Offset", int)
"""A record's offset. Never a table's version."""

Headers = tuple[tuple[str, bytes], ...]

ANSWER_S: Final = 15.0
"""How long a question to the brokers waits for its answer, unless whoever asks has less time."""


@dataclass(frozen=True, order=True)
class TopicPartition:
    """A topic and one of its partitions; as text, `topic/partition`."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"


Notes = Mapping[TopicPartition, str]
"""What is kept beside the group's offsets, for whoever reads on: it travels in the same request."""

NO_NOTES: Final[Notes] = {}

Starts = Mapping[TopicPartition, Offset]
"""From where on each of several partitions is read."""


@dataclass(frozen=True)
class Record:
    """A record as it was read. `value` is None for a tombstone: compare with None."""

    at: TopicPartition
    offset: Offset
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp_ms: int = 0


@dataclass(frozen=True)
class Polled:
    """What one poll brought: first what was revoked, then what was assigned, then records.

    `lost` are partitions that another member may own already: drop all at once.
    """

    revoked: tuple[TopicPartition, ...] = ()
    lost: tuple[TopicPartition, ...] = ()
    assigned: tuple[TopicPartition, ...] = ()
    records: tuple[Record, ...] = ()


class Consumer(Protocol):
    """A member of a consumer group. Positions are committed by hand."""

    def poll(self, records_max: int, timeout_s: float) -> Polled:
        """Return what there is, within the timeout. Raises: Unavailable, Fenced."""

    def committed(self, at: TopicPartition) -> Offset | None:
        """Return the group's next offset, or None where there is none. Raises: Unavailable."""

    def noted(self, at: TopicPartition) -> tuple[Offset | None, str]:
        """Return the group's next offset, and what was noted with it. Raises: Unavailable."""

    def seek(self, at: TopicPartition, offset: Offset) -> None:
        """Read on from an offset."""

    def pause(self, at: TopicPartition) -> None:
        """Keep the partition and fetch nothing from it."""

    def resume(self, at: TopicPartition) -> None:
        """Fetch again."""

    def commit(
        self, next_offsets: Mapping[TopicPartition, Offset], notes: Notes = NO_NOTES
    ) -> None:
        """Record the next offset to read, for the group, with a note or none.

        Raises: Unavailable, Fenced.
        """

    def part_with(self, at: TopicPartition, note: str) -> None:
        """Leave a note, when the group takes a partition from us that reads on elsewhere."""

    def commit_soon(
        self, next_offsets: Mapping[TopicPartition, Offset], notes: Notes = NO_NOTES
    ) -> None:
        """Have it recorded while other things are done; a failure is told by the next call.

        Raises: Unavailable, Fenced.
        """

    @property
    def is_member(self) -> bool:
        """Whether the group has let it in: it was told its partitions, none perhaps."""

    def close(self) -> None:
        """Leave the group, so that the next owner need not wait for the session to end."""


class Producer(Protocol):
    """An idempotent producer, acks=all. Publishing queues; `flush` makes it durable."""

    def publish(
        self, at: TopicPartition, key: bytes | None, value: bytes | None, headers: Headers = ()
    ) -> None:
        """Queue a record; records of one partition keep their order."""

    def flush(self, timeout_s: float) -> None:
        """Wait until all that was queued is durable. Raises: Unavailable, OutcomeUnknown."""

    def close(self) -> None:
        """Flush what there is and let go."""


class Reader(Protocol):
    """Reads partitions from an offset on, outside any group: for outcomes and for the registry.

    Who goes on where a reading ended waits for nothing; who reads others waits for the last fetch.
    """

    def bounds(self, at: TopicPartition, timeout_s: float = ANSWER_S) -> tuple[Offset, Offset]:
        """Return the first offset and the end offset. Raises: Unavailable."""

    def read(self, at: TopicPartition, start: Offset, timeout_s: float) -> Sequence[Record]:
        """Return records from `start` on, in order; empty when none came within the timeout."""

    def read_several(self, starts: Starts, timeout_s: float) -> Sequence[Record]:
        """Return records of some partitions, in the order of each; as `read`, but at once."""

    def close(self) -> None:
        """Let go."""


@dataclass(frozen=True)
class ClusterIdentity:
    """Which log of proposals this is: topics that are recreated get another id."""

    cluster_id: str
    topic_ids: Mapping[str, str] = field(default_factory=dict)


class Bus(Protocol):
    """Makes the above, and knows the cluster."""

    def consumer(self, group: str, topics: Sequence[str]) -> Consumer:
        """Return a new member of a group."""

    def producer(self) -> Producer:
        """Return a new idempotent producer."""

    def reader(self) -> Reader:
        """Return a reader without a group."""

    def partitions(self, topic: str, timeout_s: float = ANSWER_S) -> int:
        """Return how many partitions a topic has.

        Raises: Misconfigured for a missing topic; Unavailable.
        """

    def identity(self, topics: Sequence[str]) -> ClusterIdentity:
        """Return the ids of the cluster and of some topics. Raises: Unavailable."""
