"""`tidegate ingest` is killed, doubled and cut off; the table has each record of its topic once.

Two jobs copy the same topic, one of them is killed with its JVM, the committer dies, a partition is
added, one record of a hundred is no row; at the end the topic is made anew. The checker is
delta-rs and a plain consumer: it shares no code with the job.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined] # public, not declared so
    AdminClient,
    NewPartitions,
    NewTopic,
)

from confluent_kafka import Producer  # isort: skip
from deltalake import DeltaTable, QueryBuilder

from tests.integration.conftest import Line
from tidegate_local.child_processes import Child, Command

pytestmark = [pytest.mark.spark, pytest.mark.broker]

WAIT_S = 400.0
"""A guard against what hangs; nothing is measured."""

NOT_THERE = "UNRESOLVED DEPENDENCIES"
SPARK = {
    "spark.master": "local[2]",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.sql.shuffle.partitions": "1",
}


NO_OPTIONS: Mapping[str, str | int | bool] = {}


class Source:
    """A topic of rows with the ids 0, 1, 2, …; every hundredth value is no row."""

    def __init__(
        self, brokers: str, topic: str, options: Mapping[str, str | int | bool] = NO_OPTIONS
    ) -> None:
        self.topic, self.partitions, self.fields = topic, 2, 0
        self._options = {"bootstrap.servers": brokers, **options}
        self._admin = AdminClient({"bootstrap.servers": brokers})
        self._producer = Producer(self._options)
        self._rng = Random(20_263)
        self.rows: list[int] = []
        self.bad: list[int] = []
        self._next = 0
        self._create()

    def _create(self) -> None:
        topic = NewTopic(self.topic, num_partitions=self.partitions)
        self._admin.create_topics([topic])[self.topic].result()

    def add(self, count: int) -> None:
        for number in range(self._next, self._next + count):
            is_bad = number % 100 == 50
            row = {"id": f"no {number}" if is_bad else number, "text": f"order {number}"}
            row |= {f"field_{field}": number for field in range(self.fields)}
            (self.bad if is_bad else self.rows).append(number)
            partition = self._rng.randrange(self.partitions)
            self._send(json.dumps(row), str(number), partition)
        assert self._producer.flush(WAIT_S) == 0, "records are not sent"
        self._next += count

    def _send(self, value: str, key: str, partition: int) -> None:
        while True:
            try:
                self._producer.produce(self.topic, value, key, partition)
            except BufferError:
                self._producer.poll(0.1)
            else:
                return

    def add_partition(self) -> None:
        self.partitions += 1
        grown = NewPartitions(self.topic, self.partitions)
        self._admin.create_partitions([grown])[self.topic].result()
        self._meet()

    def make_anew(self) -> None:
        self._admin.delete_topics([self.topic])[self.topic].result()
        until_s = time.monotonic() + 60.0
        while self.topic in self._admin.list_topics(timeout=10).topics:
            assert time.monotonic() < until_s, "the topic stays"
            time.sleep(0.2)
        self._create()
        self._meet()

    def _meet(self) -> None:
        """Send from now on by a producer that knows the topic as it is."""
        until_s = time.monotonic() + 60.0
        while True:
            self._producer = Producer(self._options)
            topic = self._producer.list_topics(self.topic, timeout=10).topics[self.topic]
            if len(topic.partitions) == self.partitions:
                return
            assert time.monotonic() < until_s, "the brokers do not know the partitions"
            time.sleep(0.2)


class IngestProcess:
    """`tidegate ingest`, started and killed."""

    def __init__(
        self,
        line: Line,
        topic: str,
        table: Path,
        log: Path,
        *more: str,
        spark: Mapping[str, str] = SPARK,
    ) -> None:
        settings = [f"ingest.spark.{name}={value}" for name, value in spark.items()]
        settings += [f"{name}={value}" for name, value in line.settings.items()]
        pairs = [part for pair in settings for part in ("--set", pair)]
        self._argv = [sys.executable, "-m", "tidegate_producers.ingest", topic, str(table)]
        self._argv += ["--value-schema", "id BIGINT, text STRING", "--max-latency-s", "0.2"]
        self._argv += [*pairs, *more]
        self._log = log
        self.child: Child | None = None

    def start(self, *more: str) -> Child:
        self.child = Child(Command("ingest", [*self._argv, *more]), self._log)
        self.child.start()
        return self.child

    def kill(self) -> None:
        if self.child is not None and self.child.is_alive():
            os.killpg(self.child.pid, signal.SIGKILL)
            self.child.wait(60.0)

    def check_alive(self) -> None:
        assert self.child is not None
        if self.child.is_alive():
            return
        if NOT_THERE in self._log.read_text(errors="replace"):
            pytest.skip("Spark's Kafka source can't be had: no Maven repository answers")
        pytest.fail(f"the job ended by itself:\n{self.child.tail(60)}")

    def wait_for(self, is_there: Callable[[], bool]) -> None:
        """Wait until the job has made of the table what it should be, or as long as it may take."""
        until_s = time.monotonic() + WAIT_S
        while not is_there() and time.monotonic() < until_s:
            self.check_alive()
            time.sleep(0.5)


def rows_there(table: Path) -> int:
    return DeltaTable(str(table)).to_pyarrow_dataset().count_rows() if versions(table) else 0


def versions(table: Path) -> int:
    return sum(1 for _ in table.glob("_delta_log/*.json"))


def wait_for_versions(table: Path, more: int, source: Source, *jobs: IngestProcess) -> None:
    """Send records until some more versions are there."""
    begun, until_s = versions(table), time.monotonic() + WAIT_S
    while versions(table) < begun + more:
        for job in jobs:
            job.check_alive()
        assert time.monotonic() < until_s, "it hangs"
        source.add(20)
        time.sleep(0.1)


def letter_headers(brokers: str, topic: str) -> list[dict[str, bytes]]:
    """Return the headers of each dead letter, with a consumer of nobody's."""
    consumer = Consumer({"bootstrap.servers": brokers, "group.id": "checker"})
    place = TopicPartition(topic, 0, 0)
    _, end = consumer.get_watermark_offsets(place)
    consumer.assign([place])
    found = []
    for message in consumer.consume(end, 30.0) if end else []:
        headers = message.headers()
        assert isinstance(headers, list), "headers are pairs"
        found.append({name: value for name, value in headers if isinstance(value, bytes)})
    consumer.close()
    return found


