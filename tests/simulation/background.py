"""Store reads that run beside the loop; they finish at random moments, some of them too late.

The loop itself must not call a store: `StormyStore` detects a call within a step that comes neither
from here nor from a PUT.
"""

from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from tests.simulation.faulty_dependencies import Deferred, Weather
from tidegate_committer.store_executor import InlineExecutor

T = TypeVar("T")


@dataclass
class SkippedRecords(Deferred[Any]):
    """A pending read that finishes at a random moment, like the future of a thread."""

    is_given_up: bool = False

    def done(self) -> bool:
        """Return whether it has finished; a call may let it finish."""
        if not self.is_over and not self.weather.happens("slow_read"):
            self.go_on()
        return self.is_over

    def result(self) -> Any:
        """Return the result, or raise its error."""
        if self.is_given_up:
            raise CancelledError
        if self.error is not None:
            raise self.error
        return self.answer

    def cancel(self) -> bool:
        """Stop waiting. A thread that is already at work does not notice, and goes on."""
        if not self.is_over and self.weather.happens("slow_read"):
            self.weather.struck["unheard"] += 1
            self.go_on()
        self.is_over = self.is_given_up = True
        return True


@dataclass
class StormyBackground(InlineExecutor):
    """Runs reads that take their time."""

    weather: Weather

    def begin(
        self, root: str, work: Callable[[], T], /, behind: Future[Any] | None = None
    ) -> Future[T]:
        """Start a read."""
        asked = SkippedRecords(work, self.weather)
        if not self.weather.character.slow_read:
            asked.go_on()
        return cast(Future[T], asked)
