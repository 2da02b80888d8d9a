"""`deploy/compose.yaml` as it is shipped: from `up` to changes on Kafka, and again after kills."""

import json
import re
from functools import partial

import pytest

from tests.containers.conftest import Compose
from tests.containers.engine import docker, until

pytestmark = pytest.mark.timeout(5400)

KILLED = ("kafka", "store", "committer", "checkpointer", "cdc-publisher", "ingest")
COPY = "s3://lake/readings-copy"
DONE = re.compile(r"demo: done: version (\d+), (\d+) rows")
PATIENCE_S = 1500.0


def done(line: Compose) -> tuple[int, int]:
    """Return version and rows of the last line of the demo's log."""
    result = DONE.findall(line("logs", "--no-color", "demo"))
    assert result
    version, rows = result[-1]
    return int(version), int(rows)


def ended(line: Compose) -> bool:
    """Return whether the demo has ended. Fails if it did so badly."""
    state = line.state("demo")
    if state["Status"] != "exited":
        return False
    assert state["ExitCode"] == 0, line("logs", "--no-color", "--tail", "60")
    return True


def test_topics_wait_for_a_broker_that_starts_late(compose: Compose) -> None:
    compose("up", "--detach", "--no-build", "--no-deps", "topics")

    def failed_once() -> bool:
        return "Unavailable" in compose("logs", "--no-color", "topics")

    until(failed_once, "an attempt without a broker", 600)
    compose("up", "--detach", "--no-build", timeout_s=PATIENCE_S)
    assert compose.state("topics")["ExitCode"] == 0


def test_the_demo_writes_deletes_and_finds_its_changes(compose: Compose) -> None:
    compose("up", "--detach", "--no-build", timeout_s=PATIENCE_S)
    until(lambda: ended(compose), "the demo's end", PATIENCE_S)
    _, rows = done(compose)
    assert rows == 2700, "three appends of 1000, less a tenth"


def copied(line: Compose) -> int:
    """Return the rows of the table that `ingest` fills; none while it is not there."""
    rows = ("tidegate", "table", "rows", COPY, "--limit", "100000", "--columns", "id", "--json")
    done = line.asked("exec", "-T", "ingest", *rows)
    return len(json.loads(done.stdout)) if done.returncode == 0 else 0


def test_ingest_copies_the_demos_changes_into_a_second_table(compose: Compose) -> None:
    _, rows = done(compose)
    until(lambda: copied(compose) == rows, "the copy has the rows of the table", PATIENCE_S)
    until(partial(compose.healthy, "ingest"), "ingest is healthy", 300)


def test_it_goes_on_after_each_container_was_killed_once(compose: Compose) -> None:
    first_version, first_rows = done(compose)
    for service in KILLED:
        docker("kill", compose.container(service))
        docker("start", compose.container(service))
    for service in ("committer", "checkpointer", "cdc-publisher"):
        until(partial(compose.healthy, service), f"{service} is healthy", 900)
    docker("start", compose.container("demo"))
    until(lambda: ended(compose), "the demo's second end", PATIENCE_S)
    version, rows = done(compose)
    assert version > first_version
    assert rows == first_rows + 2700
    until(lambda: copied(compose) == rows, "the copy has the new rows, each once", PATIENCE_S)