def dead_letters(brokers: str, topic: str) -> set[tuple[str, bytes]]:
    """Return the source and the key of each dead letter."""
    return {(one["source"].decode(), one["key"]) for one in letter_headers(brokers, topic)}


def check(table: Path, source: Source, letters: set[tuple[str, bytes]]) -> None:
    rows = DeltaTable(str(table)).to_pyarrow_table().to_pylist()
    assert sorted(row["id"] for row in rows) == source.rows
    assert all(row["text"] == f"order {row['id']}" for row in rows)
    assert sorted(int(key) for _, key in letters) == source.bad


@pytest.mark.timeout(1_500)
def test_each_record_is_copied_once_whatever_dies(line: Line, tmp_path: Path) -> None:
    brokers, prefix = line.kafka.bootstrap_servers, line.kafka.topic_prefix
    committer = line.started("committer")
    source, table = Source(brokers, f"{prefix}orders"), line.tables / "orders"
    first = IngestProcess(line, source.topic, table, tmp_path / "first.log")
    second = IngestProcess(line, source.topic, table, tmp_path / "second.log")
    letters = f"{prefix}ingest-dead-letters"
    source.add(500)
    try:
        first.start()
        second.start()
        wait_for_versions(table, 3, source, first, second)
        source.add_partition()
        first.kill()
        wait_for_versions(table, 2, source, second)
        committer.child.kill()
        source.add(100)
        committer.start()
        wait_for_versions(table, 2, source, second)
        second.kill()
        source.add(100)
        first.start()
        first.wait_for(lambda: rows_there(table) >= len(source.rows))
        check(table, source, dead_letters(brokers, letters))
        source.make_anew()
        source.add(60)
        first.wait_for(lambda: rows_there(table) >= len(source.rows))
        check(table, source, dead_letters(brokers, letters))
    finally:
        first.kill()
        second.kill()


