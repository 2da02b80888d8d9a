"""Opens whole tables one at a time in each store, because each may take much memory.

Threads that read for decisions wait here for others of the same store only.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from threading import RLock
from typing import Final

from tidegate_committer.store_executor import store_of
from tidegate_delta.snapshots.snapshot import Snapshot
from tidegate_runtime.storage.log_store import LogStore
from tidegate_runtime.table_io.open_table import open_snapshot

_TURNS: Final[dict[str, AbstractContextManager[bool]]] = {}


@contextmanager
def whole_table(store: LogStore, version: int) -> Iterator[Snapshot]:
    """Open a version of a table with all its files, for the time of the `with` block.

    Raises: BrokenLog; UnsupportedFeature; InvalidRequest; Unavailable.
    """
    with _TURNS.setdefault(store_of(store.root), RLock()):
        yield open_snapshot(store, version)
