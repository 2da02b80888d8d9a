"""Questions to stores that are answered when a test says so."""

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from tidegate_committer.background_reads import at_once


@dataclass
class Held:
    """Questions that are answered at once, or when told, about the tables that are `held`."""

    held: set[str] = field(default_factory=set)
    asked: list[tuple[str, Callable[[], Any], Future[Any]]] = field(default_factory=list)
    given_up: list[tuple[str, Future[Any]]] = field(default_factory=list)

    def is_free(self, root: str) -> bool:
        """Return whether nothing is held there."""
        return all(one != root or answer.done() for one, _, answer in self.asked)

    def begin(self, root: str, question: Callable[[], Any], /) -> Future[Any]:
        """Ask, or note who asks."""
        if root not in self.held:
            return at_once(question)
        self.asked.append((root, question, Future()))
        return self.asked[-1][2]

    def give_up(self, root: str, answer: Future[Any], /) -> None:
        """Note that nobody waits for an answer any more."""
        self.given_up.append((root, answer))

    def close(self) -> None:
        """Do nothing."""

    def answer(self) -> None:
        """Answer all that was asked for and is still waited for."""
        for _, question, answer in self.asked:
            if not answer.done() and answer.set_running_or_notify_cancel():
                there = at_once(question)
                if there.exception() is None:
                    answer.set_result(there.result())
                else:
                    answer.set_exception(there.exception())
