"""`make bench`: every figure of the line, each beside its peer or limit in the same run."""

import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from bench import (
    changes,
    committer_cpu,
    committer_state,
    delta_rs_writers,
    gate_writers,
    limits,
    open_table,
    read_table,
    restart,
    row_deletes,
    spark_append,
)
from bench.figures import Figure, median, show
from tidegate.runtime.local_stack import LocalStack, StackSettings

app = typer.Typer(add_completion=False)
console = Console(width=150)


def many_writers(stack: LocalStack, folder: Path, rounds: int, seconds: float) -> list[Figure]:
    """Return proposals a second of 64 writers through the gate beside 64 delta-rs writers."""
    ours: list[delta_rs_writers.Rate] = []
    theirs: list[delta_rs_writers.Rate] = []
    for number in range(rounds):
        table = gate_writers.create(stack.kafka, folder / "tables" / f"gate-{number}")
        ours.append(gate_writers.run(stack.kafka, table, 64, seconds))
        console.print(f"gate, 64 writers, round {number}: {gate_writers.describe(ours[-1])}")
        theirs.append(delta_rs_writers.run(folder / "tables" / f"peer-{number}", 64, seconds))
        console.print(f"delta-rs, 64 writers, round {number}: {gate_writers.describe(theirs[-1])}")
    us, peer = median([one.per_s for one in ours]), median([one.per_s for one in theirs])
    slow, fast = median([one.p99_ms for one in theirs]), median([one.p99_ms for one in ours])
    return [
        Figure(
            "64 writers, local, commits/s",
            f"{us:.0f}/s, {sum(one.gave_up for one in ours)} gave up",
            f"delta-rs {peer:.1f}/s, {sum(one.gave_up for one in theirs)} gave up",
            us / peer,
            ">= 50",
            "fsync of file and folder on our side; delta-rs does not sync",
        ),
        Figure(
            "64 writers, p99 latency", f"{fast:.0f} ms", f"delta-rs {slow:.0f} ms", fast / slow, "-"
        ),
    ]


def one_writer(stack: LocalStack, folder: Path, rounds: int, seconds: float) -> list[Figure]:
    """Return one writer's latency beside the broker's round trip and the store's PUT."""
    rates, trips, puts = [], [], []
    for number in range(rounds):
        table = gate_writers.create(stack.kafka, folder / "tables" / f"one-{number}")
        rates.append(gate_writers.run(stack.kafka, table, 1, seconds))
        trips.append(limits.broker_round_trip_ms(stack.kafka, 300))
        puts.append(limits.put_ms(folder / "tables" / f"puts-{number}", 300))
        console.print(f"one writer, round {number}: {gate_writers.describe(rates[-1])}")
    p50, p99 = (median([getattr(one, name) for one in rates]) for name in ("p50_ms", "p99_ms"))
    trip, put = median(trips), median(puts)
    seen = f"two round trips {2 * trip:.1f} ms + PUT {put:.1f} ms"
    return [
        Figure(
            "1 writer, proposal to outcome, p50", f"{p50:.1f} ms", seen, p50 / (2 * trip + put), "-"
        ),
        Figure(
            "1 writer, proposal to outcome, p99", f"{p99:.1f} ms", seen, p99 / (2 * trip + put), "-"
        ),
    ]


@app.command()
def bench(
    only: Annotated[
        list[str] | None,
        typer.Option(help="writers, deletes, one, spark, changes, open, read, cpu, state, restart"),
    ] = None,
    rounds: Annotated[int, typer.Option(help="alternating rounds; medians are shown")] = 3,
    seconds: Annotated[float, typer.Option(help="length of a round of writers")] = 8.0,
    files: Annotated[int, typer.Option(help="live files of the tables that are opened")] = 10**6,
    rows: Annotated[int, typer.Option(help="rows of the table whose changes are read")] = 5_000_000,
) -> None:
    """Measure, and print one table: measure, ours, peer or limit, ratio, goal."""
    parts: dict[str, Callable[[LocalStack, Path], Sequence[Figure]]] = {
        "writers": lambda stack, folder: many_writers(stack, folder, rounds, seconds),
        "deletes": lambda stack, folder: row_deletes.figures(stack.kafka, folder, rounds, seconds),
        "one": lambda stack, folder: one_writer(stack, folder, rounds, seconds / 2),
        "spark": lambda stack, folder: spark_append.figures(stack, folder, rounds),
        "changes": lambda stack, folder: changes.figures(stack, folder, rounds),
    }
    alone: dict[str, Callable[[Path], Sequence[Figure]]] = {
        "open": lambda folder: open_table.figures(folder, rounds, files),
        "read": lambda folder: read_table.figures(folder, rounds, files, rows),
        "cpu": lambda folder: committer_cpu.figures(rounds),
        "state": lambda folder: committer_state.figures(folder, rounds, files),
        "restart": lambda folder: restart.figures(folder, rounds, files),
    }
    figures: list[Figure] = []
    for name in only or [*parts, *alone]:
        if name in alone:
            with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as scratch:
                figures += alone[name](Path(scratch))
            continue
        with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as scratch:
            folder = Path(scratch)
            (folder / "tables").mkdir()
            roots = [(folder / "tables").as_uri()]
            console.print(f"[bold]{name}[/]: starting Kafka and the services")
            with LocalStack(StackSettings(folder, roots=roots)) as stack:
                figures += parts[name](stack, folder)
    show(figures)
    console.print_json(json.dumps([vars(one) for one in figures]))


if __name__ == "__main__":
    app()
