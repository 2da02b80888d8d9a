"""Loads: tables are read from their logs while the loop goes on.

A store that takes its time, or never answers, keeps its own tables waiting and no others. Of those
in one store one is read at a time: each may take much memory.
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit

from tidegate.committer.aside import at_once

T = TypeVar("T")


class Loads(Protocol):
    """Where tables are read."""

    def is_free(self, root: str) -> bool:
        """Whether no table is being read, or is to be, that lies in the same store."""

    def begin(self, root: str, question: Callable[[], T], /) -> Future[T]:
        """Read a table once those before it are read, and return where the answer will be."""


class AtOnce:
    """Loads that end before `begin` returns: no thread, so that a seed replays every step."""

    def is_free(self, root: str) -> bool:
        """Return that nothing is under way."""
        return True

    def begin(self, root: str, question: Callable[[], T], /) -> Future[T]:
        """Read a table, and wait for it."""
        return at_once(question)


class InThreads:
    """Loads in threads, one for each store; nobody waits for those of a store that hangs."""

    def __init__(self) -> None:
        self._threads: dict[str, ThreadPoolExecutor] = {}
        self._newest: dict[str, Future[Any]] = {}

    def is_free(self, root: str) -> bool:
        """Return whether the last load in the store that was begun is over."""
        newest = self._newest.get(store_of(root))
        return newest is None or newest.done()

    def begin(self, root: str, question: Callable[[], T], /) -> Future[T]:
        """Read a table in the thread of its store."""
        store = store_of(root)
        if store not in self._threads:
            self._threads[store] = ThreadPoolExecutor(1, thread_name_prefix="load")
        answer = self._threads[store].submit(question)
        self._newest[store] = answer
        return answer


def store_of(root: str) -> str:
    """Return where a table lies: its bucket, or the folder about it."""
    parts = urlsplit(root)
    return f"{parts.scheme}://{parts.netloc}" if parts.netloc else root.rpartition("/")[0]
