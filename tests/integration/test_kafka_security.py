"""TLS, SASL and ACLs against a real broker, with secrets in files that are replaced meanwhile."""

import asyncio
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

import deltalake
import pyarrow as pa
import pytest
from aiohttp import web
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as FaustPartition
from aiokafka.errors import TopicAuthorizationFailedError
from confluent_kafka.admin import AdminClient
from faust.transport.drivers.aiokafka import credentials_to_aiokafka_auth
from typer.testing import CliRunner

from tests.integration.conftest import Line
from tests.integration.loop_server import LoopServer
from tests.integration.secured_kafka import PASSWORD, SecuredKafka
from tests.integration.test_rights import WHO, rights
from tests.integration.waiting import until
from tidegate_console import doctor_command
from tidegate_delta.errors import Misconfigured
from tidegate_local.child_processes import ServiceProcess
from tidegate_messages.topics import Topic
from tidegate_producers.options import TableLocation
from tidegate_producers.writing.table_requests import register
from tidegate_runtime.client.client import Client
from tidegate_runtime.followers.faust_app import for_faust
from tidegate_runtime.kafka.client_protocols import TopicPartition
from tidegate_runtime.kafka.cluster_state import login_error
from tidegate_runtime.kafka.confluent_bus import KafkaBus
from tidegate_runtime.kafka.settings import KafkaSettings
from tidegate_runtime.kafka.topic_admin import create_topics, missing_topics

pytestmark = pytest.mark.broker

NEXT_PASSWORD = "second-canary-91c0"
WAYS = {"committer": "SCRAM-SHA-512", "checkpointer": "SSL", "cdc_publisher": "OAUTHBEARER"}
OWN: dict[str, tuple[str, dict[str, str]]] = {
    "committer": ("committer", {}),
    "checkpointer": ("checkpointer", {"look_s": "0.5"}),
    "cdc_publisher": ("cdc", {"look_s": "0.5", "tables.t.key_columns": "k"}),
}
LIFETIME_S = 10.0
TEAMS = ("tidegate.", "finance.")
"""The topic prefixes of two teams; the rights of the tests' principals are for the first."""


@dataclass(frozen=True)
class Guarded:
    """The broker, and the folder in which each principal has a folder of files."""

    kafka: SecuredKafka
    folder: Path

    def security(self, way: str, who: str) -> dict[str, str]:
        """Return the settings `kafka.security` by which somebody logs in, with files."""
        own = self.folder / who
        if way == "SSL":
            self.kafka.authority.write(who, own)
            login = {
                "protocol": "SSL",
                "certificate_location": str(own / "tls.crt"),
                "key_location": str(own / "tls.key"),
            }
        elif way == "OAUTHBEARER":
            write(own / "token", self.kafka.issuer.token(who))
            login = {"protocol": "SASL_SSL", "oauth_token_location": str(own / "token")}
        else:
            write(own / "password", PASSWORD + "\n")
            login = {
                "protocol": "SASL_SSL",
                "username": who,
                "password_location": str(own / "password"),
            }
        mechanism = {} if way == "SSL" else {"mechanism": way}
        return {**login, **mechanism, "ca_location": str(self.kafka.authority.file)}

    def settings(
        self, way: str, who: str, prefix: str = TEAMS[0], **changed: str | None
    ) -> KafkaSettings:
        """Return the settings by which somebody logs in."""
        return KafkaSettings.model_validate(
            {
                "bootstrap_servers": self.kafka.by_tls if way == "SSL" else self.kafka.by_sasl,
                "topic_prefix": prefix,
                "security": {**self.security(way, who), **changed},
            }
        )


def write(file: Path, text: str) -> None:
    """Replace a file as Kubernetes does: at once."""
    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_suffix(".new")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(file)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("secured")
    with SecuredKafka(folder / "kafka", dict.fromkeys(WHO, PASSWORD)) as kafka:
        for prefix in TEAMS:
            anybody = KafkaSettings(bootstrap_servers=kafka.bootstrap, topic_prefix=prefix)
            create_topics(anybody, anybody.topics.declared())
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        for done in admin.create_acls(rights()).values():
            done.result(15)
        for who in WHO:
            kafka.set_scram_password(who, PASSWORD)
        yield Guarded(kafka, folder)


