"""The Kafka ACLs that the manual lists for each service suffice: no service has more here."""

import re
from collections.abc import Iterator
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, not declared so
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from tests.integration.conftest import Line, free_port
from tests.integration.waiting import until
from tidegate_console.doctor import kafka_checks
from tidegate_delta.errors import Misconfigured
from tidegate_local.embedded_kafka import HOST, EmbeddedKafka
from tidegate_messages.topics import Role, Topic
from tidegate_producers.options import TableLocation
from tidegate_producers.writing.table_requests import halt, register, reopen
from tidegate_runtime.client.client import Client
from tidegate_runtime.kafka.client_protocols import TopicPartition
from tidegate_runtime.kafka.confluent_bus import KafkaBus
from tidegate_runtime.kafka.settings import KafkaSettings
from tidegate_runtime.kafka.topic_admin import create_topics, missing_topics

pytestmark = pytest.mark.broker

PREFIX = "tidegate."
SECRET = "secret"
MANUAL = Path(__file__).parents[2] / "docs" / "operations.md"
ROW = re.compile(
    r"^\| (?P<who>[\w ]+) \| (?P<kind>topic|group|transactional id) (?P<names>.+) "
    r"\| (?P<rights>[\w, ]+) \|$",
    re.MULTILINE,
)
KINDS = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional id": ResourceType.TRANSACTIONAL_ID,
}
WHO = (
    "committer",
    "checkpointer",
    "cdc_publisher",
    "writer",
    "ingest",
    "maintainer",
    "operator",
    "lease_holder",
)


class GuardedKafka(EmbeddedKafka):
    """A broker that enforces ACLs; a second listener has none."""

    def _properties(self) -> dict[str, str | int]:
        plain = super()._properties()
        self.guarded = f"{HOST}:{free_port()}"
        door = f"SASL_PLAINTEXT://{self.guarded}"
        kinds = f"{plain['listener.security.protocol.map']},SASL_PLAINTEXT:SASL_PLAINTEXT"
        users = " ".join(f'user_{who}="{SECRET}"' for who in WHO)
        module = "org.apache.kafka.common.security.plain.PlainLoginModule"
        return {
            **plain,
            "listeners": f"{plain['listeners']},{door}",
            "advertised.listeners": f"{plain['advertised.listeners']},{door}",
            "listener.security.protocol.map": kinds,
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{module} required {users};",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
        }


def rights() -> list[AclBinding]:
    """Return the ACLs of the manual's table."""
    result = []
    for row in ROW.finditer(MANUAL.read_text(encoding="utf-8")):
        who = row["who"].replace("change publisher", "cdc_publisher").replace("everybody", "*")
        who = who.replace("lease holder", "lease_holder")
        for name in re.findall(r"`([\w.*-]+)`", row["names"]):
            pattern = (
                ResourcePatternType.PREFIXED if name.endswith("*") else ResourcePatternType.LITERAL
            )
            for right in row["rights"].split(", "):
                result.append(
                    AclBinding(
                        KINDS[row["kind"]],
                        PREFIX + name.removesuffix("*"),
                        pattern,
                        f"User:{who}",
                        "*",
                        AclOperation[right.upper()],
                        AclPermissionType.ALLOW,
                    )
                )
    assert {item.principal for item in result} == {f"User:{who}" for who in (*WHO, "*")}
    return result


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[GuardedKafka]:
    with GuardedKafka(tmp_path / "kafka") as broker:
        anybody = KafkaSettings(bootstrap_servers=broker.bootstrap, topic_prefix=PREFIX)
        create_topics(anybody, anybody.topics.declared())
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for done in admin.create_acls(rights()).values():
            done.result(15)
        yield broker


def client_of(kafka: KafkaSettings, who: str) -> Client:
    return Client(KafkaBus(secured(kafka, who), who), kafka.topics)


