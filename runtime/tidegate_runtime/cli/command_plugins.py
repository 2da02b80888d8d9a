"""The commands of the installed services, found by entry point."""

from importlib.metadata import EntryPoint, entry_points
from typing import Final

import typer

GROUP: Final = "tidegate.commands"


def command_entry_points() -> dict[str, EntryPoint]:
    """Return the entry point of each command by its name."""
    return {point.name: point for point in sorted(entry_points(group=GROUP))}


def loaded_app(point: EntryPoint) -> typer.Typer | str:
    """Return a command, or a sentence that names the library it lacks.

    An image has the libraries of one service only.
    """
    try:
        command = point.load()
    except ModuleNotFoundError as error:
        return f"not installed: it needs {error.name}"
    assert isinstance(command, typer.Typer), f"{point.value} is a Typer app"
    return command
