import base64
import json
import ssl
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID
from faust import SASLCredentials, SSLCredentials
from faust.types.auth import AuthProtocol
from pydantic import SecretStr, ValidationError

from tests.support.certificates import write_certificate
from tidegate_delta.errors import Misconfigured
from tidegate_runtime.followers.faust_app import for_faust
from tidegate_runtime.kafka.oauth_token import Token
from tidegate_runtime.kafka.settings import (
    KafkaSecurity,
    KafkaSettings,
    credentials_digest,
    current_token,
    librdkafka_security,
    ssl_context,
)

USER = {"username": "ann", "password": SecretStr("hush")}
PLAIN = {"mechanism": "PLAIN", **USER}
SCRAM_256 = {"mechanism": "SCRAM-SHA-256", **USER}
SCRAM_512 = {"mechanism": "SCRAM-SHA-512", **USER}
BY_FILE = {"protocol": "SASL_SSL", "mechanism": "OAUTHBEARER", "oauth_token_location": "/token"}
BY_URL = {"protocol": "SASL_SSL", "mechanism": "OAUTHBEARER", "oauth_token_url": "http://t"}

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
def test_the_block_configures_librdkafka_and_faust_alike(
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


def presented(context: ssl.SSLContext, folder: Path) -> str:
    """Return the subject that a client presents to a server requiring certificates, in memory."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "me.pem", folder / "me.key")
    server.load_verify_locations(folder / "me.pem")
    server.verify_mode = ssl.CERT_REQUIRED
    name = x509.load_pem_x509_certificate((folder / "me.pem").read_bytes()).subject
    here, there = ssl.MemoryBIO(), ssl.MemoryBIO()
    host = str(name.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)
    ends = [
        context.wrap_bio(here, there, server_hostname=host),
        server.wrap_bio(there, here, server_side=True),
    ]
    for _ in range(4):
        for end in ends:
            with suppress(ssl.SSLWantReadError):
                end.do_handshake()
    result = ends[1].getpeercert()
    assert result is not None
    return str(dict(item[0] for item in result["subject"])["commonName"])  # type: ignore[misc]  # typeshed is vague


def test_faust_presents_the_certificate_that_is_there_when_it_connects(tmp_path: Path) -> None:
    security = KafkaSecurity(
        protocol="SSL",
        ca_location=str(tmp_path / "me.pem"),
        certificate_location=str(tmp_path / "me.pem"),
        key_location=str(tmp_path / "me.key"),
    )
    write_certificate(tmp_path, "old")
    credentials: Any = for_faust(KafkaSettings(security=security))
    assert presented(credentials.context, tmp_path) == "old"
    write_certificate(tmp_path, "new")
    assert presented(credentials.context, tmp_path) == "new"
    aside = tmp_path / "aside"
    aside.mkdir()
    for name in ("me.pem", "me.key"):
        (tmp_path / name).rename(aside / name)
    assert presented(credentials.context, aside) == "new", "it is being replaced again"


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
        ({"protocol": "SASL_SSL", **PLAIN, "password_location": "/p"}, ["password_location"]),
        ({"protocol": "SSL", "password_location": "/p"}, ["password_location"]),
        ({"protocol": "SASL_SSL", **PLAIN, "oauth_token_url": "http://t"}, ["oauth_token_url"]),
        ({"protocol": "SASL_SSL", "mechanism": "OAUTHBEARER", **USER}, ["username", "password"]),
        ({"protocol": "SASL_SSL", "mechanism": "OAUTHBEARER"}, ["token_location", "token_url"]),
        ({**BY_URL, "oauth_token_location": "/t"}, ["token_location", "token_url"]),
        (BY_URL, ["oauth_client_id", "oauth_client_secret_location"]),
        ({**BY_FILE, "oauth_scope": "kafka"}, ["oauth_scope"]),
    ],
)
def test_an_incomplete_block_is_refused_with_every_problem(
    block: dict[str, Any], said: list[str]
) -> None:
    with pytest.raises(ValidationError) as raised:
        KafkaSecurity(**block)
    assert all(name in str(raised.value) for name in said)
    assert "hush" not in str(raised.value)


def test_secrets_are_read_from_files_when_a_client_is_made(tmp_path: Path) -> None:
    file = tmp_path / "password"
    security = KafkaSecurity(
        protocol="SASL_PLAINTEXT", mechanism="PLAIN", username="ann", password_location=str(file)
    )
    with pytest.raises(Misconfigured, match=f"password_location: {file} cannot be read"):
        librdkafka_security(security)
    file.write_text("\n", encoding="utf-8")
    with pytest.raises(Misconfigured, match="is empty"):
        librdkafka_security(security)
    for secret in ("hush", "quiet "):
        file.write_text(f"{secret}\n", encoding="utf-8")
        assert librdkafka_security(security)["sasl.password"] == secret
        credentials: Any = for_faust(KafkaSettings(security=security))
        assert credentials.password == secret
    assert credentials_digest(security) == {str(file): b"quiet \n"}


def test_a_token_carries_its_end_and_its_principal(tmp_path: Path) -> None:
    file = tmp_path / "token"
    security = KafkaSecurity.model_validate({**BY_FILE, "oauth_token_location": str(file)})
    assert credentials_digest(security) == {}, "nothing starts over for a token"
    file.write_text(f"{token(exp=4102444800, sub='ann')}\n", encoding="utf-8")
    assert current_token(security) == Token(token(exp=4102444800, sub="ann"), "ann", 4102444800.0)
    file.write_text(token(exp=1000), encoding="utf-8")
    with pytest.raises(Misconfigured, match=r"expired \d+ s ago"):
        current_token(security)
    file.write_text("opaque", encoding="utf-8")
    assert current_token(security).value == "opaque"
    file.write_text("é", encoding="utf-8")
    with pytest.raises(Misconfigured, match="is no token"):
        current_token(security)


def token(**claims: Any) -> str:
    """Return a token without a signature that holds."""
    body = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"head.{body}.signature"


def test_an_encrypted_key_without_its_password_does_not_prompt(tmp_path: Path) -> None:
    write_certificate(tmp_path, "me")
    key = load_pem_private_key((tmp_path / "me.key").read_bytes(), None)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"hush"))
    (tmp_path / "me.key").write_bytes(pem)
    files = {
        "protocol": "SSL",
        "certificate_location": str(tmp_path / "me.pem"),
        "key_location": str(tmp_path / "me.key"),
    }
    with pytest.raises(ssl.SSLError):
        ssl_context(KafkaSecurity.model_validate(files))
    (tmp_path / "password").write_text("hush", encoding="utf-8")
    files["key_password_location"] = str(tmp_path / "password")
    assert ssl_context(KafkaSecurity.model_validate(files)) is not None


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
