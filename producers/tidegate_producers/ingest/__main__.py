"""`tidegate ingest`: run a job, or look after its dead letters."""

import re
import threading
from collections.abc import Sequence
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from tidegate_delta.errors import Misconfigured
from tidegate_producers.cli.table_place import location_of
from tidegate_producers.ingest.job import RouteRunner
from tidegate_producers.ingest.progress_report import Report
from tidegate_producers.ingest.settings import IngestSettings, Route
from tidegate_producers.ingest.spark_session import open_session
from tidegate_runtime.cli.command import (
    KINDS,
    Config,
    Set,
    errors_as_exit_status,
    leave_behind,
    overrides,
)
from tidegate_runtime.service.runner import Running, run
from tidegate_runtime.service.settings import load

NAME: Final = "ingest"
KINDS[NAME] = IngestSettings

_NOT_OPTIONS: Final = ("topics", "table")
_ROUTE: Final = re.compile(r"ingest\.routes\.[^.\s]+\.(\w+) \(command line\)")


class DefaultGroup(TyperGroup):
    """A group whose command `run` needs no name: `tidegate ingest TOPIC TABLE`."""

    default_command = "run"

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put `run` before arguments that name no command."""
        first = next((arg for arg in args if not arg.startswith("-")), None)
        if args and args[0] != "--help" and first not in self.commands:
            args = [self.default_command, *args]
        return super().parse_args(ctx, args)


app = typer.Typer(cls=DefaultGroup, no_args_is_help=True, add_completion=False)


@app.callback()
def _ingest() -> None:
    """Copy Kafka topics into Delta tables, each record exactly once."""


def route_options() -> Sequence[Parameter]:
    """Return the options of the command line that give a route: one for each of its settings."""
    options = []
    for name, field in Route.model_fields.items():
        if name in _NOT_OPTIONS:
            continue
        text = " ".join((field.description or name).split())
        option = typer.Option(f"--{name.replace('_', '-')}", help=text, metavar="TEXT")
        annotation = Annotated[str | None, option]
        options.append(Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=annotation))
    return options


def settings_of(
    config: Path | None,
    pairs: Sequence[str],
    arguments: tuple[str | None, str | None],
    options: dict[str, str],
) -> IngestSettings:
    """Return the settings of a job, with the route that the command line gives, if it gives one.

    Raises: Misconfigured, listing all mistakes, those of options under the options' names.
    """
    topics, table = arguments
    given = overrides(pairs)
    if table is None and "topic_pattern" in options:
        topics, table = None, topics
    if options or topics is not None:
        if table is None:
            raise Misconfigured(
                "give TOPICS and TABLE, such as `tidegate ingest orders s3://lake/orders`, or "
                "--config and a file with routes and without options of one"
            )
        name = re.sub(r"\W", "_", table.rstrip("/").rpartition("/")[2]) or "table"
        route = {"table": table, **options, **({} if topics is None else {"topics": topics})}
        given |= {f"ingest.routes.{name}.{key}": value for key, value in route.items()}
    try:
        settings = load(IngestSettings, config, given)
    except Misconfigured as error:
        text = _ROUTE.sub(lambda match: f"--{match[1].replace('_', '-')}", str(error))
        raise Misconfigured(text) from error
    if not settings.ingest.routes:
        raise Misconfigured(
            "there is no route: give TOPICS and TABLE, such as `tidegate ingest orders "
            "s3://lake/orders`, or --config and a file with ingest.routes"
        )
    return settings


def _run(**given: Any) -> None:
    """Copy topics into a table, or with --config all its routes, until it is stopped.

    TOPICS are names between commas. Where the table is absent it is made, with the columns of
    --value-schema or of a sample. What is in the table decides where copying goes on: there is no
    checkpoint to keep.
    """
    fixed = ("config", "set_", "topics", "table", "once", "registry")
    options = {
        name: value for name, value in given.items() if name not in fixed and value is not None
    }
    pairs = list(given["set_"] or ())
    if given["registry"] is not None:
        pairs.append(f"ingest.registry.url={given['registry']}")
    with errors_as_exit_status():
        arguments = (given["topics"], given["table"])
        settings = settings_of(given["config"], pairs, arguments, options)
        places = {
            name: location_of(route.table, settings)
            for name, route in settings.ingest.routes.items()
        }
    before = frozenset(threading.enumerate())

    def serve(running: Running) -> None:
        spark = open_session(settings.ingest.spark)
        report = Report(running.clock)
        RouteRunner(spark, settings, places, once=given["once"]).run(running, report)

    status = run(serve, NAME, settings)
    leave_behind(before, status)
    raise typer.Exit(status)


def _signature() -> Signature:
    """Return the signature of the command `run`: what is fixed, and the options of a route."""
    topics = typer.Argument(help="Names of topics, between commas.", metavar="TOPICS")
    table = typer.Argument(help="The table's root, a path or URI, or its registered name.")
    once = typer.Option("--once", help="End when all is copied that the topics have now.")
    registry = typer.Option("--registry", help="The address of the schema registry.", metavar="URL")
    kind = Parameter.KEYWORD_ONLY
    fixed = {
        "topics": (Annotated[str | None, topics], None),
        "table": (Annotated[str | None, table], None),
        "once": (Annotated[bool, once], False),
        "registry": (Annotated[str | None, registry], None),
        "config": (Config, None),
        "set_": (Set, None),
    }
    parameters = [
        Parameter(name, kind, default=default, annotation=annotation)
        for name, (annotation, default) in fixed.items()
    ]
    return Signature([*parameters, *route_options()])


def _described() -> None:
    """Give the command `run` its signature, and add it to the group."""
    signature = _signature()
    vars(_run)["__signature__"] = signature
    _run.__annotations__ = {each.name: each.annotation for each in signature.parameters.values()}
    app.command("run")(_run)


_described()

if __name__ == "__main__":
    app()
