"""`tidegate maintain`: run the maintainer, show what it would do, pause and resume tables."""

import threading
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Annotated, Any, Final
from uuid import UUID

import typer

from tidegate_delta.errors import Misconfigured
from tidegate_messages.published_records import REASON_MAX, MaintenanceChore, MaintenanceRecord
from tidegate_producers.cli.table_place import TableArgument, bus_of, client_of
from tidegate_producers.maintenance.machine import Chore, Plan
from tidegate_producers.maintenance.maintenance_topic import publish_maintenance, resume
from tidegate_producers.maintenance.service import NAME, Maintainer
from tidegate_producers.maintenance.settings import MaintainSettings
from tidegate_producers.writing.optimize import CompactionRunner
from tidegate_runtime.cli.command import KINDS, DefaultGroup, Result, command, leave_behind
from tidegate_runtime.clock import SystemClock, instant
from tidegate_runtime.kafka.confluent_bus import KafkaBus
from tidegate_runtime.service.health import Health
from tidegate_runtime.service.runner import Running, run

KINDS[NAME] = MaintainSettings
_SHOWN_MAX: Final = 50
"""Tasks shown; --json lists all."""

app = typer.Typer(cls=DefaultGroup, add_completion=False, pretty_exceptions_enable=False)


@app.callback()
def _maintain() -> None:
    """Keep tables healthy by proposals alone: pack, purge, compute statistics, vacuum, check."""


@app.command("run")
@command(MaintainSettings)
def run_maintainer(
    settings: MaintainSettings,
    once: Annotated[bool, typer.Option("--once", help="End when nothing is due.")] = False,
) -> None:
    """Pack small files, purge deleted rows, compute statistics, vacuum, and check a sample."""
    before = frozenset(threading.enumerate())
    spark = _spark(settings.maintain.spark)

    def serve(running: Running) -> None:
        Maintainer(settings, KafkaBus(settings.kafka, NAME), running, spark).run(once=once)

    status = run(serve, NAME, settings)
    leave_behind(before, status)
    raise typer.Exit(status)


@app.command("plan")
@command(MaintainSettings)
def show_plan(
    settings: MaintainSettings,
    table: Annotated[
        str | None,
        typer.Argument(metavar="TABLE", help="A registered table; all without it."),
    ] = None,
) -> Result:
    """Show what would be done, in its order, and why; or why nothing is due. Changes nothing."""
    with client_of(settings) as client:
        only = None if table is None else client.require(table).table
        records = client.tables()
    clock = SystemClock()
    maintainer = Maintainer(settings, bus_of(settings), Running(clock, Health(clock)))
    planned = maintainer.planned(only)
    names = {id: record.name for id, record in records.items()}
    if only is not None and not planned.tasks and only not in planned.reasons:
        planned = Plan(reasons={only: "the settings leave it out, or it is not served"})
    return Result(
        lambda: _plan_data(planned, names, maintainer),
        [*_lines(planned, names, maintainer.last), *_damage(names, maintainer)],
    )


@app.command("pause")
@command(MaintainSettings)
def pause_table(
    settings: MaintainSettings,
    table: TableArgument,
    reason: Annotated[str | None, typer.Option(help="Why, for whoever finds it paused.")] = None,
) -> Result:
    """Leave a table alone until it is resumed; a task that is under way is finished."""
    with client_of(settings) as client:
        record = client.require(table)
        at_ms = client.clock.now_ms()
    pause = MaintenanceRecord(
        table=record.table,
        name=record.name,
        about="pause",
        at_ms=at_ms,
        reason=reason[:REASON_MAX] if reason else None,
    )
    publish_maintenance(bus_of(settings), settings.kafka.topics, pause)
    return Result({"table": str(record.table), "paused": True}, [f"{record.name} is paused"])


@app.command("resume")
@command(MaintainSettings)
def resume_table(settings: MaintainSettings, table: TableArgument) -> Result:
    """Maintain a table again that was paused."""
    with client_of(settings) as client:
        record = client.require(table)
    resume(bus_of(settings), settings.kafka.topics, record.table)
    return Result({"table": str(record.table), "paused": False}, [f"{record.name} is maintained"])


def _spark(given: Mapping[str, str]) -> CompactionRunner | None:
    """Return what writes large files anew, if settings of Spark are given.

    Raises: Misconfigured, without PySpark.
    """
    if not given:
        return None
    try:
        builder = import_module("tidegate_producers.table.optimize_builder")
    except ImportError as error:
        raise Misconfigured(
            "maintain.spark needs the extra `producers`: pip install 'tidegate[producers]' "
            f"({error})"
        ) from error
    runner: CompactionRunner = builder.on_session(given)
    return runner


def _lines(
    planned: Plan, names: Mapping[UUID, str], last: Mapping[UUID, MaintenanceChore]
) -> Iterator[str]:
    for number, task in enumerate(planned.tasks[:_SHOWN_MAX]):
        waits = "" if number < planned.affordable else "; waits for the budget"
        places = f" ({', '.join(task.partitions[:3])})" if task.partitions else ""
        yield f"{task.name}: {task.kind}{places}, {task.points:+.2f} points: {task.why}{waits}"
    if len(planned.tasks) > _SHOWN_MAX:
        yield f"and {len(planned.tasks) - _SHOWN_MAX} more"
    for table, reason in planned.reasons.items():
        yield f"{names.get(table, table)}: nothing: {reason}"
    for table, chore in last.items():
        at = "" if chore.at_ms is None else f", {instant(chore.at_ms)} UTC"
        yield f"{names.get(table, table)}: last: {chore.kind}, {chore.outcome}{at}: {chore.why}"


def _damage(names: Mapping[UUID, str], maintainer: Maintainer) -> Iterator[str]:
    for table, files in maintainer.damaged.items():
        for file in files[:_SHOWN_MAX]:
            yield f"{names.get(table, table)}: {file.kind}: {file.path}: {file.what}"


def _plan_data(planned: Plan, names: Mapping[UUID, str], maintainer: Maintainer) -> dict[str, Any]:
    return {
        "tasks": [
            {**_task_data(task), "waits": number >= planned.affordable}
            for number, task in enumerate(planned.tasks)
        ],
        "nothing": [
            {"table": str(table), "name": names.get(table), "why": why}
            for table, why in planned.reasons.items()
        ],
        "last": [
            {"table": str(table), "name": names.get(table), **chore.model_dump(mode="json")}
            for table, chore in maintainer.last.items()
        ],
        "damaged": [
            {"table": str(table), "name": names.get(table), **file.model_dump(mode="json")}
            for table, files in maintainer.damaged.items()
            for file in files
        ],
    }


def _task_data(task: Chore) -> dict[str, Any]:
    return {
        "table": str(task.table),
        "name": task.name,
        "kind": task.kind,
        "partitions": list(task.partitions),
        "bytes": task.cost_bytes,
        "points": round(task.points, 4),
        "why": task.why,
        "files": [list(group) for group in task.bins],
        "proposal_id": str(task.proposal_id(0)),
    }


if __name__ == "__main__":
    app()
