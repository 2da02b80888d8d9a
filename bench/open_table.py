"""Opening a table with many files, beside delta-rs: time, and memory as a fresh process's VmHWM."""

import shutil
from functools import partial
from pathlib import Path

from bench.figures import Figure
from bench.fresh import OURS, THEIRS, Runs, alternate, middle
from bench.generated_logs import COMMITS, TAIL, Shape, extend, generate
from tidegate.delta.names import LOG_FOLDER

REFRESHED = 10

WAYS = {"keys": (OURS, "keys"), "stats": (OURS, "stats"), "delta-rs": (THEIRS, "open")}
REFRESHES = {
    "committer": (OURS, "committer"),
    "refresh": (OURS, "refresh"),
    "delta-rs refresh": (THEIRS, "refresh"),
}


def figures(folder: Path, rounds: int, files: int) -> list[Figure]:
    """Return S1 to S4 for tables of so many files."""
    found: list[Figure] = []
    for shape in Shape:
        table, more = folder / shape, folder / f"{shape}-more"
        generate(table, shape, files)
        (more / LOG_FOLDER).mkdir(parents=True)
        extend(more, COMMITS + TAIL + 1, REFRESHED, files * 10)
        found += _openings(shape, files, alternate(WAYS, [table, more], rounds))
        if shape is Shape.CLASSIC:
            runs = alternate(REFRESHES, [table, more], rounds, partial(_taken_back, table, more))
            found += _refreshes(files, runs)
        shutil.rmtree(table)
    return found


def _taken_back(table: Path, more: Path) -> None:
    """Remove the commits that a refresh followed."""
    for path in (more / LOG_FOLDER).iterdir():
        (table / LOG_FOLDER / path.name).unlink(missing_ok=True)


def _openings(shape: Shape, files: int, runs: Runs) -> list[Figure]:
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
        memory = middle(us, "mib") / middle(peer, "mib")
        cpu = middle(us, "cpu_s") / middle(peer, "cpu_s")
        found.append(
            Figure(
                f"open {files:,} files, {shape}, {way}",
                f"{middle(us, 's'):.2f} s, {middle(us, 'mib'):.0f} MiB",
                f"delta-rs {middle(peer, 's'):.2f} s, {middle(peer, 'mib'):.0f} MiB",
                middle(us, "s") / middle(peer, "s"),
                goal,
                f"memory {memory:.2f}, CPU time {cpu:.2f} of delta-rs's",
            )
        )
    return found


def _refreshes(files: int, runs: Runs) -> list[Figure]:
    peer = middle(runs["delta-rs refresh"], "s")
    found = []
    for way, who, goal in (
        ("committer", "the committer's memory of", "S4: <= 5 ms, <= 0.002"),
        ("refresh", "a whole snapshot of", "-"),
    ):
        us, cpu_ms = middle(runs[way], "s"), 1e3 * middle(runs[way], "cpu_s")
        found.append(
            Figure(
                f"{REFRESHED} commits more, {who} {files:,} files",
                f"{1e3 * us:.1f} ms",
                f"delta-rs {1e3 * peer:.0f} ms",
                us / peer,
                goal,
                f"CPU time {cpu_ms:.1f} ms, process {middle(runs[way], 'mib'):.0f} MiB",
            )
        )
    return found
