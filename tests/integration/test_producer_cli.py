"""`tidegate table` and `tidegate proposals` against a real broker and committer."""

import json
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
import typer
from typer.testing import CliRunner, Result

from tests.integration.conftest import Line
from tidegate.producers import cli, cli_proposals

pytestmark = pytest.mark.broker


class Terminal:
    """Runs a command as a person would, with the line's broker."""

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
    first = terminal.json(cli.app, "register", str(table), "--name", "shop")
    assert (first["status"], first["version"]) == ("committed", 1)
    again = terminal.json(cli.app, "register", str(table))
    assert again["table"] == first["table"]
    (listed,) = terminal.json(cli.app, "list")
    assert (listed["name"], listed["table_root"]) == ("shop", table.as_uri())
    assert "shop" in terminal.run(cli.app, "list").stdout

    told = terminal.json(cli_proposals.app, "list")
    assert [one["kind"] for one in told] == ["register", "register"]
    assert {one["status"] for one in told} == {"committed"}
    shown = terminal.json(cli_proposals.app, "show", first["proposal_id"])
    assert shown["outcomes"][0]["version"] == 1
    assert first["proposal_id"] in terminal.run(cli_proposals.app, "list").stdout.replace("\n", "")
    nobody = terminal.run(cli_proposals.app, "show", first["table"])
    assert nobody.exit_code == 2
    assert "ProposalNotFound" in nobody.stderr


def test_a_tables_log_is_shown_without_a_committer(line: Line, table: Path) -> None:
    terminal = Terminal(line)
    history = terminal.json(cli.app, "history", str(table))
    assert [one["version"] for one in history] == [1, 0]
    assert [one["proposals"] for one in history] == [0, 0]
    facts = terminal.json(cli.app, "describe", str(table))
    assert (facts["version"], facts["files"], facts["partitionColumns"]) == (1, 3, ["p"])
    assert [one["name"] for one in facts["columns"]] == ["k", "p"]
    older = terminal.json(cli.app, "snapshot", str(table), "--version", "0")
    assert (older["version"], len(older["shown"])) == (0, 2)
    for verb in ("history", "describe", "snapshot"):
        result = terminal.run(cli.app, verb, str(table))
        assert result.exit_code == 0, result.output


def test_what_is_no_table_is_refused(line: Line) -> None:
    terminal = Terminal(line)
    for verb in ("history", "describe", "snapshot", "register"):
        result = terminal.run(cli.app, verb, str(line.tables / "nothing"))
        assert result.exit_code == 2
        assert "NotADeltaTable" in result.stderr
