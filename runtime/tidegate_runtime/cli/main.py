"""The `tidegate` command: its own subcommands, and those of the installed services.

A service's command is found by its entry point in the group `tidegate.commands`; of one whose
libraries are not installed the help, and a call by its name, say what it needs.
"""

import inspect
import platform
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from tidegate_delta.errors import Misconfigured
from tidegate_runtime.cli import commands
from tidegate_runtime.cli.command import (
    OUT,
    command_entry_points,
    fail,
    fail_unforeseen,
    loaded_app,
)
from tidegate_runtime.containment import contained
from tidegate_runtime.release import KAFKA_VERSION, RELEASE

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("config")(commands.show_config)
app.command("schemas")(commands.schemas)
app.add_typer(commands.topics, name="topics")
app.add_typer(commands.store, name="store")


def _show_versions(requested: bool) -> None:
    if requested:
        OUT.print(f"tidegate {RELEASE}")
        OUT.print(f"python {platform.python_version()}")
        OUT.print(f"embedded_kafka {KAFKA_VERSION}")
        raise typer.Exit


@app.callback()
def _tidegate(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_show_versions,
            is_eager=True,
            help="Show the version of Tidegate, of Python, and of the Kafka that it embeds.",
        ),
    ] = False,
) -> None:
    """Tidegate: many writers, one gate to a Delta table."""


def main() -> None:
    """Run the command line. An unforeseen exception, too, ends it with one message."""
    arguments = sys.argv[1:]
    with contained(lambda error: fail_unforeseen(error, arguments)):
        command_for(arguments)(prog_name="tidegate")


def command_for(arguments: Sequence[str]) -> TyperGroup:
    """Return the command with the subcommands that these arguments may need.

    A service is imported only for its own command, and for the list of all commands. An entry
    point called `table.something` adds its subcommands to those of `table`.
    """
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup), "it has several verbs"
    if list(arguments) == ["--version"]:
        return group
    requested = next((part for part in arguments if not part.startswith("-")), None)
    missing = {}
    for name, point in command_entry_points().items():
        group_name = name.partition(".")[0]
        if requested in (None, group_name):
            command = loaded_app(point)
            if not isinstance(command, str):
                _add(group, group_name, typer.main.get_command(command))
                continue
            missing[name] = command
            if name == requested:
                group.add_command(_missing(name, command))
    if missing:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in missing.items())
        group.epilog = f"Further commands: {reasons}."
    _flow(group)
    return group


def _missing(name: str, reason: str) -> TyperCommand:
    """Return the command that says why it is not installed, whatever options it is given."""
    return TyperCommand(
        name,
        callback=lambda: fail(Misconfigured(f"`tidegate {name}` is {reason}")),
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    )


def _add(group: TyperGroup, name: str, command: Any) -> None:
    """Add a command under its name, or its subcommands if another service has added the name."""
    known = group.commands.get(name)
    if not (isinstance(known, TyperGroup) and isinstance(command, TyperGroup)):
        command.name = name
        group.add_command(command, name)
        return
    repeated = known.commands.keys() & command.commands.keys()
    assert not repeated, f"two services bring `tidegate {name} {min(repeated)}`"
    known.commands.update(command.commands)


def _flow(command: Any) -> None:
    """Join the lines of each paragraph of help, so that it is wrapped at the terminal's width."""
    paragraphs = inspect.cleandoc(command.help or "").split("\n\n")
    command.help = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
    for below in getattr(command, "commands", {}).values():
        _flow(below)
