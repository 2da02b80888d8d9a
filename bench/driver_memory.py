"""The memory of a driver that changes rows of a table with many files: no object for each."""

import shutil
from pathlib import Path
from typing import Final

from bench.figures import Figure, Recorded, at_most
from bench.fresh import alternate, middle
from bench.generated_logs import Shape, generate

LIMIT_MIB: Final = 1024
PROGRAM: Final = "bench.driver_program"
WAYS: Final = {"delete": (PROGRAM, "delete"), "update or merge": (PROGRAM, "update")}
RECORDED: Final[dict[str, Recorded]] = {}


def figures(folder: Path, rounds: int, files: int) -> list[Figure]:
    """Return the highest memory of the driver's Python process for each change."""
    table = folder / "driver"
    generate(table, Shape.CLASSIC, files)
    runs = alternate(WAYS, [table], rounds)
    shutil.rmtree(table)
    result = []
    for way in WAYS:
        mib = middle(runs[way], "mib")
        result.append(
            Figure(
                f"driver of a {way} that may touch each of {files:,} files",
                f"{mib:.0f} MiB, {middle(runs[way], 's'):.1f} s",
                f"{LIMIT_MIB} MiB",
                mib / LIMIT_MIB,
                f"<= {LIMIT_MIB} MiB",
                is_met=mib <= LIMIT_MIB,
                recorded=RECORDED.get(way, at_most(1.0)),
            )
        )
    return result
