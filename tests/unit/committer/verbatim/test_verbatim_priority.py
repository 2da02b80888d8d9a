from tidegate_committer.verbatim.verbatim_validation import (
    AnsweredBytes,
    VerbatimPriority,
    after_answer,
    after_native_group,
)
from tidegate_messages.outcome import Status

FREE = VerbatimPriority(1.0)


def answered(
    way: VerbatimPriority, writer: str, sha256: str, status: Status, now_s: float
) -> VerbatimPriority:
    return after_answer(way, AnsweredBytes(writer, sha256, status), now_s)


def test_a_refusal_holds_native_groups_until_a_deadline() -> None:
    way = answered(FREE, "a", "1", "rejected", 10.0)
    assert way.holds(10.0)
    assert way.holds(10.999)
    assert not way.holds(11.0)


def test_other_bytes_with_any_answer_but_a_refusal_end_the_hold() -> None:
    held = answered(FREE, "a", "1", "rejected", 10.0)
    assert not answered(held, "a", "2", "committed", 10.1).holds(10.1)
    assert not answered(held, "a", "2", "denied", 10.1).holds(10.1)
    assert not answered(held, "a", "2", "expired", 10.1).holds(10.1)


def test_a_repeat_neither_ends_nor_prolongs() -> None:
    held = answered(FREE, "a", "1", "rejected", 10.0)
    assert answered(held, "a", "1", "rejected", 10.5) == held
    assert answered(held, "a", "1", "denied", 10.5) == held


def test_who_joins_does_not_prolong_and_is_waited_for() -> None:
    both = answered(answered(FREE, "a", "1", "rejected", 10.0), "b", "9", "rejected", 10.9)
    assert both.until_s == 11.0
    one = answered(both, "a", "2", "committed", 10.95)
    assert one.holds(10.95)
    assert not answered(one, "b", "8", "committed", 10.96).holds(10.96)


def test_who_is_refused_again_with_other_bytes_is_waited_for_no_longer_than_before() -> None:
    held = answered(FREE, "a", "1", "rejected", 10.0)
    again = answered(held, "a", "2", "rejected", 10.5)
    assert (again.holds(10.9), again.until_s) == (True, 11.0)


def test_between_two_holds_a_native_group_is_committed() -> None:
    over = answered(answered(FREE, "a", "1", "rejected", 10.0), "a", "2", "committed", 10.1)
    assert not answered(over, "b", "7", "rejected", 10.2).holds(10.2)
    assert answered(after_native_group(over), "b", "7", "rejected", 10.3).holds(10.3)


def test_a_hold_that_ran_out_is_not_joined() -> None:
    late = answered(answered(FREE, "a", "1", "rejected", 10.0), "b", "9", "rejected", 12.0)
    assert not late.holds(12.0)
    assert late.owed == {}


def test_without_a_grace_nobody_waits() -> None:
    never = VerbatimPriority(0.0)
    assert answered(never, "a", "1", "rejected", 10.0) == never
    assert not never.holds(0.0)
