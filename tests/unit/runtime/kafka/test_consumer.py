"""A group member knows its membership from the library's rebalance callbacks."""

from collections.abc import Iterator
from unittest import mock

import pytest
from confluent_kafka import TopicPartition as RdPartition

from tidegate_runtime.kafka.consumer import KafkaConsumer

HERE = [RdPartition("t", 0)]


@pytest.fixture
def consumer() -> Iterator[KafkaConsumer]:
    alone = KafkaConsumer({"bootstrap.servers": "localhost:1", "group.id": "g"}, "g", ["t"])
    yield alone
    alone.close()


def test_who_has_given_up_its_share_is_a_member_once_the_group_lets_it_in_again(
    consumer: KafkaConsumer,
) -> None:
    library = mock.Mock()
    assert not consumer.is_member
    consumer._on_assign(library, HERE)
    assert consumer.is_member
    consumer._on_revoke(library, HERE)
    assert not consumer.is_member
    consumer._on_assign(library, [])
    assert consumer.is_member, "with no partition, and a member all the same"
    consumer._on_lost(library, [])
    assert not consumer.is_member
