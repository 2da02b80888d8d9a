"""Real committers on a real broker: killed at each failpoint, two at once, and a foreign writer."""

import json
import os
import signal
import threading
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from tests.integration import run_audit
from tests.integration.blows import ELSEWHERE
from tests.integration.conftest import Line
from tests.integration.proposers import (
    SCHEMA,
    Proposer,
    all_outcomes,
    append_with,
    committed_offset,
    create_table,
    read_topic,
    values,
)
from tests.integration.waiting import until
from tests.linearizability.checker import explain
from tests.linearizability.run_record import Account, PublishedOutcome, Table, proposals
from tidegate_committer.dependencies import FAILPOINTS
from tidegate_messages.published_records import TableRecord

pytestmark = pytest.mark.broker

WRITERS = 4
ROWS = 5
WAIT_S = 90.0


def folder_of(table: TableRecord) -> Path:
    return Path(table.table_root.removeprefix("file://"))


def rows_of(table: TableRecord) -> list[tuple[str, int]]:
    result = QueryBuilder().register("t", DeltaTable(table.table_root)).execute("select * from t")
    return sorted((row["writer"], row["number"]) for row in pa.table(result.read_all()).to_pylist())


def check_offsets_are_safe(line: Line) -> None:
    """Fail if a proposal before the group's offset has no outcome."""
    kafka = line.kafka
    passed = committed_offset(kafka, f"{kafka.topic_prefix}committer")
    answered = {value["proposal_id"] for value in values(kafka, kafka.topics.outcomes)}
    for record in read_topic(kafka, kafka.topics.proposals):
        one = dict(record.headers)["proposal_id"].decode()
        assert record.offset >= passed or one in answered, f"{one} was passed without an outcome"


def account_of(line: Line, *tables: TableRecord) -> Account:
    """Return the record of a run for some tables, with the broker's timestamps."""
    topics = line.kafka.topics
    sent = proposals(_stamped(line, topics.proposals))
    result = [
        PublishedOutcome(json.loads(value), moment_ms)
        for value, moment_ms in _stamped(line, topics.outcomes)
    ]
    roots, own = {table.table_root for table in tables}, {str(table.table) for table in tables}
    return Account(
        {key: one for key, one in sent.items() if one.root in roots},
        [item for item in result if item.body["table"] in own],
        {table.table_root: _log_of(table) for table in tables},
    )


def _log_of(table: TableRecord) -> Table:
    files = sorted((folder_of(table) / "_delta_log").glob("0*.json"))
    return Table.of([path.read_bytes() for path in files if path.name[:-5].isdigit()])


def _stamped(line: Line, topic: str) -> list[tuple[bytes, float]]:
    return [(record.value or b"", record.timestamp_ms) for record in read_topic(line.kafka, topic)]


def check_all(
    line: Line, table: TableRecord, proposers: Sequence[Proposer], spared: Collection[str] = ()
) -> None:
    """Check versions, ids, a serial order, commit records and rows.

    Versions are dense, ids unique, commit records in order. Only `spared` rules may refuse a
    proposal, whose rows are then missing.
    """
    kafka = line.kafka
    log = run_audit.entries(folder_of(table))
    run_audit.live_paths(log)
    run_audit.check_outcomes(log, _of(table, values(kafka, kafka.topics.outcomes)))
    explain(account_of(line, table))
    # A writer may receive its outcome before the version's commit record is readable.
    until(lambda: _published_versions(line, table) >= len(log), "a record of the last version")
    records = _of(table, values(kafka, kafka.topics.commits))
    assert run_audit.check_commit_records(folder_of(table), records) == list(range(len(log)))
    refused = [
        outcome.rejection for outcome in all_outcomes(proposers) if outcome.status != "committed"
    ]
    assert all(item is not None and item.rule in spared for item in refused), refused
    assert all(proposer.outcomes.keys() == set(range(proposer.count)) for proposer in proposers)
    wanted = sorted(
        (proposer.name, number)
        for proposer in proposers
        for number, outcome in proposer.outcomes.items()
        if outcome.status == "committed"
    )
    assert [row for row in rows_of(table) if row[0].startswith("w")] == wanted


def _published_versions(line: Line, table: TableRecord) -> int:
    records = _of(table, values(line.kafka, line.kafka.topics.commits))
    return max((record["version"] + 1 for record in records), default=0)


