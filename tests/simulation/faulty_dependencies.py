"""In-memory dependencies with faults: crashes, lost responses, late PUTs, pauses, outages.

Each call of a committer to its store or its bus passes here. One seeded source decides which fault
happens; probabilities differ from seed to seed, so that seeds differ in character.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Any, BinaryIO, Final, Generic, TypeVar, cast

from tests.fakes.memory_bus import MemoryBus, MemoryConsumer
from tests.fakes.memory_clients import MemoryProducer, MemoryReader
from tests.fakes.memory_store import MemoryStore
from tidegate_committer.loop.entry_put import PutResult
from tidegate_committer.store_executor import InlineExecutor
from tidegate_delta.errors import Fenced, OutcomeUnknown, TidegateError, Unavailable
from tidegate_runtime.clock import Clock
from tidegate_runtime.kafka.client_protocols import (
    ANSWER_S,
    NO_NOTES,
    ClusterIdentity,
    Headers,
    HeldBack,
    Notes,
    Offset,
    Polled,
    TopicPartition,
)
from tidegate_runtime.storage.log_store import FileStat, IsWanted, Put, Turn, at_once

T = TypeVar("T")
R = TypeVar("R")


class Crash(BaseException):
    """The process dies; nothing within it may catch this."""


@dataclass(frozen=True)
class Character:
    """The probability of each fault for one seed."""

    crash: float
    lost_answer: float
    late: float
    dropped: float
    outage: float
    pause: float
    slow: float
    suspension: float
    disk_full: float
    broker_loss: float
    slow_answer: float
    stale_listing: float
    slow_read: float = 0.0

    @classmethod
    def rolled(cls, dice: random.Random) -> "Character":
        """Return the character of a seed: some faults are frequent, some never happen."""

        def chance(most: float) -> float:
            return most * dice.random() if dice.random() < 0.6 else 0.0

        return cls(
            crash=chance(0.05),
            lost_answer=chance(0.3),
            late=chance(0.3),
            dropped=chance(0.2),
            outage=chance(0.04),
            pause=chance(0.06),
            slow=chance(0.9),
            suspension=chance(0.01),
            disk_full=chance(0.1),
            broker_loss=chance(0.03),
            slow_answer=chance(0.03),
            stale_listing=chance(0.1),
        )


CALM = Character(**dict.fromkeys((field.name for field in fields(Character)), 0.0))

LIFE_S: Final = 60.0
"""The longest time a request travels to a store. A later one is refused, as S3 refuses a request
whose signature is too old.
"""

WORST_TO_SLEEP: Final = ("after_decide", "before_put", "before_resolve")
"""Failpoints between a read of the log and the write that depends on it."""

POLLED_MAX: Final = 6
"""Most records that one poll returns, so that groups differ."""

SPELL_S: Final = 2.0
"""How long a disk stays full, or a broker unavailable."""


@dataclass
class Weather:
    """Decides which faults happen. `pause` lets the rest of the world go on within a call.

    `sleep` lets it go on for long. `travelling` are PUTs that were sent and have not arrived, each
    with the time until which it may arrive; `orphans` are those whose loop has ended while their
    threads go on.
    """

    dice: random.Random
    clock: Clock
    character: Character
    pause: Callable[[], None] = lambda: None
    sleep: Callable[[], None] = lambda: None
    travelling: list[tuple[float, Callable[[], None]]] = field(default_factory=list)
    orphans: list["Unhurried"] = field(default_factory=list)
    struck: Counter[str] = field(default_factory=Counter)
    """How often each fault happened."""
    spells: dict[str, float] = field(default_factory=dict)
    """Until when each lasting fault lasts."""
    is_aside: bool = False
    """Whether a store may be called: the loop itself must not, only its threads."""

    @contextmanager
    def aside(self, *, is_aside: bool = True) -> Iterator[None]:
        """Mark calls to stores as made outside the loop, or as made by the loop."""
        before, self.is_aside = self.is_aside, is_aside
        try:
            yield
        finally:
            self.is_aside = before

    def happens(self, fault: str, times: float = 1.0) -> bool:
        """Decide whether a fault happens; `times` scales the seed's probability."""
        chance = times * getattr(self.character, fault)
        if chance <= 0 or self.dice.random() >= chance:
            return False
        self.struck[fault] += 1
        return True

    def lasts(self, fault: str) -> bool:
        """Decide a fault that lasts for a while once it happens."""
        now_s = self.clock.boot_s()
        if self.happens(fault):
            self.spells[fault] = now_s + SPELL_S
        return now_s < self.spells.get(fault, now_s)

    def is_within(self, fault: str) -> bool:
        """Return whether a lasting fault is active, without deciding again."""
        now_s = self.clock.boot_s()
        return now_s < self.spells.get(fault, now_s)

    def strike(self) -> None:
        """Apply what may happen to any call: the process stalls, or dies."""
        if self.happens("pause"):
            self.pause()
        if self.happens("crash", 1 / 4):
            raise Crash

    def suspend(self, point: str) -> None:
        """Suspend the machine with everything that the process holds; others go on."""
        if self.happens("suspension", 8 if point in WORST_TO_SLEEP else 1):
            self.sleep()

    def delay(self, *, worst: bool = False) -> None:
        """Delay a response, so that it may be outdated when it arrives.

        `worst` marks a response that says where the log ends.
        """
        if self.happens("slow_answer"):
            self.pause()
        if self.happens("suspension", 2 if worst else 1 / 4):
            self.sleep()

    def outage(self, what: str) -> None:
        """Raise Unavailable now and then."""
        if self.happens("outage"):
            raise Unavailable(f"{what} does not answer")

    def send(self, arrive: Callable[[], None]) -> None:
        """Send a PUT that arrives later."""
        self.travelling.append((self.clock.boot_s() + LIFE_S, arrive))

    def land(self) -> None:
        """Let one pending PUT arrive, in any order, or let one go on whose loop has ended."""
        if self.orphans and (not self.travelling or self.dice.random() < 1 / 2):
            orphan = self.orphans.pop(self.dice.randrange(len(self.orphans)))
            self.struck["orphan"] += 1
            orphan.go_on()
        elif self.travelling:
            place = self.dice.randrange(len(self.travelling))
            until_s, arrive = self.travelling.pop(place)
            if self.clock.boot_s() <= until_s:
                arrive()

    def clear(self) -> None:
        """Stop the faults and let all pending PUTs arrive."""
        self.character = CALM
        self.spells.clear()
        while self.travelling or self.orphans:
            self.land()


