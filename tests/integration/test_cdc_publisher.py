"""The publisher as a process on a real broker: killed anywhere, it repeats and loses nothing."""

import itertools
import json
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    Message,
    Producer,
    TopicPartition,
)
from typer.testing import CliRunner

from tests.integration.changing_table import changing
from tests.integration.conftest import Line
from tests.integration.proposers import append_with, create_table
from tests.integration.waiting import until
from tests.unit.cdc_publisher.written_table import Rows, WrittenTable, change_at_random, rows
from tidegate import changes
from tidegate_cdc_publisher.change_records import ChangeRecord
from tidegate_cdc_publisher.cli import change_commands
from tidegate_cdc_publisher.transactional_producer import (
    FAILPOINTS,
    RECORD_BYTES_MAX,
    ChangeWriter,
    PositionReader,
    read_positions,
)
from tidegate_delta.errors import Fenced, InvalidRequest, Misconfigured
from tidegate_delta.log.file_names import checksum_name
from tidegate_local.child_processes import ServiceProcess
from tidegate_messages.stream_position import Position, decode
from tidegate_messages.topics import Topic
from tidegate_runtime.kafka.confluent_bus import KafkaBus
from tidegate_runtime.kafka.topic_admin import create_topics

pytestmark = pytest.mark.broker
PATIENCE_S = 180.0
"""Time limit for anything to happen on a busy machine."""

LOAD_REACHED = 0.85
"""The share of the load below which a test has not shown what it is for."""

EXAMPLES = Path(__file__).parent.parent.parent / "docs/examples"
CDC = {"chunk_rows": "20", "look_s": "0.5", "transaction_timeout_ms": "5000"}


def made(line: Line, name: str = "t", number: int = 1, **fields: Any) -> WrittenTable:
    table = WrittenTable(line.tables / name, id=UUID(int=number), **fields).create()
    table.register(KafkaBus(line.kafka, "test").producer(), line.kafka.topics)
    return table


def publisher(line: Line, name: str = "cdc", failpoint: str = "", **cdc: str) -> ServiceProcess:
    return line.service("cdc_publisher", name, failpoint, cdc={**CDC, **cdc})


def committed(line: Line, topic: str) -> list[Message]:
    """Return all committed records of partition 0."""
    consumer = Consumer(
        {
            "bootstrap.servers": line.kafka.bootstrap_servers,
            "group.id": "test",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 50,
        }
    )
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    result: list[Message] = []
    while True:
        for message in consumer.consume(1000, 0.5):
            error = message.error()
            if error is None:
                result.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                consumer.close()
                return result


def position(line: Line, table: WrittenTable) -> Position | None:
    result = None
    for record in committed(line, line.kafka.topics.cdc_positions):
        value = record.value()
        if record.key() == str(table.id).encode() and value is not None:
            result = decode(value, table.id)
    return result


def wait_published(line: Line, table: WrittenTable, timeout_s: float = PATIENCE_S) -> None:
    def is_published() -> bool:
        at = position(line, table)
        return at is not None and at.complete and at.version == table.version

    until(is_published, f"version {table.version} told", timeout_s)


def wait_for_progress(line: Line, table: WrittenTable) -> None:
    before = position(line, table)
    until(lambda: position(line, table) != before, "progress")


def check_stream(line: Line, table: WrittenTable) -> list[dict[str, Any]]:
    """Assert that the change topic describes the table exactly; return the changes."""
    topic = line.kafka.topics.changes(table.folder.name)
    kept: dict[bytes | None, dict[str, Any]] = {}
    changes, seen = [], []
    for record in committed(line, topic):
        key, value = record.key(), record.value()
        change = None if value is None else json.loads(value)
        after = None if change is None else change["after"]
        if change is not None:
            version, index = json.loads(change["source"]["sequence"])
            seen.append((int(version), int(index)))
            changes.append(change)
            if change["before"] is not None:
                assert kept[key] == change["before"], "an image that was never told"
            elif change["op"] == "c":
                assert key not in kept, f"{key!r} is inserted twice"
        if after is None:
            kept.pop(key, None)
        else:
            kept[key] = after
    assert seen == sorted(set(seen)), "a change was repeated or is out of order"
    for before, one in zip([(-1, -1), *seen], seen, strict=False):
        assert one[1] == (before[1] + 1 if one[0] == before[0] else 0), f"lost before {one}"
    assert by_id(list(kept.values())) == by_id(table.content)
    return changes


