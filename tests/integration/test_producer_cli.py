"""`tidegate table` and `tidegate proposals` against a real broker and committer."""

import json
import shutil
from pathlib import Path
from typing import Any
from uuid import UUID

import deltalake
import pyarrow as pa
import pytest
import typer
from typer.testing import CliRunner, Result

from tests.integration.conftest import Line
from tidegate_messages.proposal import Operation, Proposal, ReadSet
from tidegate_producers.cli import proposal_commands, table_commands
from tidegate_runtime.client import proposal_builders
from tidegate_runtime.client.client import Client
from tidegate_runtime.kafka.confluent_bus import KafkaBus

pytestmark = pytest.mark.broker


class Terminal:
    """Runs a command as a user would, with the test's broker."""

    def __init__(self, line: Line) -> None:
        self._set = [f"--set={key}={value}" for key, value in line.settings.items()]

    def run(self, app: typer.Typer, *arguments: str) -> Result:
        return CliRunner().invoke(app, [*arguments, *self._set])

    def json(self, app: typer.Typer, *arguments: str) -> Any:
        result = self.run(app, *arguments, "--json")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)


@pytest.fixture
def table(line: Line) -> Path:
    """Return a table that delta-rs wrote: two versions, three rows, two partitions."""
    path = line.tables / "shop"
    rows = pa.table({"k": [1, 2], "p": ["a", "b"]})
    deltalake.write_deltalake(path, rows, partition_by=["p"])
    deltalake.write_deltalake(path, rows.slice(0, 1), mode="append")
    return path


def test_a_table_is_registered_once_and_shown(line: Line, table: Path) -> None:
    line.started("committer")
    terminal = Terminal(line)
    first = terminal.json(table_commands.app, "register", str(table), "--name", "shop")
    assert (first["status"], first["version"]) == ("committed", 1)
    again = terminal.json(table_commands.app, "register", str(table))
    assert again["table"] == first["table"]
    (listed,) = terminal.json(table_commands.app, "list")
    assert (listed["name"], listed["table_root"]) == ("shop", table.as_uri())
    assert "shop" in terminal.run(table_commands.app, "list").stdout

    result = terminal.json(proposal_commands.app, "list")
    assert [item["kind"] for item in result] == ["register", "register"]
    assert {one["status"] for one in result} == {"committed"}
    shown = terminal.json(proposal_commands.app, "show", first["proposal_id"])
    assert shown["outcomes"][0]["version"] == 1
    assert first["proposal_id"] in terminal.run(proposal_commands.app, "list").stdout.replace(
        "\n", ""
    )
    nobody = terminal.run(proposal_commands.app, "show", first["table"])
    assert nobody.exit_code == 2
    assert "ProposalNotFound" in nobody.stderr


def test_a_table_that_is_made_anew_after_a_drop_is_registered(line: Line, table: Path) -> None:
    line.started("committer")
    terminal = Terminal(line)
    first = terminal.json(table_commands.app, "register", str(table), "--name", "shop")
    terminal.json(table_commands.app, "drop", "shop", "--yes")
    again = terminal.run(table_commands.app, "register", str(table))
    assert "table_dropped" in again.output, "it is the dropped table"

    shutil.rmtree(table)
    deltalake.write_deltalake(table, pa.table({"k": [7]}))
    made = terminal.run(table_commands.app, "reopen", "--made-anew", str(table))
    assert "or register another table that was made there" in made.output.replace("\n", " ")
    second = terminal.json(table_commands.app, "register", str(table), "--name", "shop")
    assert (second["status"], second["version"]) == ("committed", 0)
    assert second["table"] != first["table"]
    with Client(KafkaBus(line.kafka, "test"), line.kafka.topics) as client:
        target = proposal_builders.Target(UUID(first["table"]), table.as_uri(), 0)
        stamp = proposal_builders.Stamp(client.new_id(), client.clock.now_ms())
        late = client.propose(proposal_builders.note(target, stamp, Operation()))
    assert (late.status, late.rejection and late.rejection.rule) == ("denied", "table_dropped")
    assert deltalake.DeltaTable(table).version() == 0


