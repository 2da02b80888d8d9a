"""An in-memory bus: topics, consumer groups with generations, and Kafka's eager rebalance.

A member joins at its first poll and learns of a rebalance at its next one. The rebalance ends
when every member has polled or was expired. A member that was expired is a zombie until it
polls: its commits are refused.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from tests.fakes.memory_clients import MemoryProducer, MemoryReader
from tidegate_delta.errors import Fenced, Misconfigured
from tidegate_messages.topics import Topic
from tidegate_runtime.kafka.client_protocols import (
    ANSWER_S,
    NO_NOTES,
    ClusterIdentity,
    Headers,
    HeldBack,
    Notes,
    Offset,
    Polled,
    Record,
    TopicPartition,
)

BYTES_MAX: Final = 1_048_588
"""Kafka's default `max.message.bytes`, for topics without a limit of their own."""


def _epoch() -> int:
    return 0


class MemoryBus:
    """A cluster of one broker.

    Tests may set `logs`, the records of each topic partition, and `held_back`, the open
    transactions.
    """

    def __init__(
        self,
        topics: Mapping[str, int] | Iterable[Topic] = (),
        now_ms: Callable[[], int] = _epoch,
        cluster_id: str = "memory",
    ) -> None:
        self._now_ms = now_ms
        self._cluster_id = cluster_id
        self._partitions: dict[str, int] = {}
        self._incarnations: dict[str, int] = {}
        self._groups: dict[str, _Group] = {}
        self._bytes_max: dict[str, int] = {}
        self.logs: dict[TopicPartition, list[Record]] = {}
        self.held_back: dict[TopicPartition, HeldBack] = {}
        declared = () if isinstance(topics, Mapping) else tuple(topics)
        for topic in declared:
            self._bytes_max[topic.name] = int(topic.config.get("max.message.bytes", BYTES_MAX))
        counts = topics.items() if isinstance(topics, Mapping) else _counts(declared)
        for name, partitions in counts:
            self.create_topic(name, partitions)

    def create_topic(self, name: str, partitions: int) -> None:
        """Create an empty topic; an existing one of that name is replaced and gets another id.

        The groups' offsets in it are deleted. Members get no notice: one whose position is past the
        new end reads from the beginning.
        """
        is_known, others = name in self._partitions, self._partitions.get(name) != partitions
        for topic_partition in [
            topic_partition for topic_partition in self.logs if topic_partition.topic == name
        ]:
            del self.logs[topic_partition]
            for group in self._groups.values():
                group.offsets.pop(topic_partition, None)
                group.notes.pop(topic_partition, None)
        self._partitions[name] = partitions
        self._incarnations[name] = self._incarnations.get(name, 0) + 1
        self.logs |= {TopicPartition(name, number): [] for number in range(partitions)}
        if is_known and others:
            self._rebalance(name)

    def add_partition(self, name: str) -> None:
        """Add one partition to a topic; members learn of it by a rebalance."""
        self.logs[TopicPartition(name, self._partitions[name])] = []
        self._partitions[name] += 1
        self._rebalance(name)

    def consumer(
        self, group: str, topics: Sequence[str], beside: Sequence[str] = ()
    ) -> "MemoryConsumer":
        """Return a consumer; it becomes a member of the group at its first poll."""
        joined = self._groups.setdefault(group, _Group(group))
        return MemoryConsumer(self, joined, tuple(topics), tuple(beside))

    def producer(self) -> MemoryProducer:
        """Return a new producer."""
        return MemoryProducer(self)

    def reader(self) -> MemoryReader:
        """Return a reader without a group."""
        return MemoryReader(self)

    def partitions(self, topic: str, timeout_s: float = ANSWER_S) -> int:
        """Return how many partitions a topic has. Raises: Misconfigured for a missing topic."""
        if topic not in self._partitions:
            raise Misconfigured(f"topic {topic!r} does not exist; run `tidegate topics apply`")
        return self._partitions[topic]

    def identity(self, topics: Sequence[str]) -> ClusterIdentity:
        """Return the ids of the cluster and of some topics."""
        ids = {topic: f"{topic}#{self._incarnations.get(topic, 0)}" for topic in topics}
        return ClusterIdentity(self._cluster_id, ids)

    def expire(self, member: "MemoryConsumer") -> None:
        """End a member's session, as the broker does with one that is silent for too long."""
        member.expire()

    def committed(self, group: str) -> Mapping[TopicPartition, Offset]:
        """Return the group's offsets."""
        return dict(self._groups[group].offsets) if group in self._groups else {}

    def drop_offsets(self, group: str) -> None:
        """Delete a group's offsets, as retention does with those of an idle group."""
        if group in self._groups:
            self._groups[group].offsets.clear()
            self._groups[group].notes.clear()

    def rewind(self, group: str, topic_partition: TopicPartition, offset: Offset) -> None:
        """Set a group's offset back, as a restored backup does. Members keep their positions."""
        offsets = self._groups[group].offsets if group in self._groups else {}
        if offset < offsets.get(topic_partition, Offset(0)):
            offsets[topic_partition] = offset

    def append(
        self,
        topic_partition: TopicPartition,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
    ) -> Offset:
        """Append a record and return its offset. Raises: Misconfigured for a missing partition."""
        records = self.log(topic_partition)
        offset = Offset(len(records))
        records.append(Record(topic_partition, offset, key, value, headers, self._now_ms()))
        return offset

    def log(self, topic_partition: TopicPartition) -> list[Record]:
        """Return a partition's records. Raises: Misconfigured for a missing partition."""
        if topic_partition.partition >= self.partitions(topic_partition.topic):
            raise Misconfigured(
                f"topic {topic_partition.topic!r} has no partition {topic_partition.partition}"
            )
        return self.logs[topic_partition]

    def bytes_max(self, topic: str) -> int:
        """Return the maximal record size of a topic."""
        return self._bytes_max.get(topic, BYTES_MAX)

    def limit(self, topic: str, bytes_max: int) -> None:
        """Set the maximal record size of a topic."""
        self._bytes_max[topic] = bytes_max

    def _rebalance(self, topic: str) -> None:
        for group in self._groups.values():
            if any(topic in member.topics for member in group.members):
                group.begin()


