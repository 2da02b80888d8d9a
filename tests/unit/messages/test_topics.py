from uuid import UUID

import pytest

from tidegate_delta.errors import Misconfigured
from tidegate_messages.table_home import partition_of
from tidegate_messages.topics import Topics


def test_what_goes_with_a_table_has_as_many_partitions_as_proposals() -> None:
    topics = Topics("x.", 5)
    counts = {topic.name: topic.partitions for topic in topics.declared()}
    for name in (topics.proposals, topics.outcomes, topics.commits, topics.table_state):
        assert counts[name] == 5
    assert counts[topics.dead_letters] == counts[topics.cdc_positions] == 1


def test_proposals_and_commits_are_never_compacted() -> None:
    topics = Topics()
    cleanup = {topic.name: topic.properties["cleanup.policy"] for topic in topics.declared()}
    assert cleanup[topics.proposals] == cleanup[topics.commits] == "delete"
    assert cleanup[topics.table_state] == "compact"


def test_what_is_read_to_its_end_at_each_poll_is_compacted_soon() -> None:
    topics = Topics()
    declared = {topic.name: topic.properties for topic in topics.declared()}
    for name in (topics.table_state, topics.cdc_positions):
        assert declared[name]["cleanup.policy"] == "compact"
        assert int(declared[name]["segment.bytes"]) <= 16 * 1024 * 1024


def test_every_name_is_under_the_prefix_and_declared_once() -> None:
    names = [topic.name for topic in Topics("shop.").declared()]
    assert all(name.startswith("shop.") for name in names)
    assert len(set(names)) == len(names)


def test_a_change_topic_has_no_character_that_kafka_refuses() -> None:
    assert Topics().changes("sales.eu orders/ü") == "tidegate.cdc.sales.eu_orders__"


def test_a_change_topic_that_is_too_long_is_refused() -> None:
    assert len(Topics().changes("x" * 236)) == 249
    with pytest.raises(Misconfigured, match="shorter name"):
        Topics().changes("x" * 237)


def test_no_change_topic_is_one_of_the_others() -> None:
    topics = Topics()
    others = {topic.name for topic in topics.declared()}
    assert not any(
        topics.changes(name.removeprefix(topics.prefix)) in others for name in sorted(others)
    )


def test_a_tables_partition_is_one_of_those_there_are() -> None:
    assert partition_of(UUID(int=17), 4) == 1
    assert partition_of(UUID(int=(1 << 128) - 1), 3) in range(3)
