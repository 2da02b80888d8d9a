"""Topics are created as declared, in a real cluster."""

import secrets
from dataclasses import replace

from tidegate_runtime.kafka.settings import KafkaSettings
from tidegate_runtime.kafka.topic_admin import (
    Difference,
    create_topics,
    differing_topics,
    missing_topics,
)


def test_creating_is_idempotent_and_returns_what_it_did(kafka: KafkaSettings) -> None:
    fresh = kafka.model_copy(update={"topic_prefix": f"a{secrets.token_hex(4)}."})
    declared = fresh.topics.declared()
    names = [topic.name for topic in declared]
    assert missing_topics(fresh, declared) == names
    assert sorted(create_topics(fresh, declared[:2])) == sorted(names[:2])
    assert missing_topics(fresh, declared) == names[2:]
    assert sorted(create_topics(fresh, declared)) == sorted(names[2:])
    assert create_topics(fresh, declared) == []
    assert missing_topics(fresh, declared) == []
    assert differing_topics(fresh, declared) == []


def test_a_topic_that_is_not_as_declared_is_shown_and_left_alone(kafka: KafkaSettings) -> None:
    proposals = kafka.topics.declared()[0]
    wished = replace(proposals, partitions=4, retention_ms=1_000)
    assert create_topics(kafka, [wished]) == []
    assert differing_topics(kafka, [wished]) == [
        Difference(proposals.name, "partitions", "4", "1"),
        Difference(proposals.name, "retention.ms", "1000", str(proposals.retention_ms)),
    ]


def test_what_is_missing_differs_in_nothing(kafka: KafkaSettings) -> None:
    absent = replace(kafka.topics.declared()[0], name="never-made")
    assert differing_topics(kafka, [absent]) == []
