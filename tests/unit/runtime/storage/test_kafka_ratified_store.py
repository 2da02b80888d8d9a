"""The store that decides versions by a topic partition: the store contract, and its own rules."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from unittest import mock
from uuid import uuid4

import pytest

from tests.builders import StillClock
from tests.fakes.memory_clients import MemoryProducer
from tests.fakes.memory_store import MemoryBus, MemoryStore
from tests.store_laws import DEADLINE_S, LAWS, assert_one_winner_each, contest
from tidegate_delta.errors import BrokenLog, Unavailable
from tidegate_messages.codec import decode, encode
from tidegate_messages.ratification import Ratification
from tidegate_messages.topics import Topics
from tidegate_runtime.kafka.client_protocols import Headers, TopicPartition
from tidegate_runtime.storage.kafka_ratified_store import RatifiedStore, RatifyLog, ratifying
from tidegate_runtime.storage.local_store import LocalStore
from tidegate_runtime.storage.log_store import LogStore, Put, Turn, at_once

TOPICS = Topics()
AT = TopicPartition(TOPICS.ratify, 0)


class Unconditional(MemoryStore):
    """A store without conditional PUTs."""

    def put_if_absent(
        self, path: str, content: bytes, deadline_s: float, turn: Turn = at_once
    ) -> Put:
        raise Unavailable("501 NotImplemented")


@pytest.fixture
def bus() -> MemoryBus:
    return MemoryBus(TOPICS.declared())


@pytest.fixture
def below() -> Unconditional:
    return Unconditional("s3://bucket/t")


def opened(below: LogStore, bus: MemoryBus) -> RatifiedStore:
    return RatifiedStore(below, RatifyLog(bus, TOPICS), uuid4)


def name(version: int) -> str:
    return f"_delta_log/{version:020d}.json"


def staged(below: MemoryStore) -> list[str]:
    return [path for path in below.files if "_staged_commits" in path]


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_it_obeys_the_law(
    law: Callable[[LogStore], None], below: Unconditional, bus: MemoryBus
) -> None:
    law(opened(below, bus))


def test_of_four_threads_one_wins_each_version(tmp_path: Path, bus: MemoryBus) -> None:
    stores: list[LogStore] = [opened(LocalStore(str(tmp_path)), bus) for _ in range(4)]
    assert_one_winner_each(contest(stores, versions=25), stores[0])
    assert list((tmp_path / "_delta_log" / "_staged_commits").iterdir()) == []


def test_who_wins_is_published_and_leaves_nothing_staged(
    below: Unconditional, bus: MemoryBus
) -> None:
    store, rival = opened(below, bus), opened(below, bus)
    assert store.put_if_absent(name(0), b"mine", DEADLINE_S) is Put.WON
    assert store.put_if_absent(name(0), b"mine", DEADLINE_S) is Put.WON
    assert rival.put_if_absent(name(0), b"theirs", DEADLINE_S) is Put.LOST
    assert rival.put_if_absent(name(1), b"theirs", DEADLINE_S) is Put.WON
    assert below.files == {name(0): b"mine", name(1): b"theirs"}


def test_a_table_that_was_there_goes_on_where_it_ends(below: Unconditional, bus: MemoryBus) -> None:
    for version in range(3):
        below.put(name(version), b"{}")
    store = opened(below, bus)
    assert store.put_if_absent(name(2), b"mine", DEADLINE_S) is Put.LOST
    assert store.put_if_absent(name(3), b"mine", DEADLINE_S) is Put.WON


class Dying(Unconditional):
    """Dies at the next write of a version."""

    dies = False

    def put(self, path: str, content: bytes) -> None:
        if self.dies and "_staged_commits" not in path:
            raise Unavailable("the writer died here")
        super().put(path, content)


@pytest.mark.parametrize("how", ["read", "list", "put"])
def test_what_a_dead_winner_did_not_publish_is_published_by_who_comes_next(
    how: str, bus: MemoryBus
) -> None:
    below = Dying("s3://bucket/t")
    store = opened(below, bus)
    assert store.put_if_absent(name(0), b"first", DEADLINE_S) is Put.WON
    below.dies = True
    with pytest.raises(Unavailable):
        store.put_if_absent(name(1), b"mine", DEADLINE_S)
    below.dies = False
    assert name(1) not in below.files
    heir = opened(below, bus)
    match how:
        case "read":
            assert heir.read(name(1)) == b"mine"
        case "list":
            assert [item.path for item in heir.list_from("_delta_log", "")] == [name(0), name(1)]
        case _:
            assert heir.put_if_absent(name(1), b"theirs", DEADLINE_S) is Put.LOST
    assert below.files[name(1)] == b"mine"
    assert staged(below) == []


def test_who_sleeps_as_he_publishes_brings_no_version_back_that_was_cleaned_up(
    bus: MemoryBus,
) -> None:
    below, clock = Dying("s3://bucket/t"), StillClock()
    store = opened(below, bus)
    store.put_if_absent(name(0), b"first", DEADLINE_S)
    below.dies = True
    with pytest.raises(Unavailable):
        store.put_if_absent(name(1), b"mine", DEADLINE_S)
    below.dies = False
    look = below.read

    def sleep_over(path: str) -> bytes | None:
        content = look(path)
        if "_staged_commits" in path and not clock.boot:
            clock.boot = 1_000.0
            assert opened(below, bus).put_if_absent(name(2), b"next", DEADLINE_S) is Put.WON
            below.delete(name(1))
        return content

    sleeper = RatifiedStore(below, RatifyLog(bus, TOPICS, clock), uuid4, clock)
    with (
        mock.patch.object(below, "read", sleep_over),
        pytest.raises(Unavailable, match="it is read again"),
    ):
        sleeper.read(name(1))
    assert name(1) not in below.files
    assert sleeper.read(name(2)) == b"next"


class Silent(MemoryBus):
    """Loses the next record or its acknowledgement, or delivers it `late`, as `lost` says."""

    lost = ""
    late: MemoryProducer | None = None

    def producer(self) -> MemoryProducer:
        return SilentProducer(self)


class SilentProducer(MemoryProducer):
    """The producer of a silent bus."""

    def __init__(self, bus: Silent) -> None:
        super().__init__(bus)
        self._silent = bus

    def flush(self, timeout_s: float) -> None:
        lost, self._silent.lost = self._silent.lost, ""
        if lost == "late":
            self._silent.late = MemoryProducer(self._silent)
            self._silent.late.queued, self.queued = self.queued, []
        if lost == "record":
            self.queued.clear()
        super().flush(timeout_s)
        if lost:
            raise Unavailable("no acknowledgement")


def test_an_append_in_doubt_is_read_back(below: Unconditional) -> None:
    bus = Silent(TOPICS.declared())
    store = opened(below, bus)
    assert store.put_if_absent(name(0), b"first", DEADLINE_S) is Put.WON
    bus.lost = "answer"
    assert store.put_if_absent(name(1), b"mine", DEADLINE_S) is Put.WON
    bus.lost = "record"
    assert store.put_if_absent(name(2), b"mine", DEADLINE_S) is Put.UNKNOWN
    assert store.read(name(2)) is None
    assert store.put_if_absent(name(2), b"mine", DEADLINE_S) is Put.WON


def test_a_claim_that_arrives_late_finds_what_it_claims_for(below: Unconditional) -> None:
    bus = Silent(TOPICS.declared())
    store = opened(below, bus)
    assert store.put_if_absent(name(0), b"first", DEADLINE_S) is Put.WON
    bus.lost = "late"
    assert store.put_if_absent(name(1), b"mine", DEADLINE_S) is Put.UNKNOWN
    assert bus.late is not None
    bus.late.flush(1.0)
    assert opened(below, bus).put_if_absent(name(1), b"theirs", DEADLINE_S) is Put.LOST
    assert store.read(name(1)) == b"mine"


def test_past_its_deadline_nothing_is_claimed(below: Unconditional, bus: MemoryBus) -> None:
    clock = StillClock()
    store = RatifiedStore(below, RatifyLog(bus, TOPICS, clock), uuid4, clock)
    assert store.put_if_absent(name(0), b"first", DEADLINE_S) is Put.WON
    result = len(bus.logs[AT])
    with mock.patch.object(below, "put", side_effect=lambda *_: clock.sleep(DEADLINE_S)):
        assert store.put_if_absent(name(1), b"mine", DEADLINE_S) is Put.UNKNOWN
    assert len(bus.logs[AT]) == result


def test_a_partition_that_gives_nothing_is_not_waited_for_for_ever(
    below: Unconditional, bus: MemoryBus
) -> None:
    clock = StillClock()
    assert opened(below, bus).put_if_absent(name(0), b"first", DEADLINE_S) is Put.WON
    log = RatifyLog(bus, TOPICS, clock)

    def gives_nothing(*_: object) -> list[object]:
        clock.sleep(1.0)
        return []

    with (
        mock.patch.object(log._reader, "read", gives_nothing),
        pytest.raises(Unavailable, match="look at the brokers"),
    ):
        RatifiedStore(below, log, uuid4, clock).read(name(0))
    assert clock.boot < 60.0
    assert RatifiedStore(below, log, uuid4, clock).read(name(0)) == b"first"


class Dead(MemoryProducer):
    """A producer after a fatal error: every call fails."""

    def publish(
        self,
        topic_partition: TopicPartition,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
    ) -> None:
        raise Unavailable("_FATAL: out of order sequence number")


def test_a_producer_that_is_dead_for_good_is_not_asked_again(
    below: Unconditional, bus: MemoryBus
) -> None:
    with mock.patch.object(bus, "producer", side_effect=[Dead(bus), MemoryProducer(bus)]):
        store = opened(below, bus)
        with pytest.raises(Unavailable):
            store.put_if_absent(name(0), b"mine", DEADLINE_S)
        assert store.put_if_absent(name(0), b"mine", DEADLINE_S) is Put.WON


def test_a_topic_that_was_made_anew_is_read_from_its_beginning(
    below: Unconditional, bus: MemoryBus
) -> None:
    store = opened(below, bus)
    assert store.put_if_absent(name(0), b"first", DEADLINE_S) is Put.WON
    assert store.put_if_absent(name(1), b"second", DEADLINE_S) is Put.WON
    bus.create_topic(TOPICS.ratify, 1)
    assert store.put_if_absent(name(2), b"mine", DEADLINE_S) is Put.WON
    begun = decode(Ratification, bus.logs[AT][0].value)
    assert (begun.is_claim, begun.version) == (False, 1), "else no claim in it counts for others"
    rival = opened(below, bus)
    assert rival.put_if_absent(name(2), b"theirs", DEADLINE_S) is Put.LOST
    assert rival.put_if_absent(name(3), b"theirs", DEADLINE_S) is Put.WON
    assert store.put_if_absent(name(3), b"mine", DEADLINE_S) is Put.LOST


def test_a_topic_that_was_made_anew_and_has_grown_as_long_is_read_from_its_beginning(
    below: Unconditional, bus: MemoryBus
) -> None:
    clock = StillClock()
    store = RatifiedStore(below, RatifyLog(bus, TOPICS, clock), uuid4, clock)
    assert store.put_if_absent(name(0), b"first", DEADLINE_S) is Put.WON
    bus.create_topic(TOPICS.ratify, 1)
    rival = opened(below, bus)
    for version in range(1, 6):
        assert rival.put_if_absent(name(version), b"theirs", DEADLINE_S) is Put.WON
    clock.boot += 60.0
    assert store.read(name(5)) == b"theirs"
    assert store.put_if_absent(name(6), b"mine", DEADLINE_S) is Put.WON
    assert rival.put_if_absent(name(6), b"theirs", DEADLINE_S) is Put.LOST


class Hanging(Unconditional):
    """Blocks every write until it is released."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.is_asked, self.goes_on = Event(), Event()

    def put(self, path: str, content: bytes) -> None:
        self.is_asked.set()
        assert self.goes_on.wait(60.0)
        super().put(path, content)


