"""A case: a model with a setting, its search, and the expected result."""

import csv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.model.checker import Found, Model, explore, lasso

STATES_MAX: Final = 6_000_000
FIGURES: Final = Path(__file__).with_name("figures.csv")


@dataclass(frozen=True)
class Case:
    """A search. `broken` is the invariant it must violate, or `Trapped` or `Starvation`.

    `waits` makes it look for an endless wait.
    """

    name: str
    why: str
    model: Model[Any]
    broken: str | None = None
    asks_progress: bool = False
    waits: bool = False

    @property
    def checks(self) -> int:
        """How much it checks: invariants, and progress."""
        return len(self.model.invariants) + self.asks_progress

    def run(self) -> Found[Any]:
        """Search the model."""
        if self.waits:
            return lasso(self.model, STATES_MAX)
        asks = self.asks_progress or self.broken == "Trapped"
        return explore(self.model, STATES_MAX, asks_progress=asks)


@dataclass(frozen=True)
class Figures:
    """The size of a search. `states` is None unless the search was complete."""

    states: int | None
    depth: int


def figures() -> dict[str, Figures]:
    """Return the recorded figures of each case, by name."""
    with FIGURES.open() as file:
        return {
            row["name"]: Figures(int(row["states"]) if row["states"] else None, int(row["depth"]))
            for row in csv.DictReader(file)
        }


def found_figures(found: Found[Any]) -> Figures:
    """Return the figures of a search.

    If it stopped early, the number of states depends on the order of steps; only the length of the
    shortest counterexample is well-defined.
    """
    return Figures(found.states if found.is_complete else None, found.depth)


def named(cases: Iterable[Case]) -> dict[str, Case]:
    """Return cases by name.

    Raises: ValueError for a name that two cases have.
    """
    result: dict[str, Case] = {}
    for case in cases:
        if case.name in result:
            raise ValueError(f"two cases are called {case.name}")
        result[case.name] = case
    return result


def smallest_configurations(
    cases: Mapping[str, Case], sizes: Mapping[str, Figures]
) -> dict[type[Model[Any]], str]:
    """Return the name of each model's smallest configuration.

    Of the cases in which every invariant holds and that check most, it has the fewest states.
    """
    result: dict[type[Model[Any]], str] = {}

    def rank(name: str) -> tuple[int, int]:
        return -cases[name].checks, sizes[name].states or STATES_MAX

    for name in sorted((name for name, case in cases.items() if not case.broken), key=rank):
        result.setdefault(type(cases[name].model), name)
    return result
