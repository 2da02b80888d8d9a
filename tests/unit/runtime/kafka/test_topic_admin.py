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


@pytest.mark.parametrize(("replicas", "brokers"), [(1, 1), (2, 2), (3, 3), (3, 5)])
def test_a_topic_that_is_copied_as_far_as_its_cluster_goes_is_sound(
    replicas: int, brokers: int
) -> None:
    assert found(replicas, brokers) == []


def test_a_topic_without_a_copy_is_weak_where_there_is_room_for_one() -> None:
    assert found(1, 3, min_insync_replicas="1") == [("replicas", "1")]
    assert found(1, 2, min_insync_replicas="1") == [("replicas", "1")]


def test_two_replicas_are_few_where_there_is_room_for_three() -> None:
    assert found(2, 3) == [("replicas", "2")]
    [weakness] = weaknesses("t", 2, 3, SOUND)
    assert weakness.declared == "3 or more"
    assert weakness.risk == "while one broker is offline its records are lost with the other's disk"


def test_where_settings_may_not_be_read_replicas_are_still_counted() -> None:
    assert [weakness.setting for weakness in weaknesses("t", 1, 3, {})] == ["replicas"]
    assert list(weaknesses("t", 3, 3, {})) == []


def test_every_weakness_states_what_it_may_cost() -> None:
    weak = {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}
    result = [*weaknesses("t", 3, 3, weak), *weaknesses("t", 1, 3, weak)]
    assert len(result) == 3
    assert all("lost" in weakness.risk for weakness in result)


def test_an_acknowledgement_by_one_of_three_is_weak() -> None:
    assert found(3, 3, min_insync_replicas="1") == [("min.insync.replicas", "1")]
    # With two replicas a minimum of two would stop all writes when one broker dies.
    assert found(2, 2, min_insync_replicas="1") == []


def test_a_leader_that_may_lack_records_is_weak() -> None:
    unclean = {"unclean_leader_election_enable": "true"}
    assert found(3, 3, **unclean) == [("unclean.leader.election.enable", "true")]
    assert found(1, 1, **unclean) == []
