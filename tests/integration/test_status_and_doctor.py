"""`tidegate status` and `tidegate doctor` against a real broker, with and without a committer."""

import json
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest
from typer.testing import CliRunner, Result

from tests.integration.conftest import Line
from tests.integration.waiting import until
from tidegate_console import doctor_command, status_command
from tidegate_producers.options import TableLocation
from tidegate_producers.writing.table_requests import halt, register
from tidegate_runtime.client.client import Client
from tidegate_runtime.kafka.client_protocols import TopicPartition
from tidegate_runtime.kafka.confluent_bus import KafkaBus
from tidegate_runtime.kafka.settings import KafkaSettings

pytestmark = pytest.mark.broker


def run(kafka: KafkaSettings, app: object, *arguments: str) -> Result:
    given = {
        "kafka.bootstrap_servers": kafka.bootstrap_servers,
        "kafka.topic_prefix": kafka.topic_prefix,
    }
    pairs = [f"--set={key}={value}" for key, value in given.items()]
    return CliRunner().invoke(app, [*arguments, *pairs])  # type: ignore[arg-type]  # a typer app


def lines_of(result: Result, verdict: str) -> list[str]:
    """Return what the doctor says under a verdict."""
    return [line for line in result.stdout.splitlines() if line.startswith(verdict)]


def test_status_and_doctor_show_what_runs_what_is_halted_and_what_is_slow(line: Line) -> None:
    kafka = line.kafka
    before = run(kafka, status_command.app)
    assert before.exit_code == 3, before.output
    assert "! committer: none runs" in before.stdout
    line.started("committer", "first")
    line.started("committer", "second")
    deltalake.write_deltalake(line.tables / "shop", pa.table({"k": [1, 2]}))
    root = (line.tables / "shop").as_uri()
    with Client(KafkaBus(kafka, "test"), kafka.topics) as client:
        register(client, TableLocation(root, {}), "shop", 60.0)
    result = json.loads(run(kafka, status_command.app, "--json").stdout)
    assert result["services"]["committer"].items() >= {"active": 1, "standby": 1}.items()
    assert result["tables"] == {"open": 1}
    assert {item["about"] for item in result["attention"]} == {"checkpointer", "cdc-publisher"}

    answer = run(kafka, doctor_command.app, "shop", "--probe")
    assert answer.exit_code == 2, "no checkpointer runs"
    assert [line.split()[1] for line in lines_of(answer, "ok")] == [
        "versions",
        "bootstrap",
        "login",
        "topics",
        "rights",
        "gate",
        "committer",
        "clock",
        "store",
        "store",
    ]
    assert len(lines_of(answer, "WRONG")) == 2
    # The question left no trace in the table.
    assert len(list((line.tables / "shop" / "_delta_log").glob("*.json"))) == 1

    deltalake.write_deltalake(line.tables / "shop", pa.table({"k": [3]}), mode="append")
    past = ["note", "gate", "1", "recent", "version", "of", "shop"]
    until(
        lambda: (
            past in [line.split()[:7] for line in lines_of(run(kafka, doctor_command.app), "note")]
        ),
        "the version past the gate",
    )
    with Client(KafkaBus(kafka, "test"), kafka.topics) as client:
        halt(client, "shop", "a restore", 60.0)
    assert "- shop: is halted by hand: a restore" in run(kafka, status_command.app).stdout


def test_a_dead_letter_and_a_newer_format_are_noticed(kafka: KafkaSettings) -> None:
    bus, topics = KafkaBus(kafka, "test"), kafka.topics
    producer = bus.producer()
    letter = (("reason", b"no JSON"), ("source", b"proposals/0@7"), ("rule", b"malformed"))
    producer.publish(TopicPartition(topics.dead_letters, 0), None, b"x", letter)
    producer.publish(TopicPartition(topics.outcomes, 0), b"id", b"{}", (("format", b"outcome/9"),))
    producer.close()
    assert "of proposals/0@7: no JSON" in run(kafka, status_command.app).stdout
    [wrong] = [
        item for item in lines_of(run(kafka, doctor_command.app), "WRONG") if "format" in item
    ]
    assert "'outcome/9'" in wrong


def test_missing_topics_are_named_and_nothing_else_is_checked(broker: str, tmp_path: Path) -> None:
    nowhere = KafkaSettings(bootstrap_servers=broker, topic_prefix=f"no{tmp_path.name}.")
    answer = run(nowhere, doctor_command.app, "--role=writer")
    assert answer.exit_code == 2
    [missing] = [item for item in lines_of(answer, "WRONG") if "topics" in item.split()[1]]
    assert f"{nowhere.topic_prefix}proposals" in missing
    assert run(nowhere, status_command.app).exit_code in (2, 3)
