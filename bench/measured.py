"""What both sides of a comparison of fresh processes share; it imports neither."""

import json
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path


def measure(work: Callable[[], int]) -> None:
    """Do some work; print its seconds, its CPU seconds and the process's highest memory."""
    began_s, began_cpu_s = time.perf_counter(), time.process_time()
    counted = work()
    took_s, cpu_s = time.perf_counter() - began_s, time.process_time() - began_cpu_s
    told = {"s": took_s, "cpu_s": cpu_s, "mib": _highest_mib(), "counted": counted}
    sys.stdout.write(json.dumps(told))


def add_commits(more: str, folder: str) -> None:
    """Copy commits into a table's log."""
    for path in sorted(Path(more, "_delta_log").glob("*.json")):
        shutil.copy(path, Path(folder, "_delta_log", path.name))


def _highest_mib() -> float:
    """Return the most memory the process ever held: its own mark, not its parent's."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024
