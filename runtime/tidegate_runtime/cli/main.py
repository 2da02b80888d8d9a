"""The `tidegate` command: its own subcommands, and those of the installed services.

A service's command is found by its entry point in the group `tidegate.commands`; one whose
libraries are not installed is not shown (`tidegate version --verbose` names it).
"""

import inspect
import platform
import sys
from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from tidegate_runtime.cli import (
    config_commands,
    schema_commands,
    store_commands,
    topics_commands,
)
from tidegate_runtime.cli.command_plugins import command_entry_points, loaded_app
from tidegate_runtime.cli.console import console
from tidegate_runtime.cli.service_command import Json, fail_unforeseen
from tidegate_runtime.containment import contained
from tidegate_runtime.release import KAFKA_VERSION, RELEASE

_OUT: Final = console()

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Tidegate: many writers, one gate to a Delta table.",
)
app.command("schemas")(schema_commands.schemas)
app.add_typer(topics_commands.topics, name="topics")
app.add_typer(config_commands.config, name="config")
app.add_typer(store_commands.store, name="store")


@app.command("version")
def show_version(
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose",
            "-v",
            help="Also list which commands are installed, and why others are not.",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Show the version of Tidegate, of Python, and of the Kafka that it embeds."""
    versions: dict[str, Any] = {
        "tidegate": RELEASE,
        "python": platform.python_version(),
        "embedded_kafka": KAFKA_VERSION,
    }
    if verbose:
        for name, point in command_entry_points().items():
            command = loaded_app(point)
            versions[name] = command if isinstance(command, str) else "installed"
    if as_json:
        _OUT.print_json(data=versions)
        return
    for name, value in versions.items():
        _OUT.print(f"{name} {value}", soft_wrap=True)


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
    requested = next((part for part in arguments if not part.startswith("-")), None)
    for name, point in command_entry_points().items():
        group_name = name.partition(".")[0]
        if requested in (None, group_name):
            command = loaded_app(point)
            if not isinstance(command, str):
                _add(group, group_name, typer.main.get_command(command))
    _flow(group)
    return group


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
