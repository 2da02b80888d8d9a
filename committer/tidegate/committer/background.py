"""Reading stores in threads beside the loop, which looks for the answers later.

Each store has threads of its own, so one that is slow or hangs delays its own tables and no others.
The loop itself never waits for a store.
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from threading import Lock
from typing import Any, Final, Generic, Protocol, TypeVar
from urllib.parse import urlsplit

from tidegate.delta.errors import TidegateError
from tidegate.runtime.clock import Clock

T = TypeVar("T")

LOOK_SHARE: Final = 0.1
LOOK_MIN_S: Final = 0.001
LOOK_MAX_S: Final = 0.05
"""The pause until the next look for an answer: a share of the wait so far, within bounds."""

STORES_KEPT: Final = 32
"""Stores of which idle threads are kept."""


class Background(Protocol):
    """Runs questions to stores; those of one store do not wait for another's."""

    def is_free(self, root: str) -> bool:
        """Whether no question runs or waits at the store of the table at `root`."""

    def begin(self, root: str, question: Callable[[], T], /) -> Future[T]:
        """Start a question to the store of the table at `root`; return the future answer."""

    def close(self) -> None:
        """Start no more; answers under way are dropped."""


class AtOnce:
    """Answers each question before `begin` returns: no thread, so that a seed replays."""

    def is_free(self, root: str) -> bool:
        """Return that nothing is under way."""
        return True

    def begin(self, root: str, question: Callable[[], T], /) -> Future[T]:
        """Ask, and wait for it."""
        return at_once(question)

    def close(self) -> None:
        """Do nothing."""


class InThreads:
    """Up to `most` threads for each store, started as needed. Safe to call from several threads.

    There may be a thousand stores with little to do: of idle ones, the threads of those used last
    are kept (`STORES_KEPT`).
    """

    def __init__(self, most: int, name: str) -> None:
        self._most, self._name = most, name
        self._threads: dict[str, ThreadPoolExecutor] = {}
        self._newest: dict[str, Future[Any]] = {}
        self._turn = Lock()

    def begin(self, root: str, work: Callable[[], T], /) -> Future[T]:
        """Work in a thread of the store in which a table lies; past the most it waits for one."""
        store = store_of(root)
        with self._turn:
            threads = self._threads.pop(store, None)
            if threads is None:
                self._let_go()
                threads = ThreadPoolExecutor(self._most, thread_name_prefix=self._name)
            self._threads[store] = threads
            answer = self._newest[store] = threads.submit(work)
        return answer

    def is_free(self, root: str) -> bool:
        """Return whether what was begun last for a store has ended."""
        newest = self._newest.get(store_of(root))
        return newest is None or newest.done()

    def close(self) -> None:
        """Start nothing more, and drop what waits: a stop must not wait for it."""
        with self._turn:
            for threads in self._threads.values():
                threads.shutdown(wait=False, cancel_futures=True)

    def _let_go(self) -> None:
        excess = max(0, len(self._threads) - STORES_KEPT)
        idle = (store for store in self._threads if self._newest[store].done())
        for store in list(islice(idle, excess)):
            self._threads.pop(store).shutdown(wait=False)
            del self._newest[store]


@dataclass
class Asked(Generic[T]):
    """The one question about a table that may be under way, since `since_s` by `Clock.boot_s`."""

    background: Background
    clock: Clock
    root: str
    since_s: float = 0.0
    answer: Future[T] | None = None

    def end(self, question: Callable[[], T]) -> T | None:
        """Return the answer, or None while there is none; the first call starts the question.

        Raises: as `question`.
        """
        if self.answer is None:
            self.since_s = self.clock.boot_s()
            self.answer = self.background.begin(self.root, question)
        if not self.answer.done():
            return None
        answer, self.answer = self.answer, None
        return answer.result()

    def forget(self) -> None:
        """Drop the question: its answer is ignored."""
        if self.answer is not None:
            self.answer.cancel()
        self.answer = None

    @property
    def looked_after_s(self) -> float:
        """When to look for the answer again. By `Clock.boot_s`."""
        now_s = self.clock.boot_s()
        pause_s = LOOK_SHARE * (now_s - self.since_s)
        return now_s + min(LOOK_MAX_S, max(LOOK_MIN_S, pause_s))


def at_once(question: Callable[[], T], /) -> Future[T]:
    """Answer a question in this thread, so that a seed replays every step."""
    answer: Future[T] = Future()
    try:
        answer.set_result(question())
    except TidegateError as error:
        answer.set_exception(error)
    return answer


def store_of(root: str) -> str:
    """Return which store a table is in: its bucket, or its parent folder."""
    parts = urlsplit(root)
    return f"{parts.scheme}://{parts.netloc}" if parts.netloc else root.rpartition("/")[0]