def send(brokers: str, topic: str, *records: tuple[int, dict[str, object] | None]) -> None:
    """Send records by their key; None is a tombstone."""
    producer = Producer({"bootstrap.servers": brokers})
    for key, row in records:
        value = None if row is None else json.dumps({"id": key, **row})
        producer.produce(topic, value, str(key))
    producer.flush(60.0)


def rows_by_id(table: Path) -> dict[int, dict[str, object]]:
    if not versions(table):
        return {}
    result = QueryBuilder().register("t", DeltaTable(str(table))).execute("SELECT * FROM t")
    rows = pa.table(result.read_all()).to_pylist()
    assert len({row["id"] for row in rows}) == len(rows), "a key has two rows"
    return {row.pop("id"): row for row in rows}


NESTED = {"part": {"a": 1}, "list": [{"n": 1}]}
GROWN = {"part": {"a": 2, "b": "x"}, "list": [{"n": 2, "m": 0.5}, {"n": 3}]}
"""Of a later record: with fields inside two columns that these did not have."""


@pytest.mark.timeout(1_500)
def test_upserts_replace_delete_and_add_columns(line: Line, tmp_path: Path) -> None:
    brokers = line.kafka.bootstrap_servers
    topic, table = f"{line.kafka.topic_prefix}customers", line.tables / "customers"
    admin = AdminClient({"bootstrap.servers": brokers})
    admin.create_topics([NewTopic(topic, num_partitions=3)])[topic].result()
    line.started("committer")
    upsert = ["--mode", "upsert", "--key", "id", "--order-by", "seq"]
    columns = "id BIGINT, text STRING, seq BIGINT, part STRUCT<a: BIGINT>"
    upsert += ["--value-schema", f"{columns}, list ARRAY<STRUCT<n: INT>>"]
    job = IngestProcess(line, topic, table, tmp_path / "upsert.log", *upsert)
    send(brokers, topic, *((id_, {"text": "first", "seq": 1}) for id_ in range(5)))
    send(brokers, topic, (5, {"text": "first", "seq": 1, **NESTED}))
    # Of one batch: the largest order counts, whatever its offset, and a tombstone behind it.
    send(brokers, topic, (0, {"text": "third", "seq": 3}), (0, {"text": "late", "seq": 2}))
    send(brokers, topic, (1, None), (9, None))
    job.start()
    none = {"part": None, "list": None}
    expected: dict[int, dict[str, object]]
    expected = {id_: {"text": "first", "seq": 1, **none} for id_ in (2, 3, 4)}
    expected |= {5: {"text": "first", "seq": 1, **NESTED}, 0: {"text": "third", "seq": 3, **none}}
    try:
        job.wait_for(lambda: rows_by_id(table) == expected)
        assert rows_by_id(table) == expected
        check_later_upserts(brokers, topic, table, job)
    finally:
        job.kill()


def check_later_upserts(brokers: str, topic: str, table: Path, job: IngestProcess) -> None:
    # Of a later one: late, equal and newer records, a deleted key that comes again, new fields.
    send(brokers, topic, (0, {"text": "late", "seq": 2}), (2, {"text": "equal", "seq": 1}))
    newer = {"seq": 2, "sum": 0.5, **GROWN}
    send(brokers, topic, (1, {"text": "again", "seq": 1}), (3, None), (4, newer))
    none = {"part": None, "list": None, "sum": None}
    older = {"part": {"a": 1, "b": None}, "list": [{"n": 1, "m": None}], "sum": None}
    list_ = [{"n": 2, "m": 0.5}, {"n": 3, "m": None}]
    expected = {
        0: {"text": "third", "seq": 3, **none},
        1: {"text": "again", "seq": 1, **none},
        2: {"text": "equal", "seq": 1, **none},
        4: {**newer, "text": None, "list": list_},
        5: {"text": "first", "seq": 1, **older},
    }
    job.wait_for(lambda: rows_by_id(table) == expected)
    assert rows_by_id(table) == expected
