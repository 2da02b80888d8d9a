"""The Kafka bus on confluent-kafka, with the client settings on which our guarantees depend."""

import time
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, Producer, TopicCollection
from confluent_kafka.admin import AdminClient

from tidegate_delta.errors import Unavailable
from tidegate_runtime.clock import SystemClock
from tidegate_runtime.kafka.client_protocols import ANSWER_S, ClusterIdentity
from tidegate_runtime.kafka.consumer import KafkaConsumer, KafkaReader
from tidegate_runtime.kafka.librdkafka import LIBRARY, is_retriable, make_client, translated
from tidegate_runtime.kafka.producer import KafkaProducer, KafkaReplies
from tidegate_runtime.kafka.settings import KafkaSettings, for_librdkafka

_PAUSE_S: Final = 0.1
_RECORD_BYTES_MAX: Final = 4 * 1024 * 1024
_STATISTICS_MS: Final = 2_000
"""How often librdkafka reports statistics, from which a consumer learns of open transactions. This
sends no request.
"""

_READING: Final[Mapping[str, Any]] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "earliest",
    "isolation.level": "read_committed",
    "fetch.wait.max.ms": 100,
    "fetch.error.backoff.ms": 50,
    # librdkafka fetches again from a partition whose queue was full or paused after this long.
    "fetch.queue.backoff.ms": 20,
    "queued.max.messages.kbytes": 32 * 1024,
}

_DURABLE: Final[Mapping[str, Any]] = {"enable.idempotence": True, "acks": "all"}
DURABLE_SETTINGS: Final = frozenset({*_DURABLE, "request.required.acks"})
"""The settings by which an acknowledged record is in every replica in sync, and once, under every
name that librdkafka knows. `kafka.client` does not override them.
"""

_HEARTBEAT_MS: Final = 300
"""How often a member asks whether the group rebalances: so long a standby waits for the partition
of a committer that has left.
"""

READERS: Final = "reader"
"""The `group.id` of readers, after the topic prefix. They join no group."""


