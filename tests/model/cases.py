"""A case: a model under a setting, what it shows, and what is expected of it."""

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.model.checker import Found, Model, explore, lasso

STATES_MAX: Final = 6_000_000
FIGURES: Final = Path(__file__).with_name("figures.csv")


@dataclass(frozen=True)
class Case:
    """A search. `broken` is the invariant that must be violated, `Trapped` or `Starvation`.

    `is_large` is for the nightly run. `waits` looks for an endless wait.
    """

    name: str
    why: str
    model: Model[Any]
    broken: str | None = None
    asks_progress: bool = False
    is_large: bool = False
    waits: bool = False

    def run(self) -> Found[Any]:
        """Search the model."""
        if self.waits:
            return lasso(self.model, STATES_MAX)
        asks = self.asks_progress or self.broken == "Trapped"
        return explore(self.model, STATES_MAX, asks_progress=asks)


@dataclass(frozen=True)
class Figures:
    """How large a search is. `states` are those of a search that came to its end, else None."""

    states: int | None
    depth: int


def figures() -> dict[str, Figures]:
    """Return what each case is known to come to, by name."""
    with FIGURES.open() as file:
        return {
            row["name"]: Figures(int(row["states"]) if row["states"] else None, int(row["depth"]))
            for row in csv.DictReader(file)
        }


def found_figures(found: Found[Any]) -> Figures:
    """Return what a search came to; where it stopped early the order of the steps decides how many
    states it saw, and only the length of the shortest counterexample is a fact."""
    return Figures(found.states if found.is_complete else None, found.depth)


def named(cases: Iterable[Case]) -> dict[str, Case]:
    """Return cases by name. Raises: ValueError for a name that two have."""
    found: dict[str, Case] = {}
    for case in cases:
        if case.name in found:
            raise ValueError(f"two cases are called {case.name}")
        found[case.name] = case
    return found
