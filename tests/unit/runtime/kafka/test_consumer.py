"""A group member knows its membership from the library's rebalance callbacks."""

from collections.abc import Iterator
from unittest import mock

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as RdPartition

from tidegate_delta.errors import Fenced
from tidegate_runtime.kafka.client_protocols import Offset, TopicPartition
from tidegate_runtime.kafka.consumer import KafkaConsumer

HERE = [RdPartition("t", 0)]
AT = TopicPartition("t", 0)
UNKNOWN_MEMBER = KafkaError(KafkaError.UNKNOWN_MEMBER_ID)


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


def test_a_commit_of_a_former_membership_that_is_refused_late_fences_nobody(
    consumer: KafkaConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = mock.Mock()
    library.commit.return_value = []
    monkeypatch.setattr(consumer, "_consumer", library)
    consumer._on_commit(UNKNOWN_MEMBER, [])
    consumer.commit_soon({AT: Offset(3)})
    assert not library.commit.call_args.kwargs["asynchronous"], "it asks, and waits for the answer"
    consumer.commit_soon({AT: Offset(4)})
    assert library.commit.call_args.kwargs["asynchronous"]


def test_who_is_no_member_any_more_is_fenced(
    consumer: KafkaConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = mock.Mock()
    library.commit.side_effect = KafkaException(UNKNOWN_MEMBER)
    monkeypatch.setattr(consumer, "_consumer", library)
    consumer._on_commit(UNKNOWN_MEMBER, [])
    with pytest.raises(Fenced):
        consumer.commit_soon({AT: Offset(3)})
