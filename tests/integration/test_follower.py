"""What followers require of the Faust library, against a real broker with real kills.

A new version of Faust must pass these tests.
"""

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from tests.integration.waiting import PATIENCE_S
from tidegate_local.child_processes import Command, ServiceProcess, probe
from tidegate_messages.codec import encode, headers
from tidegate_messages.published_records import CommitRecord
from tidegate_runtime.kafka.client_protocols import TopicPartition
from tidegate_runtime.kafka.confluent_bus import KafkaBus
from tidegate_runtime.kafka.settings import KafkaSettings

pytestmark = [pytest.mark.broker, pytest.mark.timeout(300)]

PROGRAM = Path(__file__).with_name("follower_program.py")
TABLES = [UUID(int=1), UUID(int=2), UUID(int=3)]
Start = Callable[[Command], ServiceProcess]


def commit(table: UUID, version: int) -> CommitRecord:
    return CommitRecord(
        table=table,
        table_root=f"file:///t/{table}",
        version=version,
        sha256="0" * 64,
        size=1,
        author="tidegate",
    )


def publish(kafka: KafkaSettings, records: list[CommitRecord | bytes | None]) -> None:
    producer = KafkaBus(kafka, "test").producer()
    for record in records:
        at = TopicPartition(kafka.topics.commits, 0)
        if isinstance(record, CommitRecord):
            producer.publish(at, str(record.table).encode(), encode(record), headers(record))
        else:
            producer.publish(at, None, record)
    producer.flush(10)
    producer.close()


class Follower:
    """The program of `follower_program.py` on the topics of one test."""

    def __init__(self, start: Start, kafka: KafkaSettings, folder: Path) -> None:
        self._start, self._kafka = start, kafka
        self.seen_file = folder / "seen"
        self.process: ServiceProcess

    def start(self, manners: str = "", *, wait: bool = True) -> None:
        argv = [sys.executable, str(PROGRAM)]
        argv += [
            f"kafka.bootstrap_servers={self._kafka.bootstrap_servers}",
            f"kafka.topic_prefix={self._kafka.topic_prefix}",
            f"kafka.session_timeout_ms={self._kafka.session_timeout_ms}",
        ]
        environ = {"SEEN": str(self.seen_file), "MANNERS": manners}
        self.process = self._start(Command("scribe", argv, environ))
        if wait:
            self.process.wait_ready()

    def lines(self) -> list[str]:
        text = self.seen_file.read_text(encoding="utf-8") if self.seen_file.exists() else ""
        return text.splitlines()

    def seen(self, table: UUID) -> list[int]:
        rows = [line.split() for line in self.lines() if line != "look"]
        return [int(version) for name, version in rows if name == str(table)]

    def await_seen(self, table: UUID, version: int, timeout_s: float = 120) -> None:
        until = time.monotonic() + timeout_s
        while version not in self.seen(table):
            assert time.monotonic() < until, f"{self.lines()[-5:]} {self.process.child.tail()}"
            time.sleep(0.05)

    def committed(self) -> int | None:
        """Return the group's committed offset, read by a consumer that does not join."""
        topics = self._kafka.topics
        consumer = KafkaBus(self._kafka, "test").consumer(f"{topics.prefix}scribe", [])
        try:
            return consumer.committed(TopicPartition(topics.commits, 0))
        finally:
            consumer.close()


@pytest.fixture
def follower(process: Start, kafka: KafkaSettings, tmp_path: Path) -> Follower:
    return Follower(process, kafka, tmp_path)


def test_each_notification_is_delivered_in_the_order_of_its_table(
    follower: Follower, kafka: KafkaSettings
) -> None:
    publish(kafka, [commit(table, version) for version in range(50) for table in TABLES])
    follower.start()
    for table in TABLES:
        follower.await_seen(table, 49)
        assert follower.seen(table) == list(range(50))


def test_it_polls_before_it_listens_and_on_schedule(
    follower: Follower, kafka: KafkaSettings
) -> None:
    publish(kafka, [commit(TABLES[0], 0)])
    follower.start()
    follower.await_seen(TABLES[0], 0)
    assert follower.lines()[0] == "look"
    time.sleep(1.5)
    assert follower.lines().count("look") >= 3


def test_what_was_acknowledged_is_not_heard_again_after_a_clean_stop(
    follower: Follower, kafka: KafkaSettings
) -> None:
    publish(kafka, [commit(TABLES[0], version) for version in range(10)])
    follower.start()
    follower.await_seen(TABLES[0], 9)
    assert follower.process.child.stop() == 0
    assert follower.committed() == 10
    follower.start()
    publish(kafka, [commit(TABLES[0], 10)])
    follower.await_seen(TABLES[0], 10)
    assert follower.seen(TABLES[0]) == list(range(11))


