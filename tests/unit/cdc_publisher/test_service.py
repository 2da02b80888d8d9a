"""The publisher over tables on disk, an in-memory registry and in-memory change topics."""

import json
from concurrent.futures import ThreadPoolExecutor, wait
from math import inf
from pathlib import Path
from queue import Queue
from threading import Lock, Semaphore
from typing import Any
from unittest import mock
from uuid import UUID

import prometheus_client
import pytest

from tests.fakes.memory_store import MemoryBus
from tests.unit.cdc_publisher.memory_change_topic import Topic
from tests.unit.cdc_publisher.written_table import WrittenTable, rows
from tidegate_cdc_publisher import service
from tidegate_cdc_publisher.service import CdcPublisher
from tidegate_cdc_publisher.settings import CdcSettings
from tidegate_cdc_publisher.transactional_producer import PositionReader
from tidegate_delta.errors import MalformedRecord, Misconfigured, TidegateError, Unavailable
from tidegate_delta.log.commit import sha256
from tidegate_messages.codec import encode, headers
from tidegate_messages.published_records import TableRecord
from tidegate_runtime.clock import Clock, SystemClock
from tidegate_runtime.followers.version_gates import GateReader, read_leases
from tidegate_runtime.kafka.client_protocols import TopicPartition
from tidegate_runtime.service.health import Health
from tidegate_runtime.service.runner import Running
from tidegate_runtime.storage.local_store import LocalStore
from tidegate_runtime.table_registry import read_registry

TOPICS = CdcSettings().kafka.topics


class Writer(Topic):
    """An in-memory change writer; opening it takes no ownership from others."""

    def take_over(self) -> None:
        """Do nothing."""


@pytest.fixture
def bus() -> MemoryBus:
    return MemoryBus(TOPICS.declared())


@pytest.fixture
def tables(tmp_path: Path, bus: MemoryBus) -> tuple[WrittenTable, WrittenTable]:
    """Return two tables of four versions each."""
    made = [
        WrittenTable(tmp_path / name, id=UUID(int=at)).create() for at, name in ((1, "t"), (2, "u"))
    ]
    for table in made:
        table.register(bus.producer(), TOPICS)
        for number in range(1, 4):
            table.append(rows(number))
    return made[0], made[1]


@pytest.fixture
def topics(monkeypatch: pytest.MonkeyPatch) -> dict[UUID, Writer]:
    """Return the change topics by table id."""
    result: dict[UUID, Writer] = {}

    def writer_of(_kafka: object, table: UUID, *_: object) -> Writer:
        return result.setdefault(table, Writer())

    def positions(*_: object) -> dict[UUID, Any]:
        return {table: one.position for table, one in result.items() if one.position}

    def publish(self: Writer, _topic: str, records: Any, position: Any, *more: Any) -> None:
        Topic.publish(self, "cdc.t", records, position, *more)

    monkeypatch.setattr(Writer, "publish", publish)
    monkeypatch.setattr(service, "ChangeWriter", writer_of)
    monkeypatch.setattr(PositionReader, "read", positions)
    monkeypatch.setattr(service, "create_topics", lambda *_: None)
    return result


def publisher(bus: MemoryBus, clock: Clock | None = None, **section: Any) -> CdcPublisher:
    clock = clock or SystemClock()
    settings = CdcSettings.model_validate({"cdc": {"snapshot_mode": "no_data", **section}})
    return CdcPublisher(settings, bus, Running(clock, Health(clock)))


def register_again(bus: MemoryBus, table: WrittenTable, **update: Any) -> None:
    """Publish a registry record of a table with some fields replaced."""
    record = read_registry(bus, TOPICS)[table.id]
    changed = TableRecord.model_validate({**record.model_dump(), **update})
    at = TopicPartition(TOPICS.table_state, record.topic_partition)
    bus.append(at, str(table.id).encode(), encode(changed), headers(changed))


def ids(topic: Topic) -> list[int]:
    return [item["after"]["id"] for item in topic.told]