@dataclass
class StormyStore:
    """A store whose responses may be lost, late or ambiguous; its content is sound.

    A listing may miss the newest files, but none that this caller has seen: `shown` is the last
    commit file that it has seen.
    """

    inner: MemoryStore
    weather: Weather
    shown: str = ""

    @property
    def root(self) -> str:
        """The URI of the table root."""
        return self.inner.root

    def list_from(self, folder: str, start: str) -> Iterator[FileStat]:
        """Return the files, without some of the newest, or fail."""
        self._asked()
        self.weather.outage("the store")
        result = list(self.inner.list_from(folder, start))
        if self.weather.happens("stale_listing"):
            result = self._without_the_newest(result, self.weather.dice.randint(1, 2))
        self._show(*(item.path for item in result))
        self.weather.delay()
        return iter(result)

    def list_tree(self, is_wanted: IsWanted) -> Iterator[FileStat]:
        """Return all files, or fail."""
        self._asked()
        self.weather.outage("the store")
        return self.inner.list_tree(is_wanted)

    def read(self, path: str) -> bytes | None:
        """Return a file's content, or fail."""
        self._asked()
        self.weather.outage("the store")
        content = self.inner.read(path)
        if content is not None:
            self._show(path)
        self.weather.delay(worst=content is None)
        return content

    def open(self, path: str) -> BinaryIO:
        """Return a reader, or fail."""
        self._asked()
        self.weather.outage("the store")
        reader = self.inner.open(path)
        self.weather.delay()
        return reader

    def put_if_absent(
        self, path: str, content: bytes, deadline_s: float, turn: Turn = at_once
    ) -> Put:
        """Write if absent; the request or its response may be lost, late or doubled."""
        weather = self.weather
        self._asked()
        if not turn():
            return Put.WITHHELD

        def arrive() -> None:
            self.inner.put_if_absent(path, content, 0.0)

        if weather.lasts("disk_full"):
            raise Unavailable("there is no space left: free some")
        if weather.happens("late"):
            weather.send(arrive)
            if weather.happens("crash", 4):
                raise Crash
            return Put.UNKNOWN
        if weather.happens("dropped"):
            return Put.UNKNOWN
        answer = self.inner.put_if_absent(path, content, deadline_s)
        self._show(path)
        weather.strike()
        weather.delay(worst=True)
        return Put.UNKNOWN if weather.happens("lost_answer") else answer

    def put(self, path: str, content: bytes) -> None:
        """Write a file."""
        self.inner.put(path, content)

    def delete(self, path: str) -> None:
        """Remove a file."""
        self.inner.delete(path)

    def _asked(self) -> None:
        assert self.weather.is_aside, "the loop waits for no store"
        self.weather.strike()

    def _show(self, *paths: str) -> None:
        self.shown = max([self.shown, *(path for path in paths if path.endswith(".json"))])

    def _without_the_newest(self, found: list[FileStat], count: int) -> list[FileStat]:
        """Return a listing without the newest `count` commit files that the caller has not seen."""
        news = [item for item in found if item.path.endswith(".json") and item.path > self.shown]
        return [one for one in found if one not in news[-count:]]


