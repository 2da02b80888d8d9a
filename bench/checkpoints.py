"""Checkpoints of a large table, beside delta-rs: whole ones, and those after a few changes.

K1 is a whole checkpoint; K2 and K3 are one after 1,000 new files, and one after removes in some
sidecars; K5 is a vacuum's dry run. Every run is a fresh process. What it wrote is deleted after it.
"""

import os
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from bench import checkpointer_requests
from bench.figures import Figure
from bench.fresh import THEIRS, Run, alternate, middle
from bench.generated_logs import (
    COMMITS,
    SIDECAR_FILES,
    TAIL,
    Shape,
    commit,
    generate,
    paths,
)
from tidegate_delta.log.file_names import LAST_CHECKPOINT, LOG_FOLDER

OURS: Final = "bench.checkpoint_program"
STRUCT: Final = {"delta.checkpoint.writeStatsAsStruct": "true"}
NEW_COMMITS: Final = 10
NEW_FILES: Final = 1_000
TOUCHED: Final = 3
"""Sidecars from which K3 removes files."""
VACUUMED: Final = 100_000
SIZE_SHARE: Final = 0.25
MEMORY_SHARE: Final = 0.6
MEMORY_MAX_MIB: Final = 1024
MANY_FILES: Final = 10**7
WAYS: Final = {
    "ours": (OURS, "write"),
    "ours, opened": (OURS, "open and write"),
    "delta-rs": (THEIRS, "write"),
    "delta-rs, opened": (THEIRS, "open and write"),
}


def figures(folder: Path, rounds: int, files: int) -> list[Figure]:
    """Return K1, K2, K3, K5 and K7 for tables with this many files.

    From MANY_FILES on only the memory of a whole checkpoint is measured.
    """
    if files >= MANY_FILES:
        return [_memory(folder, files, shape) for shape in (Shape.V2, Shape.CLASSIC)]
    return [
        *_whole(folder, rounds, files),
        *_after_changes(folder, rounds, files),
        *_vacuum(folder, rounds, min(files, VACUUMED)),
        *checkpointer_requests.figures(),
    ]


def _whole(folder: Path, rounds: int, files: int) -> list[Figure]:
    table, typed = folder / "classic", folder / "typed"
    generate(table, Shape.CLASSIC, files)
    runs = alternate(WAYS, [table], rounds, _restoring(table))
    shutil.rmtree(table)
    generate(typed, Shape.CLASSIC, files, STRUCT)
    with_types = alternate({"typed": (OURS, "write")}, [typed], rounds, _restoring(typed))
    shutil.rmtree(typed)
    ours, peer = runs["ours"], runs["delta-rs"]
    parsed = middle(with_types["typed"], "s") / middle(ours, "s")
    return [
        _beside(
            f"K1: checkpoint of {files:,} files",
            ours,
            peer,
            0.25,
            f", <= {SIZE_SHARE} of its size, <= {MEMORY_SHARE} of its memory",
        ),
        _beside(
            f"K1: open {files:,} files and write the checkpoint",
            runs["ours, opened"],
            runs["delta-rs, opened"],
            0.15,
        ),
        Figure(
            f"K1: the same with typed statistics, {files:,} files",
            f"{middle(with_types['typed'], 's'):.2f} s",
            f"without {middle(ours, 's'):.2f} s",
            parsed,
            "<= 2",
            is_met=parsed <= 2,
            recorded=None,
        ),
    ]


def _memory(folder: Path, files: int, shape: Shape) -> Figure:
    table = folder / "many"
    generate(table, shape, files)
    [run] = alternate({"ours": (OURS, "open and write")}, [table], 1)["ours"]
    shutil.rmtree(table)
    return Figure(
        f"K1: open {files:,} files and write the {shape.value} checkpoint: memory",
        f"{run.mib:.0f} MiB, {run.s:.0f} s",
        f"limit {MEMORY_MAX_MIB} MiB",
        run.mib / MEMORY_MAX_MIB,
        f"<= {MEMORY_MAX_MIB} MiB",
        is_met=run.mib <= MEMORY_MAX_MIB,
        recorded=None,
    )


