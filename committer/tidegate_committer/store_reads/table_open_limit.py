"""Whole tables: of those in one store one is opened at a time, for each may take much memory.

Threads that fetch what decisions need wait for one another here, and for no other store.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from threading import RLock
from typing import Final

from tidegate_committer.background_reads import store_of
from tidegate_delta.snapshots.snapshot import Snapshot
from tidegate_runtime.storage.log_store import LogStore
from tidegate_runtime.table_io.open_table import open_snapshot

_TURNS: Final[dict[str, AbstractContextManager[bool]]] = {}


@contextmanager
def whole_table(store: LogStore, version: int) -> Iterator[Snapshot]:
    """Give a version of a table, with all its files, to be let go of at the end.

    Raises: BrokenLog; UnsupportedFeature; InvalidRequest; Unavailable.
    """
    with _TURNS.setdefault(store_of(store.root), RLock()):
        yield open_snapshot(store, version)
