"""`tidegate ingest` on Spark Connect, at night: a server as a process of its own, the job another.

The job is killed while it copies; what the table has is checked as for every other job.
"""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyspark
import pytest
from confluent_kafka import Producer
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
from tests.integration.test_ingest_rows import OLD, avro, old_order_file, protobuf
from tests.integration.waiting import until
from tests.support.protobuf_orders import framed
from tests.support.schema_registry import serving
from tidegate_local.child_processes import Child, Command
from tidegate_producers.ingest import spark_session
from tidegate_runtime.kafka.protobuf_messages import message_class

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.nightly]

HOST = "127.0.0.1"
STATIC = {
    **SPARK,
    "spark.ui.enabled": "false",
    "spark.driver.host": HOST,
    "spark.driver.bindAddress": HOST,
}
"""Settings of the server, which its sessions can't have."""


def package_of(name: str) -> str:
    return f"org.apache.spark:{name}:{pyspark.__version__}"


class ConnectServer:
    """Spark's server of sessions, with or without the packages that ingest reads by."""

    def __init__(self, folder: Path, *, has_packages: bool = True) -> None:
        self.port = free_port()
        self.url = f"sc://{HOST}:{self.port}"
        packages = [package_of(name) for name in (spark_session.KAFKA, spark_session.AVRO)]
        options = ["--packages", ",".join(packages)] if has_packages else []
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


@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("form", ["avro", "protobuf"])
def test_records_of_a_registry_are_shown_copied_and_after_a_fix_sent_again(
    line: Line, server: ConnectServer, tmp_path: Path, form: str
) -> None:
    topic, table = f"{line.kafka.topic_prefix}orders", line.tables / "orders"
    order = message_class((old_order_file().SerializeToString(),))
    schemas = {"avro": {"schema": OLD}, "protobuf": protobuf(old_order_file())}

    def value(schema_id: int, id_: int) -> bytes:
        row = {"id": id_, "text": f"order {id_}"}
        if form == "avro":
            return avro(7, **row).replace(b"\x07", bytes([schema_id]), 1)
        return framed(schema_id, (0,), order(**row).SerializeToString())

    admin = AdminClient({"bootstrap.servers": line.kafka.bootstrap_servers})
    admin.create_topics([NewTopic(topic, num_partitions=1)])[topic].result()
    producer = Producer({"bootstrap.servers": line.kafka.bootstrap_servers})
    for schema_id, id_ in ((7, 1), (7, 2), (9, 3)):
        producer.produce(topic, value(schema_id, id_), str(id_))
    assert producer.flush(WAIT_S) == 0
    line.started("committer")
    known = {7: schemas[form]}
    with serving(known) as url:
        settings = {f"ingest.spark.{name}": text for name, text in session_settings(server).items()}
        pairs = [f"{name}={text}" for name, text in {**settings, **line.settings}.items()]
        given = [topic, str(table), "--format", form, "--registry", url]
        given += [part for pair in pairs for part in ("--set", pair)]

        def ingest(*arguments: str) -> str:
            program = [sys.executable, "-m", "tidegate_producers.ingest", *arguments]
            done = subprocess.run(program, capture_output=True, text=True, timeout=WAIT_S)
            assert done.returncode == 0, done.stderr[-4_000:]
            return done.stdout

        assert "order 2" in ingest(*given, "--dry-run")
        assert not table.exists()
        ingest(*given, "--once")
        rows: dict[int, dict[str, object]] = {id_: {"text": f"order {id_}"} for id_ in (1, 2)}
        assert rows_by_id(table) == rows
        known[9] = known[7]
        assert "1 are rows now, 0 are dead letters still" in ingest("replay", *given)
        assert "0 dead letters were read again" in ingest("replay", *given)
    assert rows_by_id(table) == {**rows, 3: {"text": "order 3"}}


@pytest.mark.timeout(900)
def test_a_server_without_spark_s_kafka_source_is_named_with_the_package(
    line: Line, tmp_path: Path
) -> None:
    line.started("committer")
    source = Source(line.kafka.bootstrap_servers, f"{line.kafka.topic_prefix}orders")
    source.add(5)
    table, log = line.tables / "orders", tmp_path / "job.log"
    server = ConnectServer(tmp_path, has_packages=False)
    try:
        server.start()
        spark = session_settings(server)
        job = IngestProcess(line, source.topic, table, log, spark=spark).start("--once")
        assert job.wait(WAIT_S) == 2, job.tail(60)
    finally:
        server.child.stop()
    package = package_of(spark_session.KAFKA)
    assert f"start it with --packages {package}" in log.read_text()
    assert not os.path.exists(table)
