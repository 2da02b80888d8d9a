"""Store reads that are answered when a test says so."""

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tidegate_committer.store_executor import InlineExecutor, done_here

T = TypeVar("T")


@dataclass
class Held(InlineExecutor):
    """Reads that are answered at once, or on demand for the roots in `held`."""

    held: set[str] = field(default_factory=set)
    asked: list[tuple[str, Callable[[], Any], Future[Any]]] = field(default_factory=list)
    given_up: list[tuple[str, Future[Any]]] = field(default_factory=list)

    def is_free(self, root: str) -> bool:
        """Return whether no read of this root is pending."""
        return all(one != root or answer.done() for one, _, answer in self.asked)

    def begin(
        self, root: str, work: Callable[[], T], /, behind: Future[Any] | None = None
    ) -> Future[T]:
        """Answer the read, or record it as pending."""
        if root not in self.held:
            return done_here(work)
        answer: Future[T] = Future()
        self.asked.append((root, work, answer))
        return answer

    def give_up(self, root: str, answer: Future[Any], /) -> None:
        """Record that nobody waits for this answer any longer."""
        self.given_up.append((root, answer))

    def answer(self) -> None:
        """Answer all pending reads that were not cancelled."""
        for _, question, answer in self.asked:
            if not answer.done() and answer.set_running_or_notify_cancel():
                there = done_here(question)
                if there.exception() is None:
                    answer.set_result(there.result())
                else:
                    answer.set_exception(there.exception())