class _Membership(Enum):
    OUTSIDE = "outside"
    MEMBER = "member"
    EXPIRED = "expired"
    CLOSED = "closed"


@dataclass
class _Group:
    name: str
    generation: int = 0
    rebalancing: bool = False
    members: list["MemoryConsumer"] = field(default_factory=list)
    rejoined: list["MemoryConsumer"] = field(default_factory=list)
    offsets: dict[TopicPartition, Offset] = field(default_factory=dict)
    notes: dict[TopicPartition, str] = field(default_factory=dict)

    def join(self, member: "MemoryConsumer") -> None:
        self.members.append(member)
        self.begin()

    def leave(self, member: "MemoryConsumer") -> None:
        self.members.remove(member)
        self.begin()

    def begin(self) -> None:
        self.rebalancing, self.rejoined = bool(self.members), []

    def rejoin(self, member: "MemoryConsumer") -> None:
        self.rejoined.append(member)
        if len(self.rejoined) == len(self.members):
            self.generation += 1
            self.rebalancing = False

    def share(self, member: "MemoryConsumer", counts: Mapping[str, int]) -> list[TopicPartition]:
        """Return a member's partitions as Kafka's range assignor does: contiguous, the remainder
        going to the first members.
        """
        share: list[TopicPartition] = []
        for topic, count in sorted(counts.items()):
            takers = [other for other in self.members if topic in other.topics]
            each, more = divmod(count, len(takers))
            place = takers.index(member)
            first = place * each + min(place, more)
            last = first + each + (1 if place < more else 0)
            share += [TopicPartition(topic, number) for number in range(first, last)]
        return share