class KafkaBus:
    """A Kafka cluster; it connects when it is first used."""

    def __init__(self, settings: KafkaSettings, client_id: str) -> None:
        self._settings = settings
        self._client_id = client_id
        self._admin: AdminClient | None = None

    def consumer(
        self, group: str, topics: Sequence[str], beside: Sequence[str] = ()
    ) -> KafkaConsumer:
        """Return a new dynamic member of a group: who stays keeps what it has while others join
        and leave (cooperative-sticky assignment).
        """
        session_ms = self._settings.session_timeout_ms
        config = self._config(
            tunable={
                "max.poll.interval.ms": max(300_000, session_ms),
                "heartbeat.interval.ms": _HEARTBEAT_MS,
            },
            fixed={
                **_READING,
                "group.id": group,
                "statistics.interval.ms": _STATISTICS_MS,
                "session.timeout.ms": session_ms,
                "partition.assignment.strategy": "cooperative-sticky",
            },
        )
        return KafkaConsumer(config, group, topics, beside)

    def producer(self) -> KafkaProducer:
        """Return a new idempotent producer, acks=all."""
        config = self._config(
            tunable={
                # The first record is sent at once. Those that come until it is acknowledged share
                # the next request: no wait for one, few requests for many.
                "linger.ms": 0,
                "max.in.flight.requests.per.connection": 1,
                "message.timeout.ms": 60_000,
                "message.max.bytes": _RECORD_BYTES_MAX,
                "topic.metadata.propagation.max.ms": 5_000,
            },
            fixed={
                **_DURABLE,
                "partitioner": "murmur2_random",
                "delivery.report.only.error": True,
            },
        )
        return KafkaProducer(make_client(Producer, config))

    def replies(self) -> KafkaReplies:
        """Return a sender of copies of outcomes, apart from every other producer."""
        config = self._config(
            tunable={
                "linger.ms": 0,
                "message.max.bytes": _RECORD_BYTES_MAX,
            },
            fixed={
                # A topic that is missing is a writer's mistake: do not create it.
                "allow.auto.create.topics": False,
                "message.timeout.ms": 10_000,
                "topic.metadata.propagation.max.ms": 5_000,
                "queue.buffering.max.messages": 10_000,
                "queue.buffering.max.kbytes": 32 * 1024,
                "partitioner": "murmur2_random",
                "delivery.report.only.error": True,
            },
        )
        return KafkaReplies(lambda: make_client(Producer, config), SystemClock().boot_s)

    def reader(self) -> KafkaReader:
        """Return a reader without a group."""
        # librdkafka requires a group.id of every consumer and looks up the group's coordinator, for
        # which ACLs must allow Describe. With one name for all readers, one ACL is enough.
        group = f"{self._settings.topic_prefix}{READERS}"
        reading = {**_READING, "enable.partition.eof": True, "group.id": group}
        config = self._config(tunable={}, fixed=reading)
        return KafkaReader(lambda: make_client(Consumer, config), self._administration)

    def partitions(self, topic: str, timeout_s: float = ANSWER_S) -> int:
        """Return how many partitions a topic has; ask again while brokers do not answer.

        Raises: Misconfigured for a missing topic; Unavailable, when the time is up.
        """
        doing = f"look at topic {topic!r} at {self._settings.bootstrap_servers}"
        ends = time.monotonic() + timeout_s
        while True:
            left_s = max(_PAUSE_S, ends - time.monotonic())
            try:
                metadata = self._administration().list_topics(topic, timeout=left_s).topics[topic]
            except KafkaException as error:
                if not is_retriable(error.args[0]) or time.monotonic() + _PAUSE_S > ends:
                    raise translated(error, doing) from error
                time.sleep(_PAUSE_S)
            else:
                if metadata.error is not None:
                    raise translated(metadata.error, doing)
                return len(metadata.partitions)

    def topic_names(self) -> Sequence[str]:
        """Return the names of all topics that this client may see. Raises: Unavailable."""
        try:
            topics = self._administration().list_topics(timeout=ANSWER_S).topics
        except KafkaException as error:
            raise translated(error, "list the topics") from error
        return sorted(topics)

    def identity(self, topics: Sequence[str]) -> ClusterIdentity:
        """Return the ids of the cluster and of some topics, as Kafka writes them.

        Raises: Unavailable; Misconfigured for a missing topic.
        """
        admin = self._administration()
        try:
            cluster = admin.describe_cluster(request_timeout=ANSWER_S).result(ANSWER_S)
            futures = admin.describe_topics(TopicCollection(list(topics)), request_timeout=ANSWER_S)
            descriptions = {name: future.result(ANSWER_S) for name, future in futures.items()}
        except KafkaException as error:
            raise translated(error, f"look up the ids of {', '.join(topics)}") from error
        except TimeoutError as error:
            raise Unavailable(
                f"no answer from {self._settings.bootstrap_servers} within {ANSWER_S} s; look "
                "whether the brokers run"
            ) from error
        return ClusterIdentity(
            str(cluster.cluster_id),
            {name: _text(topic.topic_id) for name, topic in descriptions.items()},
        )

    def _administration(self) -> AdminClient:
        if self._admin is None:
            # To look at a topic that is missing does not create it.
            fixed = {"allow.auto.create.topics": False}
            self._admin = make_client(AdminClient, self._config(tunable={}, fixed=fixed))
        return self._admin

    def _config(self, tunable: Mapping[str, Any], fixed: Mapping[str, Any]) -> dict[str, Any]:
        """Return a configuration in which `kafka.client` overrides only what is tunable."""
        return {
            "client.id": self._client_id,
            "logger": LIBRARY,
            **tunable,
            **for_librdkafka(self._settings),
            **fixed,
        }


def _text(topic_id: Any) -> str:
    """Return an id in Kafka's text form: its 16 bytes in URL-safe base64 without padding."""
    mask = (1 << 64) - 1
    high = topic_id.get_most_significant_bits() & mask
    low = topic_id.get_least_significant_bits() & mask
    return urlsafe_b64encode((high << 64 | low).to_bytes(16, "big")).decode().rstrip("=")
