"""Asking the store for what nobody waits for: the loop goes on, and looks for the answer later."""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol, TypeVar

from tidegate.delta.errors import TidegateError

T = TypeVar("T")


class Aside(Protocol):
    """Asks the store while the loop goes on."""

    def __call__(self, question: Callable[[], T], /) -> Future[T]:
        """Ask, and return where the answer will be."""


def at_once(question: Callable[[], T], /) -> Future[T]:
    """Ask and wait: no thread, so that a seed replays every step."""
    answer: Future[T] = Future()
    try:
        answer.set_result(question())
    except TidegateError as error:
        answer.set_exception(error)
    return answer