class MemoryConsumer:
    """A member of a group. `poll` never waits."""

    def __init__(
        self, bus: MemoryBus, group: _Group, topics: tuple[str, ...], beside: tuple[str, ...] = ()
    ) -> None:
        self.topics = topics
        self.beside = beside
        self._bus = bus
        self._group = group
        self._membership = _Membership.OUTSIDE
        self._generation = -1
        self._positions: dict[TopicPartition, Offset] = {}
        self._paused: set[TopicPartition] = set()
        self._parting: dict[TopicPartition, str] = {}

    def poll(self, records_max: int, timeout_s: float) -> Polled:
        """Return the available records. A poll that reports a rebalance returns no records."""
        if self._membership is _Membership.CLOSED:
            raise ValueError("this consumer is closed; make another one")
        if self._membership is _Membership.EXPIRED:
            self._membership, self._generation = _Membership.OUTSIDE, -1
            return Polled(lost=self._drop())
        group = self._group
        if self._membership is _Membership.OUTSIDE:
            counts = {topic: self._bus.partitions(topic) for topic in self.topics}
            assert counts, "a member reads at least one topic"
            self._membership = _Membership.MEMBER
            group.join(self)
        revoked: tuple[TopicPartition, ...] = ()
        if group.rebalancing and self not in group.rejoined:
            group.notes |= {
                topic_partition: note
                for topic_partition, note in self._parting.items()
                if topic_partition in group.notes
            }
            revoked = self._drop()
            group.rejoin(self)
        if group.rebalancing:
            return Polled(revoked=revoked)
        if self._generation != group.generation:
            return Polled(revoked=revoked, assigned=self._take())
        return Polled(records=self._fetch(records_max))

    def committed(self, topic_partition: TopicPartition) -> Offset | None:
        """Return the group's next offset, or None where there is none."""
        return self._group.offsets.get(topic_partition)

    def noted(self, topic_partition: TopicPartition) -> tuple[Offset | None, str]:
        """Return the group's next offset and the note committed with it."""
        return self._group.offsets.get(topic_partition), self._group.notes.get(topic_partition, "")

    def seek(self, topic_partition: TopicPartition, offset: Offset) -> None:
        """Read next from `offset`."""
        if topic_partition not in self._positions:
            raise ValueError(f"{topic_partition} is not assigned to this member")
        self._positions[topic_partition] = offset

    def pause(self, topic_partition: TopicPartition) -> None:
        """Keep the partition but fetch nothing from it."""
        self._paused.add(topic_partition)

    def resume(self, topic_partition: TopicPartition) -> None:
        """Fetch from the partition again."""
        self._paused.discard(topic_partition)

    def commit(
        self, next_offsets: Mapping[TopicPartition, Offset], notes: Notes = NO_NOTES
    ) -> None:
        """Commit the group's next offsets, each with a note or none.

        A member may still commit between the notice of a rebalance and its end.
        Raises: Fenced, for a consumer that is no member or belongs to an older generation.
        """
        group = self._group
        if self not in group.members or self._generation != group.generation:
            raise Fenced(
                f"another member of group {group.name!r} holds {sorted(next_offsets)}; leave"
            )
        group.offsets.update(next_offsets)
        group.notes.update(
            {topic_partition: notes.get(topic_partition, "") for topic_partition in next_offsets}
        )

    def note_on_revoke(self, topic_partition: TopicPartition, note: str) -> None:
        """Set the note to commit when the group revokes this partition."""
        self._parting[topic_partition] = note

    def commit_soon(
        self, next_offsets: Mapping[TopicPartition, Offset], notes: Notes = NO_NOTES
    ) -> None:
        """Commit at once. Raises: Fenced."""
        self.commit(next_offsets, notes)

    @property
    def is_member(self) -> bool:
        """Whether the group has admitted it, as of its last poll."""
        return self._membership is _Membership.MEMBER and self._generation >= 0

    @property
    def held_back(self) -> Mapping[TopicPartition, HeldBack]:
        """Return the open transactions that tests set; this cluster has none of its own."""
        return {
            topic_partition: held
            for topic_partition, held in self._bus.held_back.items()
            if topic_partition in self._positions
        }

    def close(self) -> None:
        """Leave the group."""
        if self in self._group.members:
            self._group.leave(self)
        self._membership = _Membership.CLOSED

    def expire(self) -> None:
        """Lose the membership without notice; the next poll reports it."""
        if self in self._group.members:
            self._group.leave(self)
            self._membership = _Membership.EXPIRED

    def _drop(self) -> tuple[TopicPartition, ...]:
        held = tuple(
            sorted(
                topic_partition
                for topic_partition in self._positions
                if topic_partition.topic in self.topics
            )
        )
        self._positions.clear()
        self._paused.clear()
        self._parting.clear()
        return held

    def _take(self) -> tuple[TopicPartition, ...]:
        self._generation = self._group.generation
        counts = {topic: self._bus.partitions(topic) for topic in self.topics}
        assigned = tuple(self._group.share(self, counts))
        numbers = sorted({topic_partition.partition for topic_partition in assigned})
        more = [TopicPartition(topic, number) for topic in self.beside for number in numbers]
        self._positions = {
            topic_partition: self._start(topic_partition) for topic_partition in (*assigned, *more)
        }
        return assigned

    def _start(self, topic_partition: TopicPartition) -> Offset:
        """Return the group's offset, or the first offset where that one does not exist."""
        offset = self._group.offsets.get(topic_partition, Offset(0))
        return offset if offset <= len(self._bus.log(topic_partition)) else Offset(0)

    def _fetch(self, records_max: int) -> tuple[Record, ...]:
        fetched: list[Record] = []
        for topic_partition in sorted(self._positions):
            if topic_partition in self._paused:
                continue
            start = self._positions[topic_partition]
            if start > len(self._bus.log(topic_partition)):
                start = Offset(0)
            taken = self._bus.log(topic_partition)[start : start + records_max - len(fetched)]
            self._positions[topic_partition] = Offset(start + len(taken))
            fetched += taken
        return tuple(fetched)


def _counts(topics: Iterable[Topic]) -> list[tuple[str, int]]:
    return [(topic.name, topic.partitions) for topic in topics]
