"""Store reads that are answered when a test says so."""

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from tidegate_committer.background_reads import at_once


@dataclass
class Held:
    """Reads that are answered at once, or on demand for the roots in `held`."""

    held: set[str] = field(default_factory=set)
    asked: list[tuple[str, Callable[[], Any], Future[Any]]] = field(default_factory=list)
    given_up: list[tuple[str, Future[Any]]] = field(default_factory=list)

    def is_free(self, root: str) -> bool:
        """Return whether no read of this root is pending."""
        return all(one != root or answer.done() for one, _, answer in self.asked)

    def begin(self, root: str, question: Callable[[], Any], /) -> Future[Any]:
        """Answer the read, or record it as pending."""
        if root not in self.held:
            return at_once(question)
        self.asked.append((root, question, Future()))
        return self.asked[-1][2]

    def give_up(self, root: str, answer: Future[Any], /) -> None:
        """Record that nobody waits for this answer any longer."""
        self.given_up.append((root, answer))

    def close(self) -> None:
        """Do nothing."""

    def answer(self) -> None:
        """Answer all pending reads that were not cancelled."""
        for _, question, answer in self.asked:
            if not answer.done() and answer.set_running_or_notify_cancel():
                there = at_once(question)
                if there.exception() is None:
                    answer.set_result(there.result())
                else:
                    answer.set_exception(there.exception())
