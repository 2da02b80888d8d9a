"""What both sides of a comparison of fresh processes share. It imports neither."""

import json
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

Counted = int | tuple[int, float]
"""How many there were, and maybe one more figure that the way documents."""


def measure(work: Callable[[], Counted]) -> None:
    """Do some work; print its seconds, its CPU seconds and the process's highest memory."""
    began_s, began_cpu_s = time.perf_counter(), time.process_time()
    result = work()
    took_s, cpu_s = time.perf_counter() - began_s, time.process_time() - began_cpu_s
    counted, extra = result if isinstance(result, tuple) else (result, 0.0)
    measured = {
        "s": took_s,
        "cpu_s": cpu_s,
        "mib": highest_mib(),
        "counted": counted,
        "extra": extra,
    }
    sys.stdout.write(json.dumps(measured))


def add_commits(commits_folder: str, folder: str) -> None:
    """Copy commits into a table's log."""
    for path in sorted(Path(commits_folder, "_delta_log").glob("*.json")):
        shutil.copy(path, Path(folder, "_delta_log", path.name))


def highest_mib() -> float:
    """Return the highest memory of the process itself, not of its parent."""
    return _held_mib("VmHWM")


def held_mib() -> float:
    """Return the memory that the process holds now."""
    return _held_mib("VmRSS")


def _held_mib(name: str) -> float:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) / 1024
