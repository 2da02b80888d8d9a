"""What the brokers hold and nobody heard is told apart from what is on its way."""

from tidegate.runtime.bus import TopicPartition
from tidegate.runtime.following.unheard import FOUND_MAX, Unheard

AT, OTHER = TopicPartition("commits", 0), TopicPartition("commits", 1)


def left(unheard: Unheard, times: int) -> list[int]:
    return [unheard.found({AT: (3, 5)}, unheard.moment) for _ in range(times)]


def test_records_that_are_found_twice_and_do_not_come_are_left_behind() -> None:
    assert left(Unheard(), 3) == [0, 2, 2]
    assert FOUND_MAX == 2


def test_a_record_that_came_in_between_starts_the_count_anew() -> None:
    unheard = Unheard()
    assert left(unheard, 1) == [0]
    unheard.heard(AT, 3)
    assert left(unheard, 2) == [0, 2]


def test_an_answer_that_is_older_than_a_record_says_nothing() -> None:
    unheard = Unheard()
    left(unheard, 1)
    asked_at = unheard.moment
    unheard.heard(AT, 3)
    assert unheard.found({AT: (3, 5)}, asked_at) == 0
    assert left(unheard, 1) == [0]


def test_what_has_come_since_is_not_held_against_what_waits_later() -> None:
    unheard = Unheard()
    left(unheard, 1)
    assert unheard.found({AT: (5, 5)}, unheard.moment) == 0
    assert left(unheard, 1) == [0]


def test_a_new_assignment_begins_at_the_groups_position() -> None:
    unheard = Unheard()
    unheard.heard(AT, 4)
    unheard.assigned()
    assert unheard.beyond({AT: 5}) == [AT]


def test_a_new_assignment_starts_the_count_anew() -> None:
    unheard = Unheard()
    left(unheard, 1)
    unheard.assigned()
    assert left(unheard, 1) == [0]


def test_only_partitions_that_end_beyond_what_was_heard_are_suspected() -> None:
    unheard = Unheard()
    unheard.heard(AT, 4)
    assert unheard.beyond({AT: 5, OTHER: 1}) == [OTHER]
    assert unheard.beyond({AT: 6, OTHER: 0}) == [AT]


def test_a_partition_whose_position_is_its_end_is_not_asked_for_again() -> None:
    unheard = Unheard()
    assert unheard.found({AT: (5, 5)}, unheard.moment) == 0
    assert unheard.beyond({AT: 5}) == []
    assert unheard.beyond({AT: 6}) == [AT]
