"""The command line: built-in verbs, and those of installed services."""

import importlib
import json
from importlib.metadata import EntryPoint
from itertools import pairwise
from pathlib import Path

import pytest
import typer
from typer.core import TyperGroup

from tests.support.object_stores import Overwriting
from tidegate_delta.errors import Misconfigured
from tidegate_local import up_down_commands as cli_local
from tidegate_runtime.cli import command as cli_found
from tidegate_runtime.cli import command as cli_service
from tidegate_runtime.cli import commands
from tidegate_runtime.cli import commands as cli_settings
from tidegate_runtime.cli import commands as cli_store
from tidegate_runtime.cli import main as cli
from tidegate_runtime.cli.command import overrides, service_app
from tidegate_runtime.cli.main import command_for
from tidegate_runtime.kafka.topic_admin import Difference
from tidegate_runtime.release import RELEASE
from tidegate_runtime.service.runner import EXIT_STOP, Running
from tidegate_runtime.service.settings import HttpSettings, Section, ServiceSettings


class Echo(Section):
    word: str = "silence"
    roots: tuple[str, ...] = ()


class EchoSettings(ServiceSettings):
    committer: Echo = Echo()
    http: HttpSettings = HttpSettings(port=None)


HEARD: list[str] = []


def serve(settings: EchoSettings, running: Running) -> None:
    """Record the configured word."""
    HEARD.append(settings.committer.word)


echo = service_app("echo", EchoSettings, serve)


LOCAL = {
    "up": "tidegate_local.up_down_commands:up_app",
    "down": "tidegate_local.up_down_commands:down_app",
}
"""The local verbs, which are always there."""


def installed(value: str) -> object:
    module, _, name = value.partition(":")
    return getattr(importlib.import_module(module), name)


@pytest.fixture(autouse=True)
def brought(monkeypatch: pytest.MonkeyPatch) -> None:
    HEARD.clear()
    points = {
        "echo": EntryPoint("echo", f"{__name__}:echo", cli_found.GROUP),
        "absent": EntryPoint("absent", "tidegate.no_such_service:app", cli_found.GROUP),
    }
    monkeypatch.setattr(EntryPoint, "load", lambda point: load(point.value))
    for name, app in LOCAL.items():
        points[name] = EntryPoint(name, app, cli_found.GROUP)
    for module in (cli, cli_settings):
        monkeypatch.setattr(module, "command_entry_points", lambda: points)


def several(*names: str) -> typer.Typer:
    """Return a command with a subcommand of each name."""
    app = typer.Typer()
    app.callback()(lambda: None)
    for name in names:
        app.command(name)(lambda: None)
    return app


def load(value: str) -> object:
    if value.startswith("several:"):
        return several(*value.removeprefix("several:").split(","))
    if value.endswith(":echo"):
        return echo
    if value in LOCAL.values():
        return installed(value)
    raise ModuleNotFoundError("No module", name="absent_library")


