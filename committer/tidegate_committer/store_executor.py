"""Runs reads and PUTs of stores in threads beside the loop, which polls for their results.

Each store has threads of its own, so a store that is slow or hangs delays only its own tables.
A thread whose result is given up is replaced, because a single file in a store may hang.
The loop itself never waits for a store.
"""

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from threading import Event, Lock
from typing import Any, Final, Generic, Protocol, TypeVar
from urllib.parse import urlsplit

from tidegate_delta.errors import TidegateError
from tidegate_runtime.clock import Clock

T = TypeVar("T")

LOOK_SHARE: Final = 0.1
LOOK_MIN_S: Final = 0.001
LOOK_MAX_S: Final = 0.05
"""The pause until the next check for a result: a share of the wait so far, within bounds."""

STORES_KEPT: Final = 32
"""The number of stores whose idle threads are kept."""

YIELD_SHARE: Final = 0.25
"""How long the loop leaves the interpreter to a call that waited for the one that ended, as a share
of its wait's timeout.
"""

LOST_MAX: Final = 64
"""How many given-up threads of one store are replaced; they may never end."""


class StoreExecutor(Protocol):
    """Runs calls of stores; the calls of one store do not wait for those of another."""

    def is_free(self, root: str) -> bool:
        """Whether no call runs or waits at the store of the table at `root`."""

    def begin(
        self, root: str, work: Callable[[], T], /, behind: Future[Any] | None = None
    ) -> Future[T]:
        """Start a call of the store of the table at `root`; return its future result.

        With `behind`, the call waits by itself for the end of that one before it does anything.
        """

    def wait(self, timeout_s: float) -> None:
        """Wait until a call ends, or for `timeout_s`."""

    def give_up(self, root: str, answer: Future[Any], /) -> None:
        """Give up a call: another thread takes the place of the one that runs it."""

    def close(self) -> None:
        """Start no more calls; those in progress may still end."""


class InlineExecutor:
    """Finishes each call before `begin` returns: no thread, so that a seed replays every step."""

    def is_free(self, root: str) -> bool:
        """Return True: nothing is in progress."""
        return True

    def begin(
        self, root: str, work: Callable[[], T], /, behind: Future[Any] | None = None
    ) -> Future[T]:
        """Run the call and wait for its end."""
        return done_here(work)

    def wait(self, timeout_s: float) -> None:
        """Return at once: nothing is in progress."""

    def give_up(self, root: str, answer: Future[Any], /) -> None:
        """Do nothing: the call has ended."""

    def close(self) -> None:
        """Do nothing."""


