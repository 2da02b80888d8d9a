"""Makes the clients of the configured stores before the committer joins its group.

The first request to a bucket loads its library and makes a client, a second of CPU time for S3. At
a takeover every writer would wait for that.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from functools import partial
from typing import Final

from tidegate_committer.store_executor import StoreExecutor
from tidegate_runtime.storage.log_store import LogStore

WAIT_S: Final = 5.0
"""How long the start waits for stores; one that is away does not keep a committer from its group.
"""


def open_early(
    roots: Sequence[str], open_root: Callable[[str], LogStore], executor: StoreExecutor
) -> list[Future[LogStore]]:
    """Open the buckets among the roots and look into each once; keep what is returned.

    Errors stay in the futures: they come up again, with their messages, where a table is opened.
    """
    buckets = [root for root in roots if not root.startswith("file:") and _bucket_of(root)]
    opened = [executor.begin(root, partial(_open, root, open_root)) for root in buckets]
    wait(opened, WAIT_S)
    return opened


def _bucket_of(root: str) -> str:
    """Return the bucket of a root or a prefix of roots; empty if it leaves the bucket open."""
    return root.partition("://")[2].partition("/")[0]


def _open(root: str, open_root: Callable[[str], LogStore]) -> LogStore:
    store = open_root(root)
    next(iter(store.list_from("", "")), None)
    return store
