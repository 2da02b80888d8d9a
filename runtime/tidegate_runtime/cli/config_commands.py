"""`tidegate config`: a service's settings, or what is wrong with them, without starting it."""

from typing import Annotated

import typer

from tidegate_delta.errors import Misconfigured
from tidegate_runtime.cli.command import OUT, Config, Json, Result, Set, command, requested_settings
from tidegate_runtime.cli.command_plugins import command_entry_points, loaded_app
from tidegate_runtime.cli.service_command import KINDS
from tidegate_runtime.service.runner import EXIT_FIX
from tidegate_runtime.service.settings import ServiceSettings, redacted


@command(None)
def show_config(
    service: Annotated[
        str | None,
        typer.Argument(
            help="A service's name; without one, the settings that all share.", show_default=False
        ),
    ] = None,
    config: Config = None,
    set_: Set = None,
    as_json: Json = False,
) -> Result:
    """Show the effective settings of a service, or everything that is wrong with them.

    They come from file, environment and command line; secrets are hidden. Exit status 2: something
    is wrong.
    """
    kind = kind_of(service)
    try:
        settings = redacted(requested_settings(kind, config, set_))
    except Misconfigured as error:
        if not as_json:
            raise
        _, *mistakes = str(error).split("\n  ")
        return Result({"valid": False, "wrong": mistakes or [str(error)]}, (), EXIT_FIX)
    return Result({"valid": True, "settings": settings}, lambda: OUT.print_json(data=settings))


def kind_of(service: str | None) -> type[ServiceSettings]:
    """Return the settings class of a service, after loading its command, which registers it.

    Raises: Misconfigured, for a service that is not installed.
    """
    if service is None:
        return ServiceSettings
    commands = command_entry_points()
    for name in [service] if service in commands else commands:
        loaded_app(commands[name])
    if service not in KINDS:
        known = ", ".join(sorted(KINDS)) or "none (`tidegate --help` says why)"
        raise Misconfigured(f"no service {service!r} is installed here; installed: {known}")
    return KINDS[service]
