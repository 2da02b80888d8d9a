"""One opening of one table by delta-rs, in a fresh process: `program WAY FOLDER MORE`."""

import sys
from collections.abc import Callable

from deltalake import DeltaTable

from bench.measured import add_commits, measure


def opened(folder: str, more: str) -> Callable[[], int]:
    """Open the table; its files are read with it."""
    return lambda: int(DeltaTable(folder).version())


def refreshed(folder: str, more: str) -> Callable[[], int]:
    """Follow some commits, the table open already."""
    table = DeltaTable(folder)
    add_commits(more, folder)

    def update() -> int:
        table.update_incremental()
        return int(table.version())

    return update


WAYS = {"open": opened, "refresh": refreshed}


def main(way: str, folder: str, more: str) -> None:
    """Measure one way."""
    measure(WAYS[way](folder, more))


if __name__ == "__main__":
    main(*sys.argv[1:])
