"""The topics of a route: their partitions, ids and bounds, and Spark's options to read them."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Final

from tidegate_delta.errors import Misconfigured
from tidegate_producers.ingest.positions import Bounds, OffsetsBySource, SourcePartition
from tidegate_producers.ingest.settings import Route
from tidegate_runtime.kafka.client_protocols import TopicPartition
from tidegate_runtime.kafka.confluent_bus import KafkaBus
from tidegate_runtime.kafka.settings import (
    KafkaSecurity,
    KafkaSettings,
    key_password,
    oauth_client_secret,
    password,
)

CLIENT_ID: Final = "tidegate-ingest"
_LOGIN: Final = "org.apache.kafka.common.security"
_PEM: Final = "PEM"
_INTERNAL: Final = ("__consumer_offsets", "__transaction_state", "__share_group_state")
"""Kafka's own topics, which Spark's source does not read by a pattern."""


class TopicSource:
    """The topics that a route reads, as the cluster has them now. Not thread-safe."""

    def __init__(self, kafka: KafkaSettings, route: Route) -> None:
        self._bus = KafkaBus(kafka, CLIENT_ID)
        self._reader = self._bus.reader()
        self._route = route

    def topics(self) -> Sequence[str]:
        """Return the names of the topics.

        Raises: Misconfigured, if one is missing, or none is of the pattern; Unavailable.
        """
        names, pattern = self._bus.topic_names(), self._route.topic_pattern
        if pattern is None:
            missing = [topic for topic in self._route.topics if topic not in names]
            if missing:
                raise Misconfigured(
                    f"there is no topic {missing[0]!r} that this login may see: correct the name, "
                    "make the topic first, or allow Describe and Read on it"
                )
            return self._route.topics
        found = sorted(
            name for name in names if re.fullmatch(pattern, name) and name not in _INTERNAL
        )
        if not found:
            raise Misconfigured(
                f"no topic that this login may see is called {pattern!r}: correct topic_pattern, "
                "make the topic first, or allow Describe and Read on it"
            )
        return found

    def topic_ids(self, topics: Sequence[str]) -> Mapping[str, str]:
        """Return the ids of topics; one that is made anew has another.

        Raises: Misconfigured, for a missing topic; Unavailable.
        """
        return self._bus.identity(topics).topic_ids

    def partitions(self) -> Sequence[SourcePartition]:
        """Return all partitions of the topics. Raises: Misconfigured; Unavailable."""
        topics = self.topics()
        ids = self.topic_ids(topics)
        return [
            SourcePartition(topic, ids[topic], number)
            for topic in topics
            for number in range(self._bus.partitions(topic))
        ]

    def bounds(self, sources: Sequence[SourcePartition]) -> Mapping[SourcePartition, Bounds]:
        """Return the first offset and the end of each partition. Raises: Unavailable."""
        found = self._reader.bounds_of([source.place for source in sources])
        return {source: Bounds(*found[source.place]) for source in sources}

    def at_time(self, sources: Sequence[SourcePartition], timestamp_ms: int) -> OffsetsBySource:
        """Return the first offset of each partition at or behind a time; none where it has none.

        Raises: Unavailable.
        """
        found = self._reader.at_time([source.place for source in sources], timestamp_ms)
        return {source: found[source.place] for source in sources if source.place in found}

    def close(self) -> None:
        """Close the connection."""
        self._reader.close()


def starting_offsets(offsets: OffsetsBySource) -> str:
    """Return offsets as Spark's option `startingOffsets` takes them."""
    by_topic: dict[str, dict[str, int]] = {}
    for source, offset in sorted(offsets.items()):
        by_topic.setdefault(source.topic, {})[str(source.partition)] = offset
    return json.dumps(by_topic)