def by_id(content: Rows) -> Rows:
    return sorted(content, key=lambda row: row["id"])


@pytest.mark.timeout(600)
def test_killed_at_every_named_point_it_repeats_and_loses_nothing(line: Line) -> None:
    dice = random.Random(7)
    table = made(line)
    bell = KafkaBus(line.kafka, "test").producer()
    table.append(rows(*range(70)))
    passages = zip(FAILPOINTS, (1, 3, 2, 1), strict=True)
    for number, failpoint in enumerate(f"{name}:{passage}" for name, passage in passages):
        for _ in range(4):
            change_at_random(table, dice)
        table.append(rows(*range(1000 * (number + 1), 1000 * (number + 1) + 70)))
        service = publisher(line, f"cdc-{number}", failpoint)
        service.start()
        table.notify(bell, line.kafka.topics)
        assert service.child.wait(60) == -9, service.child.tail()
    publisher(line, "cdc-last").start()
    wait_published(line, table)
    changes = check_stream(line, table)
    assert {change["op"] for change in changes} == {"r", "c", "u", "d"}


def test_the_streams_and_their_last_changes_are_shown(line: Line) -> None:
    table = made(line)
    table.append(rows(1, 2, 3))
    made(line, "idle", 2, configuration={})
    publisher(line).start()
    wait_published(line, table)

    def run(*arguments: str) -> list[str]:
        given = [f"--set={key}={value}" for key, value in line.settings.items()]
        result = CliRunner().invoke(change_commands.app, [*arguments, *given])
        assert result.exit_code == 0, result.output
        return result.stdout.splitlines()

    listed = {item["table"]: item for item in json.loads("".join(run("list", "--json")))}
    assert listed["t"]["topic"] == line.kafka.topics.changes("t")
    assert (listed["t"]["version"], listed["idle"]["state"]) == (table.version, "not begun")
    assert any("not begun" in text for text in run("list"))

    kept = [record for record in committed(line, line.kafka.topics.changes("t")) if record.value()]
    assert run("tail", "t", "--last", "2", "--json") == [
        (record.value() or b"").decode() for record in kept[-2:]
    ]
    last = json.loads(kept[-1].value() or b"")
    (shown,) = run("tail", "t", "--last", "1")
    at, op, row = shown.split(" ", 2)
    assert (at.split(":"), op) == (json.loads(last["source"]["sequence"]), last["op"])
    assert json.loads(row) == last["after"]


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("kills", "per_s"), [(8, 20.0), pytest.param(30, 60.0, marks=pytest.mark.nightly)]
)
def test_killed_at_any_moment_under_load_it_repeats_and_loses_nothing(
    line: Line, kills: int, per_s: float
) -> None:
    dice = random.Random(11)
    table = made(line)
    table.append(rows(*range(500)))
    service = publisher(line, provide_transaction_metadata="true")
    began_s = time.monotonic()
    with changing(table, dice, line, per_s):
        for _ in range(kills):
            service.start()
            wait_for_progress(line, table)
            time.sleep(dice.random())
            service.child.kill()
    reached_per_s = table.version / (time.monotonic() - began_s)
    service.start()
    wait_published(line, table, 3 * PATIENCE_S)
    check_transactions(line, check_stream(line, table))
    if reached_per_s < per_s * LOAD_REACHED:
        pytest.skip(f"nothing was lost, but at {reached_per_s:.0f} versions/s: a busy machine")


def check_transactions(line: Line, changes: list[dict[str, Any]]) -> None:
    """Assert that each version began and ended once, with as many records as the topic has."""
    records = committed(line, line.kafka.topics.cdc_transactions)
    result = [json.loads(record.value() or b"") for record in records]
    ends = [item for item in result if item["status"] == "END"]
    begun = [one["id"] for one in result if one["status"] == "BEGIN"]
    assert begun == [one["id"] for one in ends]
    assert len(begun) == len(set(begun))
    counts = Counter(change["transaction"]["id"] for change in changes if change["op"] != "r")
    assert counts == Counter({one["id"]: one["event_count"] for one in ends})
    for end in ends:
        [collection] = end["data_collections"]
        assert sum(collection["partitions"].values()) == end["event_count"]


