"""A small explicit-state model checker.

`explore` searches breadth first, so its counterexample is a shortest one; on request it also shows
that a goal is reachable from every reachable state. `lasso` looks for an infinite run in which a
waiting writer is never served. `walk` takes random steps where a model is too large to exhaust.
"""

import random
from array import array
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Generic, Protocol, TypeVar

from tidegate_runtime.gc_control import paused

S = TypeVar("S", bound=Hashable)

Invariant = Callable[[S], str | None]
"""Return a sentence saying how a state violates it, or None."""

Path = tuple[tuple[str, S], ...]
"""Steps: each has a label that says what happens, and the state it leads to."""


class Model(Protocol[S]):
    """States and the steps between them."""

    @property
    def invariants(self) -> Mapping[str, Invariant[S]]:
        """Invariants of every state, by name."""

    def starts(self) -> Iterable[S]:
        """Return the initial states."""

    def steps(self, state: S) -> Iterable[tuple[str, S]]:
        """Yield every possible next step."""

    def is_done(self, state: S) -> bool:
        """Whether a state is a goal of the progress check."""

    def serves(self, label: str) -> bool:
        """Whether a step serves the writer that waits; used by `lasso`."""


@dataclass(frozen=True)
class Found(Generic[S]):
    """The result of a search: no violation, a violated invariant, a trap, or an endless wait.

    `broken` is the name of the invariant, or `Trapped` or `Starvation`. `depth` is the depth of the
    deepest state, or the length of the counterexample in steps; `path` is the counterexample.
    """

    states: int
    transitions: int
    depth: int
    is_complete: bool
    broken: str | None = None
    why: str = ""
    path: Path[S] = ()


class _Search(Generic[S]):
    """A running search: the states in order of discovery, and the predecessor of each.

    `targets` are the successors' numbers, state by state; `ends` says where those of each state
    end.
    """

    def __init__(self, model: Model[S]) -> None:
        self.model = model
        self.numbers: dict[S, int] = {}
        self.order: list[S] = []
        self.parents = array("q")
        self.targets = array("q")
        self.ends = array("q")
        self.invariants = tuple(model.invariants.items())
        self.transitions = self.depth = self.place = 0

    def run(self, states_max: int, *, keeps_edges: bool) -> tuple[str, str] | None:
        """Search up to the first violation; return its name and the reason, or None."""
        for start in self.model.starts():
            if start not in self.numbers and (wrong := self._add(start, -1)):
                return wrong
        level_end = len(self.order)
        while self.place < len(self.order) < states_max:
            if self.place == level_end:
                self.depth += 1
                level_end = len(self.order)
            for _, following in self.model.steps(self.order[self.place]):
                self.transitions += 1
                is_new = following not in self.numbers
                if is_new and (wrong := self._add(following, self.place)):
                    return wrong
                if keeps_edges:
                    self.targets.append(self.numbers[following])
            self.ends.append(len(self.targets))
            self.place += 1
        return None

    def _add(self, state: S, parent: int) -> tuple[str, str] | None:
        self.numbers[state] = len(self.order)
        self.order.append(state)
        self.parents.append(parent)
        for name, invariant in self.invariants:
            why = invariant(state)
            if why:
                return name, why
        return None

    def path(self, number: int) -> Path[S]:
        """Return the path to a state; labels are computed again, not stored."""
        states = []
        while number >= 0:
            states.append(self.order[number])
            number = self.parents[number]
        states.reverse()
        labels = (
            next(label for label, following in self.model.steps(before) if following == after)
            for before, after in pairwise(states)
        )
        return tuple(zip(("start", *labels), states, strict=True))

    def trapped(self) -> int | None:
        """Return the first state from which no goal is reachable, or None."""
        targets, ends = self.targets, self.ends
        good = bytearray(self.model.is_done(state) for state in self.order)
        has_changed = True
        while has_changed:
            has_changed = False
            # Later states are nearer to a goal, so going backwards needs few rounds.
            for number in range(len(good) - 1, -1, -1):
                start = ends[number - 1] if number else 0
                if not good[number] and any(good[other] for other in targets[start : ends[number]]):
                    good[number] = 1
                    has_changed = True
        number = good.find(0)
        return None if number < 0 else number


