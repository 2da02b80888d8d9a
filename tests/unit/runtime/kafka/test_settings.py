from collections.abc import Callable
from typing import Any

import pytest
from pydantic import ValidationError

from tidegate_committer.loop.outcome_publisher import FLUSH_S
from tidegate_delta.errors import Misconfigured
from tidegate_runtime.kafka.client_protocols import ANSWER_S, Offset, TopicPartition
from tidegate_runtime.kafka.confluent_bus import KafkaBus
from tidegate_runtime.kafka.settings import KafkaSecurity, KafkaSettings, for_librdkafka
from tidegate_runtime.kafka.topic_admin import missing_topics

BROKER_SESSION_S = 9.0
"""How long a cluster by default keeps a silent broker as leader (`broker.session.timeout.ms`)."""

MOMENT_S = 1.0


def test_the_defaults_reach_a_broker_on_this_machine() -> None:
    client = for_librdkafka(KafkaSettings())
    assert client["bootstrap.servers"] == "127.0.0.1:9092"
    assert client["security.protocol"] == "PLAINTEXT"


def test_a_broker_that_hangs_is_given_up_while_there_is_time_to_try_another() -> None:
    client = for_librdkafka(KafkaSettings())
    given_up_s = int(client["socket.timeout.ms"]) / 1000
    asked_anew_s = int(client["topic.metadata.refresh.interval.ms"]) / 1000
    assert BROKER_SESSION_S < given_up_s < given_up_s + MOMENT_S < ANSWER_S
    assert given_up_s < FLUSH_S
    assert asked_anew_s < BROKER_SESSION_S


def test_the_users_client_settings_override_ours() -> None:
    settings = KafkaSettings(client={"reconnect.backoff.ms": "7", "debug": "broker"})
    client = for_librdkafka(settings)
    assert client["reconnect.backoff.ms"] == "7"
    assert client["debug"] == "broker"


def test_topics_lie_under_the_prefix() -> None:
    topics = KafkaSettings(topic_prefix="shop.", partitions=3).topics
    assert topics.proposals == "shop.proposals"
    assert topics.partitions == 3


@pytest.mark.parametrize(
    "wrong",
    [
        {"topic_prefix": "no spaces"},
        {"topic_prefix": "x" * 101},
        {"bootstrap_servers": ""},
        {"partitions": 0},
        {"session_timeout_ms": 10},
        {"client": {"security.protocol": "SSL"}},
        {"client": {"sasl.password": "hush"}},
        {"client": {"bootstrap.servers": "elsewhere"}},
        {"bootstrap": "x"},
    ],
)
def test_invalid_settings_are_refused_and_not_shown(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as raised:
        KafkaSettings(**wrong)
    assert "hush" not in str(raised.value)


MAKERS: list[Callable[[KafkaSettings], object]] = [
    lambda settings: KafkaBus(settings, "x").producer(),
    lambda settings: KafkaBus(settings, "x").reader().bounds(TopicPartition("t", 0), 0.1),
    lambda settings: KafkaBus(settings, "x").reader().read(TopicPartition("t", 0), Offset(0), 0.1),
    lambda settings: KafkaBus(settings, "x").consumer("g", ["t"]),
    lambda settings: KafkaBus(settings, "x").partitions("t", 0.1),
    lambda settings: missing_topics(settings, ()),
]


@pytest.mark.parametrize("make", MAKERS)
def test_what_the_library_does_not_take_is_a_mistake_in_the_settings(
    make: Callable[[KafkaSettings], object],
) -> None:
    with pytest.raises(Misconfigured, match=r"made\.up.*kafka\.client"):
        make(KafkaSettings(client={"made.up": "1"}))
    secure = KafkaSecurity(protocol="SSL", ca_location="/no/such/authorities.pem")
    with pytest.raises(Misconfigured, match=r"kafka\.security"):
        make(KafkaSettings(security=secure))
