"""Refusals, outcomes and native groups in any order: no one waits for ever."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from tidegate_committer.verbatim.verbatim_validation import (
    AnsweredBytes,
    VerbatimPriority,
    after_answer,
    after_native_group,
)

GRACE_S = 1.0

WRITERS = st.sampled_from("abc")
BYTES = st.sampled_from("123")
STATUSES = st.sampled_from(["committed", "rejected", "denied", "expired"])
ANSWERS = st.builds(AnsweredBytes, WRITERS, BYTES, STATUSES)
EVENTS = st.lists(st.tuples(st.floats(0, 0.7), st.one_of(ANSWERS, st.none())), max_size=40)
"""Time until the next event; None stands for a native group that is ready."""


@dataclass
class Watch:
    """The verbatim priority of one table, and its history."""

    way: VerbatimPriority = field(default_factory=lambda: VerbatimPriority(GRACE_S))
    now_s: float = 0.0
    waits_since_s: float | None = None
    natives_since_hold: int = 1

    def native(self) -> None:
        if self.way.holds(self.now_s):
            self.waits_since_s = self.now_s if self.waits_since_s is None else self.waits_since_s
            return
        self.waits_since_s = None
        self.natives_since_hold += 1
        self.way = after_native_group(self.way)

    def answer(self, answer: AnsweredBytes) -> None:
        before = self.way.holds(self.now_s)
        after = after_answer(self.way, answer, self.now_s)
        if after.holds(self.now_s) and not before:
            assert self.natives_since_hold, "between two holds a native group is committed"
            self.natives_since_hold = 0
        if before:
            assert after.until_s == self.way.until_s, "a deadline does not move"
        self.way = after


@given(EVENTS)
def test_native_groups_wait_no_longer_than_one_grace(
    events: list[tuple[float, AnsweredBytes | None]],
) -> None:
    schedule = Watch()
    for passed_s, answer in events:
        schedule.now_s += passed_s
        schedule.native() if answer is None else schedule.answer(answer)
        if schedule.waits_since_s is not None and schedule.way.holds(schedule.now_s):
            assert schedule.now_s - schedule.waits_since_s <= GRACE_S


@given(EVENTS, WRITERS, BYTES)
def test_the_bytes_that_were_refused_change_nothing_when_they_come_again(
    events: list[tuple[float, AnsweredBytes | None]], writer: str, sha256: str
) -> None:
    schedule = Watch()
    for passed_s, answer in events:
        schedule.now_s += passed_s
        schedule.native() if answer is None else schedule.answer(answer)
    held = after_answer(schedule.way, AnsweredBytes(writer, sha256, "rejected"), schedule.now_s)
    again = after_answer(held, AnsweredBytes(writer, sha256, "rejected"), schedule.now_s)
    assert again == held
    if held.holds(schedule.now_s):
        assert after_answer(held, AnsweredBytes(writer, sha256, "denied"), schedule.now_s) == held


@given(st.floats(0.01, 0.95), st.integers(1, 12))
def test_who_comes_again_within_the_grace_is_served_before_any_native_group(
    retry_s: float, others: int
) -> None:
    now_s = 5.0
    way = after_answer(VerbatimPriority(GRACE_S), AnsweredBytes("w", "1", "rejected"), now_s)
    for number in range(others):
        assert way.holds(now_s + retry_s * number / others)
        way = after_answer(way, AnsweredBytes(f"o{number}", "x", "rejected"), now_s + retry_s / 2)
    assert way.holds(now_s + retry_s)
    assert "w" not in after_answer(way, AnsweredBytes("w", "2", "committed"), now_s + retry_s).owed