@pytest.mark.parametrize("found", ["by an audit", "at the head"])
def test_nothing_is_published_from_a_forged_version_until_it_is_restored(
    bus: MemoryBus,
    tables: tuple[WrittenTable, WrittenTable],
    topics: dict[UUID, Writer],
    found: str,
) -> None:
    forged, sound = tables
    one = publisher(bus)
    one.poll()
    for table in tables:
        table.append(rows(4))
        table.append(rows(5))
    path = forged.folder / "_delta_log" / f"{5:020d}.json"
    committed = path.read_bytes()
    path.write_bytes(committed.replace(b"WRITE", b"FORGE"))
    known = {"version": 5, "sha256": sha256(committed)}
    halted: dict[str, Any] = {"status": "halted", "reason": "version 5 was overwritten"}
    if found == "by an audit":
        register_again(bus, forged, **halted, overwritten=known)
    else:
        register_again(bus, forged, **halted, published_through=5, sha256=known["sha256"])
    one.poll()
    one.notice(forged.notification())
    assert ids(topics[forged.id]) == []
    assert ids(topics[sound.id]) == [4, 5], "the others go on"
    path.write_bytes(committed)
    # A table without an owner is taken over at the second poll, since another publisher may be
    # about to take it.
    one.poll()
    one.poll()
    assert ids(topics[forged.id]) == [4, 5]


def test_a_halt_for_another_reason_stops_no_stream(
    bus: MemoryBus, tables: tuple[WrittenTable, WrittenTable], topics: dict[UUID, Writer]
) -> None:
    table, _ = tables
    one = publisher(bus)
    one.poll()
    table.append(rows(4))
    register_again(
        bus, table, status="halted", reason="by hand: it is moved", halted_by_hand="it is moved"
    )
    one.poll()
    assert ids(topics[table.id]) == [4]


@pytest.mark.parametrize("by", ["a look", "a notification"])
def test_a_position_that_cannot_be_read_stops_its_table_alone_until_it_is_repaired(
    bus: MemoryBus,
    tables: tuple[WrittenTable, WrittenTable],
    topics: dict[UUID, Writer],
    monkeypatch: pytest.MonkeyPatch,
    by: str,
) -> None:
    broken, sound = tables
    wrong = {broken.id: MalformedRecord("no position")}

    def positions(*_: object) -> dict[UUID, Any]:
        return {table: one.position for table, one in topics.items() if one.position} | wrong

    monkeypatch.setattr(PositionReader, "read", positions)
    one = publisher(bus)
    for table in tables:
        if by == "a notification":
            one.notice(table.notification())
        one.poll()
        table.append(rows(4))
    one.poll()
    assert broken.id not in topics or ids(topics[broken.id]) == []
    assert ids(topics[sound.id]) == [4], "the others go on"
    wrong.clear()
    one.poll()
    one.poll()
    broken.append(rows(5))
    one.poll()
    assert ids(topics[broken.id])[-1] == 5


@pytest.mark.parametrize("error", [Unavailable, Misconfigured])
@pytest.mark.parametrize("verb", ["list_from", "read"])
def test_a_table_whose_store_is_away_stops_alone_and_goes_on_when_it_is_back(
    bus: MemoryBus,
    tables: tuple[WrittenTable, WrittenTable],
    topics: dict[UUID, Writer],
    monkeypatch: pytest.MonkeyPatch,
    verb: str,
    error: type[TidegateError],
) -> None:
    away, there = tables
    one = publisher(bus)
    one.poll()
    works = getattr(LocalStore, verb)

    def asked(store: LocalStore, *arguments: str) -> Any:
        if store.root == away.root:
            raise error("403 AccessDenied")
        return works(store, *arguments)

    for table in tables:
        table.append(rows(4))
    with monkeypatch.context() as patched:
        patched.setattr(LocalStore, verb, asked)
        one.notice(away.notification())
        one.poll()
        for table in tables:
            table.append(rows(5))
            one.notice(table.notification())
        assert ids(topics[there.id]) == [4, 5]
        assert ids(topics[away.id]) == []
    one.poll()
    one.poll()
    assert ids(topics[away.id]) == [4, 5]


