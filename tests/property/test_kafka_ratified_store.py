"""Committers on a store without put-if-absent: faults, crashes and repeated outcomes.

A seed draws what happens at each call to a dependency: the committer dies before or after it, the
response or the request is lost, a record lands long after, another committer does all its work in
between. Then the model's few lines fold the partition again, and the store is compared with the
result.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

import pytest

from tests.fakes.memory_clients import MemoryProducer, MemoryReader
from tests.fakes.memory_store import MemoryBus, MemoryStore
from tidegate_delta.errors import BrokenLog, Unavailable
from tidegate_delta.log.commit import sha256
from tidegate_messages.codec import decode
from tidegate_messages.ratification import Ratification, Ratified
from tidegate_messages.topics import Topics
from tidegate_runtime.kafka.client_protocols import Headers, TopicPartition
from tidegate_runtime.storage import kafka_ratified_store
from tidegate_runtime.storage.kafka_ratified_store import RatifiedStore, RatifyLog
from tidegate_runtime.storage.log_store import FileStat, Put, Turn, at_once

SEEDS: Final = 400
ATTEMPTS: Final = 12
COMMITTERS: Final = 3
TOPICS: Final = Topics()
AT: Final = TopicPartition(TOPICS.ratify, 0)
ROOT: Final = "s3://bucket/t"


class Died(Exception):
    """The committer has died."""


class Wrong(AssertionError):
    """Something that the protocol forbids."""


def name(version: int) -> str:
    return f"_delta_log/{version:020d}.json"


class Watched(MemoryStore):
    """Replaces files, and detects a version that changes or that leaves a gap."""

    def put_if_absent(
        self, path: str, content: bytes, deadline_s: float, turn: Turn = at_once
    ) -> Put:
        raise Unavailable("501 NotImplemented")

    def put(self, path: str, content: bytes) -> None:
        if "_staged_commits" not in path:
            version = int(path.removeprefix("_delta_log/").removesuffix(".json"))
            if self.files.get(path, content) != content:
                raise Wrong(f"version {version} was written over by other bytes")
            if version and name(version - 1) not in self.files:
                raise Wrong(f"version {version} stands there without the one before")
        super().put(path, content)


@dataclass
class World:
    """One table, one partition, and randomness. `told` are the reported versions and bytes."""

    seed: int
    told: list[tuple[int, bytes, Put]] = field(default_factory=list)
    busy: set[int] = field(default_factory=set)
    made: int = 0

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)
        self.bus = MemoryBus(TOPICS.declared())
        self.below = Watched(ROOT)
        self.late: list[bytes | None] = []
        self.calm = False
        self.committers = [self.born() for _ in range(COMMITTERS)]

    def born(self) -> RatifiedStore:
        """Return a committer without state."""
        store, bus = FaultyStore(self), FaultyBus(self)
        return RatifiedStore(store, RatifyLog(bus, TOPICS), self.new_id)

    def new_id(self) -> UUID:
        """Return a new id."""
        self.made += 1
        return UUID(int=self.made)

    def befalls(self, effect: Callable[[], None]) -> None:
        """Let a fault happen around one call to a dependency."""
        self.land(share=0.1)
        fate = "nothing" if self.calm else self.fate()
        if fate == "a rival comes first":
            self.attempt(self.dice.choice(sorted(set(range(COMMITTERS)) - self.busy)))
        if fate == "died before":
            raise Died
        if fate == "the request was lost":
            raise Unavailable("the request was lost")
        effect()
        if fate == "died after":
            raise Died
        if fate == "the answer was lost":
            raise Unavailable("the answer was lost")

    def fate(self) -> str:
        """Return the fault of a call."""
        fates = ["nothing"] * 30 + ["died before", "died after", "the request was lost"]
        fates += ["the answer was lost"] + ["a rival comes first"] * (
            3 * (len(self.busy) < COMMITTERS)
        )
        return self.dice.choice(fates)

    def land(self, share: float) -> None:
        """Let some late records arrive."""
        waiting, self.late = self.late, []
        for value in waiting:
            if self.dice.random() < share:
                self.bus.append(AT, b"late", value)
            else:
                self.late.append(value)

    def attempt(self, number: int) -> None:
        """Let a committer put the version after its head, and resolve an ambiguous result."""
        store = self.committers[number]
        self.busy.add(number)
        content = f"attempt {self.new_id()}".encode()
        try:
            version = len(list(store.list_from("_delta_log", "")))
            for _ in range(3):
                answer = self.resolved(store, version, content)
                if answer is not Put.UNKNOWN:
                    self.told.append((version, content, answer))
                    return
        except Died:
            self.committers[number] = self.born()
        except Unavailable:
            return
        finally:
            self.busy.discard(number)

    def resolved(self, store: RatifiedStore, version: int, content: bytes) -> Put:
        """Return the result of a PUT, as far as reads can tell."""
        answer = store.put_if_absent(name(version), content, 30.0)
        there = store.read(name(version)) if answer is Put.UNKNOWN else None
        if there is not None:
            return Put.WON if there == content else Put.LOST
        return answer

    def run(self) -> None:
        """Run the attempts, then let everything arrive, and check."""
        for _ in range(ATTEMPTS):
            self.attempt(self.dice.randrange(COMMITTERS))
        self.land(share=1.0)
        self.calm = True
        list(self.born().list_from("_delta_log", ""))
        self.check()

    def check(self) -> None:
        """Compare the store, and the reported results, with the partition.

        Raises: Wrong.
        """
        valid: list[str | None] = []
        begun = False
        for record in self.bus.logs[AT]:
            claim = decode(Ratification, record.value)
            begun = begun or not claim.is_claim
            if begun and claim.is_claim and claim.version == len(valid):
                valid.append(claim.sha256)
        stands = {path: sha256(content) for path, content in self.below.files.items()}
        published = {path: one for path, one in stands.items() if "_staged" not in path}
        if published != {name(version): one for version, one in enumerate(valid)}:
            raise Wrong("the store does not say what the partition says")
        for version, content, answer in self.told:
            is_there = version < len(valid) and valid[version] == sha256(content)
            if (answer is Put.WON) is not is_there:
                raise Wrong(f"version {version} was told {answer}, and that is not so")


class FaultyStore(MemoryStore):
    """A store with faults around its calls."""

    def __init__(self, world: World) -> None:
        super().__init__(ROOT)
        self._world = world

    def list_from(self, folder: str, start: str) -> Iterator[FileStat]:
        self._world.befalls(lambda: None)
        result = list(self._world.below.list_from(folder, start))
        yield from (stat for stat in result if "_staged" not in stat.path)

    def read(self, path: str) -> bytes | None:
        found: list[bytes | None] = []
        self._world.befalls(lambda: found.append(self._world.below.read(path)))
        return found[0]

    def put(self, path: str, content: bytes) -> None:
        self._world.befalls(lambda: self._world.below.put(path, content))

    def delete(self, path: str) -> None:
        self._world.befalls(lambda: self._world.below.delete(path))


class FaultyBus(MemoryBus):
    """The bus of one committer: its records may be lost, duplicated or late."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def producer(self) -> MemoryProducer:
        return FaultyProducer(self._world)

    def reader(self) -> MemoryReader:
        return self._world.bus.reader()


