"""The settings `kafka`, and their translation for librdkafka."""

from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator

from tidegate_messages.topics import Topics
from tidegate_runtime.kafka.security import KafkaSecurity, librdkafka_security

_WARNING: Final = 4
"""librdkafka's log level, as a syslog number: warnings and worse."""

REQUEST_TIMEOUT_MS: Final = 10_000
"""How long a broker may be silent before the client looks for its partitions on other brokers.

librdkafka's default of a minute is how long clients would wait for a broker that hangs, or whose
machine is gone, while the cluster has moved its partitions after nine seconds. It is less than
`client_protocols.ANSWER_S`, so that a request has time to ask a second broker.
"""

LOOK_FOR_LEADERS_MS: Final = 5_000
"""How often clients ask for the partitions' leaders, as a broker that hangs does not report a
change.

A client that asks just when it gives a broker up may be referred to it again, because the cluster
gives it up at about the same time.
"""

_OWN_SETTINGS: Final = frozenset(
    {
        "bootstrap.servers",
        "metadata.broker.list",
        "security.protocol",
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.username",
        "sasl.password",
        "ssl.ca.location",
        "ssl.certificate.location",
        "ssl.key.location",
        "ssl.key.password",
        "sasl.oauthbearer.method",
        "sasl.oauthbearer.client.id",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.scope",
        "sasl.oauthbearer.token.endpoint.url",
    }
)
"""librdkafka's settings that have a setting of ours, and are not allowed in `kafka.client`."""

Prefix = Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9._-]{0,100}$")]


class KafkaSettings(BaseModel):
    """Where the brokers are, and what the topics are called.

    `client` holds further settings under librdkafka's names; they override our defaults.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    bootstrap_servers: Annotated[str, StringConstraints(min_length=1)] = "127.0.0.1:9092"
    topic_prefix: Prefix = "tidegate."
    partitions: Annotated[int, Field(ge=1, le=10_000)] = 1
    session_timeout_ms: Annotated[int, Field(ge=1_000, le=300_000)] = 6_000
    security: KafkaSecurity = KafkaSecurity()
    client: Mapping[str, str] = {}

    @field_validator("client")
    @classmethod
    def _names_no_own_setting(cls, client: Mapping[str, str]) -> Mapping[str, str]:
        taken = sorted(_OWN_SETTINGS & set(client))
        if taken:
            raise ValueError(
                f"{', '.join(taken)}: use `kafka.bootstrap_servers` and `kafka.security` instead"
            )
        return client

    @property
    def topics(self) -> Topics:
        """The topics under the configured prefix."""
        return Topics(self.topic_prefix, self.partitions)


def for_librdkafka(settings: KafkaSettings) -> dict[str, Any]:
    """Return the settings that every librdkafka client gets, with secrets in clear text.

    Raises: Misconfigured, for a file of a secret that cannot be read.
    """
    return {
        "bootstrap.servers": settings.bootstrap_servers,
        "socket.keepalive.enable": "true",
        "socket.timeout.ms": REQUEST_TIMEOUT_MS,
        "topic.metadata.refresh.interval.ms": LOOK_FOR_LEADERS_MS,
        "reconnect.backoff.ms": 250,
        "reconnect.backoff.max.ms": 2_000,
        "log_level": _WARNING,
        **librdkafka_security(settings.security),
        **settings.client,
    }
