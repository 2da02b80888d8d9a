"""One opening of one table by us, in a fresh process: `program WAY FOLDER MORE`.

MORE is a folder of commits that follow, for a way that refreshes. What it cost goes out as JSON.
"""

import sys
from collections.abc import Callable
from uuid import UUID

import pyarrow as pa

from bench.measured import add_commits, measure
from tidegate.committer import recovery
from tidegate.runtime.open_table import open_keys, open_snapshot, refresh
from tidegate.runtime.stores import open_store

WINDOW = 100
"""Versions that the committer remembers."""


def keys(folder: str, more: str) -> Callable[[], int]:
    """Open for commits: which files there are."""
    return lambda: open_keys(open_store(folder)).files.num_rows


def stats(folder: str, more: str) -> Callable[[], int]:
    """Open with all that is said of the files."""
    return lambda: open_snapshot(open_store(folder)).files.num_rows


def refreshed(folder: str, more: str) -> Callable[[], int]:
    """Follow some commits, the table open already."""
    store = open_store(folder)
    before = open_snapshot(store)
    add_commits(more, folder)
    return lambda: refresh(store, before).files.num_rows


def committing(folder: str, more: str) -> Callable[[], int]:
    """Follow some commits as the committer does, the table in its memory already."""
    store = open_store(folder)
    state = recovery.load(store, UUID(int=1), WINDOW)
    add_commits(more, folder)
    return lambda: len(recovery.refresh(store, state)[0].files)


WAYS = {"keys": keys, "stats": stats, "refresh": refreshed, "committer": committing}


def main(way: str, folder: str, more: str) -> None:
    """Measure one way."""
    pa.array([0])  # pyarrow imports pandas, where there is one, with its first conversion
    measure(WAYS[way](folder, more))


if __name__ == "__main__":
    main(*sys.argv[1:])
