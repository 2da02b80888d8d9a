"""`tidegate table vacuum` on a table that delta-rs wrote: other readers read it afterwards."""

from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

from tests.integration.conftest import Line
from tests.integration.test_producer_cli import Terminal
from tidegate_messages.published_records import LeaseRecord
from tidegate_producers.cli import table_commands
from tidegate_runtime.clock import SystemClock
from tidegate_runtime.followers.version_gates import give_back_lease, take_lease
from tidegate_runtime.kafka.confluent_bus import KafkaBus

pytestmark = pytest.mark.broker


def parquet_files(table: Path) -> set[str]:
    return {str(path.relative_to(table)) for path in table.rglob("*.parquet")}


def rows(table: Path, version: int | None = None) -> list[dict[str, object]]:
    result = deltalake.DeltaTable(table, version=version).to_pyarrow_table()
    return sorted(result.to_pylist(), key=str)


def test_files_that_no_version_needs_go_and_delta_rs_reads_the_rest(line: Line) -> None:
    table = line.tables / "shop"
    for numbers in ([1, 2], [3, 4], [5, 6]):
        data = pa.table({"k": numbers, "p": ["a b", "ü"]})
        deltalake.write_deltalake(table, data, partition_by=["p"], mode="overwrite")
    (table / "p=ü").mkdir(exist_ok=True)
    (table / "p=ü" / "orphan.parquet").write_bytes(b"nobody's")
    before, kept_rows = parquet_files(table), rows(table)
    assert len(before) == 7

    line.started("committer")
    terminal = Terminal(line)
    record = terminal.json(table_commands.app, "register", str(table), "--name", "shop")
    week = terminal.json(table_commands.app, "vacuum", "shop")
    assert week["goes"] == []
    fewer = ("--retention-hours", "0", "--no-retention-check")
    assert len(terminal.json(table_commands.app, "vacuum", "shop", *fewer)["goes"]) == 5

    bus, now_ms = KafkaBus(line.kafka, "audit"), SystemClock().now_ms()
    lease = LeaseRecord(
        table=record["table"], holder="audit", needed_from=2, until_ms=now_ms + 3_600_000
    )
    take_lease(bus, line.kafka.topics, lease)
    held = terminal.json(table_commands.app, "vacuum", "shop", *fewer, "--apply")
    assert (held["deleted"], held["start"], held["end"]) == (3, 3, 4)
    assert rows(table) == kept_rows
    assert len(rows(table, 1)) == 2, "the lease needs the changes of version 2"

    give_back_lease(bus, line.kafka.topics, "audit", lease.table)
    done = terminal.json(table_commands.app, "vacuum", "shop", *fewer, "--apply")
    assert done["deleted"] == 2
    assert len(parquet_files(table)) == 2
    assert rows(table) == kept_rows
    ours = terminal.json(table_commands.app, "rows", "shop")
    assert sorted(ours, key=str) == kept_rows
    [end, start] = terminal.json(table_commands.app, "history", "shop", "--limit", "2")
    assert (start["operation"], end["operation"]) == ("VACUUM START", "VACUUM END")
    assert end["metrics"]["numDeletedFiles"] == "2"
