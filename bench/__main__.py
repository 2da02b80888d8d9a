"""`make bench`: every figure beside its peer or limit, measured in the same run."""

import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from bench import (
    changes,
    changes_beside,
    checkpoints,
    checkpoints_beside,
    committer_cpu,
    committer_state,
    door,
    driver_memory,
    followers,
    idle_tables,
    ingest,
    log_size,
    maintain,
    open_table,
    read_by_condition,
    read_table,
    registered_changes,
    restart,
    row_deletes,
    spark_beside,
    takeover,
)
from bench.committer_line import CommitterLine
from bench.committing import Local, One, Slow, warm_up
from bench.committing_variants import Beside, Ungrouped
from bench.crowding import Flooded, Stale
from bench.figures import Figure, lost, show
from bench.host import CpuTime
from bench.in_flight import InFlight
from bench.tables import Tables
from tidegate_local.local_stack import LocalStack, StackSettings

app = typer.Typer(add_completion=False)
console = Console(width=150)

FILES: Final = 10**6
ROWS: Final = 5_000_000
"""The number of rows at which the ratios of opening and reading were recorded. Ratios at fewer rows
do not compare.
"""

SIZED: Final = frozenset(
    {"open", "read", "state", "driver", "checkpoint", "checkpoint-beside", "log-size", "restart"}
)
"""The parts whose ratios depend on the number of files or rows."""

PARTS: Final = (
    "slow, one, in-flight, local, ungrouped, beside, flooded, stale, tables, deletes, spark, door, "
    "ingest, maintain, takeover, followers, changes, changes-beside, open, read, cpu, state, "
    "driver, checkpoint, checkpoint-beside, log-size, restart, registered, idle, conditions"
)

COMMITTING: Final = {
    "slow": Slow,
    "one": One,
    "in-flight": InFlight,
    "local": Local,
    "ungrouped": Ungrouped,
    "beside": Beside,
    "flooded": Flooded,
    "stale": Stale,
    "tables": Tables,
}
"""The figures of the committer, which share a broker and its processes."""


def committing_figures(
    names: Sequence[str], folder: Path, rounds: int, seconds: float
) -> list[Figure]:
    """Return the committer's figures: all its parts in every round, on the same broker and
    committers.
    """
    parts = [COMMITTING[name](seconds) for name in names]
    (folder / "tables").mkdir()
    console.print(f"[bold]{', '.join(names)}[/]: starting Kafka, a slow store and two committers")
    with CommitterLine(folder) as line:
        warm_up(line)
        for number in range(rounds):
            for part in parts:
                part.measure(line, number)
    return [figure for part in parts for figure in part.figures()]


def _alone(
    rounds: int, seconds: float, files: int, rows: int, hours: int
) -> dict[str, Callable[[Path], Sequence[Figure]]]:
    """Return the parts that start what they need themselves."""
    return {
        "open": lambda folder: open_table.figures(folder, rounds, files),
        "read": lambda folder: read_table.figures(folder, rounds, files, rows),
        "cpu": lambda folder: committer_cpu.figures(rounds),
        "state": lambda folder: committer_state.figures(folder, rounds, files),
        "driver": lambda folder: driver_memory.figures(folder, rounds, files),
        "checkpoint": lambda folder: checkpoints.figures(folder, rounds, files),
        "checkpoint-beside": lambda folder: checkpoints_beside.figures(
            folder, rounds, seconds, files
        ),
        "log-size": lambda folder: log_size.figures(folder, files, hours),
        "door": lambda folder: door.figures(folder, rounds, seconds),
        "restart": lambda folder: restart.figures(folder, rounds, files),
        "registered": lambda _: registered_changes.figures(rounds),
        "idle": lambda folder: idle_tables.figures(folder),
        "conditions": lambda folder: read_by_condition.figures(folder, rounds, rows),
    }


def _beside(part: Callable[[LocalStack, Path], Sequence[Figure]], folder: Path) -> Sequence[Figure]:
    """Return the figures of a part that needs Kafka and the services."""
    (folder / "tables").mkdir()
    roots = [(folder / "tables").as_uri()]
    settings = StackSettings(folder, roots, overrides={"maintain.off": "*"})
    console.print("starting Kafka and the services")
    with LocalStack(settings) as stack:
        return part(stack, folder)


@app.command()
def bench(
    only: Annotated[
        list[str] | None,
        typer.Option(help=PARTS),
    ] = None,
    rounds: Annotated[int, typer.Option(help="alternating rounds; medians are shown")] = 3,
    seconds: Annotated[float, typer.Option(help="length of a round of writers")] = 8.0,
    files: Annotated[int, typer.Option(help="live files of the tables that are opened")] = FILES,
    rows: Annotated[int, typer.Option(help="rows of the table whose changes are read")] = ROWS,
    hours: Annotated[int, typer.Option(help="simulated hours of log-size")] = 1,
) -> None:
    """Measure, and print one table: measure, ours, peer or limit, ratio, what it was, goal.

    Exits with status 1 if a figure is far worse than docs/performance.md says.
    """
    parts: dict[str, Callable[[LocalStack, Path], Sequence[Figure]]] = {
        "deletes": lambda stack, folder: row_deletes.figures(stack.kafka, folder, rounds, seconds),
        "spark": lambda stack, folder: spark_beside.figures(stack, folder, rounds, seconds, rows),
        "takeover": lambda stack, folder: takeover.figures(stack, folder, rounds),
        "followers": lambda stack, folder: followers.figures(stack, folder, seconds),
        "changes": lambda stack, folder: changes.figures(stack, folder, rounds),
        "changes-beside": changes_beside.figures,
        "ingest": lambda stack, folder: ingest.figures(stack, folder, rounds),
        "maintain": lambda stack, folder: maintain.figures(stack, folder, rounds),
    }
    alone = _alone(rounds, seconds, files, rows, hours)
    figures: list[Figure] = []
    small = SIZED if files < FILES or rows < ROWS else frozenset()
    began = CpuTime.now()
    known = [*COMMITTING, *parts, *alone]
    chosen = only or known
    if unknown := [name for name in chosen if name not in known]:
        raise typer.BadParameter(f"no part {unknown[0]!r}; there are {', '.join(known)}")
    try:
        if committing := [name for name in COMMITTING if name in chosen]:
            with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as scratch:
                figures += committing_figures(committing, Path(scratch), rounds, seconds)
        for name in (name for name in chosen if name not in COMMITTING):
            console.print(f"[bold]{name}[/]")
            with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as scratch:
                folder = Path(scratch)
                measured = alone[name](folder) if name in alone else _beside(parts[name], folder)
            figures += [
                replace(figure, recorded=None) if name in small else figure for figure in measured
            ]
    finally:
        # Also if a part fails: the figures of those before it took many minutes.
        show(figures)
    stolen = CpuTime.now().stolen_since(began)
    console.print(f"Of the CPU time that was asked for, the host gave {stolen:.1%} to others.")
    console.print_json(json.dumps([asdict(figure) for figure in figures]))
    if lost(figures):
        raise typer.Exit(1)


if __name__ == "__main__":
    app()
