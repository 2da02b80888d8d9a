"""One stream writer on the slow store, with more and more proposals in flight.

What a writer gains by not waiting for each outcome, and what it waits for one then.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from bench.committer_line import CommitterLine
from bench.committing import Run, cpu_us, lost, middle, slow_run
from bench.figures import Figure

DEPTHS: Final = (4, 16, 64, 256)
"""How many proposals are in flight; each run is compared with one of a single proposal."""


@dataclass
class InFlight:
    """One connection that keeps some proposals in flight, each of one file."""

    seconds: float
    runs: dict[int, list[Run]] = field(default_factory=dict)

    def measure(self, line: CommitterLine, number: int) -> None:
        """Measure a round."""
        for depth in (1, *DEPTHS):
            name = f"in-flight-{depth}-{number}"
            run = slow_run(line, line.gate, name, depth, self.seconds / 2)
            self.runs.setdefault(depth, []).append(run)

    def figures(self) -> list[Figure]:
        """Return the rate and the wait at each depth, by those of one proposal at a time."""
        alone = self.runs[1]
        return [_figure(depth, self.runs[depth], alone) for depth in DEPTHS]


def _figure(depth: int, runs: Sequence[Run], alone: Sequence[Run]) -> Figure:
    rate, rate_alone = middle(runs, "per_s"), middle(alone, "per_s")
    return Figure(
        f"{depth} proposals in flight, slow store",
        f"{rate:.0f}/s, p50 {middle(runs, 'p50_ms'):.0f}, p99 {middle(runs, 'p99_ms'):.0f} ms",
        f"1 in flight: {rate_alone:.0f}/s, p50 {middle(alone, 'p50_ms'):.0f} ms",
        rate / rate_alone,
        "-",
        f"{cpu_us(runs)} each; {lost(runs)} not committed",
        recorded=None,
    )
