"""PUTs that fly until a test lets them land, one after the other."""

from dataclasses import dataclass, field

from tidegate_committer.put_executor import PendingPut, PutCall, PutResult
from tidegate_delta.errors import OutcomeUnknown


@dataclass
class Held:
    """A PUT that flies until the test lets it land."""

    work: PutCall
    landing: PutResult | None = None
    is_lost: bool = False

    def done(self) -> bool:
        """Return whether it was let down."""
        return self.is_lost or self.landing is not None

    def result(self, timeout: float | None = None, /) -> PutResult:
        """Return how it ended. Raises: OutcomeUnknown, where no answer came."""
        if self.is_lost:
            raise OutcomeUnknown("no answer")
        assert self.landing is not None, "nobody waits for a PUT"
        return self.landing


@dataclass
class HeldPuts:
    """PUTs that land at once, or when told, while `is_holding`; `lands_in_time`: who waits, too."""

    flights: list[Held] = field(default_factory=list)
    is_holding: bool = False
    lands_in_time: bool = False

    def start(self, root: str, work: PutCall, behind: PendingPut | None = None) -> Held:
        """Send one."""
        flight = Held(work)
        self.flights.append(flight)
        if not self.is_holding:
            self.land()
        return flight

    def land(self) -> None:
        """Let the first one land that has not."""
        for flight in self.flights:
            if not flight.done():
                flight.landing = flight.work()
                return

    def release(self) -> None:
        """Hold no more, and let land what was held."""
        self.is_holding = False
        while not all(flight.done() for flight in self.flights):
            self.land()

    def lose_first(self) -> None:
        """Let the first one that has not landed end without an answer."""
        next(one for one in self.flights if not one.done()).is_lost = True

    def wait(self, timeout_s: float) -> None:
        """Let time pass."""
        if self.lands_in_time:
            self.land()

    def close(self) -> None:
        """Do nothing."""
