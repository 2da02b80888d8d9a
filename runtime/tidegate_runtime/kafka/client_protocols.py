"""Kafka as the services see it: protocols of a consumer, a producer, a reader and the cluster.

Records and rebalances are values, not callbacks. Implementations: `confluent_bus` (confluent-kafka)
and, in tests and simulation, `memory_bus`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, NewType, Protocol

Offset = NewType("Offset", int)
"""A record's offset. Never a table's version."""

Headers = tuple[tuple[str, bytes], ...]

ANSWER_S: Final = 15.0
"""How long a request to the brokers waits for its answer, unless the caller has less time."""


@dataclass(frozen=True, order=True)
class TopicPartition:
    """A topic and one of its partitions; as text, `topic/partition`."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"


Notes = Mapping[TopicPartition, str]
"""Texts committed with a group's offsets (Kafka's offset metadata), for the next owner to read."""

NO_NOTES: Final[Notes] = {}

Starts = Mapping[TopicPartition, Offset]
"""The offset from which to read each of several partitions."""


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
    """What one poll returned, to be handled in this order: revocations, assignments, records.

    `lost` are partitions that another member may own already: stop working on them at once.
    """

    revoked: tuple[TopicPartition, ...] = ()
    lost: tuple[TopicPartition, ...] = ()
    assigned: tuple[TopicPartition, ...] = ()
    records: tuple[Record, ...] = ()


class HeldBack(NamedTuple):
    """The records that an open Kafka transaction keeps from read-committed consumers.

    `stable` is the last stable offset, at which they stop. `offsets` is how many follow it, up to
    the high watermark.
    """

    stable: Offset
    offsets: int


class Consumer(Protocol):
    """A member of a consumer group. Offsets are committed explicitly."""

    def poll(self, records_max: int, timeout_s: float) -> Polled:
        """Return what came within the timeout, possibly nothing. Raises: Unavailable, Fenced."""

    def committed(self, topic_partition: TopicPartition) -> Offset | None:
        """Return the offset that the group committed, or None. Raises: Unavailable."""

    def noted(self, topic_partition: TopicPartition) -> tuple[Offset | None, str]:
        """Return the offset that the group committed, and its note. Raises: Unavailable."""

    def seek(self, topic_partition: TopicPartition, offset: Offset) -> None:
        """Continue reading at an offset."""

    def pause(self, topic_partition: TopicPartition) -> None:
        """Keep the partition, but fetch nothing from it until `resume`."""

    def resume(self, topic_partition: TopicPartition) -> None:
        """Fetch again from a paused partition."""

    def commit(
        self, next_offsets: Mapping[TopicPartition, Offset], notes: Notes = NO_NOTES
    ) -> None:
        """Commit the group's next offsets to read, each with its note if given, and wait for it.

        Raises: Unavailable, Fenced.
        """

    def note_on_revoke(self, topic_partition: TopicPartition, note: str) -> None:
        """Set the note to commit when a rebalance takes the partition from us."""

    def commit_soon(
        self, next_offsets: Mapping[TopicPartition, Offset], notes: Notes = NO_NOTES
    ) -> None:
        """Commit as `commit` does, but don't wait; the next call raises the error of this one.

        Raises: Unavailable, Fenced.
        """

    @property
    def is_member(self) -> bool:
        """Whether it has joined the group: it got an assignment, possibly an empty one."""

    @property
    def held_back(self) -> Mapping[TopicPartition, HeldBack]:
        """The assigned partitions that were read up to an open Kafka transaction, as last seen."""

    def close(self) -> None:
        """Leave the group, so that the next owner need not wait for the session to end."""


class Producer(Protocol):
    """An idempotent producer, acks=all. `publish` queues a record; `flush` makes it durable."""

    def publish(
        self,
        topic_partition: TopicPartition,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
    ) -> None:
        """Queue a record; records of one partition keep their order."""

    def flush(self, timeout_s: float) -> None:
        """Wait until all that was queued is durable. Raises: Unavailable, OutcomeUnknown."""

    def close(self) -> None:
        """Flush what is queued, and close the connection."""


class Replies(Protocol):
    """Sends copies of outcomes to topics that writers name, as well as it can.

    The promise is the topic of outcomes: a copy may be missing, and nothing waits for it.
    """

    def send(self, topic: str, key: bytes, value: bytes, headers: Headers) -> None:
        """Queue a copy. Never waits and never raises; a copy that can't be sent is counted."""

    def close(self) -> None:
        """Give what is queued a second, and close the connection."""


class NoReplies:
    """Sends no copies: for tests."""

    def send(self, topic: str, key: bytes, value: bytes, headers: Headers) -> None:
        """Drop a copy."""

    def close(self) -> None:
        """Do nothing."""


class Reader(Protocol):
    """Reads partitions from an offset on, outside any group: for outcomes and for the registry.

    Continuing where the last call ended is cheap. Another offset waits for the fetch under way.
    """

    def bounds(
        self, topic_partition: TopicPartition, timeout_s: float = ANSWER_S
    ) -> tuple[Offset, Offset]:
        """Return the first offset and the end offset. Raises: Unavailable."""

    def bounds_of(
        self, topic_partitions: Sequence[TopicPartition], timeout_s: float = ANSWER_S
    ) -> Mapping[TopicPartition, tuple[Offset, Offset]]:
        """Return the bounds of several partitions, looked up at once. Raises: Unavailable."""

    def read(
        self, topic_partition: TopicPartition, start: Offset, timeout_s: float
    ) -> Sequence[Record]:
        """Return records from `start` on, in order; none if none came within the timeout."""

    def read_several(self, starts: Starts, timeout_s: float) -> Sequence[Record]:
        """Return records of several partitions, each in order; otherwise as `read`."""

    def end_seen(self, topic_partition: TopicPartition) -> Offset:
        """Return the end at which the last read arrived, 0 if it arrived at none.

        It may lie behind the last record: a transaction ends with a marker that nobody is given.
        """

    def close(self) -> None:
        """Close the connection."""


@dataclass(frozen=True)
class ClusterIdentity:
    """The ids of the cluster and its topics. A recreated topic has a new id."""

    cluster_id: str
    topic_ids: Mapping[str, str] = field(default_factory=dict)


class Bus(Protocol):
    """Makes consumers, producers and readers, and answers questions about the cluster."""

    def consumer(self, group: str, topics: Sequence[str], beside: Sequence[str] = ()) -> Consumer:
        """Return a new member of a group, which shares out the partitions of `topics`.

        With each of these the member also reads the partition of the same number of every topic in
        `beside`. `Polled` names only partitions of `topics` in rebalances.
        """

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
