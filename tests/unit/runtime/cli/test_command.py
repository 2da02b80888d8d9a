"""The frame of all commands: settings, JSON or text, errors as exit statuses."""

import io
import json
from collections.abc import Callable
from typing import Any

import pytest
import typer
from rich.table import Table
from typer.testing import CliRunner
from typer.testing import Result as Ended

from tidegate_delta.errors import InvalidRequest
from tidegate_runtime.cli.command import Config, Json, Result, Set, command, console
from tidegate_runtime.service.settings import ServiceSettings


def invoke(function: Callable[..., None], *arguments: str) -> Ended:
    app = typer.Typer()
    app.command()(function)
    return CliRunner().invoke(app, arguments)


@command()
def prefix(settings: ServiceSettings, times: int = 1) -> Result:
    """Show the prefix of topics."""
    name = settings.kafka.topic_prefix
    return Result({"prefix": name}, [f"{name}\x1b"] * times, exit_status=0 if times else 3)


def test_a_result_is_lines_or_json_and_an_exit_status() -> None:
    given = ("--set", "kafka.topic_prefix=a.", "--times", "2")
    assert invoke(prefix, *given).stdout == "a.\\x1b\na.\\x1b\n", "control characters are escaped"
    assert json.loads(invoke(prefix, *given, "--json").stdout) == {"prefix": "a."}
    for more in ((), ("--json",)):
        assert invoke(prefix, "--times", "0", *more).exit_code == 3


def test_data_that_is_a_function_is_made_for_json_alone() -> None:
    made: list[int] = []

    def data() -> dict[str, int]:
        made.append(1)
        return {"files": 1}

    @command(None)
    def large() -> Result:
        return Result(data, ["1 file"])

    assert invoke(large).stdout == "1 file\n"
    assert made == []
    assert json.loads(invoke(large, "--json").stdout) == {"files": 1}


def test_settings_come_before_the_work_and_all_their_mistakes_are_listed() -> None:
    ended = invoke(prefix, "--set", "kafka.topic_prefx=x", "--set", "log.level")
    assert ended.exit_code == 2
    assert "kafka.topic_prefx" in ended.stderr
    assert "--set log.level: write section.key=value" in ended.stderr
    assert ended.stdout == ""


def test_an_error_is_one_line_whether_it_comes_from_the_work_or_from_its_lines() -> None:
    def lines() -> Any:
        yield "one"
        raise InvalidRequest("no such table", error_class="TableNotRegistered")

    @command(None)
    def at_once() -> Result:
        raise InvalidRequest("no such table", error_class="TableNotRegistered")

    @command(None)
    def later() -> Result:
        return Result(None, lines())

    for function in (at_once, later):
        ended = invoke(function)
        assert ended.exit_code == 2
        assert ended.stderr == "TableNotRegistered: no such table\n"


def test_a_command_has_the_options_that_it_can_use_and_no_others() -> None:
    @command()
    def prints(settings: ServiceSettings) -> None:
        typer.echo(settings.kafka.topic_prefix)

    @command(None)
    def without_settings() -> Result:
        return Result({}, ())

    @command(None)
    def raw(config: Config = None, set_: Set = None, as_json: Json = False) -> None:
        typer.echo(f"{config} {set_} {as_json}")

    assert invoke(prints, "--set", "kafka.topic_prefix=p.").stdout == "p.\n"
    assert "No such option" in invoke(prints, "--json").stderr
    assert "No such option" in invoke(without_settings, "--set", "a.b=c").stderr
    assert invoke(without_settings, "--json").stdout == "{}\n"
    assert invoke(raw, "--set", "a.b=c", "--json").stdout == "None ['a.b=c'] True\n"


@pytest.mark.parametrize("as_json", [True, False])
def test_help_names_an_options_default_and_the_frames_options(as_json: bool) -> None:
    shown = invoke(prefix, "--help", *(["--json"] if as_json else [])).stdout
    assert all(name in shown for name in ("--times", "--config", "--set", "--json"))
    assert "Show the prefix of topics." in shown


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
