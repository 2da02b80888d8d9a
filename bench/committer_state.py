"""What a committer keeps of a large table, and its effect: memory, pauses, latency."""

import shutil
from pathlib import Path

from bench.figures import Figure, at_most
from bench.fresh import Runs, alternate, middle
from bench.generated_logs import COMMITS, TAIL, Shape, extend, generate

PROGRAM = "bench.committer_program"
BYTES = 120
SLOWER = 1.2
LONG_LOG = 5_000
PAUSE_MS = 10.0

KEPT = {"kept": (PROGRAM, "kept"), "text": (PROGRAM, "kept as text")}
PAUSED = {"paused": (PROGRAM, "paused")}
ONE_WRITER = {"commits": (PROGRAM, "commits")}


def figures(folder: Path, rounds: int, files: int) -> list[Figure]:
    """Return S6 and C10 for a table with this many files."""
    large, small, long = folder / "large", folder / "small", folder / "long"
    generate(large, Shape.V2, files)
    generate(small, Shape.V2, 10)
    generate(long, Shape.V2, 10)
    extend(long, COMMITS + TAIL + 1, LONG_LOG, 1_000)
    state_figures = [
        *_memory(files, alternate(KEPT, [large], rounds)),
        *_pauses(files, alternate(PAUSED, [large], rounds)),
        *_latency(files, large, small, long, rounds),
    ]
    for table in (large, small, long):
        shutil.rmtree(table)
    return state_figures


def _memory(files: int, runs: Runs) -> list[Figure]:
    us, text = middle(runs["kept"], "extra"), middle(runs["text"], "extra")
    return [
        Figure(
            f"the committer's memory of {files:,} live files and a tenth more, bytes a file",
            f"{us:.0f} B",
            f"a dict of str {text:.0f} B",
            us / BYTES,
            f"S6: <= {BYTES} B",
            "growth of the process's RSS; checks are exact: paths, not hashes",
            is_met=us <= BYTES,
            recorded=at_most(0.96),
        )
    ]


def _pauses(files: int, runs: Runs) -> list[Figure]:
    us = middle(runs["paused"], "extra")
    return [
        Figure(
            f"the longest change of {files:,} live files by an entry of 64 appends",
            f"{us:.1f} ms CPU",
            f"limit {PAUSE_MS:.0f} ms",
            us / PAUSE_MS,
            f"<= {PAUSE_MS:.0f} ms",
            "columns of one part are made anew",
            is_met=us <= PAUSE_MS,
            recorded=at_most(0.07),
        )
    ]


def _latency(files: int, large: Path, small: Path, long: Path, rounds: int) -> list[Figure]:
    took: dict[Path, list[float]] = {large: [], small: [], long: []}
    for _ in range(rounds):
        for table, latencies in took.items():
            latencies.append(middle(alternate(ONE_WRITER, [table], 1)["commits"], "extra"))
    us, few, long_log = (sorted(took[table])[rounds // 2] for table in (large, small, long))
    peer = f"at ten files {few:.2f} ms"
    return [
        Figure(
            f"commit p50 at {files:,} live files",
            f"{us:.2f} ms",
            peer,
            us / few,
            f"C10: <= {SLOWER}",
            "one writer, local store with fsync of file and folder, the bus in memory",
            is_met=us / few <= SLOWER,
            recorded=at_most(1.09),
        ),
        Figure(
            f"commit p50 with a log of {LONG_LOG:,} commits",
            f"{long_log:.2f} ms",
            peer,
            long_log / few,
            f"C10: <= {SLOWER}",
            "the same",
            is_met=long_log / few <= SLOWER,
            recorded=at_most(1.04),
        ),
    ]
