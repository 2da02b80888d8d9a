"""A store without put-if-absent on a real broker: the partition decides, committers are killed.

The store is a folder that, for these committers, only replaces files: each version is decided on
the topic `ratify` and then published.
"""

import hashlib
import signal
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.integration import run_audit
from tests.integration.conftest import Line
from tests.integration.proposers import append_with, create_table, told, values
from tests.integration.test_committer_processes import (
    WAIT_S,
    check_all,
    check_offsets_are_safe,
    folder_of,
    until,
)
from tidegate_delta.log.file_names import staged_version
from tidegate_local.child_processes import ServiceProcess

pytestmark = pytest.mark.broker

WRITERS = 3
ROWS = 8


def committer(line: Line, name: str, failpoint: str = "") -> ServiceProcess:
    roots = {"ratified_roots": f'["{line.tables.as_uri()}"]'}
    service = line.service("committer", name, failpoint, committer=roots)
    service.start()
    return service


def decided(line: Line) -> dict[int, dict[str, Any]]:
    """Return the claim that decides each version, by an independent fold."""
    first, *more = values(line.kafka, line.kafka.topics.ratify)
    head, claims = first["version"], {}
    for item in more:
        if item["version"] == head + 1:
            head += 1
            claims[head] = item
    return claims


def check_the_partition_decided(line: Line, folder: Path) -> None:
    claims = decided(line)
    files = sorted(path for path in (folder / "_delta_log").glob("0*.json"))
    assert sorted(claims) == list(range(len(files)))
    for version, path in enumerate(files):
        assert hashlib.sha256(path.read_bytes()).hexdigest() == claims[version]["sha256"]


@pytest.mark.parametrize("failpoint", ["before_put", "after_put:2", "after_flush:2"])
def test_committers_on_a_ratified_root_die_one_after_the_other_and_lose_and_double_nothing(
    line: Line, failpoint: str
) -> None:
    first = committer(line, "first")
    first.wait_ready()
    table = create_table(line.kafka, line.tables / "t")
    assert first.child.stop() == 0

    doomed = [committer(line, f"doomed-{number}", failpoint) for number in range(2)]
    for one in doomed:
        one.wait_ready()
    proposers = append_with(line.kafka, table, WRITERS, ROWS)
    until(
        lambda: not any(service.child.is_alive() for service in doomed),
        f"two deaths at {failpoint}",
    )
    assert {service.child.exit_status() for service in doomed} == {-signal.SIGKILL}
    heir = committer(line, "heir")
    for proposer in proposers:
        proposer.join(WAIT_S)
    assert heir.child.is_alive()
    assert len(told(proposers)) == WRITERS * ROWS
    check_all(line, table, proposers)
    check_offsets_are_safe(line)

    folder = folder_of(table)
    check_the_partition_decided(line, folder)
    # A committer that dies during a PUT leaves its staged file, which the sweep removes.
    staged = list((folder / "_delta_log" / "_staged_commits").glob("*.json"))
    assert len(staged) <= len(doomed)
    assert {staged_version(item.name) for item in staged} <= set(
        range(len(run_audit.entries(folder)))
    )
    read = DeltaTable(table.table_root)
    assert read.version() == len(run_audit.entries(folder)) - 1
    files = {Path(uri).name for uri in read.file_uris()}
    assert files == run_audit.live_paths(run_audit.entries(folder))
