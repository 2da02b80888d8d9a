"""Topic settings that let a cluster lose acknowledged records are reported as weaknesses."""

import pytest

from tidegate_runtime.kafka.topic_admin import weaknesses

SOUND = {"min.insync.replicas": "2", "unclean.leader.election.enable": "false"}


def found(replicas: int, brokers: int, **changed: str) -> list[tuple[str, str]]:
    properties = SOUND | {name.replace("_", "."): value for name, value in changed.items()}
    return [
        (weakness.setting, weakness.found)
        for weakness in weaknesses("t", replicas, brokers, properties)
    ]


@pytest.mark.parametrize(("replicas", "brokers"), [(1, 1), (2, 3), (3, 3)])
def test_a_topic_that_is_copied_as_far_as_its_cluster_goes_is_sound(
    replicas: int, brokers: int
) -> None:
    assert found(replicas, brokers) == []


def test_a_topic_without_a_copy_is_weak_where_there_is_room_for_one() -> None:
    assert found(1, 3, min_insync_replicas="1") == [("replicas", "1")]


def test_an_acknowledgement_by_one_of_three_is_weak() -> None:
    assert found(3, 3, min_insync_replicas="1") == [("min.insync.replicas", "1")]
    # With two replicas a minimum of two would stop all writes when one broker dies.
    assert found(2, 2, min_insync_replicas="1") == []


def test_a_leader_that_may_lack_records_is_weak() -> None:
    unclean = {"unclean_leader_election_enable": "true"}
    assert found(3, 3, **unclean) == [("unclean.leader.election.enable", "true")]
    assert found(1, 1, **unclean) == []
