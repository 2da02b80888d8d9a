"""PUTs that stay pending until a test completes them, one after the other."""

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from tidegate_committer.loop.entry_put import PutResult
from tidegate_committer.store_executor import InlineExecutor
from tidegate_delta.errors import OutcomeUnknown

T = TypeVar("T")


@dataclass
class Held:
    """A PUT that stays pending until the test completes it."""

    work: Callable[[], PutResult]
    landing: PutResult | None = None
    is_lost: bool = False

    def done(self) -> bool:
        """Return whether it has ended."""
        return self.is_lost or self.landing is not None

    def result(self, timeout: float | None = None, /) -> PutResult:
        """Return its result. Raises: OutcomeUnknown, where no answer came."""
        if self.is_lost:
            raise OutcomeUnknown("no answer")
        assert self.landing is not None, "nobody waits for a PUT"
        return self.landing


@dataclass
class HeldPuts(InlineExecutor):
    """PUTs that complete at once, or while `is_holding` only when a test says so.

    With `lands_in_time`, `wait` completes the first pending one.
    """

    flights: list[Held] = field(default_factory=list)
    is_holding: bool = False
    lands_in_time: bool = False

    def begin(
        self, root: str, work: Callable[[], T], /, behind: Future[Any] | None = None
    ) -> Future[T]:
        """Start a PUT."""
        flight = Held(cast(Callable[[], PutResult], work))
        self.flights.append(flight)
        if not self.is_holding:
            self.land()
        return cast(Future[T], flight)

    def land(self) -> None:
        """Complete the first pending PUT."""
        for flight in self.flights:
            if not flight.done():
                flight.landing = flight.work()
                return

    def release(self) -> None:
        """Stop holding, and complete all pending PUTs."""
        self.is_holding = False
        while not all(flight.done() for flight in self.flights):
            self.land()

    def lose_first(self) -> None:
        """End the first pending PUT without an answer."""
        next(flight for flight in self.flights if not flight.done()).is_lost = True

    def wait(self, timeout_s: float) -> None:
        """Let time pass."""
        if self.lands_in_time:
            self.land()
