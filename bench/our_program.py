"""One read of one table by us, in a fresh process: `program WAY FOLDER MORE`.

MORE is a folder of new commits, for a way that refreshes. The cost is printed as JSON.
"""

import gc
import sys
import time
from collections.abc import Callable
from uuid import UUID

import pyarrow as pa

from bench.measured import Counted, add_commits, held_mib, measure
from tidegate_committer.store_reads import recovery
from tidegate_delta.data_skipping.file_pruning import prune
from tidegate_delta.data_skipping.predicate_tree import Predicate
from tidegate_runtime.service import arrow_setup
from tidegate_runtime.storage.open_store import open_store
from tidegate_runtime.table_io.change_row_reader import stream_changes
from tidegate_runtime.table_io.data_file_reader import rows_of
from tidegate_runtime.table_io.open_table import open_keys, open_snapshot, refresh

WINDOW = 100
"""Versions in the committer's window."""

Work = Callable[[], Counted]


def keys(folder: str, commits_folder: str) -> Work:
    """Open for commits: only which files are live."""
    return lambda: open_keys(open_store(folder)).files.num_rows


def stats(folder: str, commits_folder: str) -> Work:
    """Open with the statistics of the files."""
    return lambda: open_snapshot(open_store(folder)).files.num_rows


def refreshed(folder: str, commits_folder: str) -> Work:
    """Read some new commits of a table that is open already."""
    store = open_store(folder)
    before = open_snapshot(store)
    add_commits(commits_folder, folder)
    return lambda: refresh(store, before).files.num_rows


def committing(folder: str, commits_folder: str) -> Work:
    """Read some new commits as the committer does, with the table in its memory already."""
    store = open_store(folder)
    state = recovery.load(store, UUID(int=1), WINDOW)
    add_commits(commits_folder, folder)
    return lambda: recovery.refresh(store, state)[0].version


def warm_keys(folder: str, commits_folder: str) -> Work:
    """Keep which files are live, and look up each. Extra: bytes a file."""
    return _warm(folder, lambda: open_keys(open_store(folder)).paths)


def warm_set(folder: str, commits_folder: str) -> Work:
    """Keep the same as a set of Python strings, and look up each. Extra: bytes a file."""
    return _warm(folder, lambda: set(open_keys(open_store(folder)).files["path"].to_pylist()))


def planned(folder: str, commits_folder: str) -> Work:
    """Find a hundredth of the files by a partition value and a span of ids."""
    return _planned(folder, lambda files: {"op": "and", "args": [_PART, _ids(0, files // 10)]})


def planned_by_statistics(folder: str, commits_folder: str) -> Work:
    """Find a hundredth of the files by a span of ids, which only statistics show."""
    return _planned(folder, lambda files: _ids(files // 2, files // 2 + files // 100))


def changes(folder: str, commits_folder: str) -> Work:
    """Read all changes. Extra: seconds to the first batch."""
    store = open_store(folder)

    def read() -> Counted:
        began_s = time.perf_counter()
        _, batches = stream_changes(store, 0)
        rows = next(batches).num_rows
        first_s = time.perf_counter() - began_s
        return rows + sum(batch.num_rows for batch in batches), first_s

    return read


_PART: Predicate = {"op": "=", "column": "part", "value": 3, "type": "long"}


def _ids(start: int, end: int) -> Predicate:
    id_column = {"column": "id", "type": "long"}
    spans = [{"op": ">=", "value": start, **id_column}, {"op": "<", "value": end, **id_column}]
    return {"op": "and", "args": spans}


def _planned(folder: str, predicate: Callable[[int], Predicate]) -> Work:
    snapshot = open_snapshot(open_store(folder))
    tree = predicate(snapshot.files.num_rows // 1_000 * 1_000)
    return lambda: len(list(rows_of(prune(tree, snapshot.files, snapshot.metadata))))


def _warm(folder: str, load: Callable[[], object]) -> Work:
    before_mib = _collected_mib()
    loaded = load()
    mib = _collected_mib() - before_mib
    paths = open_keys(open_store(folder)).files["path"].to_pylist()

    def ask() -> Counted:
        hits = sum(path in loaded for path in paths)  # type: ignore[operator]  # a set of some kind
        return hits, mib * (1 << 20) / max(1, hits)

    return ask


def _collected_mib() -> float:
    gc.collect()
    pa.default_memory_pool().release_unused()
    return held_mib()


WAYS = {
    "keys": keys,
    "stats": stats,
    "refresh": refreshed,
    "committer": committing,
    "warm keys": warm_keys,
    "warm set": warm_set,
    "plan": planned,
    "plan by statistics": planned_by_statistics,
    "changes": changes,
}


def main(way: str, folder: str, commits_folder: str = "") -> None:
    """Measure one way."""
    arrow_setup.choose_memory_pool()  # as every service does at its start
    arrow_setup.leave_out_pandas()
    measure(WAYS[way](folder, commits_folder))


if __name__ == "__main__":
    main(*sys.argv[1:])