def _of(table: TableRecord, found: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [item for item in found if item["table"] == str(table.table)]


AT_CREATION = ("after_claim", "after_register")
UNDER_LOAD = [point for point in FAILPOINTS if point not in (*ELSEWHERE, *AT_CREATION)]
"""The others have their own tests: a store that answers 503, and a table's creation."""


@pytest.mark.parametrize("failpoint", UNDER_LOAD)
def test_a_committer_killed_at_any_point_loses_and_doubles_nothing(
    line: Line, failpoint: str
) -> None:
    committer = line.started("committer")
    table = create_table(line.kafka, line.tables / "t")
    committer.child.stop()

    doomed = line.service("committer", "doomed", failpoint=failpoint)
    doomed.start()
    proposers = append_with(line.kafka, table, WRITERS, ROWS)
    until(lambda: not doomed.child.is_alive(), f"the death at {failpoint}")
    assert doomed.child.exit_status() == -signal.SIGKILL
    check_offsets_are_safe(line)

    line.started("committer", "successor")
    for proposer in proposers:
        proposer.join(WAIT_S)
    check_all(line, table, proposers)
    check_offsets_are_safe(line)


@pytest.mark.parametrize("failpoint", AT_CREATION)
def test_a_creation_survives_a_kill_before_its_registration_and_before_its_outcome(
    line: Line, failpoint: str
) -> None:
    doomed = line.service("committer", "doomed", failpoint=failpoint)
    doomed.start()
    with ThreadPoolExecutor(1) as pool:
        creation = pool.submit(create_table, line.kafka, line.tables / "t")
        until(lambda: not doomed.child.is_alive(), f"the death at {failpoint}")
        line.started("committer", "successor")
        table = creation.result(WAIT_S)
    check_all(line, table, [])
    assert list(run_audit.accepted(run_audit.entries(folder_of(table))).values()) == [0]


def test_a_committer_that_was_suspended_races_its_successor_and_nothing_is_doubled(
    line: Line,
) -> None:
    first = line.started("committer", "first")
    table = create_table(line.kafka, line.tables / "t")
    proposers = append_with(line.kafka, table, WRITERS, 12)
    until(lambda: len(all_outcomes(proposers)) >= WRITERS, "the first outcomes")
    os.kill(first.child.pid, signal.SIGSTOP)
    successor = line.service("committer", "successor")
    successor.start()
    before = len(all_outcomes(proposers))
    until(lambda: len(all_outcomes(proposers)) > before + WRITERS, "outcomes by the successor")
    os.kill(first.child.pid, signal.SIGCONT)
    for proposer in proposers:
        proposer.join(WAIT_S)
    check_all(line, table, proposers)


def test_a_standby_takes_over_when_the_active_committer_stops(line: Line) -> None:
    active = line.started("committer", "active")
    table = create_table(line.kafka, line.tables / "t")
    standby = line.service("committer", "standby")
    standby.start()
    standby.wait_ready()
    proposers = append_with(line.kafka, table, 2, 10)
    until(lambda: len(all_outcomes(proposers)) >= 4, "the first outcomes")
    assert active.child.stop() == 0
    for proposer in proposers:
        proposer.join(WAIT_S)
    assert standby.child.is_alive()
    check_all(line, table, proposers)


def test_an_external_delta_rs_writer_loses_nothing_and_is_reported(line: Line) -> None:
    line.started("committer", committer={"external_probe_s": "0.5"})
    table = create_table(line.kafka, line.tables / "t")
    foreign = [pa.table([["foreign"], [number]], schema=SCHEMA) for number in range(8)]

    def append_foreign() -> None:
        for rows in foreign:
            write_deltalake(table.table_root, rows, mode="append")

    writer = threading.Thread(target=append_foreign)
    writer.start()
    proposers = append_with(line.kafka, table, WRITERS, ROWS)
    for proposer in proposers:
        proposer.join(WAIT_S)
    writer.join(WAIT_S)

    def are_published() -> bool:
        authors = [value["author"] for value in values(line.kafka, line.kafka.topics.commits)]
        return authors.count("external") == len(foreign)

    until(are_published, "the foreign commits on `commits`", 20.0)
    check_all(line, table, proposers)
    assert [row for row in rows_of(table) if row[0] == "foreign"] == [
        ("foreign", number) for number in range(len(foreign))
    ]


def test_several_tables_share_a_partition(line: Line) -> None:
    line.started("committer")
    tables = [create_table(line.kafka, line.tables / f"t{n}") for n in range(3)]
    groups = [append_with(line.kafka, table, 2, ROWS) for table in tables]
    for proposers in groups:
        for proposer in proposers:
            proposer.join(WAIT_S)
    for table, proposers in zip(tables, groups, strict=True):
        check_all(line, table, proposers)
