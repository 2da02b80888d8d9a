"""`tidegate table rows` and `tidegate table changes`, over a table on disk."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests.unit.cdc_publisher.written_table import WrittenTable, rows
from tidegate_producers.cli import table_commands


@pytest.fixture
def table(tmp_path: Path) -> WrittenTable:
    """Version 0 has no rows, 1 and 2 add some, 3 removes some; the versions are a second apart."""
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
    return CliRunner().invoke(table_commands.app, [str(argument) for argument in arguments])


def as_json(*arguments: object) -> Any:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def ids(*arguments: object) -> list[int]:
    return sorted(row["id"] for row in as_json("rows", *arguments))


def test_rows_are_those_of_the_table_as_it_is_and_as_it_was(table: WrittenTable) -> None:
    assert ids(table.root) == [3]
    assert ids(table.root, "--at", 2) == [1, 2]
    assert ids(table.root, "--at", "2023-11-14 22:13:23") == [1, 2, 3]
    assert as_json("rows", table.root, "--at", 3, "--columns", "name", "--limit", 1) == [
        {"name": "n3"}
    ]
    assert "n3" in run("rows", table.root).stdout


def test_changes_are_read_between_versions_and_between_times(table: WrittenTable) -> None:
    kinds = [row["_change_type"] for row in as_json("changes", table.root, "--from", 2)]
    assert sorted(kinds) == ["delete", "delete", "insert", "insert", "insert"]
    by_version = as_json("changes", table.root, "--from", 3, "--to", 3)
    spans = ("--from", "2023-11-14 22:13:23", "--to", "2023-11-14 22:13:23")
    assert as_json("changes", table.root, *spans) == by_version
    assert by_version[0]["_commit_timestamp"].startswith("2023-11-14 22:13:23")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("rows", "--at", "yesterday"), "--at"),
        (("rows", "--at", "99"), "VersionNotFound"),
        (("rows", "--columns", "price,nothing"), "nothing"),
        (("rows", "--columns", "_metadata.row_id"), "row tracking"),
        (("changes", "--from", "1", "--to", "2023-11-14 22:13:23"), "of one kind"),
        (("changes", "--from", "0"), "CdfNotEnabled"),
        (("rows", "--at", "2001-01-01"), "as old as 2001-01-01 00:00:00.000 UTC"),
        (("rows", "--at", "2101-01-01"), "before the 2101-01-01 00:00:00.000 UTC asked for"),
        (("changes", "--from", "2101-01-01"), "of 2101-01-01 00:00:00.000 UTC or later"),
    ],
)
def test_what_cannot_be_deleted_or_updated_is_an_error(
    table: WrittenTable, arguments: tuple[str, ...], message: str
) -> None:
    verb, *options = arguments
    result = run(verb, table.root, *options)
    assert result.exit_code != 0
    assert message in result.output


@pytest.mark.parametrize("arguments", [("rows",), ("changes", "--from", "1"), ("history",)])
def test_every_verb_that_reads_a_table_takes_a_file_of_settings(
    table: WrittenTable, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    verb, *options = arguments
    config = tmp_path / "settings.yaml"
    config.write_text("storage: {region: eu-central-1}\n", encoding="utf-8")
    assert run(verb, table.root, *options, "--config", config).exit_code == 0
    config.write_text("storge: {}\n", encoding="utf-8")
    refused = run(verb, table.root, *options, "--config", config)
    assert refused.exit_code == 2
    assert "did you mean 'storage'" in refused.output


def test_a_time_that_a_foreign_writer_gave_in_microseconds_hides_no_history(
    table: WrittenTable,
) -> None:
    log = Path(table.root.removeprefix("file://")) / "_delta_log"
    entry = {"commitInfo": {"timestamp": 1_700_000_000_000_000, "operation": "WRITE"}}
    (log / f"{table.version + 1:020d}.json").write_text(json.dumps(entry), encoding="utf-8")
    shown = run("history", table.root)
    assert shown.exit_code == 0, shown.output
    assert "1700000000000000 ms after 1970" in shown.stdout
