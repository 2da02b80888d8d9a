"""`tidegate ingest` on Spark Connect, at night: a server as a process of its own, the job another.

The job is killed while it copies; what the table has is checked as for every other job.
"""

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyspark
import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined] # public, not declared so
    AdminClient,
    NewTopic,
)

from tests.integration.conftest import Line, free_port
from tests.integration.test_ingest import (
    SPARK,
    WAIT_S,
    IngestProcess,
    Source,
    check,
    dead_letters,
    rows_by_id,
    rows_there,
    send,
    wait_for_versions,
)
from tests.integration.waiting import until
from tidegate_local.child_processes import Child, Command
from tidegate_producers.ingest import spark_session

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.nightly]

HOST = "127.0.0.1"
STATIC = {
    **SPARK,
    "spark.ui.enabled": "false",
    "spark.driver.host": HOST,
    "spark.driver.bindAddress": HOST,
}
"""Settings of the server, which its sessions can't have."""


class ConnectServer:
    """Spark's server of sessions, with or without the package of its Kafka source."""

    def __init__(self, folder: Path, *, has_kafka: bool = True) -> None:
        self.port = free_port()
        self.url = f"sc://{HOST}:{self.port}"
        packages = f"org.apache.spark:{spark_session.KAFKA}:{pyspark.__version__}"
        options = ["--packages", packages] if has_kafka else []
        given = {**STATIC, "spark.connect.grpc.binding.port": str(self.port)}
        options += [part for pair in given.items() for part in ("--conf", "=".join(pair))]
        main = "org.apache.spark.sql.connect.service.SparkConnectServer"
        program = Path(pyspark.__file__).parent / "bin" / "spark-submit"
        argv = [str(program), "--class", main, *options]
        environ = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": HOST}
        self._log = folder / "server.log"
        self.child = Child(Command("connect", argv, environ), self._log)

    def start(self) -> None:
        self.child.start()
        until(self._answers, "the server answers", WAIT_S)

    def _answers(self) -> bool:
        if not self.child.is_alive():
            if "unresolved dependency" in self._log.read_text(errors="replace"):
                pytest.skip("Spark's Kafka source can't be had: no Maven repository answers")
            pytest.fail(f"the server ended by itself:\n{self.child.tail(60)}")
        with suppress(OSError), socket.create_connection((HOST, self.port), 1.0):
            return True
        return False


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    server = ConnectServer(tmp_path_factory.mktemp("connect"))
    try:
        server.start()
        yield server
    finally:
        server.child.stop()


def session_settings(server: ConnectServer) -> dict[str, str]:
    return {"spark.remote": server.url, "spark.sql.shuffle.partitions": "1"}


@pytest.mark.timeout(1_800)
def test_each_record_is_copied_once_when_the_job_is_killed(
    line: Line, server: ConnectServer, tmp_path: Path
) -> None:
    brokers, prefix = line.kafka.bootstrap_servers, line.kafka.topic_prefix
    line.started("committer")
    source, table = Source(brokers, f"{prefix}orders"), line.tables / "orders"
    log = tmp_path / "job.log"
    job = IngestProcess(line, source.topic, table, log, spark=session_settings(server))
    letters = f"{prefix}ingest-dead-letters"
    source.add(500)
    try:
        job.start()
        wait_for_versions(table, 3, source, job)
        source.add_partition()
        wait_for_versions(table, 2, source, job)
        source.add(2_000)
        wait_for_versions(table, 1, source, job)
        job.kill()
        source.add(100)
        job.start()
        job.wait_for(lambda: rows_there(table) >= len(source.rows))
        check(table, source, dead_letters(brokers, letters))
        job.kill()
        source.fields = 1
        source.add(60)
        once = job.start("--once", "--batch-records-max", "20")
        assert once.wait(WAIT_S) == 0, once.tail(60)
        check(table, source, dead_letters(brokers, letters))
    finally:
        job.kill()


@pytest.mark.timeout(1_800)
def test_upserts_delete_and_add_columns(line: Line, server: ConnectServer, tmp_path: Path) -> None:
    brokers = line.kafka.bootstrap_servers
    topic, table = f"{line.kafka.topic_prefix}customers", line.tables / "customers"
    admin = AdminClient({"bootstrap.servers": brokers})
    admin.create_topics([NewTopic(topic, num_partitions=2)])[topic].result()
    line.started("committer")
    # By a condition, whose query is made of SQL.
    options = ["--mode", "upsert", "--key", "id", "--where", "text IS NULL OR text <> '{none}'"]
    log, spark = tmp_path / "upsert.log", session_settings(server)
    job = IngestProcess(line, topic, table, log, *options, spark=spark)
    first: dict[str, object] = {"text": "first"}
    send(brokers, topic, *((id_, first) for id_ in range(4)))
    send(brokers, topic, (0, {"text": "second"}), (1, None), (9, {"text": "{none}"}))
    expected: dict[int, dict[str, object]]
    expected = {0: {"text": "second"}, 2: {"text": "first"}, 3: {"text": "first"}}
    try:
        job.start()
        job.wait_for(lambda: rows_by_id(table) == expected)
        assert rows_by_id(table) == expected
        send(brokers, topic, (2, {"text": "third", "sum": 0.5}), (3, None), (4, {"text": "new"}))
        expected = {
            0: {"text": "second", "sum": None},
            2: {"text": "third", "sum": 0.5},
            4: {"text": "new", "sum": None},
        }
        job.wait_for(lambda: rows_by_id(table) == expected)
        assert rows_by_id(table) == expected
    finally:
        job.kill()


@pytest.mark.timeout(900)
def test_a_server_without_spark_s_kafka_source_is_named_with_the_package(
    line: Line, tmp_path: Path
) -> None:
    line.started("committer")
    source = Source(line.kafka.bootstrap_servers, f"{line.kafka.topic_prefix}orders")
    source.add(5)
    table, log = line.tables / "orders", tmp_path / "job.log"
    server = ConnectServer(tmp_path, has_kafka=False)
    try:
        server.start()
        spark = session_settings(server)
        job = IngestProcess(line, source.topic, table, log, spark=spark).start("--once")
        assert job.wait(WAIT_S) == 2, job.tail(60)
    finally:
        server.child.stop()
    package = f"org.apache.spark:{spark_session.KAFKA}:{pyspark.__version__}"
    assert f"start it with --packages {package}" in log.read_text()
    assert not os.path.exists(table)
