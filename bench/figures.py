"""A figure of the benchmark: ours beside a peer or a limit of the same run, and how it is shown."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Final

from rich.console import Console
from rich.table import Table

LOST: Final = 2.0
"""A figure is lost if it is this many times worse than recorded: other load can't explain that."""


@dataclass(frozen=True)
class Recorded:
    """The ratio in docs/performance.md, and which way is better."""

    ratio: float
    is_higher_better: bool

    def times_worse(self, ratio: float) -> float:
        """Return how many times worse a ratio is; 1 or less if it is as good or better."""
        better, worse = (ratio, self.ratio) if self.is_higher_better else (self.ratio, ratio)
        return worse / better if better else inf if worse else 1.0


def at_least(ratio: float) -> Recorded:
    """Return a recorded ratio for which more is better."""
    return Recorded(ratio, True)


def at_most(ratio: float) -> Recorded:
    """Return a recorded ratio for which less is better."""
    return Recorded(ratio, False)


@dataclass(frozen=True)
class Figure:
    """One line of the table. `ratio` is ours divided by the peer's, or by the limit's, as the goal
    says.

    `is_met` is None if there is no goal; `recorded` is None if no ratio compares.
    """

    measure: str
    ours: str
    peer: str
    ratio: float
    goal: str
    note: str = ""
    limit: str = ""
    is_met: bool | None = None
    recorded: Recorded | None = field(kw_only=True)

    @property
    def times_worse(self) -> float:
        """Return how many times worse it is than recorded."""
        return 1.0 if self.recorded is None else self.recorded.times_worse(self.ratio)


def median(values: Sequence[float]) -> float:
    """Return the median, or 0 for no values."""
    return statistics.median(values) if values else 0.0


def percentile(values: Sequence[float], percent: float) -> float:
    """Return a percentile by the nearest rank, or 0 for no values."""
    if not values:
        return 0.0
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(percent / 100 * len(ranked)))]


def show(figures: Sequence[Figure]) -> None:
    """Print the figures as one table, and the names of those that miss their goals or are lost."""
    console = Console(width=170)
    table = Table(title="Figures, each beside its peer or limit in the same run")
    for name in ("measure", "peer", "ours", "limit", "ratio", "recorded", "goal", "met?", "note"):
        table.add_column(name, overflow="fold")
    for figure in figures:
        met = {None: "", True: "yes", False: "NO"}[figure.is_met]
        before = f"{figure.recorded.ratio:.2g}" if figure.recorded else ""
        columns = (
            figure.peer,
            figure.ours,
            figure.limit,
            f"{figure.ratio:.2g}",
            before,
            figure.goal,
            met,
        )
        table.add_row(figure.measure, *columns, figure.note)
    console.print(table)
    for line in verdicts(figures):
        console.print(line, markup=False, highlight=False)


def verdicts(figures: Sequence[Figure]) -> list[str]:
    """Return a line for each figure that misses its goal or is lost, and one that counts them."""
    missed = [figure for figure in figures if figure.is_met is False]
    lost_figures = lost(figures)
    lines = [
        f"misses its goal: {figure.measure}: {figure.goal}; {figure.ours}" for figure in missed
    ]
    for figure in lost_figures:
        before = figure.recorded.ratio if figure.recorded else 0.0
        lines.append(
            f"LOST: {figure.measure}: the ratio is {figure.ratio:.2g} and was {before:.2g} in "
            f"docs/performance.md: {figure.times_worse:.1f} times worse; find the commit that lost "
            "it"
        )
    compared = sum(figure.recorded is not None for figure in figures)
    counted = f"of {len(figures)} figures {len(missed)} miss their goals"
    return [*lines, f"{counted}; of {compared} that are recorded {len(lost_figures)} are lost"]


def lost(figures: Sequence[Figure]) -> list[Figure]:
    """Return the figures that are far worse than recorded."""
    return [figure for figure in figures if figure.times_worse > LOST]