@pytest.mark.parametrize("way", ["SSL", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"])
def test_both_clients_log_in_and_may_do_what_their_principal_may(
    guarded: Guarded, way: str
) -> None:
    kafka = guarded.settings(way, "writer")
    sent = sent_by_librdkafka(kafka)
    assert read_by_faust(guarded.settings(way, "committer")) == sent
    # The writer proposes for the tables of its own team, and for nobody else's.
    with pytest.raises(Misconfigured, match=r"finance\.proposals.*TOPIC_AUTHORIZATION_FAILED"):
        sent_by_librdkafka(guarded.settings(way, "writer", "finance."))
    with pytest.raises(TopicAuthorizationFailedError):
        read_by_faust(kafka)


def sent_by_librdkafka(kafka: KafkaSettings) -> bytes:
    """Send a record to `proposals`, and return its value."""
    value = f"a record of {time.monotonic_ns()}".encode()
    producer = KafkaBus(kafka, "test").producer()
    producer.publish(TopicPartition(kafka.topics.proposals, 0), b"k", value)
    producer.flush(15.0)
    return value


def read_by_faust(kafka: KafkaSettings) -> bytes | None:
    """Return the last record of `proposals`, read by aiokafka as Faust configures it."""

    async def last() -> bytes | None:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=kafka.bootstrap_servers,
            **credentials_to_aiokafka_auth(for_faust(kafka)),
        )
        await consumer.start()
        try:
            at = FaustPartition(kafka.topics.proposals, 0)
            consumer.assign([at])
            end = (await consumer.end_offsets([at]))[at]
            consumer.seek(at, end - 1)
            record: Any = await asyncio.wait_for(consumer.getone(at), 15)
            value: bytes | None = record.value
            return value
        finally:
            await consumer.stop()

    return asyncio.run(last())


def test_a_failed_login_names_the_remedy_and_not_the_secret(guarded: Guarded) -> None:
    kafka = guarded.settings("SCRAM-SHA-512", "writer")
    write(guarded.folder / "writer" / "password", NEXT_PASSWORD)
    said = doctors_answer(kafka)
    assert "SASL_AUTHENTICATION_FAILED" in said or "Authentication failed" in said, said
    assert "kafka.security" in said
    kafka = guarded.settings("OAUTHBEARER", "writer")
    token = guarded.kafka.issuer.token("writer", lifetime_s=-5)
    write(guarded.folder / "writer" / "token", token)
    said += doctors_answer(kafka)
    assert "expired" in said
    assert NEXT_PASSWORD not in said
    assert token.rsplit(".", 1)[1] not in said


def doctors_answer(kafka: KafkaSettings) -> str:
    """Return what `tidegate doctor` says with these settings."""
    security = {key: value for key, value in kafka.security.model_dump().items() if value}
    given = {"bootstrap_servers": kafka.bootstrap_servers} | {
        f"security.{key}": value for key, value in security.items()
    }
    pairs = [f"--set=kafka.{key}={value}" for key, value in given.items()]
    return CliRunner().invoke(doctor_command.app, pairs).output


def test_a_token_comes_from_an_endpoint(guarded: Guarded) -> None:
    asked: list[str | None] = []

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        asked.append(request.headers.get("Authorization"))
        form = await request.post()
        # writer:a%3Asecret, as RFC 6749 encodes the two before they are joined
        if asked[-1] != "Basic d3JpdGVyOmElM0FzZWNyZXQ=":
            return web.json_response({"error": "invalid_client"}, status=401)
        assert dict(form) == {"grant_type": "client_credentials", "scope": "kafka"}
        token = guarded.kafka.issuer.token("writer")
        return web.json_response({"access_token": token, "token_type": "Bearer"})

    secret = guarded.folder / "client-secret"
    with LoopServer(answer) as endpoint:
        kafka = KafkaSettings.model_validate(
            {
                "bootstrap_servers": guarded.kafka.by_sasl,
                "topic_prefix": TEAMS[0],
                "security": {
                    "protocol": "SASL_SSL",
                    "mechanism": "OAUTHBEARER",
                    "oauth_token_url": f"http://127.0.0.1:{endpoint.port}/token",
                    "oauth_client_id": "writer",
                    "oauth_client_secret_location": str(secret),
                    "oauth_scope": "kafka",
                    "ca_location": str(guarded.kafka.authority.file),
                },
            }
        )
        write(secret, "another")
        failure = login_error(kafka)
        assert failure is not None
        assert "answers 401; check `oauth_client_id`" in str(failure)
        write(secret, "a:secret")
        sent_by_librdkafka(kafka)
        with pytest.raises(TopicAuthorizationFailedError):
            read_by_faust(kafka)


class Tokens:
    """Renews somebody's token, which lasts for some seconds only."""

    def __init__(self, guarded: Guarded, who: str) -> None:
        self._guarded = guarded
        self._who = who
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._renew)
        self.begun_s = 0.0

    def __enter__(self) -> Self:
        self.begun_s = time.monotonic()
        self._write()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _renew(self) -> None:
        while not self._over.wait(LIFETIME_S / 10):
            self._write()

    def _write(self) -> None:
        token = self._guarded.kafka.issuer.token(self._who, LIFETIME_S)
        write(self._guarded.folder / self._who / "token", token)