def test_a_store_that_hangs_keeps_no_other_table_waiting(
    below: Unconditional, bus: MemoryBus
) -> None:
    log, slow = RatifyLog(bus, TOPICS), Hanging("s3://elsewhere/t")
    with ThreadPoolExecutor() as pool:
        hung = pool.submit(RatifiedStore(slow, log, uuid4).put_if_absent, name(0), b"a", DEADLINE_S)
        try:
            assert slow.is_asked.wait(10.0)
            other = RatifiedStore(below, log, uuid4)
            put = pool.submit(other.put_if_absent, name(0), b"b", DEADLINE_S)
            assert put.result(10.0) is Put.WON
        finally:
            slow.goes_on.set()
        assert hung.result(10.0) is Put.WON


def test_a_version_that_is_decided_and_not_shown_is_neither_won_nor_lost(
    below: Unconditional, bus: MemoryBus
) -> None:
    store = opened(below, bus)
    for version in range(3):
        assert store.put_if_absent(name(version), b"mine", DEADLINE_S) is Put.WON
    below.delete(name(1))
    assert store.put_if_absent(name(1), b"mine", DEADLINE_S) is Put.UNKNOWN


def test_what_was_written_past_the_partition_halts_the_table(
    below: Unconditional, bus: MemoryBus
) -> None:
    store = opened(below, bus)
    assert store.put_if_absent(name(0), b"mine", DEADLINE_S) is Put.WON
    below.put(name(1), b"of another writer")
    with pytest.raises(BrokenLog, match="written by another writer"):
        store.read(name(1))
    with pytest.raises(BrokenLog, match="written by another writer"):
        store.put_if_absent(name(1), b"mine", DEADLINE_S)
    with pytest.raises(BrokenLog, match="written by another writer"):
        store.put_if_absent(name(2), b"mine", DEADLINE_S)