class StoreThreads:
    """Up to `most` threads for each store, started as needed. Safe to call from several threads.

    There may be a thousand stores with little to do, so idle threads are kept only for the
    `STORES_KEPT` stores used last.
    """

    def __init__(self, most: int, name: str) -> None:
        self._most, self._name = most, name
        self._threads: dict[str, ThreadPoolExecutor] = {}
        self._newest: dict[str, Future[Any]] = {}
        self._begun: dict[str, dict[Future[Any], _Call]] = {}
        self._lost: dict[str, list[Future[Any]]] = {}
        self._turn = Lock()
        self._has_ended = Event()
        self._hands_over = Event()
        self._followed: set[Future[Any]] = set()

    def begin(
        self, root: str, work: Callable[[], T], /, behind: Future[Any] | None = None
    ) -> Future[T]:
        """Run `work` in a thread of the table's store; if all are busy, it waits for a free one."""
        if behind is not None:
            self._followed.add(behind)
            if behind.done():
                self._followed.discard(behind)
        store = store_of(root)
        with self._turn:
            threads = self._threads.pop(store, None)
            if threads is None:
                self._release()
                threads = self._new_threads()
            self._threads[store] = threads
            answer = self._newest[store] = Future[T]()
            call = _Call(work, answer)
            submitted = self._submit(store, call)
        submitted.add_done_callback(call.pass_on)
        answer.add_done_callback(self._ended)
        return answer

    def wait(self, timeout_s: float) -> None:
        """Wait until a call has ended since the last wait, or for `timeout_s`.

        If another call was waiting for that end, the loop sleeps a little longer, so that this one
        gets the interpreter first. Otherwise the loop would delay it by milliseconds.
        """
        has_ended = self._has_ended.wait(timeout_s)
        self._has_ended.clear()
        if has_ended and self._hands_over.is_set():
            self._hands_over.clear()
            time.sleep(YIELD_SHARE * timeout_s)

    def give_up(self, root: str, answer: Future[Any], /) -> None:
        """Give up a call. The store's threads are replaced, up to LOST_MAX of them: the thread that
        runs this call may never end, and the calls queued behind it move to the new threads.
        """
        store = store_of(root)
        with self._turn:
            lost_calls = [
                lost_call for lost_call in self._lost.pop(store, ()) if not lost_call.done()
            ]
            if not answer.running() or store not in self._threads:
                self._lost[store] = lost_calls
                return
            self._lost[store] = [*lost_calls, answer]
            if len(lost_calls) >= LOST_MAX:
                return
            self._threads[store].shutdown(wait=False, cancel_futures=True)
            self._threads[store] = self._new_threads()
            waiting = [
                call for submitted, call in self._begun.pop(store).items() if submitted.cancelled()
            ]
            resubmitted = [(self._submit(store, call), call) for call in waiting]
        for submitted, call in resubmitted:
            submitted.add_done_callback(call.pass_on)

    def is_free(self, root: str) -> bool:
        """Return whether the call that was started last for a store has ended."""
        newest = self._newest.get(store_of(root))
        return newest is None or newest.done()

    def close(self) -> None:
        """Start no more calls, and drop those that wait, so that a stop need not wait for them.

        A PUT in flight may still land: the next owner finds it in the log.
        """
        with self._turn:
            for threads in self._threads.values():
                threads.shutdown(wait=False, cancel_futures=True)
            begun = [call for calls in self._begun.values() for call in calls.values()]
        for call in begun:
            call.answer.cancel()

    def _ended(self, answer: Future[Any]) -> None:
        if answer in self._followed:
            self._followed.discard(answer)
            self._hands_over.set()
        self._has_ended.set()

    def _new_threads(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self._most, thread_name_prefix=self._name)

    def _submit(self, store: str, call: "_Call") -> Future[Any]:
        begun = self._begun.setdefault(store, {})
        for ended in [submitted_before for submitted_before in begun if submitted_before.done()]:
            del begun[ended]
        submitted = self._threads[store].submit(call.run)
        begun[submitted] = call
        return submitted

    def _release(self) -> None:
        excess = max(0, len(self._threads) - STORES_KEPT)
        idle = (store for store in self._threads if self._newest[store].done())
        for store in list(islice(idle, excess)):
            self._threads.pop(store).shutdown(wait=False)
            del self._newest[store]
            self._begun.pop(store, None)


@dataclass(frozen=True)
class _Call:
    """A call, and the future that its caller waits for."""

    work: Callable[[], Any]
    answer: Future[Any]

    def run(self) -> Any:
        """Run the work in this thread, unless its caller has cancelled it."""
        return self.work() if self.answer.set_running_or_notify_cancel() else None

    def pass_on(self, submitted: Future[Any]) -> None:
        """Pass the result or the exception on to the caller's future."""
        if submitted.cancelled() or self.answer.cancelled():
            return
        error = submitted.exception()
        if error is None:
            self.answer.set_result(submitted.result())
        else:
            self.answer.set_exception(error)


@dataclass
class PendingRead(Generic[T]):
    """The one read of its kind that a table may have in progress. `since_s`: by `Clock.boot_s`."""

    executor: StoreExecutor
    clock: Clock
    root: str
    since_s: float = 0.0
    answer: Future[T] | None = None

    def end(self, question: Callable[[], T]) -> T | None:
        """Return the result, or None while there is none; the first call starts the read.

        Raises: as `question`.
        """
        if self.answer is None:
            self.since_s = self.clock.boot_s()
            self.answer = self.executor.begin(self.root, question)
        if not self.answer.done():
            return None
        answer, self.answer = self.answer, None
        return answer.result()

    def forget(self) -> None:
        """Drop the read: its result is ignored."""
        if self.answer is not None:
            self.answer.cancel()
        self.answer = None

    def give_up(self) -> None:
        """Drop the read, and replace its thread, which may never end."""
        answer = self.answer
        self.forget()
        if answer is not None:
            self.executor.give_up(self.root, answer)

    @property
    def check_after_s(self) -> float:
        """When to check for the result again. By `Clock.boot_s`."""
        now_s = self.clock.boot_s()
        pause_s = LOOK_SHARE * (now_s - self.since_s)
        return now_s + min(LOOK_MAX_S, max(LOOK_MIN_S, pause_s))


def done_here(work: Callable[[], T], /) -> Future[T]:
    """Run a call in this thread, so that a seed replays every step."""
    answer: Future[T] = Future()
    try:
        answer.set_result(work())
    except TidegateError as error:
        answer.set_exception(error)
    return answer


def store_of(root: str) -> str:
    """Return the store of a table: its bucket, or its parent folder."""
    parts = urlsplit(root)
    return f"{parts.scheme}://{parts.netloc}" if parts.netloc else root.rpartition("/")[0]
