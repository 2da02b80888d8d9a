"""Whose turn it is among tables with long work."""

from math import inf
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from tests.builders import StillClock
from tidegate_checkpointer.table_turns import DEADLINE_S, SHORT_S, TableTurns

TABLE, OTHER = UUID(int=1), UUID(int=2)


@given(st.floats(0, 100), st.floats(0, 100), st.floats(0, 50), st.integers(0, 5), st.integers(0, 5))
def test_cost_wait_and_readers_make_a_table_urgent(
    cost_s: float, more_s: float, waited_s: float, readers: int, more: int
) -> None:
    clock = StillClock(epoch_ms=0)
    turns = TableTurns(clock, {TABLE: readers, OTHER: readers + more})
    turns.wait(OTHER, cost_s + more_s)
    clock.sleep(1.0)
    turns.wait(TABLE, cost_s)
    clock.sleep(waited_s)
    assert turns.urgency(OTHER) >= turns.urgency(TABLE)


def test_no_table_waits_beyond_the_deadline_behind_one_that_has_not() -> None:
    clock = StillClock(epoch_ms=0)
    turns = TableTurns(clock)
    turns.wait(OTHER, 0.0)
    clock.sleep(DEADLINE_S)
    turns.wait(OTHER, 0.0)
    turns.wait(TABLE, 1e9)
    clock.sleep(1.0)
    assert turns.urgency(OTHER) == inf > turns.urgency(TABLE)


def test_a_table_rests_as_long_as_its_turn_took() -> None:
    clock = StillClock(epoch_ms=0)
    turns = TableTurns(clock)
    turns.wait(TABLE, 1.0)
    turns.took(TABLE, 5.0)
    clock.sleep(4.9)
    assert turns.unfinished() == []
    clock.sleep(0.2)
    assert turns.unfinished() == [TABLE]
    turns.took(TABLE, SHORT_S)
    assert turns.unfinished() == [TABLE]
    turns.finish(TABLE)
    assert turns.unfinished() == []