def test_services_go_on_with_new_passwords_certificates_and_tokens(
    guarded: Guarded, tmp_path: Path
) -> None:
    tables = tmp_path / "tables"
    rows = pa.table({"k": [1, 2]})
    kafka = KafkaSettings(bootstrap_servers=guarded.kafka.by_sasl, topic_prefix=TEAMS[0])
    line = Line(kafka, tmp_path / "services", tables)
    files = guarded.folder
    try:
        with Tokens(guarded, "cdc_publisher") as tokens:
            services = {who: started(line, guarded, who) for who in WAYS}
            deltalake.write_deltalake(tables / "t", rows)
            registered(guarded, tables / "t")
            # Everybody gets something new, and the old password is refused from now on.
            write(files / "committer" / "password", NEXT_PASSWORD)
            guarded.kafka.set_scram_password("committer", NEXT_PASSWORD)
            guarded.kafka.authority.write("checkpointer", files / "checkpointer")
            for who in ("committer", "checkpointer"):
                until(partial(renewed, services[who].child.log), f"{who} to look")
            until(lambda: time.monotonic() - tokens.begun_s > LIFETIME_S, "a token's end")
            published = changes(guarded)
            for _ in range(11):
                deltalake.write_deltalake(tables / "t", rows, mode="append")
            deltalake.write_deltalake(tables / "u", rows)
            registered(guarded, tables / "u")
            until((tables / "t" / "_delta_log" / "_last_checkpoint").exists, "a checkpoint")
            until(lambda: changes(guarded) >= published + 22, "changes")
            shown = [
                urllib.request.urlopen(f"{service.address()}/metrics")
                for service in services.values()
            ]
        texts = [answer.read().decode() for answer in shown]
        texts += [service.child.log.read_text(encoding="utf-8") for service in services.values()]
        assert all(service.child.is_alive() for service in services.values()), (
            "none was started anew"
        )
    finally:
        line.stop()
    secrets = [PASSWORD, NEXT_PASSWORD, "PRIVATE KEY", "eyJ"]  # a token begins with `{"`
    assert not [text for text in texts if any(secret in text for secret in secrets)]


def started(line: Line, guarded: Guarded, who: str) -> ServiceProcess:
    """Start a service that logs in its own way."""
    way = WAYS[who]
    settings = guarded.settings(way, who)
    given = {key: str(value) for key, value in settings.security.model_dump().items() if value}
    kafka = {"bootstrap_servers": settings.bootstrap_servers} | {
        f"security.{key}": value for key, value in given.items()
    }
    section, own = OWN[who]
    return line.started(who, who, kafka=kafka, log={"level": "DEBUG"}, **{section: own})


def registered(guarded: Guarded, table: Path) -> None:
    """Register a table as a writer."""
    kafka = guarded.settings("SCRAM-SHA-256", "writer")
    with Client(KafkaBus(kafka, "writer"), kafka.topics) as client:
        done = register(client, TableLocation(table.as_uri(), {}), None, 60.0)
    assert done.status == "committed"


def renewed(log: Path) -> bool:
    """Return whether a service has seen that files of its credentials are new."""
    return "new_credentials" in log.read_text(encoding="utf-8")


def changes(guarded: Guarded) -> int:
    """Return the end offset of the change topic of the table `t`."""
    kafka = KafkaSettings(bootstrap_servers=guarded.kafka.bootstrap, topic_prefix=TEAMS[0])
    at = TopicPartition(kafka.topics.changes("t"), 0)
    if missing_topics(kafka, [Topic(at.topic, "", 1, "delete", -1)]):
        return 0
    reader = KafkaBus(kafka, "test").reader()
    try:
        return reader.bounds(at)[1]
    finally:
        reader.close()