def test_a_version_that_was_overwritten_before_it_was_followed_is_found(
    below: Unconditional, bus: MemoryBus
) -> None:
    assert opened(below, bus).put_if_absent(name(0), b"mine", DEADLINE_S) is Put.WON
    below.put(name(0), b"of another writer")
    with pytest.raises(BrokenLog, match="written by another writer"):
        opened(below, bus).read(name(0))


def test_what_was_decided_and_is_nowhere_is_a_gap(bus: MemoryBus) -> None:
    below = Dying("s3://bucket/t")
    below.dies = True
    with pytest.raises(Unavailable):
        opened(below, bus).put_if_absent(name(0), b"mine", DEADLINE_S)
    below.files.clear()
    with pytest.raises(BrokenLog, match="restore one of them") as raised:
        opened(below, bus).read(name(0))
    assert raised.value.error_class == "LogGap"


def test_other_bytes_than_were_claimed_for_are_not_published(bus: MemoryBus) -> None:
    below = Dying("s3://bucket/t")
    below.dies = True
    with pytest.raises(Unavailable):
        opened(below, bus).put_if_absent(name(0), b"mine", DEADLINE_S)
    below.dies = False
    [path] = staged(below)
    below.put(path, b"torn")
    with pytest.raises(BrokenLog, match="restore one of them"):
        opened(below, bus).read(name(0))
    assert name(0) not in below.files


