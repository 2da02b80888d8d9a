"""`tidegate config`: show or check a service's settings without starting it."""

from typing import Annotated, Final

import typer

from tidegate_delta.errors import Misconfigured
from tidegate_runtime.cli.command_plugins import command_entry_points, loaded_app
from tidegate_runtime.cli.console import console
from tidegate_runtime.cli.service_command import (
    KINDS,
    Config,
    Json,
    Set,
    fail,
    loaded,
    requested_settings,
)
from tidegate_runtime.service.runner import EXIT_FIX
from tidegate_runtime.service.settings import ServiceSettings, redacted

_OUT: Final = console()

config = typer.Typer(no_args_is_help=True, help="The settings of a service.")
ServiceArgument = Annotated[
    str | None,
    typer.Argument(
        help="A service's name; without one, the settings that all share.", show_default=False
    ),
]


@config.command()
def show(service: ServiceArgument = None, config: Config = None, set_: Set = None) -> None:
    """Show the effective settings from file, environment and command line; secrets are hidden."""
    settings = loaded(kind_of(service), config, set_)
    _OUT.print_json(data=redacted(settings))


@config.command()
def validate(
    service: ServiceArgument = None,
    config: Config = None,
    set_: Set = None,
    as_json: Json = False,
) -> None:
    """Check the settings, and list everything that is wrong with them."""
    kind = kind_of(service)
    if not as_json:
        loaded(kind, config, set_)
        _OUT.print("the settings are valid")
        return
    try:
        requested_settings(kind, config, set_)
    except Misconfigured as error:
        _, *mistakes = str(error).split("\n  ")
        _OUT.print_json(data={"valid": False, "wrong": mistakes or [str(error)]})
        raise typer.Exit(EXIT_FIX) from error
    _OUT.print_json(data={"valid": True})


def kind_of(service: str | None) -> type[ServiceSettings]:
    """Return the settings class of a service, after loading its command, which registers it."""
    if service is None:
        return ServiceSettings
    commands = command_entry_points()
    for name in [service] if service in commands else commands:
        loaded_app(commands[name])
    if service not in KINDS:
        known = ", ".join(sorted(KINDS)) or "none (`tidegate version --verbose` says why)"
        fail(Misconfigured(f"no service {service!r} is installed here; installed: {known}"))
    return KINDS[service]
