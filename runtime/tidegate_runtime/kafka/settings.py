"""The settings `kafka`, and their translation for librdkafka.

The settings `kafka.security`, and their translation for librdkafka and Python's `ssl`.

Only `followers/faust_app.py` translates them for Faust. Each secret may be in a file of its own,
whose path is in the settings: then no environment or settings file holds it, and it may be replaced
while a service runs (`credential_files`).
"""

import ssl
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    StringConstraints,
    field_validator,
    model_validator,
)

from tidegate_delta.errors import Misconfigured
from tidegate_messages.topics import Topics
from tidegate_runtime.kafka.oauth_token import Token, TokenSource, oauth_token

SecurityProtocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
OAUTH: Final = "OAUTHBEARER"

_TLS: Final = ("SSL", "SASL_SSL")
_SASL: Final = ("SASL_PLAINTEXT", "SASL_SSL")


class KafkaSecurity(BaseModel):
    """How to authenticate with the brokers. Locations are paths of files; certificates and keys are
    PEM. Without `ca_location` the system's certificate authorities are trusted.

    OAUTHBEARER takes its token from a file that somebody else keeps fresh, or from a token endpoint
    by the grant of client credentials.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    protocol: SecurityProtocol = "PLAINTEXT"
    mechanism: Mechanism | None = None
    username: str | None = None
    password: SecretStr | None = None
    password_location: str | None = None
    ca_location: str | None = None
    certificate_location: str | None = None
    key_location: str | None = None
    key_password: SecretStr | None = None
    key_password_location: str | None = None
    oauth_token_location: str | None = None
    oauth_token_url: str | None = None
    oauth_client_id: str | None = None
    oauth_client_secret: SecretStr | None = None
    oauth_client_secret_location: str | None = None
    oauth_scope: str | None = None

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        mistakes = [*self._wrong_sasl(), *self._wrong_oauth(), *self._wrong_tls(), *self._doubled()]
        if mistakes:
            raise ValueError("; ".join(mistakes))
        return self

    @property
    def uses_tls(self) -> bool:
        """Whether the connection is encrypted."""
        return self.protocol in _TLS

    @property
    def uses_sasl(self) -> bool:
        """Whether a user name and a password, or a token, are sent."""
        return self.protocol in _SASL

    @property
    def uses_oauth(self) -> bool:
        """Whether a token is sent."""
        return self.uses_sasl and self.mechanism == OAUTH

    @property
    def credential_files(self) -> tuple[str, ...]:
        """The files that clients read when they are made: new contents need new clients.

        A token, and the secret for the token endpoint, are read whenever a token is needed.
        """
        paths = (
            self.password_location,
            self.ca_location,
            self.certificate_location,
            self.key_location,
            self.key_password_location,
        )
        return tuple(path for path in paths if path is not None)

    def _wrong_sasl(self) -> list[str]:
        own = ("mechanism", "username", "password", "password_location")
        if not self.uses_sasl:
            return self._misplaced(own, f"SASL_PLAINTEXT and SASL_SSL, not for {self.protocol}")
        if self.mechanism == OAUTH:
            return self._misplaced(own[1:], "PLAIN and SCRAM, not for OAUTHBEARER")
        needed = {
            "`mechanism`": self.mechanism,
            "`username`": self.username,
            "`password` or `password_location`": self.password or self.password_location,
        }
        return [f"{self.protocol} needs {name}" for name, value in needed.items() if not value]

    def _wrong_oauth(self) -> list[str]:
        grant = ("oauth_client_id", "oauth_client_secret", "oauth_client_secret_location")
        if not self.uses_oauth:
            own = ("oauth_token_location", "oauth_token_url", "oauth_scope", *grant)
            return self._misplaced(own, "the mechanism OAUTHBEARER")
        if (self.oauth_token_location is None) == (self.oauth_token_url is None):
            return ["OAUTHBEARER needs one of `oauth_token_location` and `oauth_token_url`"]
        if self.oauth_token_location is not None:
            return self._misplaced((*grant, "oauth_scope"), "`oauth_token_url`")
        needed = {
            "`oauth_client_id`": self.oauth_client_id,
            "`oauth_client_secret` or `oauth_client_secret_location`": self.oauth_client_secret
            or self.oauth_client_secret_location,
        }
        return [f"`oauth_token_url` needs {name}" for name, value in needed.items() if not value]

    def _wrong_tls(self) -> list[str]:
        own = (
            "ca_location",
            "certificate_location",
            "key_location",
            "key_password",
            "key_password_location",
        )
        if not self.uses_tls:
            return self._misplaced(own, f"SSL and SASL_SSL, not for {self.protocol}")
        if self.key_location is not None and self.certificate_location is None:
            return ["`key_location` needs `certificate_location`"]
        if self.certificate_location is not None and self.key_location is None:
            return ["`certificate_location` needs `key_location`"]
        return []

    def _doubled(self) -> list[str]:
        secrets = ("password", "key_password", "oauth_client_secret")
        return [
            f"`{name}` and `{name}_location` are both given; leave one out"
            for name in secrets
            if getattr(self, name) is not None and getattr(self, f"{name}_location") is not None
        ]

    def _misplaced(self, names: tuple[str, ...], place: str) -> list[str]:
        misplaced = [name for name in names if getattr(self, name) is not None]
        return [f"`{name}` is for {place}" for name in misplaced]


def librdkafka_security(security: KafkaSecurity) -> dict[str, Any]:
    """Return the settings under librdkafka's names, with the secrets in clear text.

    Raises: Misconfigured, for a file of a secret that cannot be read.
    """
    settings = {
        "security.protocol": security.protocol,
        "sasl.mechanism": security.mechanism,
        "sasl.username": security.username,
        "sasl.password": password(security),
        "ssl.ca.location": security.ca_location,
        "ssl.certificate.location": security.certificate_location,
        "ssl.key.location": security.key_location,
        "ssl.key.password": key_password(security),
        "oauth_cb": partial(_librdkafka_token, security) if security.uses_oauth else None,
    }
    return {name: value for name, value in settings.items() if value is not None}


def ssl_context(security: KafkaSecurity) -> ssl.SSLContext | None:
    """Return a context that checks the broker's name and certificate, or None without TLS.

    Raises: OSError, for a file that is missing or unusable; Misconfigured, for one of a secret.
    """
    if not security.uses_tls:
        return None
    context = ssl.create_default_context(cafile=security.ca_location)
    if security.certificate_location is not None:
        # OpenSSL would ask for a missing password on the terminal.
        context.load_cert_chain(
            security.certificate_location,
            security.key_location,
            key_password(security) or "",
        )
    return context


def password(security: KafkaSecurity) -> str | None:
    """Return the password in clear text, or None. Raises: Misconfigured."""
    return _secret(security.password, security.password_location, "password_location")


def key_password(security: KafkaSecurity) -> str | None:
    """Return the password of the key, in clear text, or None. Raises: Misconfigured."""
    return _secret(security.key_password, security.key_password_location, "key_password_location")


def oauth_client_secret(security: KafkaSecurity) -> str | None:
    """Return the secret for the token endpoint, in clear text, or None. Raises: Misconfigured."""
    return _secret(
        security.oauth_client_secret,
        security.oauth_client_secret_location,
        "oauth_client_secret_location",
    )


def current_token(security: KafkaSecurity) -> Token:
    """Return a token to log in with. Raises: Misconfigured; Unavailable."""
    return oauth_token(
        TokenSource(
            security.oauth_token_location,
            security.oauth_token_url,
            security.oauth_client_id,
            oauth_client_secret(security),
            security.oauth_scope,
        )
    )


def credentials_digest(security: KafkaSecurity) -> Mapping[str, bytes]:
    """Return the contents of the files that clients read when they are made, as far as they are
    there.
    """
    contents = {}
    for path in security.credential_files:
        try:
            contents[path] = Path(path).read_bytes()
        except OSError:
            # It is being replaced, or missing: who makes a client gets the error.
            continue
    return contents


def _librdkafka_token(security: KafkaSecurity, _: str) -> tuple[str, float, str, dict[str, str]]:
    """Return a token as confluent-kafka takes it; it hands the error's text to librdkafka."""
    token = current_token(security)
    return token.value, token.expires_s, token.principal, {}


def _secret(inline: SecretStr | None, path: str | None, setting: str) -> str | None:
    if path is None:
        return None if inline is None else inline.get_secret_value()
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text in UTF-8"
        raise Misconfigured(
            f"kafka.security.{setting}: {path} cannot be read ({reason}); check the path and the "
            "rights"
        ) from None
    if secret := text.removesuffix("\n").removesuffix("\r"):
        return secret
    raise Misconfigured(f"kafka.security.{setting}: {path} is empty; write the secret into it")


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