@dataclass
class Deferred(Generic[T]):
    """Work of a thread beside the loop; `answer` or `error` is its result."""

    work: Callable[[], T]
    weather: Weather
    answer: T | None = field(default=None, init=False)
    error: TidegateError | None = field(default=None, init=False)
    is_over: bool = field(default=False, init=False)
    is_under_way: bool = field(default=False, init=False)

    def go_on(self) -> None:
        """Do the work, unless it is done or under way."""
        if self.is_over or self.is_under_way:
            return
        self.is_under_way = True
        try:
            with self.weather.aside():
                self.answer = self.work()
        except TidegateError as error:
            self.error = error
        finally:
            self.is_under_way = False
        self.is_over = True


@dataclass
class Unhurried(Deferred[PutResult]):
    """A PUT that lands at a random moment; until then its committer goes on.

    `others` are the other pending PUTs; they may land when this one does, each at random.
    """

    others: list["Unhurried"]

    def done(self) -> bool:
        """Return whether it has ended; a call may let it end, and others with it."""
        if not self.is_over and not self.weather.happens("slow"):
            self.go_on()
            for other in self.others:
                if not other.is_over and not self.weather.happens("slow"):
                    other.go_on()
        return self.is_over

    def result(self, timeout: float | None = None, /) -> PutResult:
        """Return its result, or raise its error."""
        self.go_on()
        if self.error is not None:
            raise self.error
        if self.answer is None:
            raise TimeoutError("who asks is there in the midst of it")
        return self.answer

    def go_on(self) -> None:
        """Do the PUT, unless it is done or under way, and count it if it was withheld."""
        was_over = self.is_over
        super().go_on()
        if self.answer is not None and not was_over:
            self.weather.struck["withheld"] += self.answer.put is Put.WITHHELD


@dataclass
class StormyPuts(InlineExecutor):
    """Runs PUTs that take their time."""

    weather: Weather
    flights: list[Unhurried] = field(default_factory=list)

    def begin(
        self, root: str, work: Callable[[], R], /, behind: Future[Any] | None = None
    ) -> Future[R]:
        """Start a PUT."""
        self.flights = [flight for flight in self.flights if not flight.is_over]
        flight = Unhurried(cast(Callable[[], PutResult], work), self.weather, self.flights)
        self.flights.append(flight)
        return cast(Future[R], flight)

    def wait(self, timeout_s: float) -> None:
        """Let time pass, sometimes more than was asked for."""
        self.weather.clock.sleep(timeout_s * self.weather.dice.choice((1, 1, 100)))

    def close(self) -> None:
        """Start no more PUTs; pending ones go on by themselves."""
        self.weather.orphans += [flight for flight in self.flights if not flight.is_over]