def reading_options(kafka: KafkaSettings, route: Route) -> dict[str, str]:
    """Return the options of Spark's Kafka source for a route, without its start.

    Raises: Misconfigured, for a secret that cannot be read, or a login that Spark does not have.
    """
    if route.topic_pattern is None:
        which = {"subscribe": ",".join(route.topics)}
    else:
        which = {"subscribePattern": route.topic_pattern}
    return {
        **which,
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "kafka.isolation.level": "read_committed",
        "kafka.client.id": CLIENT_ID,
        # Spark reads records that are there already. A consumer whose last fetch was for those
        # behind them waits until it is over, half a second by Kafka's default.
        "kafka.fetch.max.wait.ms": "20",
        # Spark's consumers commit no offsets there.
        "groupIdPrefix": f"{kafka.topic_prefix}ingest",
        "includeHeaders": "true",
        "failOnDataLoss": "true",
        **{f"kafka.{name}": value for name, value in jvm_security(kafka.security).items()},
    }


def range_options(
    kafka: KafkaSettings, route: Route, begins: OffsetsBySource, ends: OffsetsBySource
) -> dict[str, str]:
    """Return the options of Spark's Kafka source for the records between offsets, and no others.

    Shape: `begins` and `ends` have the same partitions.
    Raises: as `reading_options`.
    """
    others = reading_options(kafka, route)
    numbers: dict[str, list[int]] = {}
    for source in sorted(begins):
        numbers.setdefault(source.topic, []).append(source.partition)
    return {
        **{name: value for name, value in others.items() if not name.startswith("subscribe")},
        "assign": json.dumps(numbers),
        "startingOffsets": starting_offsets(begins),
        "endingOffsets": starting_offsets(ends),
    }


def jvm_security(security: KafkaSecurity) -> dict[str, str]:
    """Return settings of security under the names of Kafka's Java client, secrets in clear text.

    Raises: Misconfigured, for a file that cannot be read.
    """
    named: dict[str, str] = {"security.protocol": security.protocol}
    if security.uses_tls and security.ca_location is not None:
        # Executors may not have the file.
        authorities = _text(security.ca_location, "ca_location")
        named |= {"ssl.truststore.type": _PEM, "ssl.truststore.certificates": authorities}
    if security.certificate_location is not None and security.key_location is not None:
        named |= {
            "ssl.keystore.type": _PEM,
            "ssl.keystore.certificate.chain": _text(
                security.certificate_location, "certificate_location"
            ),
            "ssl.keystore.key": _text(security.key_location, "key_location"),
        }
        if (secret := key_password(security)) is not None:
            named["ssl.key.password"] = secret
    if security.uses_sasl and security.mechanism is not None:
        named |= {"sasl.mechanism": security.mechanism, **_login(security)}
    return named


def _login(security: KafkaSecurity) -> dict[str, str]:
    if security.uses_oauth:
        if security.oauth_token_url is None:
            at = f"file://{security.oauth_token_location}"
        else:
            at = security.oauth_token_url
        fields = {
            "clientId": security.oauth_client_id,
            "clientSecret": oauth_client_secret(security),
            "scope": security.oauth_scope,
        }
        return {
            "sasl.jaas.config": _jaas("oauthbearer.OAuthBearerLoginModule", fields),
            "sasl.oauthbearer.token.endpoint.url": at,
            "sasl.login.callback.handler.class": (
                f"{_LOGIN}.oauthbearer.OAuthBearerLoginCallbackHandler"
            ),
        }
    module = "plain.PlainLoginModule"
    if security.mechanism != "PLAIN":
        module = "scram.ScramLoginModule"
    fields = {"username": security.username, "password": password(security)}
    return {"sasl.jaas.config": _jaas(module, fields)}


def _jaas(module: str, fields: Mapping[str, str | None]) -> str:
    escaped = {
        name: value.replace("\\", "\\\\").replace('"', '\\"')
        for name, value in fields.items()
        if value is not None
    }
    given = "".join(f' {name}="{value}"' for name, value in escaped.items())
    return f"{_LOGIN}.{module} required{given};"


def _text(path: str, setting: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise Misconfigured(
            f"kafka.security.{setting}: {path} cannot be read ({error}); check the path and the "
            "rights"
        ) from error


def places_of(sources: Sequence[SourcePartition]) -> Mapping[TopicPartition, SourcePartition]:
    """Return source partitions by topic and number."""
    return {source.place: source for source in sources}