def test_a_tables_log_is_shown_without_a_committer(line: Line, table: Path) -> None:
    terminal = Terminal(line)
    history = terminal.json(table_commands.app, "history", str(table))
    assert [item["version"] for item in history] == [1, 0]
    assert [one["proposals"] for one in history] == [0, 0]
    facts = terminal.json(table_commands.app, "describe", str(table))
    assert (facts["version"], facts["files"], facts["partitionColumns"]) == (1, 3, ["p"])
    assert [fact["name"] for fact in facts["columns"]] == ["k", "p"]
    older = terminal.json(table_commands.app, "snapshot", str(table), "--version", "0")
    assert (older["version"], len(older["shown"])) == (0, 2)
    for verb in ("history", "describe", "snapshot"):
        result = terminal.run(table_commands.app, verb, str(table))
        assert result.exit_code == 0, result.output


def test_what_is_no_table_is_refused(line: Line) -> None:
    terminal = Terminal(line)
    for verb in ("history", "describe", "snapshot", "register"):
        result = terminal.run(table_commands.app, verb, str(line.tables / "nothing"))
        assert result.exit_code == 2
        assert "NotADeltaTable" in result.stderr


def test_what_lost_is_explained_and_listed_at_its_table(line: Line, table: Path) -> None:
    line.started("committer")
    terminal = Terminal(line)
    terminal.json(table_commands.app, "register", str(table), "--name", "shop")
    path = deltalake.DeltaTable(table).file_uris()[0].removeprefix(f"{table}/")
    with Client(KafkaBus(line.kafka, "test"), line.kafka.topics) as client:
        record = client.require("shop")
        first, second = (
            Proposal(
                proposal_id=client.new_id(),
                table=record.table,
                table_root=record.table_root,
                table_id=record.table_id,
                read_version=1,
                operation=Operation(name="DELETE"),
                actions=({"remove": {"path": path, "dataChange": True}},),
                reads=ReadSet(files=(path,)),
            )
            for _ in range(2)
        )
        assert client.propose(first).version == 2
        assert client.propose(second).status == "rejected"
        waiting = first.model_copy(update={"proposal_id": client.new_id(), "read_version": 99})
        assert client.propose(waiting).status == "denied"

    result = terminal.run(proposal_commands.app, "show", str(second.proposal_id), "--json")
    assert result.exit_code == 2, result.output
    told = json.loads(result.stdout)["explanation"]
    assert (told["rule"], told["winner"]["version"]) == ("concurrent_delete_read", 2)
    assert told["winner"]["proposal_ids"] == [str(first.proposal_id)]
    assert told["overlap"]["files"] == [path]
    printed = terminal.run(proposal_commands.app, "show", str(second.proposal_id)).stdout
    assert f"file          {path}" in printed

    assert terminal.run(proposal_commands.app, "show", str(first.proposal_id)).exit_code == 0
    refused = ("list", "--refused", "--table", "shop")
    found = terminal.json(proposal_commands.app, *refused)
    assert found["rules"] == {"concurrent_delete_read": 1, "read_version_ahead": 1}
    shown = terminal.run(proposal_commands.app, *refused).stdout
    assert any(path in row and str(second.proposal_id) in row for row in shown.splitlines())
    facts = terminal.json(table_commands.app, "describe", str(table))
    assert (facts["registered"]["name"], facts["registered"]["publishedThrough"]) == ("shop", 2)
    late = terminal.run(proposal_commands.app, "cancel", str(first.proposal_id))
    assert late.exit_code == 2
    assert "is in the table at version 2" in late.stdout


def test_a_table_stays_halted_through_a_kill_and_is_altered_once_it_is_reopened(
    line: Line, table: Path
) -> None:
    committer = line.started("committer")
    terminal = Terminal(line)
    terminal.json(table_commands.app, "register", str(table), "--name", "shop")
    result = terminal.json(table_commands.app, "halt", "shop", "--reason", "a restore")
    assert (result["status"], result["version"]) == ("committed", 1)
    committer.child.kill()
    line.started("committer", "successor")

    asked = ("alter", "shop", "--add-column", "price decimal(10,2)", "--property", "owner=ann")
    refused = terminal.run(table_commands.app, *asked)
    assert refused.exit_code == 2
    assert "table_halted" in refused.stderr
    assert "a restore" in refused.stderr
    assert deltalake.DeltaTable(table).version() == 1
    (listed,) = terminal.json(table_commands.app, "list")
    assert (listed["status"], listed["halted_by_hand"]) == ("halted", "a restore")

    assert terminal.json(table_commands.app, "reopen", "shop")["status"] == "committed"
    assert terminal.json(table_commands.app, *asked)["version"] == 2
    read = deltalake.DeltaTable(table)
    assert [field.name for field in read.schema().fields] == ["k", "p", "price"]
    assert read.metadata().configuration == {"owner": "ann"}
    assert sorted(read.to_pyarrow_table()["k"].to_pylist()) == [1, 1, 2]


