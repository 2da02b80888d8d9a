"""The commands that move a change stream, before anything is sent: what goes together."""

import pytest
from typer.testing import CliRunner

from tidegate_cdc_publisher.cli import change_commands


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("snapshot", "t", "--pause", "--stop"), "give one of them"),
        (("snapshot", "t", "--resume", "--incremental"), "give one of them"),
        (("snapshot", "t", "--stop", "--reason", "x"), "give one of them"),
        (("snapshot", "t", "--where", "id < 3"), "add --incremental"),
        (("reset", "t"), "give one of the two"),
        (("reset", "t", "--to", "3", "--anew"), "give one of the two"),
        (("reset", "t", "--anew", "--reason", "x"), "it goes with --to"),
        (("skip", "t"), "Missing option '--to'"),
    ],
)
def test_incompatible_options_are_refused_before_a_broker_is_contacted(
    arguments: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    ended = CliRunner().invoke(change_commands.app, arguments)
    assert ended.exit_code == 2
    assert said in ended.stderr
