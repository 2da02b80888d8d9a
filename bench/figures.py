"""A figure of the benchmark: ours beside a peer or a limit of the same run, and how it is shown."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Figure:
    """One line of the table. `ratio` is ours by the peer's, or by the limit's, as the goal says.

    `is_met` is None where the goal is none, or nobody can say.
    """

    measure: str
    ours: str
    peer: str
    ratio: float
    goal: str
    note: str = ""
    limit: str = ""
    is_met: bool | None = None


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
    """Print the figures as one table."""
    table = Table(title="Figures, each beside its peer or limit in the same run")
    for name in ("measure", "peer", "ours", "limit", "ratio", "goal", "met?", "note"):
        table.add_column(name, overflow="fold")
    for one in figures:
        met = {None: "", True: "yes", False: "NO"}[one.is_met]
        ratio = f"{one.ratio:.2f}"
        table.add_row(one.measure, one.peer, one.ours, one.limit, ratio, one.goal, met, one.note)
    Console(width=170).print(table)