@pytest.mark.parametrize("vectors", ["true", "false"])
def test_rows_are_deleted_and_counted_from_the_command_line(line: Line, vectors: str) -> None:
    path = line.tables / "rows"
    result = {"delta.enableDeletionVectors": vectors}
    deltalake.write_deltalake(path, pa.table({"k": list(range(10))}), configuration=result)
    line.started("committer")
    terminal = Terminal(line)
    terminal.json(table_commands.app, "register", str(path), "--name", "rows")
    delete = ("delete-rows", "rows", "k < 4")
    counted = terminal.json(table_commands.app, *delete, "--dry-run")
    assert counted == {"version": None, "rows": 4, "files": 1}
    assert terminal.json(table_commands.app, *delete) == {"version": 1, "rows": 4}
    left = terminal.json(table_commands.app, "rows", str(path))
    assert sorted(row["k"] for row in left) == list(range(4, 10))
    entry = (path / "_delta_log" / f"{1:020d}.json").read_text()
    assert ('"deletionVector":{' in entry) == (vectors == "true")
    assert terminal.json(table_commands.app, *delete) == {"version": None, "rows": 0}
    wrong = terminal.run(table_commands.app, "delete-rows", str(path), "nobody = 1")
    assert wrong.exit_code == 2


@pytest.mark.parametrize("vectors", ["true", "false"])
def test_small_files_are_packed_from_the_command_line(line: Line, vectors: str) -> None:
    path, terminal = line.tables / "small", Terminal(line)
    properties = {"delta.enableDeletionVectors": vectors, "delta.enableChangeDataFeed": "true"}
    for number in range(4):
        keys = list(range(4 * number, 4 * number + 4))
        rows = pa.table({"k": keys, "p": ["a", "a", "b/ c", "b/ c"]})
        deltalake.write_deltalake(
            path, rows, partition_by=["p"], mode="append", configuration=properties
        )
    line.started("committer")
    terminal.json(table_commands.app, "register", str(path), "--name", "small")
    plan = terminal.json(table_commands.app, "optimize", "small", "--where", "p = 'a'")
    assert [(item["partition"], item["files"]) for item in plan["bins"]] == [({"p": "a"}, 4)]
    refused = terminal.run(table_commands.app, "optimize", "small", "--where", "k = 1")
    assert refused.exit_code == 2
    assert "partition column" in refused.stderr
    if vectors == "true":
        terminal.json(table_commands.app, "delete-rows", "small", "k = 4 OR k = 6")
    done = terminal.json(table_commands.app, "optimize", "small", "--apply")
    assert (done["files_removed"], done["files_added"]) == (8, 2)
    again = terminal.json(table_commands.app, "optimize", "small", "--apply")
    assert again["versions"] == []
    gone = {4, 6} if vectors == "true" else set()
    table = deltalake.DeltaTable(path)
    assert len(table.file_uris()) == 2
    read = deltalake.QueryBuilder().register("t", table).execute("SELECT k FROM t")
    assert sorted(pa.table(read.read_all())["k"].to_pylist()) == sorted(set(range(16)) - gone)
    [result] = table.history(1)
    assert (result["operation"], result["operationMetrics"]["numRemovedFiles"]) == ("OPTIMIZE", "8")
    changes = pa.table(table.load_cdf(starting_version=done["versions"][0]).read_all())
    assert changes.num_rows == 0


@pytest.mark.parametrize("vectors", ["true", "false"])
def test_a_table_is_restored_from_the_command_line(line: Line, vectors: str) -> None:
    path, terminal = line.tables / "restored", Terminal(line)
    result = {"delta.enableDeletionVectors": vectors, "delta.enableChangeDataFeed": "true"}
    deltalake.write_deltalake(path, pa.table({"k": list(range(10))}), configuration=result)
    line.started("committer")
    terminal.json(table_commands.app, "register", str(path), "--name", "restored")
    restore = ("restore", "restored", "--to")
    assert terminal.json(table_commands.app, *restore, "0", "--apply")["version"] is None
    if vectors == "true":
        terminal.json(table_commands.app, "delete-rows", "restored", "k < 4")
    deltalake.write_deltalake(path, pa.table({"k": [77]}), mode="append")
    terminal.json(table_commands.app, "alter", "restored", "--add-column", "price double")
    plan = terminal.json(table_commands.app, *restore, "0")
    assert (plan["applied"], plan["changes_metadata"]) == (False, True)
    done = terminal.json(table_commands.app, *restore, "0", "--apply")
    changed = 1 if vectors == "true" else 0
    assert (done["numRestoredFiles"], done["numRemovedFiles"]) == (changed, 1 + changed)
    table = deltalake.DeltaTable(path)
    read = deltalake.QueryBuilder().register("t", table).execute("SELECT * FROM t")
    assert sorted(pa.table(read.read_all()).to_pydict()["k"]) == list(range(10))
    assert [field.name for field in table.schema().fields] == ["k"]
    assert table.history(1)[0]["operation"] == "RESTORE"
    rows = terminal.json(table_commands.app, "rows", "restored", "--limit", "20")
    assert sorted(row["k"] for row in rows) == list(range(10))


