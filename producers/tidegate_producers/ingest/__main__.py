"""`tidegate ingest`: run a job, or look after its dead letters."""

import re
import threading
from collections.abc import Callable, Sequence
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from pyspark.sql import SparkSession

from tidegate_delta.errors import Misconfigured, Unavailable
from tidegate_producers.cli.table_place import location_of
from tidegate_producers.ingest import commands
from tidegate_producers.ingest.job import RouteRunner
from tidegate_producers.ingest.positions import SourcePartition
from tidegate_producers.ingest.preview import show_preview
from tidegate_producers.ingest.progress_report import Report
from tidegate_producers.ingest.replay import replayed
from tidegate_producers.ingest.settings import IngestSettings, Route
from tidegate_producers.ingest.spark_errors import errors_of_spark
from tidegate_producers.ingest.spark_session import open_session
from tidegate_producers.ingest.topic_source import TopicSource
from tidegate_producers.options import TableLocation
from tidegate_runtime.cli.command import (
    KINDS,
    OUT,
    Config,
    DefaultGroup,
    Set,
    errors_as_exit_status,
    leave_behind,
    overrides,
)
from tidegate_runtime.kafka.cluster_state import login_error
from tidegate_runtime.kafka.confluent_bus import KafkaBus
from tidegate_runtime.service.runner import Running, run
from tidegate_runtime.service.settings import load

NAME: Final = "ingest"
KINDS[NAME] = IngestSettings

_FIXED: Final = ("config", "set_", "topics", "table", "once", "dry_run")
_NOT_OPTIONS: Final = ("topics", "table")
_ROUTE: Final = re.compile(r"ingest\.routes\.[^.\s]+\.(\w+) \(command line\)")


app = typer.Typer(cls=DefaultGroup, no_args_is_help=True, add_completion=False)


app.command("status")(commands.show_status)
app.command("dead-letters")(commands.show_dead_letters)


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
    with errors_as_exit_status():
        settings, places = _asked(given)
        if given["dry_run"]:
            spark = _session(settings)
            for preview in RouteRunner(spark, settings, places, once=True).previews():
                show_preview(preview)
            return
    before = frozenset(threading.enumerate())

    def serve(running: Running) -> None:
        spark = _session(settings)
        report = Report(running.clock)
        RouteRunner(spark, settings, places, once=given["once"]).run(running, report)

    status = run(serve, NAME, settings)
    leave_behind(before, status)
    raise typer.Exit(status)


def _replay(**given: Any) -> None:
    """Read the dead letters of a table again, once, after its schema or the options were corrected.

    The options are those with which the topic is copied. What is no row this time either stays a
    dead letter, as its next attempt.
    """
    with errors_as_exit_status():
        settings, places = _asked(given)
        dead = settings.kafka.topics.ingest_dead_letters
        bus = KafkaBus(settings.kafka, NAME)
        letters_in = SourcePartition(dead, bus.identity([dead]).topic_ids[dead], 0)
        spark = _session(settings)
        routes = RouteRunner(spark, settings, places, once=True)
        reader = bus.reader()
        for run in routes.runs:
            with errors_of_spark(run.name, run.place.root):
                done = replayed(spark, routes.dependencies(run), reader, letters_in)
            OUT.print(
                f"{run.name}: {done.records} dead letters were read again: {done.rows} are rows "
                f"now, {done.dead_letters} are dead letters still",
                soft_wrap=True,
            )
        reader.close()


def _session(settings: IngestSettings) -> SparkSession:
    avro = any(route.format == "avro" for route in settings.ingest.routes.values())
    return open_session(settings.ingest.spark, avro=avro)


def _asked(given: dict[str, Any]) -> tuple[IngestSettings, dict[str, TableLocation]]:
    """Return the settings that a command line asks for, and where their tables lie."""
    options = {
        name: value for name, value in given.items() if name not in _FIXED and value is not None
    }
    pairs = list(given["set_"] or ())
    arguments = (given["topics"], given["table"])
    settings = settings_of(given["config"], pairs, arguments, options)
    routes = settings.ingest.routes
    for route in routes.values():
        # What is missing is better said before Spark starts.
        source = TopicSource(settings.kafka, route)
        try:
            source.topics()
        except Unavailable as error:
            raise login_error(settings.kafka) or error from error
        finally:
            source.close()
    return settings, {name: location_of(each.table, settings) for name, each in routes.items()}


def _signature(*, once: bool) -> Signature:
    """Return the signature of a command: what is fixed, and the options of a route."""
    topics = typer.Argument(help="Names of topics, between commas.", metavar="TOPICS")
    table = typer.Argument(help="The table's root, a path or URI, or its registered name.")
    ends = typer.Option("--once", help="End when all is copied that the topics have now.")
    shows = typer.Option("--dry-run", help="Show columns, begin and ten rows; write nothing.")
    kind = Parameter.KEYWORD_ONLY
    fixed = {
        "topics": (Annotated[str | None, topics], None),
        "table": (Annotated[str | None, table], None),
        **(
            {
                "once": (Annotated[bool, ends], False),
                "dry_run": (Annotated[bool, shows], False),
            }
            if once
            else {}
        ),
        "config": (Config, None),
        "set_": (Set, None),
    }
    parameters = [
        Parameter(name, kind, default=default, annotation=annotation)
        for name, (annotation, default) in fixed.items()
    ]
    return Signature([*parameters, *route_options()])


def _described(name: str, work: Callable[..., None], *, once: bool) -> None:
    """Give a command its signature, and add it to the group."""
    signature = _signature(once=once)
    vars(work)["__signature__"] = signature
    work.__annotations__ = {each.name: each.annotation for each in signature.parameters.values()}
    app.command(name)(work)


_described("run", _run, once=True)
_described("replay", _replay, once=False)

if __name__ == "__main__":
    app()
