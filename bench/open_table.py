"""Opening a table with many files, beside delta-rs: time, and memory as a fresh process's VmHWM."""

import shutil
from dataclasses import dataclass
from functools import partial
from math import inf
from pathlib import Path

from bench.figures import Figure, Recorded, at_most
from bench.fresh import OURS, THEIRS, Runs, alternate, middle
from bench.generated_logs import COMMITS, TAIL, Shape, extend, generate
from tidegate_delta.log.file_names import LOG_FOLDER

REFRESHED = 10

WAYS = {"keys": (OURS, "keys"), "stats": (OURS, "stats"), "delta-rs": (THEIRS, "open")}
REFRESHES = {
    "committer": (OURS, "committer"),
    "refresh": (OURS, "refresh"),
    "delta-rs refresh": (THEIRS, "refresh"),
}


@dataclass(frozen=True)
class Goal:
    """Shares of delta-rs's time and memory that opening may take, and the recorded ratios."""

    name: str
    time: float = inf
    memory: float = inf
    recorded: Recorded | None = None

    @property
    def text(self) -> str:
        """The goal in words."""
        memory = f", <= {self.memory:g} memory" if self.memory < inf else ""
        return f"{self.name}: <= {self.time:g} time{memory}" if self.time < inf else "-"


GOALS = {
    Shape.CLASSIC: {
        "keys": Goal("S1", 0.15, 0.6, at_most(0.09)),
        "stats": Goal("S2", 0.5, 1.1, at_most(0.27)),
    },
    Shape.V2: {
        "keys": Goal("S1", 0.15, 0.6, at_most(0.10)),
        "stats": Goal("S2", 0.5, 1.1, at_most(0.27)),
    },
    Shape.JSON: {"keys": Goal("-"), "stats": Goal("S3", 0.4, recorded=at_most(0.29))},
}


def figures(folder: Path, rounds: int, files: int) -> list[Figure]:
    """Return S1 to S4 for tables with this many files."""
    open_figures: list[Figure] = []
    for shape in Shape:
        table, commits_folder = folder / shape, folder / f"{shape}-more"
        generate(table, shape, files)
        (commits_folder / LOG_FOLDER).mkdir(parents=True)
        extend(commits_folder, COMMITS + TAIL + 1, REFRESHED, files * 10)
        open_figures += _openings(shape, files, alternate(WAYS, [table, commits_folder], rounds))
        if shape is Shape.CLASSIC:
            runs = alternate(
                REFRESHES,
                [table, commits_folder],
                rounds,
                partial(_taken_back, table, commits_folder),
            )
            open_figures += _refreshes(files, runs)
        shutil.rmtree(table)
    return open_figures


def _taken_back(table: Path, commits_folder: Path) -> None:
    """Remove the commits that a refresh read."""
    for path in (commits_folder / LOG_FOLDER).iterdir():
        (table / LOG_FOLDER / path.name).unlink(missing_ok=True)


def _openings(shape: Shape, files: int, runs: Runs) -> list[Figure]:
    peer = runs["delta-rs"]
    open_figures = []
    for way, goal in GOALS[shape].items():
        us = runs[way]
        memory = middle(us, "mib") / middle(peer, "mib")
        cpu = middle(us, "cpu_s") / middle(peer, "cpu_s")
        ratio = middle(us, "s") / middle(peer, "s")
        open_figures.append(
            Figure(
                f"open {files:,} files, {shape}, {way}",
                f"{middle(us, 's'):.2f} s, {middle(us, 'mib'):.0f} MiB",
                f"delta-rs {middle(peer, 's'):.2f} s, {middle(peer, 'mib'):.0f} MiB",
                ratio,
                goal.text,
                f"memory {memory:.2f}, CPU time {cpu:.2f} of delta-rs's",
                is_met=None if goal.text == "-" else ratio <= goal.time and memory <= goal.memory,
                recorded=goal.recorded,
            )
        )
    return open_figures


def _refreshes(files: int, runs: Runs) -> list[Figure]:
    peer = middle(runs["delta-rs refresh"], "s")
    refresh_figures = []
    for way, subject, goal, recorded in (
        ("committer", "the committer's memory of", "S4: <= 5 ms, <= 0.002", at_most(0.0019)),
        ("refresh", "a whole snapshot of", "-", at_most(0.016)),
    ):
        us, cpu_ms = middle(runs[way], "s"), 1e3 * middle(runs[way], "cpu_s")
        refresh_figures.append(
            Figure(
                f"{REFRESHED} commits more, {subject} {files:,} files",
                f"{1e3 * us:.1f} ms",
                f"delta-rs {1e3 * peer:.0f} ms",
                us / peer,
                goal,
                f"CPU time {cpu_ms:.1f} ms, process {middle(runs[way], 'mib'):.0f} MiB",
                is_met=None if goal == "-" else us <= 0.005 and us / peer <= 0.002,
                recorded=recorded,
            )
        )
    return refresh_figures
