"""A token bucket: a burst, and then so many a second."""

from dataclasses import dataclass


@dataclass
class TokenBucket:
    """How many refusals may be written into a table's log. Units: `at_s` by `Clock.boot_s`."""

    burst: int
    rate_s: float
    tokens: float
    at_s: float

    def left(self, now_s: float) -> int:
        """Return how many may be written now."""
        self.tokens = min(self.burst, self.tokens + (now_s - self.at_s) * self.rate_s)
        self.at_s = now_s
        return int(self.tokens)
