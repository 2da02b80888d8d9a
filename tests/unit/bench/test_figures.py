"""Comparison of a benchmark figure with its recorded value."""

import pytest

from bench.figures import Figure, Recorded, at_least, at_most, lost, verdicts


def figure(ratio: float, recorded: Recorded | None, is_met: bool | None = None) -> Figure:
    return Figure("events/s", "ours", "peer", ratio, ">= 0.45", is_met=is_met, recorded=recorded)


@pytest.mark.parametrize(
    ("ratio", "recorded"),
    [(0.04, at_least(0.36)), (0.0, at_least(0.36)), (0.6, at_most(0.29)), (0.1, at_most(0.0))],
)
def test_a_figure_that_is_far_worse_than_recorded_is_lost(ratio: float, recorded: Recorded) -> None:
    one = figure(ratio, recorded)
    assert lost([one]) == [one]
    [line, _] = verdicts([one])
    assert line.startswith("LOST: events/s: the ratio is")


@pytest.mark.parametrize(
    ("ratio", "recorded"),
    [
        (0.19, at_least(0.36)),
        (3.6, at_least(0.36)),
        (0.57, at_most(0.29)),
        (0.0, at_most(0.29)),
        (0.0, at_most(0.0)),
        (0.04, None),
    ],
)
def test_what_work_beside_it_explains_is_not_lost(ratio: float, recorded: Recorded | None) -> None:
    assert lost([figure(ratio, recorded)]) == []


def test_a_figure_that_misses_its_goal_is_named_and_all_are_counted() -> None:
    met, missed = figure(0.5, at_least(0.36), True), figure(0.37, at_least(0.36), False)
    assert verdicts([met, missed, figure(1.0, None)]) == [
        "misses its goal: events/s: >= 0.45; ours",
        "of 3 figures 1 miss their goals; of 2 that are recorded 0 are lost",
    ]
