"""Asking stores while the loop goes on: it looks for the answer later.

A store that takes its time, or never answers, keeps its own tables waiting and no others: each has
threads of its own. The loop itself never waits for a store.
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar
from urllib.parse import urlsplit

from tidegate.delta.errors import TidegateError
from tidegate.runtime.clock import Clock

T = TypeVar("T")

LOOK_SHARE: Final = 0.1
LOOK_MIN_S: Final = 0.001
LOOK_MAX_S: Final = 0.05
"""How long an answer is not looked for: a share of what it has taken so far, within bounds."""


class Aside(Protocol):
    """Where stores are asked, each beside the others."""

    def is_free(self, root: str) -> bool:
        """Whether nothing is asked, or waits to be, of the store in which a table lies."""

    def begin(self, root: str, question: Callable[[], T], /) -> Future[T]:
        """Ask the store in which a table lies, and return where the answer will be."""

    def close(self) -> None:
        """Ask nothing more; nobody waits for what is being asked."""


class AtOnce:
    """Questions that are answered before `begin` returns: no thread, so that a seed replays."""

    def is_free(self, root: str) -> bool:
        """Return that nothing is under way."""
        return True

    def begin(self, root: str, question: Callable[[], T], /) -> Future[T]:
        """Ask, and wait for it."""
        return at_once(question)

    def close(self) -> None:
        """Do nothing."""


class InThreads:
    """Questions in threads, so many for each store; nobody waits for those of one that hangs."""

    def __init__(self, most: int, name: str) -> None:
        self._most, self._name = most, name
        self._threads: dict[str, ThreadPoolExecutor] = {}
        self._newest: dict[str, Future[Any]] = {}

    def is_free(self, root: str) -> bool:
        """Return whether the last question that was begun there is answered."""
        newest = self._newest.get(store_of(root))
        return newest is None or newest.done()

    def begin(self, root: str, question: Callable[[], T], /) -> Future[T]:
        """Ask in a thread of the store; past the most of them it waits for one."""
        store = store_of(root)
        if store not in self._threads:
            self._threads[store] = ThreadPoolExecutor(self._most, thread_name_prefix=self._name)
        answer = self._threads[store].submit(question)
        self._newest[store] = answer
        return answer

    def close(self) -> None:
        """Ask nothing more: whoever ends would have to wait for all that stands in line."""
        for threads in self._threads.values():
            threads.shutdown(wait=False, cancel_futures=True)


@dataclass
class Asked(Generic[T]):
    """What is asked about one table, if anything: since `since_s`, by `Clock.boot_s`."""

    aside: Aside
    clock: Clock
    root: str
    since_s: float = 0.0
    answer: Future[T] | None = None

    def end(self, question: Callable[[], T]) -> T | None:
        """Return the answer, or None while it is waited for; ask first. Raises: as `question`."""
        if self.answer is None:
            self.since_s = self.clock.boot_s()
            self.answer = self.aside.begin(self.root, question)
        if not self.answer.done():
            return None
        answer, self.answer = self.answer, None
        return answer.result()

    def forget(self) -> None:
        """Wait for it no more."""
        if self.answer is not None:
            self.answer.cancel()
        self.answer = None

    @property
    def looked_after_s(self) -> float:
        """When to look whether it is there. By `Clock.boot_s`."""
        now_s = self.clock.boot_s()
        pause_s = LOOK_SHARE * (now_s - self.since_s)
        return now_s + min(LOOK_MAX_S, max(LOOK_MIN_S, pause_s))


def at_once(question: Callable[[], T], /) -> Future[T]:
    """Ask and wait: no thread, so that a seed replays every step."""
    answer: Future[T] = Future()
    try:
        answer.set_result(question())
    except TidegateError as error:
        answer.set_exception(error)
    return answer


def store_of(root: str) -> str:
    """Return where a table lies: its bucket, or the folder about it."""
    parts = urlsplit(root)
    return f"{parts.scheme}://{parts.netloc}" if parts.netloc else root.rpartition("/")[0]
