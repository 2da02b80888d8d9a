"""Ranges of used values hold each value that was added, once."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tidegate_committer.intake.identity_leases import Ranges, with_range

STEPS = st.integers(1, 4)
PIECES = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 6)), max_size=20)


@given(PIECES, STEPS)
def test_a_value_is_used_once(pieces: list[tuple[int, int]], step: int) -> None:
    ranges: Ranges = ()
    taken: set[int] = set()
    for first, more in pieces:
        low, high = first * step, (first + more) * step
        values = set(range(low, high + 1, step))
        after = with_range(ranges, (low, high), step)
        assert (after is None) == bool(values & taken)
        if after is not None:
            ranges, taken = after, taken | values
        held = {value for start, end in ranges for value in range(start, end + 1, step)}
        assert held == taken
        ends = [bound for item in ranges for bound in item]
        assert ends == sorted(ends)
        gaps = pairwise(ranges)
        assert all(one[1] + step < two[0] for one, two in gaps), "neighbours become one"
