"""The bus protocol's types."""

from tidegate_runtime.kafka.client_protocols import TopicPartition


def test_a_topic_partition_is_shown_to_operators_by_topic_and_number() -> None:
    assert f"{TopicPartition('tidegate.proposals', 3)}@7" == "tidegate.proposals/3@7"
