import ssl
from pathlib import Path
from typing import Any

import pytest
from faust import SASLCredentials, SSLCredentials
from faust.types.auth import AuthProtocol
from pydantic import SecretStr, ValidationError

from tidegate.runtime.faust_security import for_faust
from tidegate.runtime.kafka_security import KafkaSecurity, librdkafka_security, ssl_context
from tidegate.runtime.kafka_settings import KafkaSettings

USER = {"username": "ann", "password": SecretStr("hush")}
PLAIN = {"mechanism": "PLAIN", **USER}
SCRAM_256 = {"mechanism": "SCRAM-SHA-256", **USER}
SCRAM_512 = {"mechanism": "SCRAM-SHA-512", **USER}

TABLE: list[tuple[dict[str, Any], dict[str, str], AuthProtocol | None]] = [
    ({"protocol": "PLAINTEXT"}, {"security.protocol": "PLAINTEXT"}, None),
    ({"protocol": "SSL"}, {"security.protocol": "SSL"}, AuthProtocol.SSL),
    *[
        (
            {"protocol": protocol, **user},
            {
                "security.protocol": protocol,
                "sasl.mechanism": str(user["mechanism"]),
                "sasl.username": "ann",
                "sasl.password": "hush",
            },
            AuthProtocol[protocol],
        )
        for protocol in ("SASL_PLAINTEXT", "SASL_SSL")
        for user in (PLAIN, SCRAM_256, SCRAM_512)
    ],
]


@pytest.mark.parametrize(("block", "librdkafka", "faust"), TABLE)
def test_the_block_says_the_same_to_librdkafka_and_to_faust(
    block: dict[str, Any], librdkafka: dict[str, str], faust: AuthProtocol | None
) -> None:
    settings = KafkaSettings(security=KafkaSecurity(**block))
    assert librdkafka_security(settings.security) == librdkafka
    credentials: Any = for_faust(settings)
    assert (None if credentials is None else credentials.protocol) == faust
    if settings.security.uses_sasl:
        assert isinstance(credentials, SASLCredentials)
        assert (credentials.username, credentials.password) == ("ann", "hush")
        assert credentials.mechanism.value == block["mechanism"]
        assert (credentials.ssl_context is not None) == settings.security.uses_tls
    if faust is AuthProtocol.SSL:
        assert isinstance(credentials, SSLCredentials)


def test_certificates_are_named_to_librdkafka() -> None:
    security = KafkaSecurity(
        protocol="SSL",
        ca_location="/tls/ca.pem",
        certificate_location="/tls/me.pem",
        key_location="/tls/me.key",
        key_password=SecretStr("hush"),
    )
    assert librdkafka_security(security) == {
        "security.protocol": "SSL",
        "ssl.ca.location": "/tls/ca.pem",
        "ssl.certificate.location": "/tls/me.pem",
        "ssl.key.location": "/tls/me.key",
        "ssl.key.password": "hush",
    }


def test_the_context_checks_the_brokers_name_and_certificate() -> None:
    context = ssl_context(KafkaSecurity(protocol="SSL"))
    assert context is not None
    assert context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert ssl_context(KafkaSecurity()) is None


def test_a_certificate_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    missing = str(tmp_path / "ca.pem")
    with pytest.raises(FileNotFoundError):
        ssl_context(KafkaSecurity(protocol="SSL", ca_location=missing))


@pytest.mark.parametrize(
    ("block", "said"),
    [
        ({"protocol": "SASL_SSL"}, ["mechanism", "username", "password"]),
        ({"protocol": "SASL_PLAINTEXT", "mechanism": "PLAIN"}, ["username", "password"]),
        ({"protocol": "PLAINTEXT", **PLAIN}, ["mechanism", "username", "password"]),
        ({"protocol": "SSL", "username": "ann"}, ["username"]),
        ({"protocol": "PLAINTEXT", "ca_location": "/ca"}, ["ca_location"]),
        ({"protocol": "SSL", "key_location": "/key"}, ["certificate_location"]),
        ({"protocol": "SSL", "certificate_location": "/cert"}, ["key_location"]),
        ({"protocol": "TLS"}, ["protocol"]),
        ({"protocol": "SASL_SSL", **USER, "mechanism": "GSSAPI"}, ["mechanism"]),
        ({"protocl": "SSL"}, ["protocl"]),
    ],
)
def test_a_block_that_is_not_whole_is_refused_with_all_that_is_wrong(
    block: dict[str, Any], said: list[str]
) -> None:
    with pytest.raises(ValidationError) as raised:
        KafkaSecurity(**block)
    assert all(name in str(raised.value) for name in said)
    assert "hush" not in str(raised.value)


def test_secrets_are_never_shown() -> None:
    security = KafkaSecurity(
        protocol="SASL_SSL",
        mechanism="PLAIN",
        username="ann",
        password=SecretStr("hush"),
        key_password=SecretStr("hush"),
    )
    settings = KafkaSettings(security=security)
    shown = [repr(settings), str(settings), settings.model_dump_json(), repr(settings.model_dump())]
    assert not any("hush" in text for text in shown)