def explore(model: Model[S], states_max: int, *, asks_progress: bool = False) -> Found[S]:
    """Search breadth first, up to the first violation or until all states are found."""
    with paused():
        search = _Search(model)
        wrong = search.run(states_max, keeps_edges=asks_progress)
        is_complete = not wrong and search.place == len(search.order)
        path: Path[S] = ()
        if wrong:
            path = search.path(len(search.order) - 1)
        elif asks_progress and is_complete and (trapped := search.trapped()) is not None:
            wrong = ("Trapped", "from here no goal can be reached any more")
            path = search.path(trapped)
    name, why = wrong or (None, "")
    # If nothing stopped the search, the depth is that of the deepest state, trap or not.
    depth = search.depth if is_complete or not path else len(path) - 1
    return Found(len(search.order), search.transitions, depth, is_complete, name, why, path)


def lasso(model: Model[S], states_max: int) -> Found[S]:
    """Look for a reachable cycle of steps none of which serves the waiting writer.

    It checks the invariants on the way. The path is the stem, and after `again and again` the
    cycle.
    """
    result = explore(model, states_max)
    if result.broken or not result.is_complete:
        return result
    stems = _stems(model)
    cycle = _cycle(model, stems)
    if cycle is None:
        return result
    stem: list[tuple[str, S]] = []
    state: S | None = cycle[-1][1]
    while state is not None:
        before, label = stems[state]
        stem.append((label, state))
        state = before
    path = (*reversed(stem), ("again and again", cycle[-1][1]), *cycle)
    why = f"a cycle of {len(cycle)} steps serves nobody who waits"
    return Found(result.states, result.transitions, result.depth, True, "Starvation", why, path)


def _stems(model: Model[S]) -> dict[S, tuple[S | None, str]]:
    """Return for each state its first predecessor and the label of that step."""
    stems: dict[S, tuple[S | None, str]] = {start: (None, "start") for start in model.starts()}
    order = list(stems)
    for state in order:
        for label, following in model.steps(state):
            if following not in stems:
                stems[following] = (state, label)
                order.append(following)
    return stems


def _cycle(model: Model[S], states: Iterable[S]) -> list[tuple[str, S]] | None:
    """Return a cycle of steps that do not serve, or None.

    Depth first, without recursion.
    """
    on_path, done = set[S](), set[S]()
    for root in states:
        if root in done:
            continue
        path: list[tuple[str, S, Iterator[tuple[str, S]]]] = [("", root, _idle(model, root))]
        on_path.add(root)
        while path:
            label, following = next(path[-1][2], ("", None))
            if following is None:
                _, state, _ = path.pop()
                on_path.remove(state)
                done.add(state)
            elif following in on_path:
                start = next(place for place, step in enumerate(path) if step[1] == following)
                return [*((one, two) for one, two, _ in path[start + 1 :]), (label, following)]
            elif following not in done:
                path.append((label, following, _idle(model, following)))
                on_path.add(following)
    return None


def _idle(model: Model[S], state: S) -> Iterator[tuple[str, S]]:
    return (step for step in model.steps(state) if not model.serves(step[0]))


def walk(model: Model[S], seeds: Iterable[int], steps_max: int = 120) -> Found[S]:
    """Take random steps, one walk per seed, up to the first violation.

    Depth is the longest walk.
    """
    transitions = longest = 0
    for seed in seeds:
        dice = random.Random(seed)
        state = dice.choice(list(model.starts()))
        path: list[tuple[str, S]] = [("start", state)]
        for _ in range(steps_max):
            # Sorted by label, because steps come out of sets, whose order is arbitrary.
            choices = sorted(model.steps(state), key=lambda step: step[0])
            if not choices:
                break
            path.append(dice.choice(choices))
            state = path[-1][1]
            transitions += 1
            for name, invariant in model.invariants.items():
                if why := invariant(state):
                    result = f"seed {seed}: {why}"
                    length = len(path) - 1
                    return Found(0, transitions, length, False, name, result, tuple(path))
        longest = max(longest, len(path) - 1)
    return Found(0, transitions, longest, is_complete=False)
