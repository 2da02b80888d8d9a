"""Garbage is collected in small steps during idle time, and long-lived objects are left alone."""

import gc
import weakref
from collections.abc import Iterator

import pytest

from tidegate_runtime.gc_control import (
    AT_LEISURE,
    AT_ONCE,
    LOOKS,
    WHOLE_MAX_S,
    WHOLE_S,
    GarbageSweeper,
    paused,
)

REUSED = 200
"""Python keeps some freed lists for reuse and does not count their allocation."""


class Knot:
    """A reference cycle: only the collector frees it."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def sweeper() -> Iterator[GarbageSweeper]:
    before = gc.get_threshold()
    sweeper = GarbageSweeper(0.0)
    sweeper.begin()
    yield sweeper
    gc.unfreeze()
    gc.set_threshold(*before)


@pytest.fixture
def collections() -> Iterator[list[int]]:
    """Yield the generations that were collected."""
    result: list[int] = []

    def note(phase: str, told: dict[str, int]) -> None:
        if phase == "stop":
            result.append(told["generation"])

    gc.callbacks.append(note)
    yield result
    gc.callbacks.remove(note)


def made(count: int) -> list[list[int]]:
    return [[] for _ in range(count)]


def test_few_new_objects_are_not_collected(sweeper: GarbageSweeper, collections: list[int]) -> None:
    kept = made(AT_LEISURE // 2)
    sweeper.sweep(1.0, at_leisure=True, is_idle=False)
    assert collections == []
    assert kept


def test_new_objects_are_collected_while_idle(
    sweeper: GarbageSweeper, collections: list[int]
) -> None:
    knot = weakref.ref(Knot())
    kept = made(AT_LEISURE + REUSED)
    sweeper.sweep(1.0, at_leisure=False, is_idle=False)
    assert (collections, knot() is None) == ([], False)
    sweeper.sweep(1.0, at_leisure=True, is_idle=False)
    assert (collections, knot()) == ([0], None)
    assert kept


def test_many_new_objects_are_collected_even_while_somebody_waits(
    sweeper: GarbageSweeper, collections: list[int]
) -> None:
    kept = made(AT_ONCE + REUSED)
    sweeper.sweep(1.0, at_leisure=False, is_idle=False)
    assert collections == [0]
    assert kept


def test_surviving_objects_are_collected_once_more_and_then_frozen(
    sweeper: GarbageSweeper, collections: list[int]
) -> None:
    kept = []
    for _ in range(2 * (LOOKS + 1)):
        kept.append(made(AT_LEISURE + REUSED))
        sweeper.sweep(1.0, at_leisure=True, is_idle=False)
    assert collections == 2 * [*LOOKS * [0], 1]


def test_everything_is_collected_now_and_then_preferably_when_idle(
    sweeper: GarbageSweeper, collections: list[int]
) -> None:
    old = Knot()
    knot = weakref.ref(old)
    gc.collect(1)
    del old
    sweeper.sweep(WHOLE_S - 1, at_leisure=True, is_idle=True)
    sweeper.sweep(WHOLE_S, at_leisure=True, is_idle=False)
    assert (2 in collections, knot() is None) == (False, False)
    sweeper.sweep(WHOLE_S, at_leisure=True, is_idle=True)
    assert (collections[-1], knot()) == (2, None)
    sweeper.sweep(WHOLE_S + WHOLE_MAX_S, at_leisure=False, is_idle=False)
    assert collections.count(2) == 2


def test_the_collector_does_not_come_of_itself_in_the_midst_of_a_step(
    sweeper: GarbageSweeper, collections: list[int]
) -> None:
    assert len(made(4 * AT_ONCE)) == 4 * AT_ONCE
    assert collections == []


def test_what_a_run_left_behind_does_not_stay_for_the_next(sweeper: GarbageSweeper) -> None:
    left = Knot()
    gc.collect()
    knot = weakref.ref(left)
    del left
    assert knot() is not None
    GarbageSweeper(0.0).begin()
    assert knot() is None


def test_a_pause_ends_as_it_began() -> None:
    with paused():
        assert not gc.isenabled()
        with paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()