def test_kafka_is_not_queried_for_a_table_without_key_columns(
    bus: MemoryBus, tables: tuple[WrittenTable, WrittenTable], topics: dict[UUID, Writer]
) -> None:
    table, other = tables
    table.set_metadata(**{"tidegate.cdc.keyColumns": ""})
    one = publisher(bus)
    for _ in range(3):
        one.poll()
        one.notice(table.notification())
    assert set(topics) == {other.id}
    table.set_metadata(**{"tidegate.cdc.keyColumns": "id"})
    one.poll()
    table.append(rows(9))
    one.notice(table.notification())
    assert ids(topics[table.id]) == [9]


def lag_of(table: WrittenTable, bus: MemoryBus) -> tuple[float | None, float | None]:
    """Return a table's lag in versions and in seconds; None where it is not measured."""
    labels = {"table": read_registry(bus, TOPICS)[table.id].name}
    versions, seconds = (
        prometheus_client.REGISTRY.get_sample_value(f"tidegate_cdc_lag_{unit}", labels)
        for unit in ("versions", "seconds")
    )
    return versions, seconds


def test_no_alert_for_a_table_whose_changes_are_not_published(
    bus: MemoryBus,
    tables: tuple[WrittenTable, WrittenTable],
    topics: dict[UUID, Writer],
    caplog: pytest.LogCaptureFixture,
) -> None:
    table, other = tables
    for each in tables:
        register_again(bus, each, name=f"unasked.{each.id.int}.t")
    table.set_metadata(**{"tidegate.cdc.keyColumns": ""})
    one = publisher(bus)
    for number in range(4, 7):
        one.poll()
        table.append(rows(number))
    assert lag_of(table, bus) == (None, None)
    assert lag_of(other, bus) == (0, 0)
    [line] = [record for record in caplog.records if record.getMessage().startswith("set_aside")]
    assert line.levelname == "WARNING"
    table.set_metadata(**{"tidegate.cdc.keyColumns": "nothing"})
    one.poll()
    assert lag_of(table, bus) == (inf, inf), "here somebody asked"


