"""The doors as the world batters them: crashes, lost answers, late landings, pauses, outages.

Each call of a committer into its store or its bus passes here. What happens is rolled from the one
seeded source; probabilities differ from seed to seed, so that seeds differ in character.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO

from tests import builders
from tidegate.delta.errors import Fenced, OutcomeUnknown, Unavailable
from tidegate.runtime.bus import (
    ClusterIdentity,
    Headers,
    Offset,
    Polled,
    TopicPartition,
)
from tidegate.runtime.log_store import FileStat, Put
from tidegate.runtime.memory import MemoryStore
from tidegate.runtime.memory_bus import MemoryBus, MemoryConsumer, MemoryProducer, MemoryReader


class Crash(BaseException):
    """The process is gone; nothing in it may catch this."""


@dataclass(frozen=True)
class Character:
    """How likely each fault is, for one seed."""

    crash: float
    lost_answer: float
    late: float
    dropped: float
    outage: float
    pause: float

    @classmethod
    def rolled(cls, dice: random.Random) -> "Character":
        """Return the character of a seed: some faults often, some never."""

        def chance(most: float) -> float:
            return most * dice.random() if dice.random() < 0.6 else 0.0

        return cls(
            crash=chance(0.05),
            lost_answer=chance(0.3),
            late=chance(0.3),
            dropped=chance(0.2),
            outage=chance(0.04),
            pause=chance(0.06),
        )


CALM = Character(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


@dataclass
class SimulatedClock:
    """Time that the world moves. Wall time steps; boot time does not."""

    boot: float = 0.0
    skew_ms: int = 0

    def now_ms(self) -> int:
        """Return wall time."""
        return builders.NOW_MS + int(self.boot * 1000) + self.skew_ms

    def boot_s(self) -> float:
        """Return boot time."""
        return self.boot

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.boot += seconds


@dataclass
class Weather:
    """What rolls the faults. `pause` lets the rest of the world go on in the midst of a call."""

    dice: random.Random
    character: Character
    pause: Callable[[], None] = lambda: None
    travelling: list[Callable[[], None]] = field(default_factory=list)
    """PUTs that were sent and have not arrived."""
    struck: Counter[str] = field(default_factory=Counter)
    """How often each fault was rolled."""

    def happens(self, fault: str, times: float = 1.0) -> bool:
        """Roll one fault, some times as likely as the seed's character has it."""
        chance = times * getattr(self.character, fault)
        if chance <= 0 or self.dice.random() >= chance:
            return False
        self.struck[fault] += 1
        return True

    def strike(self) -> None:
        """What may befall any call: the process stops for a while, or for ever."""
        if self.happens("pause"):
            self.pause()
        if self.happens("crash", 1 / 4):
            raise Crash

    def outage(self, what: str) -> None:
        """Raise Unavailable now and then."""
        if self.happens("outage"):
            raise Unavailable(f"{what} does not answer")

    def land(self) -> None:
        """Let one of the travelling PUTs arrive, in any order."""
        if self.travelling:
            self.travelling.pop(self.dice.randrange(len(self.travelling)))()


@dataclass
class StormyStore:
    """A store whose answers may be lost, late or doubtful; what it holds is sound."""

    inner: MemoryStore
    weather: Weather

    @property
    def root(self) -> str:
        """The URI of the table root."""
        return self.inner.root

    def list_from(self, folder: str, start: str) -> Iterator[FileStat]:
        """Yield the files, or fail."""
        self.weather.strike()
        self.weather.outage("the store")
        return self.inner.list_from(folder, start)

    def read(self, path: str) -> bytes | None:
        """Return a file, or fail."""
        self.weather.strike()
        self.weather.outage("the store")
        return self.inner.read(path)

    def open(self, path: str) -> BinaryIO:
        """Return a reader."""
        return self.inner.open(path)

    def put_if_absent(self, path: str, content: bytes, deadline_s: float) -> Put:
        """Write if absent; the request or its answer may meet any fate."""
        weather = self.weather
        weather.strike()

        def arrive() -> None:
            self.inner.put_if_absent(path, content, 0.0)

        if weather.happens("late"):
            weather.travelling.append(arrive)
            if weather.happens("crash", 4):
                raise Crash
            return Put.UNKNOWN
        if weather.happens("dropped"):
            return Put.UNKNOWN
        answer = self.inner.put_if_absent(path, content, deadline_s)
        weather.strike()
        return Put.UNKNOWN if weather.happens("lost_answer") else answer

    def put(self, path: str, content: bytes) -> None:
        """Write a file."""
        self.inner.put(path, content)

    def delete(self, path: str) -> None:
        """Remove a file."""
        self.inner.delete(path)