@pytest.mark.timeout(600)
def test_two_publishers_at_once_publish_each_change_once(line: Line) -> None:
    dice = random.Random(13)
    tables = [made(line, f"t{n}", n + 1) for n in range(2)]
    bell = KafkaBus(line.kafka, "test").producer()
    services = [publisher(line, f"cdc-{n}") for n in range(2)]
    for service in services:
        service.start()
    for service in services:
        service.wait_ready()
    for _ in range(25):
        for table in tables:
            change_at_random(table, dice)
            table.notify(bell, line.kafka.topics)
        time.sleep(0.1)
    for table in tables:
        wait_published(line, table)
        check_stream(line, table)
    for service in services:
        assert service.child.is_alive(), service.child.tail()


@pytest.mark.timeout(600)
def test_what_goes_through_the_gate_comes_out_as_changes(line: Line) -> None:
    line.started("committer")
    service, keeper = publisher(line), line.service("checkpointer")
    service.start()
    keeper.start()
    keyed = {"tidegate.cdc.keyColumns": "writer,number"}
    table = create_table(line.kafka, line.tables / "t", keyed)
    writers = append_with(line.kafka, table, 3, 20)
    for _ in range(2):
        time.sleep(2)
        for one in (service, keeper):
            one.child.kill()
            one.start()
    for writer in writers:
        writer.join(90)
    topic = line.kafka.topics.changes("t")

    def values() -> list[bytes]:
        # The snapshot of a table that is still empty is a marker alone, which has no value.
        return [value for record in committed(line, topic) if (value := record.value())]

    until(lambda: len(values()) >= 60, "every row")
    service.wait_ready()
    result = [json.loads(value) for value in values()]
    rows_told = sorted((item["after"]["writer"], item["after"]["number"]) for item in result)
    assert rows_told == sorted((writer.name, n) for writer in writers for n in range(20))
    assert {one["op"] for one in result} <= {"c", "r"}
    head = max(
        outcome.version or 0 for writer in writers for outcome in writer.outcomes.copy().values()
    )
    log = line.tables / "t/_delta_log"
    until(lambda: (log / checksum_name(head)).exists(), "the last checksum")


@pytest.mark.timeout(240)
def test_a_former_owner_is_fenced_and_its_rows_never_show(line: Line) -> None:
    table = made(line)
    topic = line.kafka.topics.changes("t")
    create_topics(line.kafka, [Topic(topic, "", 1, "delete", -1)])
    former, owner = (ChangeWriter(line.kafka, table.id, 10_000) for _ in range(2))
    first = Position(table=table.id, version=1, index=0, complete=True)
    former.take_over()
    former.publish(topic, [ChangeRecord(b"k", b"by the former", [])], first)
    owner.take_over()
    second = Position(table=table.id, version=2, index=0, complete=True)
    with pytest.raises(Fenced):
        former.publish(topic, [ChangeRecord(b"k", b"too late", [])], second)
    reader = PositionReader(line.kafka)
    assert reader.read(30.0, "end") == reader.read(30.0, "committed") == {table.id: first}
    owner.publish(topic, [ChangeRecord(b"k", b"by the owner", [])], second)
    values = [message.value() for message in committed(line, topic)]
    assert values == [b"by the former", b"by the owner"]
    assert reader.read(30.0, "end") == {table.id: second}
    assert read_positions(line.kafka, 30.0) == {table.id: second}
    former.close()
    owner.close()


@pytest.mark.timeout(240)
def test_a_row_larger_than_the_topic_takes_is_an_error_of_its_own(line: Line) -> None:
    table = made(line)
    topic = line.kafka.topics.changes("t")
    create_topics(line.kafka, [Topic(topic, "", 1, "delete", -1)])
    writer = ChangeWriter(line.kafka, table.id, 10_000)
    writer.take_over()
    position = Position(table=table.id, version=1, index=0, complete=True)
    large = ChangeRecord(b"k", b"x" * (RECORD_BYTES_MAX + 1), [])
    with pytest.raises(InvalidRequest) as caught:
        writer.publish(topic, [ChangeRecord(b"k", b"before it", []), large], position)
    assert caught.value.error_class == "RecordTooLarge"
    writer.close()
    writer.take_over()
    assert committed(line, topic) == []
    writer.close()


