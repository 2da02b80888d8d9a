"""The embedded broker is a real Kafka, restarts with its data, and leaves nothing behind."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.integration.conftest import Broker
from tests.integration.waiting import PATIENCE_S
from tidegate_delta.errors import Misconfigured
from tidegate_local.child_processes import Child, Command, is_running, start_time_of
from tidegate_local.embedded_kafka import EmbeddedKafka
from tidegate_runtime.kafka.client_protocols import Offset, TopicPartition
from tidegate_runtime.kafka.confluent_bus import KafkaBus
from tidegate_runtime.kafka.settings import KafkaSettings
from tidegate_runtime.kafka.topic_admin import create_topics, differing_topics, missing_topics

pytestmark = [pytest.mark.broker, pytest.mark.timeout(180)]

OWNER = """
import sys, time
from pathlib import Path
from tidegate_local.embedded_kafka import EmbeddedKafka

broker = EmbeddedKafka(Path(sys.argv[1]))
broker.start()
sys.stdout.write(f"{broker.child.pid} {broker.bootstrap}\\n")
sys.stdout.flush()
time.sleep(600)
"""


def read_all(kafka: KafkaSettings, at: TopicPartition) -> list[bytes | None]:
    reader = KafkaBus(kafka, "test").reader()
    try:
        start, end = reader.bounds(at)
        result: list[bytes | None] = []
        while start < end:
            records = reader.read(at, start, 10)
            assert records, "there is more"
            result += [record.value for record in records]
            start = Offset(records[-1].offset + 1)
        return result
    finally:
        reader.close()


def test_the_declared_topics_are_created_once_and_are_as_declared(broker: str) -> None:
    kafka = KafkaSettings(bootstrap_servers=broker, topic_prefix="declared.", partitions=2)
    declared = kafka.topics.declared()
    assert len(missing_topics(kafka, declared)) == len(declared)
    assert sorted(create_topics(kafka, declared)) == sorted(t.name for t in declared)
    assert create_topics(kafka, declared) == []
    assert differing_topics(kafka, declared) == []


def test_a_session_of_two_seconds_is_allowed(kafka: KafkaSettings) -> None:
    consumer = KafkaBus(kafka, "test").consumer("short", [kafka.topics.commits])
    until = time.monotonic() + PATIENCE_S
    assigned: tuple[TopicPartition, ...] = ()
    while not assigned and time.monotonic() < until:
        assigned = consumer.poll(1, 0.2).assigned
    consumer.close()
    assert assigned


def test_what_was_written_is_there_after_a_kill_and_a_new_start(tmp_path: Path) -> None:
    at = TopicPartition("t.commits", 0)
    with EmbeddedKafka(tmp_path / "kafka") as first:
        kafka = KafkaSettings(bootstrap_servers=first.bootstrap, topic_prefix="t.")
        create_topics(kafka, kafka.topics.declared())
        producer = KafkaBus(kafka, "test").producer()
        producer.publish(at, None, b"kept")
        producer.flush(10)
        identity = KafkaBus(kafka, "test").identity([at.topic])
        first.kill()
    with EmbeddedKafka(tmp_path / "kafka") as second:
        kafka = KafkaSettings(bootstrap_servers=second.bootstrap, topic_prefix="t.")
        assert read_all(kafka, at) == [b"kept"]
        assert KafkaBus(kafka, "test").identity([at.topic]) == identity
        pid = second.child.pid
    assert not is_running(pid), "a stopped broker is gone"


def test_a_taken_port_is_reported_before_anything_is_started(tmp_path: Path) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        taken = holder.getsockname()[1]
        with pytest.raises(Misconfigured, match=f"port {taken}"):
            EmbeddedKafka(tmp_path, taken).start()
    assert not (tmp_path / "kafka.log").exists()


def test_it_dies_with_the_process_that_started_it(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", OWNER, str(tmp_path)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline().split()[0])
        birth = start_time_of(pid)
        assert birth is not None
        os.kill(owner.pid, signal.SIGKILL)
        owner.wait()
    until = time.monotonic() + PATIENCE_S
    while start_time_of(pid) == birth and time.monotonic() < until:
        time.sleep(0.05)
    assert start_time_of(pid) != birth


def test_a_session_broker_that_died_is_named_to_the_test_that_needs_it(tmp_path: Path) -> None:
    child = Child(Command("kafka", ["sh", "-c", "echo no memory left; exit 9"]), tmp_path / "log")
    child.start()
    child.wait(10)
    with pytest.raises(pytest.fail.Exception, match=r"(?s)died before.*status 9.*no memory left"):
        Broker("127.0.0.1:1", child).check("before this test")
    Broker("127.0.0.1:1").check("in a container, which is not ours to watch")