def call(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        command_for(arguments).main(list(arguments), prog_name="tidegate")
    return int(ended.value.code or 0)


def test_a_services_command_is_a_verb_and_what_is_not_installed_is_none(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert call("--help") == 0
    shown = capsys.readouterr().out
    assert "Record the configured word." in shown
    assert "absent" not in command_for([]).commands
    assert "absent: not installed: it needs absent_library" in " ".join(shown.split())


def test_a_command_that_is_not_installed_says_what_it_needs_whatever_it_is_given(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for more in ((), ("below", "--config", "x"), ("--json",)):
        assert call("absent", *more) == 2
        shown = capsys.readouterr().err
        assert "Misconfigured: `tidegate absent` is not installed: it needs absent_library" in shown


def with_table_commands(monkeypatch: pytest.MonkeyPatch, *apps: str) -> None:
    points = {
        name: EntryPoint(name, f"several:{app}", cli_found.GROUP)
        for name, app in zip(("table", "table.checkpoints"), apps, strict=True)
    }
    monkeypatch.setattr(cli, "command_entry_points", lambda: points)


def test_several_services_bring_subcommands_of_one_verb(monkeypatch: pytest.MonkeyPatch) -> None:
    with_table_commands(monkeypatch, "list,drop", "cleanup")
    table = command_for(["table", "cleanup"]).commands["table"]
    assert isinstance(table, TyperGroup)
    assert table.commands.keys() == {"list", "drop", "cleanup"}
    assert call("table", "cleanup") == call("table", "list") == 0


def test_a_subcommand_that_two_services_bring_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    with_table_commands(monkeypatch, "list", "list")
    with pytest.raises(AssertionError, match="two services bring `tidegate table list`"):
        command_for(["table"])


def test_a_service_runs_with_the_settings_of_the_command_line(tmp_path: Path) -> None:
    config = tmp_path / "settings.yaml"
    config.write_text("committer: {word: file}", encoding="utf-8")
    assert call("echo", "--config", str(config)) == 0
    assert call("echo", "--config", str(config), "--set", "committer.word=line") == 0
    assert HEARD == ["file", "line"]


def test_invalid_settings_end_a_service_before_it_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("echo", "--set", "committer.words=x") == 2
    assert "did you mean 'word'" in capsys.readouterr().err
    assert HEARD == []


def test_the_version_is_shown_without_importing_any_service(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(EntryPoint, "load", lambda point: pytest.fail(f"{point.name} is loaded"))
    assert call("--version") == 0
    tidegate, python, kafka = capsys.readouterr().out.splitlines()
    assert tidegate == f"tidegate {RELEASE}"
    assert python.startswith("python 3.")
    assert kafka == "embedded_kafka 4.1.1"


def test_a_services_settings_are_shown_without_starting_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = ("config", "echo", "--set", "committer.word=hello")
    assert call(*asked) == 0
    assert json.loads(capsys.readouterr().out)["committer"]["word"] == "hello"
    assert call(*asked, "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["valid"], result["settings"]["committer"]["word"]) == (True, "hello")
    assert HEARD == []


def test_settings_are_validated_with_every_problem(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("config", "echo") == 0
    capsys.readouterr()
    assert call("config", "--set", "kafka.partition=1", "--set", "log.level=X") == 2
    out, shown = capsys.readouterr()
    assert out == "", "wrong settings are not shown as effective ones"
    assert "kafka.partition" in shown
    assert "log.level" in shown
    assert call("config", "--set", "log.level=X", "--json") == 2
    result = json.loads(capsys.readouterr().out)
    assert result["valid"] is False
    assert [item.partition(" ")[0] for item in result["wrong"]] == ["log.level"]


def test_what_cannot_be_started_is_reported_before_anything_is(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli_local, "kind_of", lambda _: EchoSettings)
    assert call("up", "--folder", str(tmp_path), "--set", "committer.rots=1") == 2
    assert "did you mean 'roots'" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
    file = tmp_path / "file"
    file.touch()
    assert call("up", "--folder", str(file / "x"), "--port", "0") == 2
    assert f"{file / 'x'} cannot be made" in capsys.readouterr().err


def test_a_setting_of_another_form_is_listed_with_the_rest_and_its_value_is_not(
    capsys: pytest.CaptureFixture[str],
) -> None:
    pairs = ["--set", "kafka.security.password:hush", "--set", "log.level=X"]
    assert call("config", *pairs) == 2
    shown = capsys.readouterr().err
    assert "--set kafka.security.password: write section.key=value" in shown
    assert "log.level" in shown
    assert "hush" not in shown


def test_an_unknown_service_has_no_settings(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("config", "nobody") == 2
    result = capsys.readouterr().err
    assert "'nobody'" in result
    assert "echo" in result.partition("installed: ")[2]


def test_a_port_that_is_none_is_refused_in_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("up", "--port", "70000", "--folder", str(tmp_path)) == 2
    assert "--port" in capsys.readouterr().err


def test_help_breaks_its_lines_where_the_terminal_ends(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert call("store", "probe", "--help") == 0
    result = capsys.readouterr().out
    start = result.index("Two writers race")
    lines = result[start : result.index("╭")].strip().splitlines()
    assert lines
    for line, following in pairwise(lines):
        first = following.split()[0]
        assert len(line.strip()) + len(first) >= 76, f"{line!r} ends before {first!r}"


def test_a_local_store_passes_the_probe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("store", "probe", str(tmp_path), "--contests", "3", "--json") == 0
    assert json.loads(capsys.readouterr().out)["passed"] is True


def test_a_store_that_fails_the_probe_is_reported_with_what_it_did(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Overwriting("s3://bucket/t")
    monkeypatch.setattr(cli_store, "open_store", lambda uri, options: store)
    assert call("store", "probe", "s3://bucket/t", "--contests", "4") == EXIT_STOP
    said = capsys.readouterr().out
    assert "4 contests, 4 cut connections" in said
    assert "both were told that they won (4 times)" in said
    assert "no table may lie here" in said
    assert store.files == {}


def test_having_nothing_to_end_is_reported_and_no_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("down", "--folder", str(tmp_path)) == 0
    assert "nothing runs" in capsys.readouterr().out


def test_a_setting_without_a_value_is_named() -> None:
    assert overrides(["a.b=c=d", "x.y="]) == {"a.b": "c=d", "x.y": ""}
    with pytest.raises(Misconfigured, match="--set a"):
        overrides(["a"])


def test_the_settings_of_a_service_are_known_once_its_command_is_loaded() -> None:
    assert cli_service.KINDS["echo"] is EchoSettings


def test_topics_that_are_left_as_they_are_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    there = [Difference("tidegate.proposals", "partitions", "3", "1")]
    monkeypatch.setattr(commands, "create_topics", lambda *_: [])
    monkeypatch.setattr(commands, "differing_topics", lambda *_: there)
    assert call("topics", "apply", "--set", "kafka.partitions=3") == 0
    result = capsys.readouterr().out
    assert "nothing to create" in result
    assert "left as it is: tidegate.proposals has partitions 1, declared is 3" in result
    assert call("topics", "apply", "--json") == 0
    assert json.loads(capsys.readouterr().out)["differing"] == [vars(there[0])]


def test_schemas_are_listed_and_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("schemas") == 0
    assert "proposal/1" in capsys.readouterr().out.splitlines()
    for name in ("proposal", "proposal/1", "proposal-1"):
        assert call("schemas", name) == 0
        assert json.loads(capsys.readouterr().out)["$id"] == "urn:tidegate:proposal:1"
    assert call("schemas", "outcome", "--registry") == 0
    body = json.loads(capsys.readouterr().out)
    assert json.loads(body["schema"])["title"] == "Outcome"
    assert call("schemas", "nothing") != 0
    assert "there are change-signal/1, commit/1, follower/1" in capsys.readouterr().err
