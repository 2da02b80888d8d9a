"""The commands of every installation: `config`, `schemas`, `store` and `topics`."""

from collections.abc import Mapping
from typing import Annotated, Final

import typer
from rich.progress import Progress
from rich.table import Table

from tidegate_delta.errors import InvalidRequest, Misconfigured
from tidegate_messages.codec import FORMATS
from tidegate_messages.json_schemas import registry_body, shipped_schema
from tidegate_messages.message import Message
from tidegate_runtime.cli.command import (
    KINDS,
    OUT,
    Config,
    Json,
    Result,
    Set,
    command,
    command_entry_points,
    console,
    loaded_app,
    requested_settings,
)
from tidegate_runtime.kafka.topic_admin import create_topics, differing_topics, missing_topics
from tidegate_runtime.service.runner import EXIT_FIX, EXIT_OK, EXIT_STOP
from tidegate_runtime.service.settings import ServiceSettings, redacted
from tidegate_runtime.storage.open_store import open_store
from tidegate_runtime.storage.put_if_absent_probe import CONTESTS, ProbeReport
from tidegate_runtime.storage.put_if_absent_probe import probe as probe_store


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


_KINDS: Final[Mapping[str, type[Message]]] = {format_: kind for kind, format_ in FORMATS.items()}


@command(None)
def schemas(
    name: Annotated[
        str | None,
        typer.Argument(
            help="A message, such as `proposal`, or its format; without one, list them.",
            show_default=False,
        ),
    ] = None,
    registry: Annotated[
        bool,
        typer.Option("--registry", help="Print the body that registers it in a schema registry."),
    ] = False,
) -> None:
    """Print the JSON Schema of a message on Kafka, or the formats of all messages."""
    if name is None:
        typer.echo("\n".join(sorted(_KINDS)))
        return
    kind = _kind_of(name)
    content = registry_body(kind) if registry else shipped_schema(kind)
    typer.echo(content.decode(), nl=registry)


def _kind_of(name: str) -> type[Message]:
    """Return the message of a format. Raises: InvalidRequest."""
    for format_, kind in _KINDS.items():
        if name in (format_, format_.partition("/")[0], format_.replace("/", "-")):
            return kind
    raise InvalidRequest(f"no message {name!r} is known; there are {', '.join(sorted(_KINDS))}")


_HOLDS: Final = "put-if-absent holds: tables may lie here"
_DOES_NOT_HOLD: Final = (
    "put-if-absent does not hold, or could not be shown to hold: two writers might both believe "
    "that a version is theirs, so no table may lie here; take another store, or read ADR 10"
)
_LEFT: Final = "scratch files that could not be removed, under _tidegate/probe-…: {}"

store = typer.Typer(no_args_is_help=True, help="Object stores and file systems.")


@store.callback()
def _store() -> None:
    """Object stores and file systems."""


@store.command()
@command()
def probe(
    settings: ServiceSettings,
    uri: Annotated[str, typer.Argument(help="A folder in the store, for scratch files.")],
    contests: Annotated[
        int, typer.Option(help="How many names two writers race for.", min=1)
    ] = CONTESTS,
) -> Result:
    """Test whether put-if-absent has exactly one winner in a store; exit status 3 if it has not.

    Two writers race for each name, connections are cut during a PUT, and the store's answers are
    compared with what it then holds. Scratch files lie under `_tidegate/` and are removed. Give
    the store's options as settings: `--set storage.endpoint_url=…`.
    """
    with Progress(console=console(stderr=True), transient=True) as progress:
        bar = progress.add_task("contests", total=contests)
        report = probe_store(
            open_store(uri, settings.storage),
            contests,
            lambda number: progress.update(bar, completed=number),
        )
    data = {**vars(report), "passed": report.passed}
    return Result(data, lambda: _print(report), EXIT_OK if report.passed else EXIT_STOP)


def _print(report: ProbeReport) -> None:
    results = f"{report.won} won, {report.lost} lost, {report.unknown} unknown"
    attempts = f"{report.contests} contests, {report.cuts} cut connections"
    OUT.print(f"{report.root}: {attempts}: {results}", soft_wrap=True)
    for failure in report.failures:
        OUT.print(failure, style="red", markup=False, soft_wrap=True)
    if report.left:
        OUT.print(_LEFT.format(report.left), soft_wrap=True)
    OUT.print(_HOLDS if report.passed else _DOES_NOT_HOLD, soft_wrap=True)


topics = typer.Typer(no_args_is_help=True, help="The topics that the services need.")


@topics.command()
@command()
def plan(settings: ServiceSettings) -> Result:
    """Show the topics that `apply` would create, and those that differ; change nothing."""
    declared = settings.kafka.topics.declared()
    missing = missing_topics(settings.kafka, declared)
    differing = differing_topics(settings.kafka, declared)
    table = Table(box=None, pad_edge=False)
    for title in ("topic", "what", "declared", "found"):
        table.add_column(title, overflow="fold")
    for topic in declared:
        if topic.name in missing:
            table.add_row(topic.name, "create", f"{topic.partitions} partitions", "-")
    for difference in differing:
        table.add_row(difference.topic, difference.setting, difference.declared, difference.found)
    shown = table if missing or differing else f"all {len(declared)} topics are as declared"
    data = {"create": missing, "differing": [vars(difference) for difference in differing]}
    return Result(data, lambda: OUT.print(shown))


@topics.command()
@command()
def apply(settings: ServiceSettings) -> Result:
    """Create the missing topics; existing ones are left as they are."""
    declared = settings.kafka.topics.declared()
    created = create_topics(settings.kafka, declared)
    differing = differing_topics(settings.kafka, declared)
    lines = [f"created {name}" for name in created] or ["nothing to create"]
    lines += [
        f"left as it is: {difference.topic} has {difference.setting} {difference.found}, "
        f"declared is {difference.declared}"
        for difference in differing
    ]
    data = {"created": created, "differing": [vars(difference) for difference in differing]}
    return Result(data, lines)
