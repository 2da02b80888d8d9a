"""What is asked of stores while the loop goes on: answered when the dice say so, or too late.

The loop itself asks no store: whoever does so in the midst of a step, and not from here or from a
PUT, is found out by `StormyStore`.
"""

from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from tests.simulation.faults import Deferred, Weather

T = TypeVar("T")


@dataclass
class SkippedRecords(Deferred[Any]):
    """A question whose answer comes when the dice say so: as a future of a thread's."""

    is_given_up: bool = False

    def done(self) -> bool:
        """Return whether it is answered; now and then it is so just now."""
        if not self.is_over and not self.weather.happens("slow_read"):
            self.go_on()
        return self.is_over

    def result(self) -> Any:
        """Return the answer, or raise what it raised."""
        if self.is_given_up:
            raise CancelledError
        if self.error is not None:
            raise self.error
        return self.answer

    def cancel(self) -> bool:
        """Wait for it no more. A thread that is at it does not hear that, and goes on."""
        if not self.is_over and self.weather.happens("slow_read"):
            self.weather.struck["unheard"] += 1
            self.go_on()
        self.is_over = self.is_given_up = True
        return True


@dataclass
class StormyBackground:
    """Questions that take their time."""

    weather: Weather

    def is_free(self, root: str) -> bool:
        """Return that any store may be asked."""
        return True

    def begin(self, root: str, question: Callable[[], T], /) -> Future[T]:
        """Ask."""
        asked = SkippedRecords(question, self.weather)
        if not self.weather.character.slow_read:
            asked.go_on()
        return cast(Future[T], asked)

    def give_up(self, root: str, answer: Future[Any], /) -> None:
        """Do nothing: there are as many threads as are asked for."""

    def close(self) -> None:
        """Ask no more: nobody hears the answers."""