@pytest.mark.timeout(120)
def test_a_position_behind_a_foreign_open_transaction_is_waited_for(line: Line) -> None:
    table = made(line)
    table.append(rows(1, 2, 3))
    topic = line.kafka.topics.changes("t")
    service = publisher(line, transaction_timeout_ms="20000")
    service.start()
    wait_published(line, table)
    hanging = Producer(
        {
            "bootstrap.servers": line.kafka.bootstrap_servers,
            "transactional.id": f"{line.kafka.topic_prefix}hanging",
        }
    )
    hanging.init_transactions(30)
    hanging.begin_transaction()
    hanging.produce(line.kafka.topics.cdc_positions, b"x", str(UUID(int=99)).encode())
    hanging.flush(30)
    table.append(rows(4))
    until(lambda: len(committed(line, topic)) == 4, "the fourth row")
    service.child.kill()
    service.start()
    time.sleep(5)
    assert len(committed(line, topic)) == 4, "it did not wait for its position"
    hanging.abort_transaction(30)
    table.append(rows(5))
    wait_published(line, table)
    check_stream(line, table)


@pytest.mark.timeout(120)
def test_a_table_that_cannot_be_published_stops_alone(line: Line) -> None:
    keyless = made(line, "keyless", 1, configuration={})
    table = made(line, "t", 2)
    for item in (keyless, table):
        item.append(rows(1, 2))
    service = publisher(line)
    service.start()
    wait_published(line, table)
    assert position(line, keyless) is None
    assert "KeyColumnsMissing" in service.child.log.read_text()
    assert service.child.is_alive()


@pytest.mark.timeout(120)
def test_versions_without_a_notification_are_found_by_polling(line: Line) -> None:
    table = made(line)
    service = publisher(line)
    service.start()
    service.wait_ready()
    table.append(rows(1, 2))
    wait_published(line, table)
    check_stream(line, table)


@pytest.mark.timeout(120)
def test_a_clean_stop_leaves_with_status_zero_and_goes_on_later(line: Line) -> None:
    table = made(line)
    table.append(rows(*range(50)))
    service = publisher(line)
    service.start()
    wait_published(line, table)
    assert service.child.stop(30) == 0
    table.append(rows(*range(50, 60)))
    service.start()
    wait_published(line, table)
    check_stream(line, table)
    assert PositionReader(line.kafka).read(30.0, "end")[table.id] == position(line, table)


@pytest.mark.timeout(120)
def test_a_subscriber_goes_on_where_its_last_run_ended(line: Line) -> None:
    table, copy, result = made(line), changes.TableCopy(), list[str]()
    table.append(rows(*range(20)))
    service = publisher(line, partitions="3", provide_transaction_metadata="true")
    service.start()
    position: dict[str, Any] | None = None
    for number in range(3):
        if number == 1:
            table.set_metadata(table.schema.append(pa.field("more", pa.string())))
        table.append(rows(20 + number))
        table.rewrite(
            lambda old: [{**row, "price": row["price"] + 1} for row in old if row["id"] % 7]
        )
        wait_published(line, table)
        with changes.follow("t", line.kafka, position) as stream:
            for change in itertools.islice(stream.changes(quiet_s=3.0), 15 if number < 2 else None):
                copy.apply(change)
                index = None if change.op == "m" else change.index
                result.append(f"{change.op}{change.version}:{index}")
                position = json.loads(json.dumps(stream.position))
    content = [{"more": None, **row} for row in table.content]
    assert by_id([dict(row) for row in copy.rows]) == by_id(content)
    assert [item for item in result if item.startswith("m")] == [f"m{table.version - 4}:None"]
    assert len(result) == len(set(result))
    assert copy.to_arrow().num_rows == len(table.content)
    with changes.follow("t", line.kafka) as stream:
        whole = [one.version for one in itertools.islice(stream.versions(quiet_s=30.0), 6)]
        assert whole == sorted(set(whole))
    again = changes.TableCopy()
    with changes.follow("t", line.kafka) as stream:
        for change in stream.changes(until=table.version):
            again.apply(change)
    assert by_id([dict(row) for row in again.rows]) == by_id(content)