def test_a_version_whose_files_are_gone_is_not_restored(line: Line) -> None:
    path, terminal = line.tables / "gone", Terminal(line)
    deltalake.write_deltalake(path, pa.table({"k": [1]}))
    deltalake.write_deltalake(path, pa.table({"k": [2]}), mode="overwrite")
    line.started("committer")
    terminal.json(table_commands.app, "register", str(path), "--name", "gone")
    [left] = deltalake.DeltaTable(path).file_uris()
    for file in path.glob("*.parquet"):
        if not left.endswith(file.name):
            file.unlink()
    refused = terminal.run(table_commands.app, "restore", "gone", "--to", "0", "--apply")
    assert refused.exit_code == 2
    assert "DataFileMissing" in refused.stderr
    assert "needs 1 files" in refused.stderr
    assert deltalake.DeltaTable(path).version() == 1


def test_features_are_turned_on_and_dropped_with_every_trace_of_them(line: Line) -> None:
    path, terminal = line.tables / "features", Terminal(line)
    for number in range(3):
        rows = pa.table({"k": [number, number + 10], "v": pa.array([1, 2], pa.int16())})
        deltalake.write_deltalake(path, rows, mode="append")
    line.started("committer")
    terminal.json(table_commands.app, "register", str(path), "--name", "features")

    def alter(*told: str) -> None:
        terminal.json(table_commands.app, "alter", "features", *told)

    def rows_of(columns: str) -> list[dict[str, Any]]:
        shown = terminal.json(table_commands.app, "rows", "features", "--columns", columns)
        return sorted(shown, key=lambda row: int(row["k"]))

    alter("--property", "delta.columnMapping.mode=name")
    alter("--property", "delta.enableTypeWidening=true", "--rename-column", "v=w")
    alter("--widen", "w int", "--property", "delta.enableDeletionVectors=true")
    alter("--property", "delta.enableRowTracking=true")
    alter("--property", "delta.checkpointPolicy=v2")
    alter("--property", "delta.enableInCommitTimestamps=true")
    ids = {row["k"]: row["_metadata.row_id"] for row in rows_of("k,_metadata.row_id")}
    assert sorted(ids.values()) == list(range(6))
    terminal.json(table_commands.app, "delete-rows", "features", "k = 10")
    del ids[10]
    done = terminal.json(table_commands.app, "optimize", "features", "--purge", "--apply")
    assert (done["files_removed"], done["files_added"]) == (1, 1)
    terminal.json(table_commands.app, "optimize", "features", "--apply")
    assert {row["k"]: row["_metadata.row_id"] for row in rows_of("k,_metadata.row_id")} == ids
    terminal.json(table_commands.app, "delete-rows", "features", "k = 11")
    wanted = [row for row in rows_of("k,w") if row["k"] != 11]
    features = ("deletionVectors", "typeWidening", "rowTracking", "columnMapping")
    for feature in (*features, "inCommitTimestamp", "v2Checkpoint"):
        alter("--drop-feature", feature)
        assert rows_of("k,w") == wanted, feature
    for wrong, told in (("typeWidening", "NOT_PRESENT"), ("nosuch", "UNSUPPORTED")):
        refused = terminal.run(table_commands.app, "alter", "features", "--drop-feature", wrong)
        assert refused.exit_code == 2
        assert told in refused.stderr
    table = deltalake.DeltaTable(path)
    assert (table.protocol().min_reader_version, table.protocol().reader_features) == (1, None)
    assert sorted(table.to_pyarrow_table().to_pylist(), key=lambda row: row["k"]) == wanted