@dataclass
class StormyConsumer:
    """A member whose positions may not get through."""

    inner: MemoryConsumer
    weather: Weather

    def poll(self, records_max: int, timeout_s: float) -> Polled:
        """Return what there is: a few records at a time, so that groups differ."""
        self.weather.strike()
        return self.inner.poll(self.weather.dice.randint(1, 6), timeout_s)

    def committed(self, at: TopicPartition) -> Offset | None:
        """Return the group's offset."""
        return self.inner.committed(at)

    def seek(self, at: TopicPartition, offset: Offset) -> None:
        """Read on from an offset."""
        self.inner.seek(at, offset)

    def pause(self, at: TopicPartition) -> None:
        """Fetch nothing."""
        self.inner.pause(at)

    def resume(self, at: TopicPartition) -> None:
        """Fetch again."""
        self.inner.resume(at)

    def commit(self, next_offsets: Mapping[TopicPartition, Offset]) -> None:
        """Record offsets, lose the request, or lose the answer."""
        self.weather.strike()
        if self.weather.happens("outage"):
            raise Fenced("the group has moved on")
        self.inner.commit(next_offsets)
        self.weather.outage("the group's coordinator")

    def close(self) -> None:
        """Leave the group."""
        self.inner.close()


@dataclass
class StormyProducer:
    """A producer that may die in the midst of a flush, with part of its queue delivered."""

    inner: MemoryProducer
    weather: Weather

    def publish(
        self, at: TopicPartition, key: bytes | None, value: bytes | None, headers: Headers = ()
    ) -> None:
        """Queue a record."""
        self.inner.publish(at, key, value, headers)

    def flush(self, timeout_s: float) -> None:
        """Deliver all, or a part and then fail or crash."""
        weather = self.weather
        if weather.happens("crash"):
            self.inner.deliver(weather.dice.randint(0, len(self.inner.queued)))
            raise Crash
        if weather.happens("outage"):
            self.inner.deliver(weather.dice.randint(0, len(self.inner.queued)))
            self.inner.queued.clear()
            raise OutcomeUnknown("the broker did not acknowledge")
        self.inner.flush(timeout_s)

    def close(self) -> None:
        """Let go without a flush: a failed process does not finish its work."""


@dataclass
class StormyBus:
    """The bus as one process sees it. `members` are all consumers that were ever made."""

    inner: MemoryBus
    weather: Weather
    members: list[MemoryConsumer]

    def consumer(self, group: str, topics: Sequence[str]) -> StormyConsumer:
        """Return a new member."""
        member = self.inner.consumer(group, topics)
        self.members.append(member)
        return StormyConsumer(member, self.weather)

    def producer(self) -> StormyProducer:
        """Return a new producer."""
        return StormyProducer(self.inner.producer(), self.weather)

    def reader(self) -> MemoryReader:
        """Return a reader."""
        return self.inner.reader()

    def partitions(self, topic: str) -> int:
        """Return how many partitions a topic has."""
        return self.inner.partitions(topic)

    def identity(self, topics: Sequence[str]) -> ClusterIdentity:
        """Return the cluster's and the topics' ids."""
        return self.inner.identity(topics)