@dataclass
class StormyConsumer:
    """A group member whose offset commits may get lost.

    `paused` are the partitions that it does not read; `eased` are those that were revoked while
    paused.
    """

    inner: MemoryConsumer
    weather: Weather
    paused: set[TopicPartition] = field(default_factory=set)
    eased: set[TopicPartition] = field(default_factory=set)

    def poll(self, records_max: int, timeout_s: float) -> Polled:
        """Return a few records at a time, so that groups differ."""
        self.weather.strike()
        if self.weather.lasts("broker_loss"):
            return Polled()
        polled = self.inner.poll(self.weather.dice.randint(1, POLLED_MAX), timeout_s)
        taken = {*polled.revoked, *polled.lost}
        self.weather.struck["taken while pressed"] += len(taken & self.paused)
        self.weather.struck["back after pressure"] += len({*polled.assigned} & self.eased)
        self.eased |= taken & self.paused
        self.paused -= taken
        return polled

    def committed(self, topic_partition: TopicPartition) -> Offset | None:
        """Return the group's offset."""
        return self.inner.committed(topic_partition)

    def noted(self, topic_partition: TopicPartition) -> tuple[Offset | None, str]:
        """Return the group's offset and the note committed with it."""
        return self.inner.noted(topic_partition)

    def seek(self, topic_partition: TopicPartition, offset: Offset) -> None:
        """Read on from an offset."""
        self.inner.seek(topic_partition, offset)

    def pause(self, topic_partition: TopicPartition) -> None:
        """Stop fetching from a partition."""
        self.weather.struck["pressed"] += 1
        self.paused.add(topic_partition)
        self.inner.pause(topic_partition)

    def resume(self, topic_partition: TopicPartition) -> None:
        """Fetch from a partition again."""
        self.weather.struck["eased"] += 1
        self.paused.discard(topic_partition)
        self.inner.resume(topic_partition)

    def commit(
        self, next_offsets: Mapping[TopicPartition, Offset], notes: Notes = NO_NOTES
    ) -> None:
        """Commit offsets, or lose the request, or lose the response."""
        self.weather.strike()
        if self.weather.happens("outage"):
            # The group rejects the commit of an expelled member, and the next poll tells it so.
            self.inner.expire()
            raise Fenced("the group has moved on")
        if self.weather.lasts("broker_loss"):
            raise Unavailable("no broker answers")
        self.inner.commit(next_offsets, notes)
        self.weather.outage("the group's coordinator")

    def commit_soon(
        self, next_offsets: Mapping[TopicPartition, Offset], notes: Notes = NO_NOTES
    ) -> None:
        """Commit offsets at once."""
        self.commit(next_offsets, notes)

    def note_on_revoke(self, topic_partition: TopicPartition, note: str) -> None:
        """Commit a note when the partition is revoked."""
        self.inner.note_on_revoke(topic_partition, note)

    @property
    def is_member(self) -> bool:
        """Return whether it is a member of the group."""
        return self.inner.is_member

    @property
    def held_back(self) -> Mapping[TopicPartition, HeldBack]:
        """Return the records that open transactions hold back."""
        return self.inner.held_back

    def close(self) -> None:
        """Leave the group."""
        self.inner.close()


@dataclass
class StormyProducer:
    """A producer that may die within a flush, after delivering part of its queue."""

    inner: MemoryProducer
    weather: Weather

    def publish(
        self,
        topic_partition: TopicPartition,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
    ) -> None:
        """Queue a record."""
        self.inner.publish(topic_partition, key, value, headers)

    def flush(self, timeout_s: float) -> None:
        """Deliver all records, or some of them and then fail or crash."""
        weather = self.weather
        if weather.happens("crash"):
            self.inner.deliver(weather.dice.randint(0, len(self.inner.queued)))
            raise Crash
        if weather.happens("outage") or weather.lasts("broker_loss"):
            self.inner.deliver(weather.dice.randint(0, len(self.inner.queued)))
            self.inner.queued.clear()
            raise OutcomeUnknown("the broker did not acknowledge")
        self.inner.flush(timeout_s)

    def close(self) -> None:
        """Close without a flush: a failed process does not finish its work."""


@dataclass
class StormyBus:
    """The bus as one process sees it. `members` are all consumers ever created."""

    inner: MemoryBus
    weather: Weather
    members: list[MemoryConsumer]

    def consumer(
        self, group: str, topics: Sequence[str], beside: Sequence[str] = ()
    ) -> StormyConsumer:
        """Return a new member."""
        member = self.inner.consumer(group, topics, beside)
        self.members.append(member)
        return StormyConsumer(member, self.weather)

    def producer(self) -> StormyProducer:
        """Return a new producer."""
        return StormyProducer(self.inner.producer(), self.weather)

    def reader(self) -> MemoryReader:
        """Return a reader, or fail."""
        if self.weather.lasts("broker_loss"):
            raise Unavailable("no broker answers")
        return self.inner.reader()

    def partitions(self, topic: str, timeout_s: float = ANSWER_S) -> int:
        """Return a topic's number of partitions, possibly an outdated one."""
        count = self.inner.partitions(topic, timeout_s)
        if self.weather.is_within("stale_count") and self.weather.dice.random() < 1 / 2:
            self.weather.struck["stale count"] += 1
            return count - 1
        return count

    def identity(self, topics: Sequence[str]) -> ClusterIdentity:
        """Return the ids of the cluster and the topics."""
        return self.inner.identity(topics)
