"""The fair queue of a table committer: first come first served, and fair among producers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import NOW_MS, add, compact, proposal, value_of
from tidegate_committer.group_commit.fair_queue import REWRITE_WAITS_S, FairQueue
from tidegate_committer.intake.candidate import Candidate
from tidegate_committer.intake.proposal_reader import read_record
from tidegate_committer.policy import Policy


def line_of(producers: str) -> FairQueue:
    line = FairQueue()
    for offset, producer in enumerate(producers):
        value = value_of(proposal(add(f"f{offset}"), created_ms=NOW_MS))
        candidate = read_record(value, offset, Policy(), (("producer", producer.encode()),))
        assert isinstance(candidate, Candidate)
        line.join(candidate, float(offset))
    return line


def offsets(line: FairQueue) -> list[int]:
    return [item.candidate.offset for item in line.waiting]


@pytest.mark.parametrize(
    ("producers", "start", "count", "order"),
    [
        pytest.param("aaab", 0, 4, [0, 1, 2, 3], id="where all fit the order of arrival stays"),
        pytest.param("aaaaaab", 0, 3, [0, 1, 6, 2, 3, 4, 5], id="a flood lets another in"),
        pytest.param("aaab", 1, 1, [0, 3, 1, 2], id="who is on the way lets others be next"),
        pytest.param("aaaaaab", 2, 2, [0, 1, 2, 6, 3, 4, 5], id="what is written keeps its place"),
    ],
)
def test_an_entry_is_shared_out(producers: str, start: int, count: int, order: list[int]) -> None:
    line = line_of(producers)
    line.share_out(start, count, 0.0)
    assert offsets(line) == order


def batch_of(line: FairQueue, start: int, most: int, bytes_max: int) -> list[int]:
    return [item.offset for item in line.batch(start, most, bytes_max)]


def test_no_more_are_polled_at_once_than_may_share_an_entry() -> None:
    line = line_of("abcde")
    size = line[0].candidate.size
    assert batch_of(line, 0, 3, 10 * size) == [0, 1, 2]
    assert batch_of(line, 2, 3, 10 * size) == [2], "who is decided on counts"
    assert batch_of(line, 0, 5, 2 * size) == [0, 1]
    assert batch_of(line, 0, 5, size // 2) == [0], "who stands first always has his turn"
    assert batch_of(line, 1, 5, size // 2) == [], "and is alone then"


def served(producers: str, count: int) -> list[str]:
    """Return the producers of each entry in turn, for entries of `count` proposals."""
    line, seen = line_of(producers), []
    while line:
        line.share_out(0, count, 0.0)
        members = [item.candidate.producer for item in line.waiting][:count]
        seen.append("".join(members))
        line.served(len(members))
    return seen


def test_a_flood_lets_others_in_where_an_entry_holds_one_proposal() -> None:
    assert served("aaaaaab", 1) == ["a", "b", "a", "a", "a", "a", "a"]
    assert served("aaaaabcbc", 1)[:5] == ["a", "b", "a", "c", "a"]


def test_who_was_left_out_of_an_entry_comes_first_in_the_next() -> None:
    assert served("abcdabcd", 3) == ["abc", "dab", "cd"]
    assert "d" in served("aabbcdcd", 3)[1]


@given(st.text("abc", max_size=12), st.integers(0, 4), st.integers(1, 5))
def test_nobody_is_lost_or_overtakes_himself(producers: str, start: int, count: int) -> None:
    line = line_of(producers)
    line.share_out(start, count, 0.0)
    result = offsets(line)
    assert sorted(result) == list(range(len(producers)))
    assert result[:start] == list(range(len(producers)))[:start]
    for name in set(producers):
        own = [offset for offset in result if producers[offset] == name]
        assert own == sorted(own)


def in_rounds(waiting: str, count: int, before: str) -> list[int]:
    """Return the places served next: round by round, producers not in `before` first."""
    names = sorted(dict.fromkeys(waiting), key=lambda name: name in before)
    queues = {name: [place for place, one in enumerate(waiting) if one == name] for name in names}
    longest = max(map(len, queues.values()), default=0)
    rounds = [own[turn] for turn in range(longest) for own in queues.values() if turn < len(own)]
    return sorted(rounds[:count])


@given(st.text("abcdef", max_size=12), st.integers(0, 4), st.integers(1, 5))
def test_turns_are_taken_in_rounds(producers: str, start: int, count: int) -> None:
    line = line_of(producers)
    line.share_out(start, count, 0.0)
    chosen = in_rounds(producers[start:], count, producers[:start])
    assert offsets(line)[start : start + count] == [start + place for place in chosen]


def joined(line: FairQueue, producer: str, offset: int, at_s: float) -> None:
    """Let a candidate join; that of a producer in upper case is a rewrite."""
    one = compact({"a": 1}, "g") if producer.isupper() else proposal(add("f"), created_ms=NOW_MS)
    headers = (("producer", producer.lower().encode()),)
    candidate = read_record(value_of(one), offset, Policy(), headers)
    assert isinstance(candidate, Candidate)
    line.join(candidate, at_s)


def mixed(producers: str) -> FairQueue:
    """Return a queue in which the producers in upper case propose rewrites, one a second."""
    line = FairQueue()
    for offset, producer in enumerate(producers):
        joined(line, producer, offset, float(offset))
    return line


def test_a_rewrite_lets_others_go_first_that_came_after_it() -> None:
    line = mixed("aMbMc")
    assert offsets(line) == [0, 2, 4]
    line.share_out(0, 9, 4.0)
    line.served(3)
    assert offsets(line) == [1], "one at a time, so that others need not wait for all of them"
    joined(line, "d", 5, 5.0)
    line.served(1)
    assert offsets(line) == [5]
    line.served(1)
    assert offsets(line) == [3]
    line.served(1)
    assert not line


def test_a_rewrite_waits_for_a_bounded_time_only() -> None:
    line = mixed("aMb")
    line.share_out(1, 9, 1 + REWRITE_WAITS_S)
    assert offsets(line) == [0, 2]
    line.share_out(1, 9, 1.1 + REWRITE_WAITS_S)
    assert offsets(line) == [0, 1, 2], "what is under way keeps its place"


def test_what_comes_after_a_rewrite_of_its_producer_stays_behind_it() -> None:
    line = mixed("aMmb")
    assert offsets(line) == [0, 3]
    line.served(2)
    assert offsets(line) == [1, 2]


def test_a_rewrite_does_not_wait_for_what_is_read_but_for_its_own_series() -> None:
    line = mixed("aM")
    line.defer(0, 1, lambda candidate: candidate.producer == "a")
    assert offsets(line) == [1]
    line = mixed("mM")
    line.defer(0, 1, lambda candidate: True)
    assert offsets(line) == []
    line.bring_back(0)
    assert offsets(line) == [0]
    line.defer(0, 1, lambda candidate: True)
    line.remove_deferred(lambda candidate: True)
    assert offsets(line) == [1]


def test_a_rewrite_that_nobody_waits_beside_is_decided_at_once() -> None:
    line = mixed("M")
    assert offsets(line) == [0]
    line.leave({0})
    assert not line
    line = mixed("aMN")
    assert [item.candidate.offset for item in line.everybody()] == [0, 1, 2]
    assert not line


@given(st.text("abMN", max_size=12), st.lists(st.sampled_from("sld"), max_size=12))
def test_with_rewrites_nobody_is_lost_or_overtakes_himself(
    producers: str, steps: list[str]
) -> None:
    line, order = FairQueue(), list[int]()
    for offset, producer in enumerate(producers):
        joined(line, producer, offset, float(offset))
        for step in steps[offset : offset + 1]:
            if step == "l":
                line.share_out(0, 2, float(offset) + REWRITE_WAITS_S)
            elif line.waiting:
                order.append(line[0].candidate.offset)
                line.served(1)
        assert bool(line.waiting) or not line.behind
    while line:
        order.append(line[0].candidate.offset)
        line.served(1)
    assert sorted(order) == list(range(len(producers)))
    for name in "abmn":
        own = [offset for offset in order if producers[offset].lower() == name]
        assert own == sorted(own)