@pytest.mark.timeout(300)
def test_the_examples_have_the_rows_of_the_table(line: Line, tmp_path: Path) -> None:
    table, file = made(line), tmp_path / "copy.json"
    table.append(rows(*range(20)))
    publisher(line, provide_transaction_metadata="true").start()
    brokers, prefix = line.kafka.bootstrap_servers, line.kafka.topic_prefix
    copying = [sys.executable, str(EXAMPLES / "table_copy.py"), brokers, "t", str(file)]
    wait_published(line, table)
    with subprocess.Popen([*copying, "--prefix", prefix]) as process:
        until(file.exists, "the snapshot's copy")
        process.kill()
    table.rewrite(lambda old: [{**row, "price": 0.5} for row in old if row["id"] % 5])
    table.append(rows(30))
    wait_published(line, table)
    subprocess.run([*copying, "--prefix", prefix, "--once"], check=True)
    copied = [row for _, row in json.loads(file.read_text())["rows"]]
    assert by_id(copied) == by_id(table.content)
    plain = [sys.executable, str(EXAMPLES / "plain_consumer.py"), brokers]
    topic = line.kafka.topics.changes("t")
    printed = subprocess.run([*plain, topic], check=True, capture_output=True, text=True).stdout
    assert by_id([json.loads(item) for item in printed.splitlines()]) == by_id(table.content)


@pytest.mark.timeout(300)
def test_operators_move_a_stream_by_commands(line: Line) -> None:
    table, topics = made(line), line.kafka.topics
    table.append(rows(*range(20)))
    publisher(line, notifications="true", heartbeat_interval_ms="1").start()
    wait_published(line, table)

    def run(*arguments: str, status: int = 0) -> str:
        given = [f"--set={key}={value}" for key, value in line.settings.items()]
        result = CliRunner().invoke(change_commands.app, [*arguments, *given])
        assert result.exit_code == status, result.output
        return result.output if status else result.stdout

    assert "the stream gives the same" in run("verify", "t")
    leases = [
        record.value()
        for record in committed(line, topics.leases)
        if (record.key() or b"").startswith(b"changes-verify.")
    ]
    assert [json.loads(value)["needed_from"] if value else None for value in leases] == [
        table.version,
        None,
    ]
    table.append(rows(20, 21))
    wait_published(line, table)
    run("reset", "t", "--to", "1")
    wait_published(line, table)
    run("snapshot", "t", "--incremental", "--where", "id < 3 AND name IS NOT NULL")
    assert "cost" in run("snapshot", "t", "--incremental", "--where", "cost < 3", status=2)
    run("snapshot", "t", "--where", "id < 3", status=2)
    run("snapshot", "t", "--incremental")
    table.rewrite(lambda old: [{**row, "price": 0.5} for row in old if row["id"] % 5])
    wait_published(line, table)
    assert json.loads(run("verify", "t", "--json"))["missing"] == 0
    run("snapshot", "t")
    wait_published(line, table)
    assert f"at version {table.version}: 17 rows, the stream gives the same" in run("verify", "t")
    table.append(rows(30))
    wait_published(line, table)
    run("skip", "t", "--to", str(table.version), status=2)
    run("snapshot", "t", "--pause", status=2)
    run("reset", "t", status=2)
    run("reset", "t", "--anew")
    wait_published(line, table)
    assert len(run("replay", "t").splitlines()) == len(table.content)
    assert "up to date" in run("show", "t")
    reported = [
        json.loads(item.value() or b"") for item in committed(line, topics.cdc_notifications)
    ]
    statuses = {(one["aggregate_type"], one["type"]) for one in reported}
    assert statuses >= {
        (which, status)
        for which in ("Initial Snapshot", "Incremental Snapshot")
        for status in ("STARTED", "COMPLETED")
    }

    def last_beat() -> int:
        beats = committed(line, topics.cdc_heartbeats)
        return int(json.loads(beats[-1].value() or b"")["version"]) if beats else -1

    until(lambda: last_beat() == table.version, "a heartbeat of the newest version")


@pytest.mark.timeout(120)
def test_what_brokers_refuse_for_good_is_reported_with_its_cause(line: Line) -> None:
    """A compacted topic takes no record without a key; topics differ in more than dots."""
    names = ("changes.a", "changes_a")
    topics = [Topic(name, "none", 1, "compact", -1) for name in names]
    create_topics(line.kafka, topics[:1])
    with pytest.raises(Misconfigured, match="dots and underscores"):
        create_topics(line.kafka, topics[1:])
    writer = ChangeWriter(line.kafka, UUID(int=7), 5_000)
    writer.take_over()
    try:
        keyless = ChangeRecord(None, b"{}", [])
        position = Position(table=UUID(int=7), version=1, complete=True)
        with pytest.raises(Misconfigured, match=r"changes\.a.*without a key.*key columns"):
            writer.publish(names[0], [keyless], position)
    finally:
        writer.close()
