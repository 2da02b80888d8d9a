"""`tidegate table rows` and `tidegate table changes`, over a table on disk."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests.unit.cdc_publisher.written_table import WrittenTable, rows
from tidegate.producers import cli


@pytest.fixture
def table(tmp_path: Path) -> WrittenTable:
    """Version 0 has no rows; 1 and 2 bring some, 3 takes them away; a version a second."""
    table = WrittenTable(tmp_path / "t").create()
    table.set_metadata(**{"delta.enableChangeDataFeed": "true"})
    table.append(rows(1, 2))
    table.append(rows(3))
    table.drop(next(iter(table.files)))
    for version in range(table.version + 1):
        path = tmp_path / "t" / "_delta_log" / f"{version:020d}.json"
        os.utime(path, (1_700_000_000 + version,) * 2)
    return table


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli.app, [str(one) for one in arguments])


def told(*arguments: object) -> Any:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def ids(*arguments: object) -> list[int]:
    return sorted(row["id"] for row in told("rows", *arguments))


def test_rows_are_those_of_the_table_as_it_is_and_as_it_was(table: WrittenTable) -> None:
    assert ids(table.root) == [3]
    assert ids(table.root, "--at", 2) == [1, 2]
    assert ids(table.root, "--at", "2023-11-14 22:13:23") == [1, 2, 3]
    assert told("rows", table.root, "--at", 3, "--columns", "name", "--limit", 1) == [
        {"name": "n3"}
    ]
    assert "n3" in run("rows", table.root).stdout


def test_changes_are_told_between_versions_and_between_times(table: WrittenTable) -> None:
    kinds = [row["_change_type"] for row in told("changes", table.root, "--from", 2)]
    assert sorted(kinds) == ["delete", "delete", "insert", "insert", "insert"]
    by_version = told("changes", table.root, "--from", 3, "--to", 3)
    spans = ("--from", "2023-11-14 22:13:23", "--to", "2023-11-14 22:13:23")
    assert told("changes", table.root, *spans) == by_version
    assert by_version[0]["_commit_timestamp"].startswith("2023-11-14 22:13:23")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("rows", "--at", "yesterday"), "--at"),
        (("rows", "--at", "99"), "VersionNotFound"),
        (("rows", "--columns", "price,nothing"), "nothing"),
        (("rows", "--columns", "_metadata.row_id"), "row tracking"),
        (("changes", "--from", "1", "--to", "2023-11-14 22:13:23"), "of one kind"),
        (("changes", "--from", "0"), "CdfNotEnabled"),
    ],
)
def test_what_can_not_be_told_is_said(
    table: WrittenTable, arguments: tuple[str, ...], said: str
) -> None:
    verb, *options = arguments
    result = run(verb, table.root, *options)
    assert result.exit_code != 0
    assert said in result.output


@pytest.mark.parametrize("verb", ["rows", "history", "describe"])
def test_a_name_where_a_root_is_asked_for_is_told_from_a_path(verb: str) -> None:
    result = run(verb, "readings")
    assert result.exit_code == 2
    assert "tidegate table list" in result.output
    assert "tidegate table list" not in run(verb, "./readings").output
