"""Fresh processes, one after the other: the time that each took, and its highest memory."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from bench.figures import median

TIMEOUT_S = 600
ROOT = Path(__file__).parents[1]
OURS = "bench.our_program"
THEIRS = "bench.delta_rs_program"

_console = Console(width=150)


@dataclass(frozen=True)
class Run:
    """One run. Units: seconds, CPU seconds, MiB; `extra` in the unit that its way documents."""

    s: float
    cpu_s: float
    mib: float
    counted: int
    extra: float = 0.0


Runs = Mapping[str, Sequence[Run]]
"""The runs of each way, by its name."""


def compiled(folder: Path, program: str) -> Mapping[str, str]:
    """Return an environment in which a program's modules are bytecode, as in an image."""
    environ = {**os.environ, "PYTHONPYCACHEPREFIX": str(folder), "PYTHONDONTWRITEBYTECODE": ""}
    subprocess.run([sys.executable, "-c", f"import {program}"], cwd=ROOT, env=environ, check=True)
    return environ


def alternate(
    ways: Mapping[str, tuple[str, str]],
    places: Sequence[Path],
    rounds: int,
    after_each: Callable[[], None] = lambda: None,
    environ: Mapping[str, str] | None = None,
) -> Runs:
    """Return the runs of some ways, given as program and name; each round runs all of them."""
    runs: dict[str, list[Run]] = {way: [] for way in ways}
    for number in range(rounds):
        for way, (program, name) in ways.items():
            runs[way].append(_run(program, name, places, environ))
            _console.print(f"{places[0].name}, round {number}, {way}: {runs[way][-1]}")
            after_each()
    return runs


def middle(runs: Sequence[Run], name: str) -> float:
    """Return the median of a value over some runs."""
    return median([getattr(run, name) for run in runs])


def _run(program: str, name: str, places: Sequence[Path], environ: Mapping[str, str] | None) -> Run:
    process = subprocess.run(
        [sys.executable, "-m", program, name, *map(str, places)],
        cwd=ROOT,
        env=environ,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    if process.returncode:
        raise RuntimeError(f"{program} {name} ended with {process.returncode}: {process.stderr}")
    return Run(**json.loads(process.stdout))
