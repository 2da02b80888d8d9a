"""Opening a table with many files, beside delta-rs: time, and memory as a fresh process's VmHWM."""

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from bench.figures import Figure, median
from bench.generated_logs import COMMITS, TAIL, Shape, extend, generate
from tidegate.delta.names import LOG_FOLDER

REFRESHED = 10
TIMEOUT_S = 600
ROOT = Path(__file__).parents[1]

OURS = "bench.open_table_program"
THEIRS = "bench.delta_rs_open_program"
WAYS = {
    "keys": (OURS, "keys"),
    "stats": (OURS, "stats"),
    "refresh": (OURS, "refresh"),
    "committer": (OURS, "committer"),
    "delta-rs": (THEIRS, "open"),
    "delta-rs refresh": (THEIRS, "refresh"),
}

_console = Console(width=150)


@dataclass(frozen=True)
class Run:
    """One opening. Units: seconds, CPU seconds, MiB."""

    s: float
    cpu_s: float
    mib: float
    counted: int


def figures(folder: Path, rounds: int, files: int) -> list[Figure]:
    """Return S1 to S4 for tables of so many files."""
    found: list[Figure] = []
    for shape in Shape:
        table = folder / shape
        generate(table, shape, files)
        ways = ["keys", "stats", "delta-rs"]
        if shape is Shape.CLASSIC:
            ways += ["committer", "refresh", "delta-rs refresh"]
        runs = _alternate(table, folder / f"{shape}-more", ways, rounds, files)
        found += _openings(shape, files, runs)
        if shape is Shape.CLASSIC:
            found += _refreshes(files, runs)
        shutil.rmtree(table)
    return found


def _alternate(
    table: Path, more: Path, ways: Sequence[str], rounds: int, files: int
) -> dict[str, list[Run]]:
    """Return the runs of each way, one after the other in every round."""
    runs: dict[str, list[Run]] = {way: [] for way in ways}
    (more / LOG_FOLDER).mkdir(parents=True)
    extend(more, COMMITS + TAIL + 1, REFRESHED, files * 10)
    for number in range(rounds):
        for way in ways:
            one = _run(way, table, more)
            runs[way].append(one)
            _console.print(f"{table.name}, {files:,} files, round {number}, {way}: {one}")
            for path in (more / LOG_FOLDER).iterdir():
                (table / LOG_FOLDER / path.name).unlink(missing_ok=True)
    return runs


def _run(way: str, table: Path, more: Path) -> Run:
    module, name = WAYS[way]
    done = subprocess.run(
        [sys.executable, "-m", module, name, str(table), str(more)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=True,
    )
    return Run(**json.loads(done.stdout))


def _openings(shape: Shape, files: int, runs: dict[str, list[Run]]) -> list[Figure]:
    goals = {
        "keys": "S1: <= 0.15 time, <= 0.6 memory",
        "stats": "S2: <= 0.5 time, <= 1.1 memory",
    }
    if shape is Shape.JSON:
        goals = {"keys": "-", "stats": "S3: <= 0.4 time"}
    peer = runs["delta-rs"]
    found = []
    for way, goal in goals.items():
        us = runs[way]
        memory = _median(us, "mib") / _median(peer, "mib")
        cpu = _median(us, "cpu_s") / _median(peer, "cpu_s")
        found.append(
            Figure(
                f"open {files:,} files, {shape}, {way}",
                f"{_median(us, 's'):.2f} s, {_median(us, 'mib'):.0f} MiB",
                f"delta-rs {_median(peer, 's'):.2f} s, {_median(peer, 'mib'):.0f} MiB",
                _median(us, "s") / _median(peer, "s"),
                goal,
                f"memory {memory:.2f}, CPU time {cpu:.2f} of delta-rs's",
            )
        )
    return found


def _refreshes(files: int, runs: dict[str, list[Run]]) -> list[Figure]:
    peer = _median(runs["delta-rs refresh"], "s")
    found = []
    for way, who, goal in (
        ("committer", "the committer's memory of", "S4: <= 5 ms, <= 0.002"),
        ("refresh", "a whole snapshot of", "-"),
    ):
        us, cpu_ms = _median(runs[way], "s"), 1e3 * _median(runs[way], "cpu_s")
        found.append(
            Figure(
                f"{REFRESHED} commits more, {who} {files:,} files",
                f"{1e3 * us:.1f} ms",
                f"delta-rs {1e3 * peer:.0f} ms",
                us / peer,
                goal,
                f"CPU time {cpu_ms:.1f} ms, process {_median(runs[way], 'mib'):.0f} MiB",
            )
        )
    return found


def _median(runs: Sequence[Run], name: str) -> float:
    return median([getattr(one, name) for one in runs])