class FaultyProducer(MemoryProducer):
    """A producer whose records may arrive late."""

    def __init__(self, world: World) -> None:
        super().__init__(world.bus)
        self._world = world

    def publish(
        self,
        topic_partition: TopicPartition,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
    ) -> None:
        world = self._world

        def arrive() -> None:
            for _ in range(world.dice.choice([1, 1, 1, 2])):
                world.bus.append(topic_partition, key, value, headers)

        if not world.calm and world.dice.random() < 0.1:
            world.late.append(value)
            raise Unavailable("no acknowledgement yet")
        world.befalls(arrive)


def wrong(seed: int) -> bool:
    """Return whether a seed finds a violation, or a table that halts."""
    try:
        World(seed).run()
    except (Wrong, BrokenLog):
        return True
    return False


@pytest.mark.parametrize("part", range(4))
def test_the_partition_decides_and_the_store_follows(part: int) -> None:
    result: list[Put] = []
    for seed in range(part, SEEDS, 4):
        world = World(seed)
        world.run()
        result += [answer for _, _, answer in world.told]
    assert result.count(Put.WON) > 100
    assert result.count(Put.LOST) > 5


def test_a_fold_that_lets_the_last_claim_count_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(ratified: Ratified | None, record: Ratification) -> Ratified | None:
        if not record.is_claim or ratified is None:
            return Ratified(record.version) if ratified is None else ratified
        if record.version not in (ratified.head, ratified.head + 1):
            return ratified
        return Ratified(record.version, record)

    monkeypatch.setattr(kafka_ratified_store, "fold", careless)
    assert any(wrong(seed) for seed in range(SEEDS))


def test_publishing_before_the_fold_has_decided_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    contend = RatifiedStore._contend

    def early(store: RatifiedStore, version: int, content: bytes, ends_s: float) -> Put:
        store._below.put(name(version), content)
        return contend(store, version, content, ends_s)

    monkeypatch.setattr(RatifiedStore, "_contend", early)
    assert any(wrong(seed) for seed in range(SEEDS))


def test_claiming_before_the_one_before_is_published_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unpublished(store: RatifiedStore, claim: Ratification, asked_s: float) -> None:
        """Publish nothing."""

    monkeypatch.setattr(RatifiedStore, "_publish", unpublished)
    assert any(wrong(seed) for seed in range(SEEDS))