def secured(kafka: KafkaSettings, who: str) -> KafkaSettings:
    security = {key.removeprefix("security."): value for key, value in login(who).items()}
    return KafkaSettings.model_validate({**kafka.model_dump(), "security": security})


def test_only_who_may_write_admin_halts_a_table(guarded: GuardedKafka, tmp_path: Path) -> None:
    tables = tmp_path / "tables"
    deltalake.write_deltalake(tables / "t", pa.table({"k": [1, 2]}))
    kafka = KafkaSettings(bootstrap_servers=guarded.guarded, topic_prefix=PREFIX)
    line = Line(kafka, tmp_path / "services", tables)
    root = (tables / "t").as_uri()
    try:
        line.started("committer", "committer", kafka=login("committer"))
        writer, operator = client_of(kafka, "writer"), client_of(kafka, "operator")
        assert register(writer, TableLocation(root, {}), None, 60.0).status == "committed"
        with pytest.raises(Misconfigured, match="admin"):
            halt(writer, root, "no right to", 20.0)
        assert halt(operator, root, "a restore", 60.0).status == "committed"
        assert client_of(kafka, "writer").require(root).halted_by_hand == "a restore"
        assert reopen(operator, root, 60.0).status == "committed"
        # The doctor sees the rights of whom it logs in as.
        assert lacking(kafka, "writer", "writer") == set()
        names = "admin cdc-signals cdc-positions follower-state leases maintenance"
        of_operators = {f"tidegate.{name}" for name in names.split()}
        assert lacking(kafka, "writer", "operator") == of_operators
        assert lacking(kafka, "committer", "committer") == set()
    finally:
        line.stop()


def lacking(kafka: KafkaSettings, who: str, role: Role) -> set[str]:
    """Return the topics and groups on which a principal lacks a right that a role needs."""
    checks = kafka_checks.rights(secured(kafka, who), role)
    return {check.found.split()[-1] for check in checks if check.verdict == "wrong"}


def test_the_services_do_their_work_with_the_rights_that_the_manual_names(
    guarded: GuardedKafka, tmp_path: Path
) -> None:
    tables = tmp_path / "tables"
    rows = pa.table({"k": [1, 2]})
    deltalake.write_deltalake(tables / "t", rows)
    kafka = KafkaSettings(bootstrap_servers=guarded.guarded, topic_prefix=PREFIX)
    line = Line(kafka, tmp_path / "services", tables)
    try:
        for service, own in (
            ("committer", {}),
            ("checkpointer", {"look_s": "0.5"}),
            ("cdc_publisher", {"look_s": "0.5", "tables.t.key_columns": "k"}),
        ):
            section = "cdc" if service == "cdc_publisher" else service
            line.started(service, service, kafka=login(service), **{section: own})
        eager = {"pause_s": "0.2"}
        line.started("producers.maintenance", "maintain", kafka=login("maintainer"), maintain=eager)
        client = client_of(kafka, "writer")
        assert (
            register(client, TableLocation((tables / "t").as_uri(), {}), None, 60.0).status
            == "committed"
        )
        for _ in range(11):
            deltalake.write_deltalake(tables / "t", rows, mode="append")
        until(lambda: (tables / "t" / "_delta_log" / "_last_checkpoint").exists(), "a checkpoint")
        until(lambda: end_offset(guarded) > 0, "changes")
    finally:
        line.stop()


def login(who: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "security.mechanism": "PLAIN",
        "security.username": who,
        "security.password": SECRET,
    }


def end_offset(guarded: GuardedKafka) -> int:
    """Return the end offset of the table's change topic."""
    anybody = KafkaSettings(bootstrap_servers=guarded.bootstrap, topic_prefix=PREFIX)
    bus = KafkaBus(anybody, "test")
    at = TopicPartition(anybody.topics.changes("t"), 0)
    if missing_topics(anybody, [Topic(at.topic, "", 1, "delete", -1)]):
        return 0
    reader = bus.reader()
    try:
        return reader.bounds(at)[1]
    finally:
        reader.close()