def _after_changes(folder: Path, rounds: int, files: int) -> list[Figure]:
    table = folder / "v2"
    generate(table, Shape.V2, files)
    sidecars = max(1, files // SIDECAR_FILES)
    touched = min(TOUCHED, sidecars)
    appends, removes = folder / "appends", folder / "removes"
    _append_later(appends, files)
    _remove_later(removes, touched)
    ways = {"ours": (OURS, "follow"), "delta-rs": (THEIRS, "follow")}
    added = alternate(ways, [table, appends], rounds, _restoring(table))
    limits = {"ours": (OURS, "follow"), "limit": (OURS, "rewrite")}
    removed = alternate(limits, [table, removes], rounds, _restoring(table))
    shutil.rmtree(table)
    ours, peer = added["ours"], added["delta-rs"]
    ms, share = 1e3 * middle(ours, "s"), middle(ours, "s") / middle(peer, "s")
    limit = middle(removed["limit"], "s")
    over = middle(removed["ours"], "s") / limit
    return [
        Figure(
            f"K2: V2 checkpoint after {NEW_FILES:,} new files of {files:,}",
            f"{ms:.0f} ms, {middle(ours, 'extra'):.1f} MB",
            f"delta-rs {1e3 * middle(peer, 's'):.0f} ms, {middle(peer, 'extra'):.0f} MB",
            share,
            "<= 40 ms, <= 0.02",
            f"CPU time {1e3 * middle(ours, 'cpu_s'):.0f} ms, process {middle(ours, 'mib'):.0f} MiB",
            is_met=ms <= 40 and share <= 0.02,
            recorded=None,
        ),
        Figure(
            f"K3: V2 checkpoint after removes in {touched} of {sidecars} sidecars",
            f"{1e3 * middle(removed['ours'], 's'):.0f} ms",
            f"{touched} sidecars read and written by Arrow {1e3 * limit:.0f} ms",
            over,
            "<= 1.3",
            is_met=over <= 1.3,
            recorded=None,
        ),
    ]


def _append_later(commits_folder: Path, files: int) -> None:
    (commits_folder / LOG_FOLDER).mkdir(parents=True)
    commit_files = NEW_FILES // NEW_COMMITS
    first = files + TAIL * commit_files
    for number in range(NEW_COMMITS):
        start = first + number * commit_files
        commit(commits_folder, COMMITS + TAIL + 1 + number, range(start, start + commit_files))


def _remove_later(commits_folder: Path, touched: int) -> None:
    (commits_folder / LOG_FOLDER).mkdir(parents=True)
    now_ms = time.time_ns() // 1_000_000
    for number in range(NEW_COMMITS):
        removed_numbers = [sidecar * SIDECAR_FILES + number for sidecar in range(touched)]
        commit(commits_folder, COMMITS + TAIL + 1 + number, range(0), removed_numbers, now_ms)
    (commits_folder / "touched").write_text(str(touched), encoding="ascii")


def _vacuum(folder: Path, rounds: int, files: int) -> list[Figure]:
    table = folder / "vacuumed"
    generate(table, Shape.CLASSIC, files)
    for path in paths(0, files + files // 10):
        (table / path).parent.mkdir(exist_ok=True)
        (table / path).touch()
    began_s = time.perf_counter()
    listed = sum(len(names) for _, _, names in os.walk(table))
    walk_s = time.perf_counter() - began_s
    ways = {"ours": (OURS, "vacuum"), "delta-rs": (THEIRS, "vacuum")}
    runs = alternate(ways, [table], rounds)
    shutil.rmtree(table)
    ours, peer = middle(runs["ours"], "s"), middle(runs["delta-rs"], "s")
    return [
        Figure(
            f"K5: vacuum, dry run over {listed:,} files",
            f"{ours:.2f} s",
            f"delta-rs {peer:.2f} s",
            ours / peer,
            "<= 3 walks, <= 0.25",
            limit=f"os.walk {walk_s:.2f} s",
            is_met=ours <= 3 * walk_s and ours / peer <= 0.25,
            recorded=None,
        )
    ]


def _beside(
    measure: str, ours: Sequence[Run], peer: Sequence[Run], goal: float, further: str = ""
) -> Figure:
    """Return a figure of our time beside delta-rs's, with memory and bytes."""
    ratio = middle(ours, "s") / middle(peer, "s")
    shares = {name: middle(ours, name) / middle(peer, name) for name in ("extra", "mib", "cpu_s")}
    return Figure(
        measure,
        _run_text(ours),
        f"delta-rs {_run_text(peer)}",
        ratio,
        f"<= {goal:g} of delta-rs's time{further}",
        f"of delta-rs's: size {shares['extra']:.2f}, memory {shares['mib']:.2f}, "
        f"CPU time {shares['cpu_s']:.2f}",
        is_met=ratio <= goal
        and (not further or (shares["extra"] <= SIZE_SHARE and shares["mib"] <= MEMORY_SHARE)),
        recorded=None,
    )


def _run_text(runs: Sequence[Run]) -> str:
    return (
        f"{middle(runs, 's'):.2f} s, {middle(runs, 'mib'):.0f} MiB, {middle(runs, 'extra'):.0f} MB"
    )


def _restoring(table: Path) -> Callable[[], None]:
    """Return a function that takes a table's log back to what it is now."""
    log = table / LOG_FOLDER
    hint = (log / LAST_CHECKPOINT).read_bytes()
    log_files = {path for path in log.rglob("*") if path.is_file()}

    def restore() -> None:
        for path in log.rglob("*"):
            if path.is_file() and path not in log_files:
                path.unlink()
        (log / LAST_CHECKPOINT).write_bytes(hint)

    return restore
