"""The settings `kafka.security`, and their translation for librdkafka and Python's `ssl`.

Only `followers/faust_app.py` translates them for Faust.
"""

import ssl
from typing import Final, Literal, Self

from pydantic import BaseModel, ConfigDict, SecretStr, model_validator

SecurityProtocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]

_TLS: Final = ("SSL", "SASL_SSL")
_SASL: Final = ("SASL_PLAINTEXT", "SASL_SSL")


class KafkaSecurity(BaseModel):
    """How to authenticate with the brokers. Locations are paths of PEM files. Without `ca_location`
    the system's certificate authorities are trusted.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    protocol: SecurityProtocol = "PLAINTEXT"
    mechanism: Mechanism | None = None
    username: str | None = None
    password: SecretStr | None = None
    ca_location: str | None = None
    certificate_location: str | None = None
    key_location: str | None = None
    key_password: SecretStr | None = None

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        mistakes = [*self._wrong_sasl(), *self._wrong_tls()]
        if mistakes:
            raise ValueError("; ".join(mistakes))
        return self

    @property
    def uses_tls(self) -> bool:
        """Whether the connection is encrypted."""
        return self.protocol in _TLS

    @property
    def uses_sasl(self) -> bool:
        """Whether a user name and a password are sent."""
        return self.protocol in _SASL

    def _wrong_sasl(self) -> list[str]:
        options = {
            "mechanism": self.mechanism,
            "username": self.username,
            "password": self.password,
        }
        if self.uses_sasl:
            return [
                f"{self.protocol} needs `{name}`"
                for name, value in options.items()
                if value is None
            ]
        return [
            f"`{name}` is for SASL_PLAINTEXT and SASL_SSL, not for {self.protocol}"
            for name, value in options.items()
            if value is not None
        ]

    def _wrong_tls(self) -> list[str]:
        options = {
            "ca_location": self.ca_location,
            "certificate_location": self.certificate_location,
            "key_location": self.key_location,
            "key_password": self.key_password,
        }
        if not self.uses_tls:
            return [
                f"`{name}` is for SSL and SASL_SSL, not for {self.protocol}"
                for name, value in options.items()
                if value is not None
            ]
        if self.key_location is not None and self.certificate_location is None:
            return ["`key_location` needs `certificate_location`"]
        if self.certificate_location is not None and self.key_location is None:
            return ["`certificate_location` needs `key_location`"]
        return []


def librdkafka_security(security: KafkaSecurity) -> dict[str, str]:
    """Return the settings under librdkafka's names, with the secrets in clear text."""
    settings = {
        "security.protocol": security.protocol,
        "sasl.mechanism": security.mechanism,
        "sasl.username": security.username,
        "sasl.password": revealed(security.password),
        "ssl.ca.location": security.ca_location,
        "ssl.certificate.location": security.certificate_location,
        "ssl.key.location": security.key_location,
        "ssl.key.password": revealed(security.key_password),
    }
    return {name: value for name, value in settings.items() if value is not None}


def ssl_context(security: KafkaSecurity) -> ssl.SSLContext | None:
    """Return a context that checks the broker's name and certificate, or None without TLS.

    Raises: OSError, for a file that is missing or unusable.
    """
    if not security.uses_tls:
        return None
    context = ssl.create_default_context(cafile=security.ca_location)
    if security.certificate_location is not None:
        context.load_cert_chain(
            security.certificate_location, security.key_location, revealed(security.key_password)
        )
    return context


def revealed(secret: SecretStr | None) -> str | None:
    """Return the secret in clear text, for the one call that needs it."""
    return None if secret is None else secret.get_secret_value()
