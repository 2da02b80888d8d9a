"""Each command in a document exists, with the options that it names."""

import re
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.metadata import EntryPoint
from typing import Any
from unittest.mock import patch

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from bench.__main__ import app as bench
from tests.house import tree
from tidegate_runtime.cli import main
from tidegate_runtime.cli.command import GROUP
from tidegate_runtime.cli.main import command_for

DOCUMENTS = sorted(name for name in tree.files() if name.endswith(".md"))
IN_PROSE = re.compile(r"`(tidegate [^`]+)`")
IN_BLOCKS = re.compile(r"^ *(?:\.venv/bin/|kubectl .+ -- )?(tidegate [^#\n]+)", re.MULTILINE)
BLOCKS = re.compile(r"^```\w*\n(.*?)^```", re.MULTILINE | re.DOTALL)
ELLIPSIS = "\N{HORIZONTAL ELLIPSIS}"


def lines(text: str) -> Iterator[str]:
    """Yield each command line in a document: in backticks, or in a code block."""
    blocks = BLOCKS.findall(text)
    yield from IN_PROSE.findall(BLOCKS.sub("", text))
    for block in blocks:
        yield from IN_BLOCKS.findall(block)


@cache
def whole() -> TyperGroup:
    """Return the command with the subcommands that pyproject.toml declares.

    What is installed may be of an older checkout.
    """
    project = tomllib.loads(tree.text("pyproject.toml"))["project"]
    declared = project["entry-points"][GROUP]
    points = {name: EntryPoint(name, at, GROUP) for name, at in sorted(declared.items())}
    with patch.object(main, "command_entry_points", lambda: points):
        return command_for([])


def problem_of(line: str) -> str | None:
    """Return what is wrong with a line, or None."""
    command: Any = whole()
    words = line.replace("[", " ").replace("]", " ").split()[1:]
    while words and isinstance(command, TyperGroup) and not words[0].startswith("-"):
        if words[0] == ELLIPSIS:
            return None
        if words[0] not in command.commands and (default := _default(command)) is not None:
            command = default
            break
        result = command.commands.get(words.pop(0))
        if result is None:
            return f"{line}: no such command"
        command = result
    command = _default(command) or command
    if isinstance(command, TyperGroup) and not words:
        return f"{line}: which command of the group?"
    known = {
        "--help",
        *(name for param in command.params for name in (*param.opts, *param.secondary_opts)),
    }
    unknown = [
        word for word in words if word.startswith("-") and word.partition("=")[0] not in known
    ]
    return f"{line}: no option {unknown[0]}" if unknown else None


def _default(command: Any) -> Any:
    """Return the command that a group runs when none is named, or None."""
    name = getattr(command, "default_command", None)
    return None if name is None else command.commands[name]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_command_in_a_document_is_there_with_its_options(name: str) -> None:
    assert [result for line in lines(tree.text(name)) if (result := problem_of(line))] == []


def test_the_commands_that_the_charts_notes_name_exist() -> None:
    result = IN_BLOCKS.findall(tree.text("deploy/helm/tidegate/templates/NOTES.txt"))
    assert result
    assert [mistake for line in result if (mistake := problem_of(line))] == []


def test_the_parts_of_the_bench_that_documents_name_are_there() -> None:
    known = set(re.findall(r"\w+", str(_bench_options()["--only"].help)))
    named = {
        part
        for name in DOCUMENTS
        for line in re.findall(r"-m bench ([^`\n]*)", tree.text(name))
        for part in re.findall(r"--only (\w+)", line)
    }
    assert {"slow", "cpu", "open"} <= named <= known
    options = {
        option
        for name in DOCUMENTS
        for line in re.findall(r"-m bench ([^`#\n]*)", tree.text(name))
        for option in re.findall(r"--\w+", line)
    }
    assert options <= _bench_options().keys()


def _bench_options() -> dict[str, Any]:
    command: Any = get_command(bench)
    return {option: param for param in command.params for option in param.opts}


def test_documents_name_the_commands_that_people_need() -> None:
    named = {line for name in DOCUMENTS for line in lines(tree.text(name))}
    assert {"tidegate table list", "tidegate topics apply"} <= named


@pytest.mark.parametrize(
    "line",
    [
        "tidegate tables list",
        "tidegate table",
        "tidegate --json",
        "tidegate table rows ROOT --until 3",
    ],
)
def test_a_command_that_is_not_there_is_found(line: str) -> None:
    assert list(lines(f"run `{line}` now")) == [line]
    assert list(lines(f"```\n{line}  # now\n```\n")) == [f"{line}  "]
    assert problem_of(line) is not None