class Publishing(Unconditional):
    """Another process publishes a staged commit and deletes it just before it is read."""

    def read(self, path: str) -> bytes | None:
        content = super().read(path)
        if content is not None and "_staged_commits" in path:
            self.files[name(0)] = self.files.pop(path)
            return None
        return content


def test_what_another_publishes_between_two_looks_is_there(bus: MemoryBus) -> None:
    below, died = Publishing("s3://bucket/t"), Unavailable("the writer died here")
    store = opened(below, bus)
    with mock.patch.object(store, "_publish", side_effect=died), pytest.raises(Unavailable):
        store.put_if_absent(name(0), b"mine", DEADLINE_S)
    assert opened(below, bus).read(name(0)) == b"mine"


def test_a_record_that_nobody_can_read_decides_nothing(
    below: Unconditional, bus: MemoryBus
) -> None:
    store = opened(below, bus)
    assert store.put_if_absent(name(0), b"mine", DEADLINE_S) is Put.WON
    headers: Headers = ()
    bus.append(AT, b"x", b"no record", headers)
    assert opened(below, bus).put_if_absent(name(1), b"mine", DEADLINE_S) is Put.WON


def test_a_root_that_an_earlier_release_wrote_literally_is_the_same_table(bus: MemoryBus) -> None:
    began = Ratification(table_root="s3://bucket/sp ace", version=4)
    bus.append(AT, b"s3://bucket/sp ace", encode(began), ())
    decided = RatifyLog(bus, TOPICS).decided("s3://bucket/sp%20ace")
    assert decided is not None
    assert decided.head == 4


def test_who_does_not_read_what_a_newer_release_decides_decides_nothing(
    below: Unconditional, bus: MemoryBus
) -> None:
    older, newer = opened(below, bus), opened(below, bus)
    claim = Ratification(table_root=below.root, version=-1)
    bus.append(AT, b"x", encode(claim), (("format", b"ratification/2"),))
    for store in (older, newer, older):
        with pytest.raises(Unavailable, match="ratification/2"):
            store.put_if_absent(name(0), b"mine", DEADLINE_S)
    assert below.files == {}


def test_what_is_read_again_and_again_does_not_ask_the_partition(
    below: Unconditional, bus: MemoryBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(below, bus)
    assert store.put_if_absent(name(0), b"mine", DEADLINE_S) is Put.WON
    asked: list[object] = []
    monkeypatch.setattr(store._log, "decided", asked.append)
    assert store.read(name(0)) == b"mine"
    assert asked == []
    assert store.read(name(1)) is None
    assert len(asked) == 1


def test_only_tables_under_the_roots_are_ratified(bus: MemoryBus) -> None:
    logs: list[RatifyLog] = []

    def log() -> RatifyLog:
        logs.append(RatifyLog(bus, TOPICS))
        return logs[-1]

    open_one = ratifying(Unconditional, log, ["s3://slow/"], uuid4)
    assert isinstance(open_one("s3://fast/t"), Unconditional)
    assert logs == []
    assert isinstance(open_one("s3://slow/t"), RatifiedStore)
    assert isinstance(open_one("s3://slow"), RatifiedStore)
    assert isinstance(open_one("s3://slower/t"), Unconditional)
    assert len(logs) == 1
