"""Commands print unwrapped plain text when the output is no terminal."""

import io

import pytest
from rich.table import Table

from tidegate_runtime.cli.command import console


def printed(monkeypatch: pytest.MonkeyPatch, cell: str) -> str:
    """Return a table with one long cell as a pipe receives it."""
    pipe = io.StringIO()
    monkeypatch.setattr("sys.stdout", pipe)
    table = Table(box=None, pad_edge=False)
    table.add_column("path", overflow="fold")
    table.add_row(cell)
    console().print(table)
    return pipe.getvalue()


def test_a_row_is_a_line_off_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert f"\n{'x' * 500}" in printed(monkeypatch, "x" * 500)


def test_the_environment_sets_the_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    assert "x" * 41 not in printed(monkeypatch, "x" * 500)


def test_brackets_and_colons_are_no_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert "[red]p=1[/red] :fire:" in printed(monkeypatch, "[red]p=1[/red] :fire:")
