"""docs/examples/kafka_to_tables.py is killed again and again; each event counts once.

It is the line that users build first: a Kafka topic, Structured Streaming with Spark's own source,
appends, and upserts by key in foreachBatch. A kill takes Spark's JVM and its Python workers along.
"""

import json
import os
import signal
import struct
import sys
import time
from collections import Counter
from pathlib import Path
from random import Random

import pytest
from deltalake import DeltaTable

from tests.integration.conftest import Line
from tidegate_local.child_processes import Child, Command
from tidegate_messages.topics import Topic
from tidegate_runtime.kafka.client_protocols import TopicPartition
from tidegate_runtime.kafka.confluent_bus import KafkaBus
from tidegate_runtime.kafka.topic_admin import create_topics

pytestmark = [
    pytest.mark.spark,
    pytest.mark.broker,
    pytest.mark.nightly,
    pytest.mark.timeout(3_000),
]

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "kafka_to_tables.py"
SEED = 20_262
KILLS = 6
PARTITIONS = 3
ACCOUNTS = 7
EVENTS_A_RUN = 40
WAIT_S = 600.0
"""A guard against what hangs; nothing is measured."""

SCALA = "2.13:4.2.0"
PACKAGES = f"org.apache.spark:spark-sql-kafka-0-10_{SCALA},org.apache.spark:spark-avro_{SCALA}"
SUBMIT = (
    f"--packages {PACKAGES} --master local[2] --conf spark.driver.memory=1g "
    "--conf spark.driver.host=127.0.0.1 --conf spark.driver.bindAddress=127.0.0.1 "
    "--conf spark.ui.enabled=false --conf spark.sql.shuffle.partitions=1 "
    "--conf spark.ui.showConsoleProgress=false pyspark-shell"
)
NOT_THERE = "UNRESOLVED DEPENDENCIES"


class Topics:
    """A topic of events, and what its events add up to."""

    def __init__(self, line: Line, name: str, form: str, rng: Random) -> None:
        self.name, self._form, self._rng = name, form, rng
        create_topics(line.kafka, [Topic(name, "account", PARTITIONS, "delete", -1)])
        self._producer = KafkaBus(line.kafka, "source").producer()
        self.ids = 0
        self.events: Counter[str] = Counter()
        self.amounts: Counter[str] = Counter()

    def add(self, count: int) -> None:
        for _ in range(count):
            amount = self._rng.randrange(100)
            event = {
                "id": self.ids,
                "account": f"a{self._rng.randrange(ACCOUNTS)}",
                "amount": float(amount),
            }
            at = TopicPartition(self.name, self._rng.randrange(PARTITIONS))
            self._producer.publish(at, str(event["account"]).encode(), self._bytes(event))
            self.events[str(event["account"])] += 1
            self.amounts[str(event["account"])] += amount
            self.ids += 1
        self._producer.flush(60.0)

    def _bytes(self, event: dict[str, object]) -> bytes:
        if self._form == "json":
            return json.dumps(event).encode()
        return as_avro(event)


def as_avro(event: dict[str, object]) -> bytes:
    """Return an event as Avro writes it: a zigzag number, a text with its length, 8 bytes."""
    account = str(event["account"]).encode()
    amount = struct.pack("<d", event["amount"])
    return _number(int(str(event["id"]))) + _number(len(account)) + account + amount


def _number(value: int) -> bytes:
    rest, result = value << 1, bytearray()
    while rest >= 128:
        result.append(rest & 127 | 128)
        rest >>= 7
    return bytes([*result, rest])


class Program:
    """The example, started and killed."""

    def __init__(self, line: Line, topic: str, form: str, folder: Path) -> None:
        self.tables = line.tables / form
        self._argv = [sys.executable, str(EXAMPLE), line.kafka.bootstrap_servers, topic]
        self._argv += [str(self.tables), str(folder / "checkpoints"), form]
        self._log = folder / "program.log"
        self._environ = {
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_SUBMIT_ARGS": SUBMIT,
            "TIDEGATE__KAFKA__TOPIC_PREFIX": line.kafka.topic_prefix,
        }
        self.child: Child | None = None

    def start(self, *more: str) -> Child:
        command = Command("example", [*self._argv, *more], self._environ)
        self.child = Child(command, self._log)
        self.child.start()
        return self.child

    def kill(self) -> None:
        assert self.child is not None
        if self.child.is_alive():
            os.killpg(self.child.pid, signal.SIGKILL)
            self.child.wait(60.0)

    def versions(self) -> int:
        return sum(1 for _ in self.tables.glob("*/_delta_log/*.json"))

    def check_alive(self) -> None:
        assert self.child is not None
        if self.child.is_alive():
            return
        if NOT_THERE in self._log.read_text(errors="replace"):
            pytest.skip("Spark's Kafka source can't be had: no Maven repository answers")
        pytest.fail(f"the program ended by itself:\n{self.child.tail(60)}")


@pytest.mark.parametrize("form", ["json", "avro"])
def test_each_event_counts_once_though_the_program_is_killed(
    form: str, line: Line, tmp_path: Path
) -> None:
    rng = Random(SEED)
    line.started("committer")
    topic = Topics(line, f"{line.kafka.topic_prefix}events", form, rng)
    program = Program(line, topic.name, form, tmp_path)
    topic.add(EVENTS_A_RUN)
    try:
        for _ in range(KILLS):
            program.start()
            begun, more = program.versions(), rng.randrange(1, 5)
            until_s = time.monotonic() + WAIT_S
            while program.versions() < begun + more:
                program.check_alive()
                assert time.monotonic() < until_s, "it hangs"
                topic.add(1)
                time.sleep(0.2)
            time.sleep(rng.random())
            program.kill()
        child = program.start("--once")
        assert child.wait(WAIT_S) == 0, child.tail(60)
    finally:
        program.kill()
    events = DeltaTable(str(program.tables / "events")).to_pyarrow_table()
    assert sorted(events["id"].to_pylist()) == list(range(topic.ids))
    accounts = DeltaTable(str(program.tables / "accounts")).to_pyarrow_table().to_pylist()
    assert {row["account"]: row["events"] for row in accounts} == dict(topic.events)
    assert {row["account"]: row["amount"] for row in accounts} == dict(topic.amounts)
