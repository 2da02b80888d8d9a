"""The line before a desk: first come first served, and fair to all who sent."""

from hypothesis import given
from hypothesis import strategies as st

from tests.builders import NOW_MS, add, proposal, value_of
from tidegate.committer.candidate import Candidate
from tidegate.committer.intake import read_record
from tidegate.committer.line import Line
from tidegate.committer.policy import Policy


def line_of(producers: str) -> Line:
    line = Line()
    for offset, producer in enumerate(producers):
        value = value_of(proposal(add(f"f{offset}"), created_ms=NOW_MS))
        candidate = read_record(value, offset, Policy(), (("producer", producer.encode()),))
        assert isinstance(candidate, Candidate)
        line.join(candidate, float(offset))
    return line


def offsets(line: Line) -> list[int]:
    return [one.candidate.offset for one in line.waiting]


def test_where_all_fit_the_order_of_arrival_stays() -> None:
    line = line_of("aaab")
    line.share_out(0, 4)
    assert offsets(line) == [0, 1, 2, 3]


def test_a_flood_lets_another_producer_into_the_next_entry() -> None:
    line = line_of("aaaaaab")
    line.share_out(0, 3)
    assert offsets(line)[:3] == [0, 1, 6]


def test_what_is_being_written_keeps_its_places() -> None:
    line = line_of("aaaaaab")
    line.share_out(2, 2)
    assert offsets(line)[:4] == [0, 1, 2, 6]


@given(st.text("abc", max_size=12), st.integers(0, 4), st.integers(1, 5))
def test_nobody_is_lost_or_overtakes_himself(producers: str, start: int, count: int) -> None:
    line = line_of(producers)
    line.share_out(start, count)
    found = offsets(line)
    assert sorted(found) == list(range(len(producers)))
    assert found[:start] == list(range(len(producers)))[:start]
    for name in set(producers):
        own = [offset for offset in found if producers[offset] == name]
        assert own == sorted(own)
