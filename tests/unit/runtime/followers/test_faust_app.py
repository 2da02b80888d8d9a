"""Records that the brokers hold but the follower skipped, as opposed to those on their way."""

from tidegate_runtime.followers.faust_app import FOUND_MAX, SkippedRecords
from tidegate_runtime.kafka.client_protocols import TopicPartition

AT, OTHER = TopicPartition("commits", 0), TopicPartition("commits", 1)


def left(skipped: SkippedRecords, times: int) -> list[int]:
    return [skipped.found({AT: (3, 5)}, skipped.moment) for _ in range(times)]


def test_records_that_are_found_twice_and_do_not_come_are_left_behind() -> None:
    assert left(SkippedRecords(), 3) == [0, 2, 2]
    assert FOUND_MAX == 2


def test_a_record_that_came_in_between_starts_the_count_anew() -> None:
    skipped = SkippedRecords()
    assert left(skipped, 1) == [0]
    skipped.heard(AT, 3)
    assert left(skipped, 2) == [0, 2]


def test_an_answer_that_is_older_than_a_record_is_ignored() -> None:
    skipped = SkippedRecords()
    left(skipped, 1)
    asked_at = skipped.moment
    skipped.heard(AT, 3)
    assert skipped.found({AT: (3, 5)}, asked_at) == 0
    assert left(skipped, 1) == [0]


def test_what_has_come_since_is_not_held_against_what_waits_later() -> None:
    skipped = SkippedRecords()
    left(skipped, 1)
    assert skipped.found({AT: (5, 5)}, skipped.moment) == 0
    assert left(skipped, 1) == [0]


def test_a_new_assignment_begins_at_the_groups_position() -> None:
    skipped = SkippedRecords()
    skipped.heard(AT, 4)
    skipped.assigned()
    assert skipped.with_undelivered({AT: 5}) == [AT]


def test_a_new_assignment_starts_the_count_anew() -> None:
    skipped = SkippedRecords()
    left(skipped, 1)
    skipped.assigned()
    assert left(skipped, 1) == [0]


def test_only_partitions_that_end_beyond_what_was_heard_are_suspected() -> None:
    skipped = SkippedRecords()
    skipped.heard(AT, 4)
    assert skipped.with_undelivered({AT: 5, OTHER: 1}) == [OTHER]
    assert skipped.with_undelivered({AT: 6, OTHER: 0}) == [AT]


def test_a_partition_whose_position_is_its_end_is_not_read_again() -> None:
    skipped = SkippedRecords()
    assert skipped.found({AT: (5, 5)}, skipped.moment) == 0
    assert skipped.with_undelivered({AT: 5}) == []
    assert skipped.with_undelivered({AT: 6}) == [AT]