def test_a_killed_follower_hears_again_what_it_had_not_done(
    follower: Follower, kafka: KafkaSettings
) -> None:
    publish(kafka, [commit(TABLES[0], version) for version in range(30)])
    follower.start("slow")
    follower.await_seen(TABLES[0], 3)
    follower.process.child.kill()
    done = follower.seen(TABLES[0])
    assert (follower.committed() or 0) <= len(done), "a position only after the effect"
    follower.start()
    follower.await_seen(TABLES[0], 29)
    assert sorted(set(follower.seen(TABLES[0]))) == list(range(30))


def test_an_error_ends_the_process_and_loses_nothing(
    follower: Follower, kafka: KafkaSettings
) -> None:
    publish(kafka, [commit(TABLES[0], version) for version in range(20)])
    follower.start("fail:7", wait=False)
    assert follower.process.child.wait(60) == 1
    assert follower.seen(TABLES[0]) == list(range(7))
    assert (follower.committed() or 0) <= 7
    assert "cannot bear version 7" in follower.process.child.tail(60)
    follower.start()
    follower.await_seen(TABLES[0], 19)
    assert set(follower.seen(TABLES[0])) == set(range(20))


def test_an_error_of_one_table_keeps_its_place_though_others_went_on(
    follower: Follower, kafka: KafkaSettings
) -> None:
    ahead = [commit(TABLES[1], version) for version in range(20)]
    publish(kafka, [commit(TABLES[0], 7), *ahead])
    follower.start("fail:7", wait=False)
    assert follower.process.child.wait(60) == 1
    assert follower.committed() in (None, 0), "nothing after the failed record counts as done"


def test_an_error_while_looking_ends_the_process(follower: Follower) -> None:
    follower.start("blind", wait=False)
    assert follower.process.child.wait(60) == 1
    assert "cannot look" in follower.process.child.tail(60)


def test_an_unreadable_record_is_skipped_and_does_not_stop_the_rest(
    follower: Follower, kafka: KafkaSettings
) -> None:
    publish(kafka, [b"{", None, b'{"table": 1}', commit(TABLES[0], 4)])
    follower.start()
    follower.await_seen(TABLES[0], 4)
    _, metrics = probe(f"{follower.process.address()}/metrics")
    assert 'tidegate_dead_letters_total{reason="commit"} 3.0' in metrics


def test_work_in_progress_is_finished_and_its_position_kept_at_a_stop(
    follower: Follower, kafka: KafkaSettings
) -> None:
    publish(kafka, [commit(TABLES[0], version) for version in range(30)])
    follower.start("slow")
    follower.await_seen(TABLES[0], 2)
    assert follower.process.child.stop() == 0
    assert follower.committed() == len(follower.seen(TABLES[0]))


def test_it_works_on_after_it_stood_still_longer_than_its_session(
    follower: Follower, kafka: KafkaSettings
) -> None:
    follower.start()
    follower.process.child.signal(signal.SIGSTOP)
    time.sleep(4)
    follower.process.child.signal(signal.SIGCONT)
    publish(kafka, [commit(TABLES[0], 0)])
    follower.await_seen(TABLES[0], 0)


def test_a_record_that_faust_leaves_behind_is_heard_after_all(
    follower: Follower, kafka: KafkaSettings
) -> None:
    follower.start("skip")
    publish(kafka, [commit(TABLES[0], 0)])
    follower.await_seen(TABLES[0], 0)
    assert "are not delivered" in follower.process.child.tail(100)


def test_without_brokers_it_logs_that_and_retries(follower: Follower) -> None:
    follower._kafka = KafkaSettings(bootstrap_servers="127.0.0.1:1")
    follower.start(wait=False)
    until = time.monotonic() + PATIENCE_S
    while "retrying" not in follower.process.child.tail(100):
        assert follower.process.child.is_alive(), follower.process.child.tail()
        assert time.monotonic() < until
        time.sleep(0.2)
    assert follower.process.child.stop() == 0


def test_a_thread_of_fausts_that_does_not_end_does_not_keep_the_process() -> None:
    program = (
        "import time; from tidegate_runtime.followers.faust_app import DaemonWorkerThread\n"
        "class Joining:\n"
        "    def _start_thread(self): time.sleep(60)\n"
        "DaemonWorkerThread(Joining()).start()"
    )
    assert subprocess.run([sys.executable, "-c", program], timeout=30, check=False).returncode == 0
