"""`tidegate ingest` logs in by TLS and SASL, at night: its Kafka client of Python, and Spark's."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiohttp import web
from confluent_kafka import Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, not declared so
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from pyspark.sql import SparkSession

from tests.integration.conftest import Line
from tests.integration.ingest_job import IngestThread, session_of_ingest
from tests.integration.loop_server import LoopServer
from tests.integration.secured_kafka import PASSWORD
from tests.integration.test_kafka_security import (
    LIFETIME_S,
    NEXT_PASSWORD,
    TEAMS,
    Guarded,
    Tokens,
    guarded,
    write,
)
from tidegate_delta.errors import Misconfigured

__all__ = ["guarded"]

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.nightly]

TOPIC = "orders"


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    return session_of_ingest()


class Orders:
    """A topic that `ingest` may read, and a committer beside it."""

    def __init__(self, guarded: Guarded, folder: Path) -> None:
        self.guarded = guarded
        admin = AdminClient({"bootstrap.servers": guarded.kafka.bootstrap})
        admin.create_topics([NewTopic(TOPIC, num_partitions=2)])[TOPIC].result()
        reading = (ResourceType.TOPIC, TOPIC, ResourcePatternType.LITERAL, "User:ingest", "*")
        right = AclBinding(*reading, AclOperation.READ, AclPermissionType.ALLOW)
        admin.create_acls([right])[right].result()
        self._producer = Producer({"bootstrap.servers": guarded.kafka.bootstrap})
        self.ids: list[int] = []
        kafka = guarded.settings("SCRAM-SHA-512", "committer")
        self.line = Line(kafka, folder / "services", folder / "tables")
        login = {key: str(value) for key, value in kafka.security.model_dump().items() if value}
        own = {f"security.{key}": value for key, value in login.items()}
        self.line.started("committer", kafka=own)

    def add(self, count: int) -> None:
        for number in range(len(self.ids), len(self.ids) + count):
            self._producer.produce(TOPIC, json.dumps({"id": number}), str(number))
            self.ids.append(number)
        self._producer.flush()

    def settings(self, way: str, **changed: str) -> dict[str, str]:
        """Return the settings by which `ingest` logs in, as users give them."""
        kafka = self.guarded.kafka.by_tls if way == "SSL" else self.guarded.kafka.by_sasl
        security = {**self.guarded.security(way, "ingest"), **changed}
        given = {"kafka.bootstrap_servers": kafka, "kafka.topic_prefix": TEAMS[0]}
        return given | {f"kafka.security.{name}": value for name, value in security.items()}

    def job(
        self, spark: SparkSession, name: str, given: dict[str, str], *, once: bool = True
    ) -> IngestThread:
        """Return a job that copies into a table of a name."""
        route = {"topics": TOPIC, "table": str(self.line.tables / name)}
        return IngestThread(spark, given, {"r": route}, once=once)


@pytest.fixture(scope="module")
def orders(guarded: Guarded, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Orders]:
    orders = Orders(guarded, tmp_path_factory.mktemp("line"))
    try:
        orders.add(50)
        yield orders
    finally:
        orders.line.stop()


@pytest.mark.parametrize("way", ["SSL", "PLAIN", "SCRAM-SHA-512", "OAUTHBEARER"])
def test_records_arrive_by_each_login(spark: SparkSession, orders: Orders, way: str) -> None:
    with orders.job(spark, way, orders.settings(way)) as job:
        job.wait_for_rows(orders.line.tables / way, orders.ids)


def test_a_token_for_spark_comes_from_an_endpoint(spark: SparkSession, orders: Orders) -> None:
    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        token = orders.guarded.kafka.issuer.token("ingest")
        return web.json_response({"access_token": token, "token_type": "Bearer"})

    secret = orders.guarded.folder / "client-secret"
    write(secret, "a:secret\n")
    with LoopServer(answer) as endpoint:
        given = orders.settings("OAUTHBEARER") | {
            "kafka.security.oauth_token_url": f"http://127.0.0.1:{endpoint.port}/token",
            "kafka.security.oauth_client_id": "ingest",
            "kafka.security.oauth_client_secret_location": str(secret),
        }
        del given["kafka.security.oauth_token_location"]
        with orders.job(spark, "endpoint", given) as job:
            job.wait_for_rows(orders.line.tables / "endpoint", orders.ids)


def test_a_job_outlives_its_token(spark: SparkSession, orders: Orders) -> None:
    table, given = orders.line.tables / "renewed", orders.settings("OAUTHBEARER")
    with Tokens(orders.guarded, "ingest"), orders.job(spark, "renewed", given, once=False) as job:
        job.wait_for_rows(table, orders.ids)
        for _ in range(3):
            time.sleep(LIFETIME_S)
            orders.add(5)
            job.wait_for_rows(table, orders.ids)


def test_a_key_that_java_does_not_read_is_named_with_the_remedy(
    spark: SparkSession, orders: Orders
) -> None:
    given = orders.settings("SSL")
    file = Path(given["kafka.security.key_location"])
    key = load_pem_private_key(file.read_bytes(), None)
    older = key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
    file.write_bytes(older)
    with orders.job(spark, "older", given) as job:
        failure = job.wait_for_end()
    assert isinstance(failure, Misconfigured)
    assert "kafka.security.key_location" in str(failure)
    assert "openssl pkcs8 -topk8" in str(failure)


def test_a_password_that_is_changed_under_a_job_ends_it(
    spark: SparkSession, orders: Orders
) -> None:
    given = orders.settings("SCRAM-SHA-512")
    with orders.job(spark, "changed", given, once=False) as job:
        job.wait_for_rows(orders.line.tables / "changed", orders.ids)
        orders.guarded.kafka.set_scram_password("ingest", NEXT_PASSWORD)
        failure = job.wait_for_end()
    assert isinstance(failure, Misconfigured)
    assert "kafka.security" in str(failure)
    assert PASSWORD not in str(failure)


def test_a_wrong_password_ends_the_command_before_spark_starts(
    orders: Orders, tmp_path: Path
) -> None:
    given = orders.settings("PLAIN")
    write(Path(given["kafka.security.password_location"]), "another-canary")
    named = {f"TIDEGATE__{key.upper().replace('.', '__')}": value for key, value in given.items()}
    argv = [sys.executable, "-m", "tidegate_producers.ingest", TOPIC, str(tmp_path), "--once"]
    environ = {**os.environ, **named}
    done = subprocess.run(argv, env=environ, capture_output=True, text=True, timeout=120)
    said = done.stdout + done.stderr
    assert done.returncode == 2, said
    assert "kafka.security" in said
    assert "another-canary" not in said
    assert "Traceback" not in said
    assert "Spark" not in said