def test_a_table_that_stopped_is_endlessly_behind_until_it_goes_on_or_is_another_ones(
    bus: MemoryBus,
    tables: tuple[WrittenTable, WrittenTable],
    topics: dict[UUID, Writer],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    away, gone = tables
    for each in tables:
        register_again(bus, each, name=f"stopped.{each.id.int}.t")
    one = publisher(bus)
    one.poll()
    with monkeypatch.context() as patched:
        patched.setattr(LocalStore, "list_from", mock.Mock(side_effect=Unavailable("403")))
        for table in tables:
            table.append(rows(4))
        one.poll()
        assert [lag_of(table, bus) for table in tables] == [(inf, inf), (inf, inf)]
    register_again(bus, gone, status="dropped")
    one.poll()
    one.poll()
    assert lag_of(away, bus) == (0, 0)
    assert lag_of(gone, bus) == (None, None)


def test_a_topic_that_takes_nothing_stops_its_table_alone(
    bus: MemoryBus,
    tables: tuple[WrittenTable, WrittenTable],
    topics: dict[UUID, Writer],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stuck, other = tables
    one, publish = publisher(bus), Writer.publish
    one.poll()

    def answered(self: Writer, *ids: Any) -> None:
        if self is topics[stuck.id]:
            raise Unavailable("NOT_ENOUGH_REPLICAS")
        publish(self, *ids)

    for table in tables:
        table.append(rows(4))
    with monkeypatch.context() as patched:
        patched.setattr(Writer, "publish", answered)
        one.poll()
        assert (ids(topics[stuck.id]), ids(topics[other.id])) == ([], [4])
    one.poll()
    assert ids(topics[stuck.id]) == [4], "who had a table does not wait for another to take it"


def test_a_table_that_was_moved_under_its_name_has_the_topic(
    bus: MemoryBus, tables: tuple[WrittenTable, WrittenTable], topics: dict[UUID, Writer]
) -> None:
    gone, moved = tables
    name = read_registry(bus, TOPICS)[gone.id].name
    one = publisher(bus)
    one.poll()
    register_again(bus, gone, status="dropped")
    register_again(bus, moved, name=name)
    one.close()
    one.poll()
    moved.append(rows(4))
    one.poll()
    assert ids(topics[moved.id]) == [4]


def test_a_name_too_long_for_a_topic_stops_its_table_alone(
    bus: MemoryBus, tables: tuple[WrittenTable, WrittenTable], topics: dict[UUID, Writer]
) -> None:
    long, table = tables
    register_again(bus, long, name="n" * 255)
    one = publisher(bus)
    one.poll()
    table.append(rows(4))
    one.poll()
    assert ids(topics[table.id]) == [4]
    assert long.id not in topics


class Hours(SystemClock):
    """A clock that advances by a tenth of a time slice at each call."""

    def __init__(self) -> None:
        self._asked = 0

    def boot_s(self) -> float:
        """Return the time since boot."""
        self._asked += 1
        return self._asked * service.TURN_MAX_S / 10


def test_a_table_with_much_to_publish_is_published_turn_by_turn_and_the_others_beside_it(
    bus: MemoryBus, tables: tuple[WrittenTable, WrittenTable], topics: dict[UUID, Writer]
) -> None:
    large, small = tables
    one = publisher(bus, Hours(), chunk_rows=1)
    one.poll()
    large.append(rows(*range(4, 104)))
    one.notice(large.notification())
    after_one = len(ids(topics[large.id]))
    assert 0 < after_one < 20, "a notice is soon over, for a look waits for it"
    small.append(rows(4))
    one.notice(large.notification())
    one.poll()
    assert len(ids(topics[large.id])) == after_one, "its next turn is beside the other tables"
    assert ids(topics[small.id]) == [4]
    assert set(one.unfinished) == {large.id}
    large.append(rows(104))
    turns = 0
    while large.id in one.unfinished:
        one.go_on(large.id)
        turns += 1
        assert len(ids(topics[large.id])) <= (turns + 1) * 20
    assert ids(topics[large.id]) == list(range(4, 105))
    assert ids(topics[small.id]) == [4]


def test_a_poll_publishes_for_one_turn_in_all_however_many_tables_there_are(
    bus: MemoryBus, tables: tuple[WrittenTable, WrittenTable], topics: dict[UUID, Writer]
) -> None:
    one = publisher(bus, Hours(), chunk_rows=1)
    one.poll()
    for table in tables:
        table.append(rows(*range(4, 54)))
    one.poll()
    assert sum(len(ids(topics[table.id])) for table in tables) < 20
    assert set(one.unfinished) == {table.id for table in tables}
    for table in tables:
        while table.id in one.unfinished:
            one.go_on(table.id)
        assert ids(topics[table.id]) == list(range(4, 54))


@pytest.mark.parametrize("how", ["a store that is away", "a stop"])
def test_an_unfinished_table_that_can_not_go_on_has_no_more_turns(
    bus: MemoryBus,
    tables: tuple[WrittenTable, WrittenTable],
    topics: dict[UUID, Writer],
    monkeypatch: pytest.MonkeyPatch,
    how: str,
) -> None:
    table, _ = tables
    one = publisher(bus, Hours(), chunk_rows=1)
    one.poll()
    table.append(rows(*range(4, 104)))
    one.notice(table.notification())
    assert table.id in one.unfinished
    with monkeypatch.context() as patched:
        if how == "a stop":
            one._running.stopping.set()
        else:
            away = mock.Mock(side_effect=Unavailable("403"))
            patched.setattr(LocalStore, "list_from", away)
        one.go_on(table.id)
    assert table.id not in one.unfinished
    one.go_on(table.id)


class SetClock(SystemClock):
    """The time of day, moved forward by a test."""

    passed_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.passed_ms


def test_its_leases_keep_what_its_streams_need_until_they_end(
    bus: MemoryBus, tables: tuple[WrittenTable, WrittenTable], topics: dict[UUID, Writer]
) -> None:
    clock, lease_s = SetClock(), 1_000
    one, (table, other) = publisher(bus, clock, lease_s=lease_s), tables
    register_again(bus, table, published_through=3)
    one.poll()
    leases = {id: of_table for id, [of_table] in read_leases(bus, TOPICS).items()}
    assert set(leases) == {table.id, other.id}
    assert leases[table.id].holder == "cdc-publisher"
    assert leases[table.id].needed_from == 3
    record = read_registry(bus, TOPICS)[table.id]

    def holders(at_ms: int) -> list[str]:
        gates = GateReader(bus, TOPICS).of(record, at_ms)
        return [gate.holder for gate in gates if "publisher" in gate.holder]

    end_ms = leases[table.id].until_ms
    assert [holder[: holder.index(" until")] for holder in holders(end_ms - 1)] == [
        "the change publisher, by a lease"
    ]
    assert holders(end_ms) == [], "a publisher that never comes back holds nothing for ever"
    clock.passed_ms = lease_s * 400
    one.poll()
    assert read_leases(bus, TOPICS)[table.id][0].until_ms == end_ms, "not half over"
    clock.passed_ms = lease_s * 600
    one.poll()
    assert read_leases(bus, TOPICS)[table.id][0].until_ms > end_ms


def test_heartbeats_say_how_far_each_stream_has_come(
    bus: MemoryBus, tables: tuple[WrittenTable, WrittenTable], topics: dict[UUID, Writer]
) -> None:
    clock, at = SetClock(), TopicPartition(TOPICS.cdc_heartbeats, 0)

    def beats() -> dict[str, int]:
        records = bus.log(at)
        assert len({record.key for record in records}) == len(tables)
        bodies = [json.loads(record.value or b"") for record in records]
        return {body["table"]: body["version"] for body in bodies}

    silent = publisher(bus, clock)
    silent.poll()
    silent.close()
    assert bus.log(at) == [], "only who is asked says it"
    one = publisher(bus, clock, heartbeat_interval_ms=1)
    one.poll()
    one.poll()
    table, other = tables
    assert set(beats().values()) == {table.version}
    table.append(rows(4))
    one.poll()
    assert set(beats().values()) == {table.version, other.version}
    assert topics


def test_tables_noticed_while_another_is_opened_are_opened_together_by_one_reader(
    bus: MemoryBus,
    tables: tuple[WrittenTable, WrittenTable],
    topics: dict[UUID, Writer],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = publisher(bus, snapshot_mode="initial")
    one.poll()
    new = [WrittenTable(tmp_path / f"n{at}", id=UUID(int=at)).create() for at in range(3, 6)]
    for table in new:
        table.register(bus.producer(), TOPICS)
        table.append(rows(table.id.int))
    reading, reads = Lock(), Queue[int]()
    may_go_on = Semaphore(0)

    def read(*_: object) -> dict[UUID, Any]:
        assert reading.acquire(blocking=False), "older positions would replace newer ones"
        reads.put(len(topics))
        assert may_go_on.acquire(timeout=30)
        reading.release()
        return {table: one.position for table, one in topics.items() if one.position}

    monkeypatch.setattr(PositionReader, "read", read)
    first, second, third = new
    with ThreadPoolExecutor(3) as pool:
        turns = [pool.submit(one.notice, first.notification())]
        assert reads.get(timeout=30) == 3
        for table in (second, third):
            one.notice(table.notification())
        assert set(one.unfinished) == {second.id, third.id}, "nobody waits in a notice"
        turns.append(pool.submit(one.go_on, second.id))
        may_go_on.release()
        assert reads.get(timeout=30) == 5, "one more reading for both"
        turns.append(pool.submit(one.go_on, third.id))
        assert not wait(turns[-1:], timeout=0.5).done, "it is being opened in another turn"
        may_go_on.release()
        for turn in turns:
            turn.result(30)
    for table in new:
        assert ids(topics[table.id]) == [table.id.int]
    assert reads.empty()


def test_a_pass_opens_a_table_that_waits_for_it_even_if_its_position_has_advanced(
    bus: MemoryBus, tables: tuple[WrittenTable, WrittenTable], topics: dict[UUID, Writer]
) -> None:
    table, _ = tables
    one, other = publisher(bus), publisher(bus)
    one.poll()
    one.close()
    table.append(rows(4))
    other.poll()
    other.close()
    table.append(rows(5))
    with one._opening:
        one.notice(table.notification())
    one.poll()
    assert set(one.unfinished) == {table.id}
    one.go_on(table.id)
    assert ids(topics[table.id]) == [4, 5]
