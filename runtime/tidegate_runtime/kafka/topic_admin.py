"""Compare the topics of a cluster with the declared ones, and create those that are missing."""

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, not declared so
    AdminClient,
    ConfigResource,
    NewTopic,
    ResourceType,
    TopicMetadata,
)

from tidegate_delta.errors import Unavailable
from tidegate_messages.topics import Topic
from tidegate_runtime.kafka.client_protocols import ANSWER_S
from tidegate_runtime.kafka.librdkafka import LIBRARY, make_client, translated
from tidegate_runtime.kafka.settings import KafkaSettings, for_librdkafka

_PAUSE_S: Final = 0.05
_BROKERS_CHOICE: Final = -1
"""Leaves the replication factor to the cluster's default."""

SEVERAL: Final = 3
"""With this many replicas one may be offline, and two still have every record. A cluster of so many
brokers has room for them.
"""

_IN_SYNC: Final = "min.insync.replicas"
_UNCLEAN: Final = "unclean.leader.election.enable"


@dataclass(frozen=True)
class Difference:
    """A setting of an existing topic that differs from its declaration; `risk` is what it may cost,
    if that is acknowledged records.
    """

    topic: str
    setting: str
    declared: str
    found: str
    risk: str = ""


def create_topics(settings: KafkaSettings, topics: Iterable[Topic]) -> list[str]:
    """Create the missing topics and return their names; existing ones are left as they are.

    It returns once the brokers know all topics, which takes a moment after their creation.
    Raises: Unavailable, Misconfigured.
    """
    admin = _admin(settings)
    missing = set(_missing(admin, topics := list(topics)))
    new_topics = [
        NewTopic(
            topic.name,
            num_partitions=topic.partitions,
            replication_factor=_BROKERS_CHOICE,
            config=topic.properties,
        )
        for topic in topics
        if topic.name in missing
    ]
    if not new_topics:
        return []
    created = []
    for name, future in admin.create_topics(new_topics, operation_timeout=ANSWER_S).items():
        try:
            future.result(ANSWER_S)
        except KafkaException as error:
            # Another process may create the same topics at the same time, which is as good.
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise translated(error, f"create topic {name!r}") from error
        except TimeoutError as error:
            raise _no_answer(settings) from error
        else:
            created.append(name)
    until_s = time.monotonic() + ANSWER_S
    while _missing(admin, topics):
        if time.monotonic() > until_s:
            raise _no_answer(settings)
        time.sleep(_PAUSE_S)
    return created


def missing_topics(settings: KafkaSettings, topics: Iterable[Topic]) -> list[str]:
    """Return the names of the declared topics that do not exist. Raises: Unavailable."""
    return _missing(_admin(settings), topics)


def differing_topics(settings: KafkaSettings, topics: Iterable[Topic]) -> list[Difference]:
    """Return where existing topics differ from their declaration.

    That is in partitions or settings, or in what may lose acknowledged records on a cluster of
    several brokers; the latter also of change topics and topics for replies, which are not
    declared.
    Raises: Unavailable, Misconfigured.
    """
    admin = _admin(settings)
    existing, brokers = _listed(admin)
    present = [topic for topic in topics if topic.name in existing]
    if not present:
        return []
    differing = [
        Difference(topic.name, "partitions", str(topic.partitions), str(partition_count))
        for topic in present
        if (partition_count := len(existing[topic.name].partitions)) != topic.partitions
    ]
    declared = {topic.name: topic.properties for topic in present}
    others = (settings.topics.changes(""), settings.topics.replies)
    names = [*declared, *sorted(name for name in existing if name.startswith(others))]
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in dict.fromkeys(names)]
    for resource, future in admin.describe_configs(resources).items():
        name, values = resource.name, {}
        try:
            values = {setting: entry.value for setting, entry in future.result(ANSWER_S).items()}
        except KafkaException as error:
            # Who may not read the settings of such a topic still sees how many replicas it has.
            if name in declared:
                raise translated(error, f"look at the settings of topic {name!r}") from error
        except TimeoutError as error:
            raise _no_answer(settings) from error
        differing += [
            Difference(name, setting, wanted, str(values[setting]))
            for setting, wanted in declared.get(name, {}).items()
            if setting in values and not _same(wanted, values[setting])
        ]
        copies = min(len(partition.replicas) for partition in existing[name].partitions.values())
        differing += weaknesses(name, copies, brokers, values)
    return differing


def weaknesses(
    topic: str, replicas: int, brokers: int, properties: Mapping[str, str | None]
) -> Iterator[Difference]:
    """Yield the settings by which brokers may lose acknowledged records of a topic.

    A single broker can have only one replica, so that is no difference.
    """
    wanted = min(brokers, SEVERAL)
    if replicas < wanted:
        risk = (
            "its records are lost with that broker's disk"
            if replicas == 1
            else "while one broker is offline its records are lost with the other's disk"
        )
        yield Difference(topic, "replicas", f"{wanted} or more", str(replicas), risk)
    if replicas >= SEVERAL and properties.get(_IN_SYNC) == "1":
        risk = "an acknowledged record may be on one broker only, and is lost with its disk"
        yield Difference(topic, _IN_SYNC, "2 or more", "1", risk)
    if replicas > 1 and properties.get(_UNCLEAN) == "true":
        risk = "a broker that lacks acknowledged records may lead, and they are lost everywhere"
        yield Difference(topic, _UNCLEAN, "false", "true", risk)


def _same(declared: str, actual: str | None) -> bool:
    """Return whether two values of a setting are equal, ignoring the order of a list."""
    return sorted(declared.split(",")) == sorted((actual or "").split(","))


def _missing(admin: AdminClient, topics: Iterable[Topic]) -> list[str]:
    existing, _ = _listed(admin)
    return [topic.name for topic in topics if topic.name not in existing]


def _listed(admin: AdminClient) -> tuple[dict[str, TopicMetadata], int]:
    """Return the existing topics, and the number of brokers."""
    try:
        metadata = admin.list_topics(timeout=ANSWER_S)
    except KafkaException as error:
        raise translated(error, "list the topics") from error
    topics = {name: topic for name, topic in metadata.topics.items() if topic.error is None}
    return topics, len(metadata.brokers)


def _admin(settings: KafkaSettings) -> AdminClient:
    config: dict[str, Any] = {"logger": LIBRARY, **for_librdkafka(settings)}
    return make_client(AdminClient, config)


def _no_answer(settings: KafkaSettings) -> Unavailable:
    return Unavailable(
        f"no answer from {settings.bootstrap_servers} within {ANSWER_S} s; look whether the "
        "brokers run"
    )
