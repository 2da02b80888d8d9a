"""One read or checkpoint of a table by delta-rs, in a fresh process: `program WAY FOLDER MORE`."""

import sys
import time
from collections.abc import Callable
from pathlib import Path

from deltalake import DeltaTable

from bench.measured import Counted, add_commits, measure

Work = Callable[[], Counted]


def opened(folder: str, commits_folder: str) -> Work:
    """Open the table; its files are read with it."""
    return lambda: int(DeltaTable(folder).version())


def refreshed(folder: str, commits_folder: str) -> Work:
    """Read some new commits of a table that is open already."""
    table = DeltaTable(folder)
    add_commits(commits_folder, folder)

    def update() -> int:
        table.update_incremental()
        return int(table.version())

    return update


def planned(folder: str, commits_folder: str) -> Work:
    """Find the files of a partition value: delta-rs has no way to ask by statistics."""
    table = DeltaTable(folder)
    return lambda: len(table.file_uris(partition_filters=[("part", "=", "3")]))


def changes(folder: str, commits_folder: str) -> Work:
    """Read all changes. Extra: seconds to the first batch."""
    table = DeltaTable(folder)

    def read() -> Counted:
        began_s = time.perf_counter()
        batches = iter(table.load_cdf(starting_version=0))
        rows = int(next(batches).num_rows)
        first_s = time.perf_counter() - began_s
        return rows + sum(int(batch.num_rows) for batch in batches), first_s

    return read


def checkpointed(folder: str, commits_folder: str) -> Work:
    """Write the checkpoint of a table that is open already. Extra: MB of the checkpoint."""
    table = DeltaTable(folder)

    def write() -> Counted:
        table.create_checkpoint()
        return int(table.version()), _checkpoint_mb(folder, int(table.version()))

    return write


def opened_and_checkpointed(folder: str, commits_folder: str) -> Work:
    """Open a table and write its checkpoint. Extra: MB of the checkpoint."""
    return lambda: checkpointed(folder, commits_folder)()


def followed(folder: str, commits_folder: str) -> Work:
    """Read some new commits of an open table, and write the checkpoint. Extra: its MB."""
    table = DeltaTable(folder)
    add_commits(commits_folder, folder)

    def write() -> Counted:
        table.update_incremental()
        table.create_checkpoint()
        return int(table.version()), _checkpoint_mb(folder, int(table.version()))

    return write


def vacuumed(folder: str, commits_folder: str) -> Work:
    """Find the files that no version needs, whatever their age."""
    table = DeltaTable(folder)
    return lambda: len(table.vacuum(0, dry_run=True, enforce_retention_duration=False, full=True))


def _checkpoint_mb(folder: str, version: int) -> float:
    names = Path(folder, "_delta_log").glob(f"{version:020d}.checkpoint*")
    return sum(path.stat().st_size for path in names) / 1e6


WAYS = {
    "open": opened,
    "refresh": refreshed,
    "plan": planned,
    "changes": changes,
    "write": checkpointed,
    "open and write": opened_and_checkpointed,
    "follow": followed,
    "vacuum": vacuumed,
}


def main(way: str, folder: str, commits_folder: str = "") -> None:
    """Measure one way."""
    measure(WAYS[way](folder, commits_folder))


if __name__ == "__main__":
    main(*sys.argv[1:])
