"""All services under load, each killed in turn: in the end log, topics and rows agree."""

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Message
from deltalake import DeltaTable

from tests.integration.conftest import Line
from tests.integration.proposers import Proposer, all_outcomes, append_with, create_table
from tests.integration.test_cdc_publisher import committed
from tests.integration.test_committer_processes import (
    WAIT_S,
    check_all,
    check_offsets_are_safe,
    folder_of,
    rows_of,
)
from tests.integration.waiting import until
from tidegate_delta.log.file_names import LAST_CHECKPOINT, LOG_FOLDER, checksum_name
from tidegate_local.child_processes import ServiceProcess

pytestmark = pytest.mark.broker

WRITERS = 4
ROWS = 60
INTERVAL = 10
PROPERTIES = {"tidegate.cdc.keyColumns": "writer,number", "delta.checkpointInterval": str(INTERVAL)}


def started(line: Line) -> dict[str, ServiceProcess]:
    """Start the three services, and return them when they are ready."""
    services = {
        "committer": line.service("committer"),
        "checkpointer": line.service("checkpointer", checkpointer={"look_s": "0.5"}),
        "cdc_publisher": line.service("cdc_publisher", cdc={"look_s": "0.5"}),
    }
    for service in services.values():
        service.start()
    for service in services.values():
        service.wait_ready()
    return services


def have_outcomes(proposers: Sequence[Proposer], count: int) -> bool:
    return len(all_outcomes(proposers)) >= count


def hinted(log: Path) -> int:
    hint = log / LAST_CHECKPOINT
    return int(json.loads(hint.read_text())["version"]) if hint.exists() else -1


def changes_in(line: Line, topic: str) -> list[Message]:
    """Return the changes in a topic, without the marker that an empty table's snapshot is.

    Nothing is deleted in this test, so a record without a value is no tombstone.
    """
    messages = committed(line, topic)
    without_value = [message for message in messages if message.value() is None]
    assert all("marker" in dict(message.headers() or []) for message in without_value)
    return [message for message in messages if message.value() is not None]


def replayed(messages: list[Message]) -> list[tuple[str, int]]:
    """Return the rows that a change topic adds up to, asserting that it has each change once."""
    rows: dict[bytes, dict[str, Any]] = {}
    places: list[list[int]] = []
    for message in messages:
        key, value = message.key(), message.value()
        assert key is not None
        assert value is not None
        change = json.loads(value)
        assert change["op"] in ("c", "r")
        assert change["before"] is None
        assert key not in rows, f"{key!r} is told twice"
        rows[key] = change["after"]
        places.append([int(part) for part in json.loads(change["source"]["sequence"])])
    assert places == sorted(places), "versions go back"
    return sorted((row["writer"], row["number"]) for row in rows.values())


@pytest.mark.timeout(180)
def test_each_service_is_killed_under_load_and_every_account_agrees(line: Line) -> None:
    services = started(line)
    table = create_table(line.kafka, line.tables / "t", PROPERTIES)
    topic, log = line.kafka.topics.changes("t"), folder_of(table) / LOG_FOLDER
    first = Proposer(line.kafka, table, "w-first", INTERVAL)
    first.start()
    first.join(WAIT_S)
    until(lambda: hinted(log) == INTERVAL, "the first checkpoint")
    until(lambda: bool(changes_in(line, topic)), "the first change")

    proposers = append_with(line.kafka, table, WRITERS, ROWS)
    for victim, service in services.items():
        more = len(all_outcomes(proposers)) + WRITERS
        until(partial(have_outcomes, proposers, more), f"{more} outcomes, to kill the {victim}")
        assert len(all_outcomes(proposers)) < WRITERS * ROWS, (
            f"no load left to kill the {victim} under"
        )
        service.child.kill()
        check_offsets_are_safe(line)
        service.start()
    for proposer in proposers:
        proposer.join(WAIT_S)

    check_all(line, table, [first, *proposers])
    check_offsets_are_safe(line)
    head = DeltaTable(table.table_root).version()
    until(lambda: (log / checksum_name(head)).exists(), f"the checksum of {head}")
    until(lambda: hinted(log) == head - head % INTERVAL, "the last checkpoint")
    until(lambda: len(changes_in(line, topic)) >= len(rows_of(table)), "every change")
    assert replayed(changes_in(line, topic)) == rows_of(table)
    assert all(service.child.is_alive() for service in services.values())
