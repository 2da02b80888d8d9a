"""A table's health: the score, and the task that helps most."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.support.delta_logs import append_until, log_names
from tests.unit.cdc_publisher.written_table import WrittenTable, rows
from tidegate_checkpointer.cli import table_commands
from tidegate_checkpointer.fsck import listed_files, orphans
from tidegate_delta.log.file_names import checkpoint_name, checksum_name
from tidegate_delta.snapshots.table_health import MIB, TableFacts, assess, histogram
from tidegate_runtime.storage.open_store import open_store
from tidegate_runtime.table_io.open_table import open_snapshot

WELL = TableFacts(
    version=10,
    checkpoint=10,
    interval=10,
    tail=0,
    log_requests=4,
    log_bytes=10_000,
    files=8,
    size_bytes=8 * 128 * MIB,
    histogram=histogram([128 * MIB] * 8),
    rows=1_000,
    deleted_rows=0,
    vectors=0,
)


def test_a_table_in_order_has_the_whole_score_and_nothing_to_do() -> None:
    assert assess(WELL).score == 100
    assert assess(WELL).tasks == ()


@pytest.mark.parametrize(
    ("facts", "task"),
    [
        (replace(WELL, doubt="contradicts: numFiles"), "check the table"),
        (replace(WELL, checkpoint=-1, tail=40), "write a checkpoint"),
        (replace(WELL, files=8_000), "merge data files"),
        (replace(WELL, deleted_rows=200), "purge deleted rows"),
        (replace(WELL, uncounted=4), "compute statistics"),
        (replace(WELL, unsorted_bytes=MIB * 512), "cluster data files"),
        (replace(WELL, orphans=9, orphan_bytes=5 * MIB), "delete orphans"),
    ],
)
def test_what_costs_readers_lowers_the_score_and_names_the_task(
    facts: TableFacts, task: str
) -> None:
    result = assess(facts)
    assert [item.name for item in result.tasks] == [task]
    assert result.score == 100 - result.tasks[0].penalty < 100


def test_the_costliest_comes_first_and_the_score_is_never_below_zero() -> None:
    bad = replace(WELL, doubt="?", tail=900, files=9_000, deleted_rows=900, orphans=1)
    result = assess(replace(bad, orphan_bytes=WELL.size_bytes))
    assert result.score == 0
    penalties = [task.penalty for task in result.tasks]
    assert penalties == sorted(penalties, reverse=True)
    assert result.tasks[0].name == "check the table"


def test_an_empty_table_is_well() -> None:
    empty = replace(WELL, files=0, size_bytes=0, rows=0, histogram=histogram([]))
    assert assess(empty).score == 100


def test_sizes_are_counted_between_edges() -> None:
    assert histogram([0, MIB - 1, MIB, 2048 * MIB]) == (2, 1, 0, 0, 0, 1)


def test_the_command_shows_costs_histogram_and_the_next_task(tmp_path: Path) -> None:
    table = WrittenTable(tmp_path / "t").create()
    table.allow_vectors()
    for version in range(25):
        table.append(rows(10 * version, 10 * version + 1))
    table.mask(0, 10, 20, 30, 40)
    (table.folder / "orphan.parquet").write_bytes(b"x")
    runner = CliRunner()
    told = runner.invoke(table_commands.app, ["health", table.root])
    assert told.exit_code == 0, told.output
    assert "to open: 30 requests" in told.stdout
    assert "no checkpoint and 28 commits" in told.stdout
    assert "sizes of files: < 1 MiB: 25" in told.stdout
    assert "deleted: 5 rows (10.0%)" in told.stdout
    assert "next: merge data files" in told.stdout
    result = runner.invoke(table_commands.app, ["health", table.root, "--json", "--orphans"])
    data = json.loads(result.stdout)
    assert (data["files"], data["rows"], data["deleted_rows"]) == (25, 50, 5)
    assert data["orphans"] == 0, "it is younger than the retention"
    assert {item["name"] for item in data["tasks"]} >= {"merge data files", "write a checkpoint"}


def test_checkpoints_compactions_and_checksums_are_shown_then_written(tmp_path: Path) -> None:
    table = WrittenTable(tmp_path / "t").create()
    append_until(table, 17)
    runner, before = CliRunner(), log_names(table)
    shown = runner.invoke(table_commands.app, ["checkpoint", table.root, "--version", "15"])
    assert "would write the classic checkpoint of version 15" in shown.stdout
    for what in ("compactions", "checksums"):
        asked = ["checkpoint", table.root, "--what", what]
        shown = runner.invoke(table_commands.app, asked)
        assert "--apply writes" in shown.stdout, shown.output
    assert log_names(table) == before

    done = runner.invoke(
        table_commands.app, ["checkpoint", table.root, "--version", "5", "--apply"]
    )
    assert "_last_checkpoint points to 5" in done.stdout, done.output
    for what in ("compactions", "checksums"):
        asked = ["checkpoint", table.root, "--what", what]
        assert "wrote 0" in runner.invoke(table_commands.app, [*asked, "--apply"]).stdout
        assert runner.invoke(table_commands.app, asked).stdout == "nothing is due\n"
        assert json.loads(runner.invoke(table_commands.app, [*asked, "--json"]).stdout) == {
            "head": 17,
            what: [],
        }
        versioned = runner.invoke(table_commands.app, [*asked, "--version", "5"])
        assert versioned.exit_code == 2
        assert "only a checkpoint is of a version" in versioned.stderr
    names = log_names(table)
    assert {checkpoint_name(5), checksum_name(17)} <= names
    assert any(name.endswith(".compacted.json") for name in names)
    again = runner.invoke(table_commands.app, ["checkpoint", table.root, "--version", "5"])
    assert "version 5 has a checkpoint" in again.stdout
    wrong = runner.invoke(
        table_commands.app,
        ["checkpoint", str(tmp_path / "none"), "--what", "compactions", "--json"],
    )
    assert wrong.exit_code == 2


def test_files_of_a_table_below_are_no_orphans(tmp_path: Path) -> None:
    outer, inner = tmp_path / "orders", tmp_path / "orders/archive"
    table = WrittenTable(outer).create()
    table.append(rows(1))
    WrittenTable(inner).create().append(rows(2))
    store = open_store(table.root)
    snapshot = open_snapshot(store)
    listing = listed_files(store, snapshot)
    assert orphans(store, snapshot, listing, 2**53).num_rows == 0
    assert listing.tables_below == ("archive",)
