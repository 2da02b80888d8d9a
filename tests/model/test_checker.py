"""Check the checker on graphs with known answers: if it finds nothing, it proves nothing."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import pytest

from tests.model.checker import Invariant, explore, lasso, walk


@dataclass(frozen=True)
class Arrows:
    """A graph given by its edges; a label is `from>to`."""

    arrows: Mapping[int, tuple[int, ...]]
    goals: frozenset[int] = frozenset()
    serving: frozenset[str] = frozenset()
    forbidden: frozenset[int] = frozenset()
    first: tuple[int, ...] = (0,)
    told: list[int] = field(default_factory=list, compare=False)

    @property
    def invariants(self) -> Mapping[str, Invariant[int]]:
        """States that are forbidden."""
        return {"Allowed": lambda state: f"{state} is not" if state in self.forbidden else None}

    def starts(self) -> Iterable[int]:
        """Return the initial states."""
        return self.first

    def steps(self, state: int) -> Iterable[tuple[str, int]]:
        """Yield the edges."""
        return ((f"{state}>{other}", other) for other in self.arrows.get(state, ()))

    def is_done(self, state: int) -> bool:
        """Whether a state is a goal."""
        return state in self.goals

    def serves(self, label: str) -> bool:
        """Whether an edge serves."""
        return label in self.serving


DIAMOND = {0: (1, 2), 1: (3,), 2: (3, 4), 4: (5,)}


def test_it_counts_states_transitions_and_depth() -> None:
    result = explore(Arrows(DIAMOND), 100)
    assert (result.states, result.transitions, result.depth) == (6, 6, 3)
    assert result.is_complete
    assert result.broken is None


def test_it_finds_a_shortest_counterexample() -> None:
    loops = {0: (1, 9), 1: (2,), 2: (9,), 9: ()}
    result = explore(Arrows(loops, forbidden=frozenset({9})), 100)
    assert (result.broken, result.why, result.depth) == ("Allowed", "9 is not", 1)
    assert result.path == (("start", 0), ("0>9", 9))


def test_it_checks_where_a_run_begins() -> None:
    result = explore(Arrows({}, forbidden=frozenset({0})), 100)
    assert (result.broken, result.depth) == ("Allowed", 0)


def test_the_checker_reports_that_it_did_not_finish() -> None:
    assert not explore(Arrows(DIAMOND), 3).is_complete


def test_it_finds_a_trap_and_the_way_into_it() -> None:
    result = explore(Arrows(DIAMOND, goals=frozenset({3})), 100, asks_progress=True)
    assert (result.broken, result.path[-1][1]) == ("Trapped", 4)


def test_a_goal_that_can_be_reached_through_a_circle_is_no_trap() -> None:
    circle = {0: (1,), 1: (2,), 2: (0, 3)}
    result = explore(Arrows(circle, goals=frozenset({3})), 100, asks_progress=True)
    assert result.broken is None


def test_it_finds_an_endless_wait() -> None:
    circle = {0: (1,), 1: (2,), 2: (1, 3)}
    result = lasso(Arrows(circle), 100)
    assert result.broken == "Starvation"
    assert [state for _, state in result.path] == [0, 1, 1, 2, 1]


def test_a_circle_that_serves_is_no_endless_wait() -> None:
    circle = {0: (1,), 1: (2,), 2: (1, 3)}
    assert lasso(Arrows(circle, serving=frozenset({"1>2"})), 100).broken is None


def test_a_state_that_was_left_is_not_on_the_way_any_more() -> None:
    assert lasso(Arrows({0: (1, 2), 1: (3,), 2: (3,), 3: ()}), 100).broken is None


@pytest.mark.parametrize("search", [explore, lasso])
def test_both_searches_check_the_invariants(search: Callable[..., object]) -> None:
    result = search(Arrows(DIAMOND, forbidden=frozenset({5})), 100)
    assert getattr(result, "broken", None) == "Allowed"


def test_a_walk_is_the_same_for_the_same_seed_and_finds_what_it_meets() -> None:
    model = Arrows(DIAMOND, forbidden=frozenset({5}))
    result = walk(model, range(50))
    assert result == walk(model, range(50))
    assert result.broken == "Allowed"
    assert result.why.startswith("seed ")
