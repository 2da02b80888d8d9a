"""Each service fails on one table with an unforeseen error, and keeps serving the other one."""

from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from tests.integration.conftest import Line
from tests.integration.test_producer_cli import Terminal
from tests.integration.waiting import until
from tidegate_delta.log.file_names import checksum_name
from tidegate_local.child_processes import ServiceProcess
from tidegate_messages.outcome import Outcome
from tidegate_messages.proposal import Operation, Proposal, ReadSet
from tidegate_producers.cli import table_commands
from tidegate_runtime.client.client import Client
from tidegate_runtime.failpoints import RAISE
from tidegate_runtime.kafka.client_protocols import TopicPartition
from tidegate_runtime.kafka.confluent_bus import KafkaBus

pytestmark = pytest.mark.broker

FOLLOWERS = ["cdc-publisher", "checkpointer"]


def services(line: Line) -> list[ServiceProcess]:
    """Start all three services; each fails once on the table `bad`."""
    keys = {f"tables.{name}.key_columns": "k" for name in ("bad", "good")}
    topic = line.kafka.topics.changes("bad")
    started = [
        line.service("committer", "committer", f"{RAISE}after_decide@bad"),
        line.service(
            "checkpointer",
            "checkpointer",
            f"{RAISE}checkpointer.before_checksum@bad",
            checkpointer={"look_s": "0.5"},
        ),
        line.service(
            "cdc_publisher",
            "cdc_publisher",
            f"{RAISE}publisher.before_begin@{topic}",
            cdc={"look_s": "0.5", "partitions": "1", **keys},
        ),
    ]
    for item in started:
        item.start()
    for item in started:
        item.wait_ready()
    return started


def delete(client: Client, name: str, folder: Path) -> Outcome:
    """Propose to remove the table's first file."""
    record = client.require(name)
    path = deltalake.DeltaTable(folder).file_uris()[0].removeprefix(f"{folder}/")
    return client.propose(
        Proposal(
            proposal_id=client.new_id(),
            table=record.table,
            table_root=record.table_root,
            table_id=record.table_id,
            read_version=deltalake.DeltaTable(folder).version(),
            operation=Operation(name="DELETE"),
            actions=({"remove": {"path": path, "dataChange": True}},),
            reads=ReadSet(files=(path,)),
        )
    )


def changes(line: Line, name: str) -> int:
    """Return the end offset of a table's change topic."""
    reader = KafkaBus(line.kafka, "test").reader()
    try:
        return reader.bounds(TopicPartition(line.kafka.topics.changes(name), 0))[1]
    finally:
        reader.close()


def listed(terminal: Terminal, name: str) -> Any:
    [result] = [item for item in terminal.json(table_commands.app, "list") if item["name"] == name]
    return result


@pytest.mark.timeout(180)
def test_a_service_that_fails_over_one_table_serves_the_others_and_tries_again(line: Line) -> None:
    terminal, folders = Terminal(line), {name: line.tables / name for name in ("bad", "good")}
    for folder in folders.values():
        deltalake.write_deltalake(folder, pa.table({"k": [1, 2]}))
        deltalake.write_deltalake(folder, pa.table({"k": [3]}), mode="append")
    started = services(line)
    for name, folder in folders.items():
        terminal.json(table_commands.app, "register", str(folder), "--name", name)
    with Client(KafkaBus(line.kafka, "test"), line.kafka.topics) as client:
        denied = delete(client, "bad", folders["bad"])
        assert (denied.status, denied.rejection and denied.rejection.rule) == (
            "denied",
            "table_halted",
        )
        assert delete(client, "good", folders["good"]).status == "committed"

        def are_quarantined() -> bool:
            result = listed(terminal, "bad")
            services = sorted(item["service"] for item in result["followers"])
            return result["status"] == "halted" and services == FOLLOWERS

        until(are_quarantined, "all three have set it aside")
        result = listed(terminal, "bad")
        reasons = [result["reason"], *(one["reason"] for one in result["followers"])]
        assert all("Unforeseen: passage 1 of " in reason for reason in reasons), reasons
        good = listed(terminal, "good")
        assert (good["status"], good["followers"]) == ("open", [])
        until(lambda: changes(line, "good") > 0, "changes of the other")
        checksum = folders["good"] / "_delta_log" / checksum_name(2)
        until(checksum.exists, "a checksum of the other")

        tried = terminal.json(table_commands.app, "retry", "bad")["tried"]
        assert sorted(tried) == sorted([*FOLLOWERS, "committer"])
        until(
            lambda: (
                (listed(terminal, "bad")["status"], listed(terminal, "bad")["followers"])
                == ("open", [])
            ),
            "it is served again",
        )
        assert delete(client, "bad", folders["bad"]).status == "committed"
    until(lambda: changes(line, "bad") > 0, "its changes")
    until((folders["bad"] / "_delta_log" / checksum_name(2)).exists, "its checksum")
    assert all(service.child.is_alive() for service in started)
    traces = [
        service.child.log.read_text(encoding="utf-8").count("Traceback") for service in started
    ]
    assert traces == [1, 1, 1]
