"""A broker that asks for a login: TLS with client certificates, and SASL over TLS, with ACLs.

Principals are made by the authority, the users and the token issuer in its folder, as an
organisation's would be.
"""

import base64
import ipaddress
import json
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import jwt
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, not declared so
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from tests.integration.conftest import free_port
from tidegate_local.embedded_kafka import HOST, EmbeddedKafka

AUDIENCE: Final = "kafka"
PASSWORD: Final = "first-canary-7f3a"
LONGEST_LOGIN_MS: Final = 10_000
"""After this time the brokers ask clients to log in again, or close the connection."""

_MODULES: Final = {
    "plain": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "scram": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "oauthbearer": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
}
_VALIDATOR: Final = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
)


class Authority:
    """A certificate authority, which writes PEM files into a folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("authority")
        usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
        certificate = (
            self._builder(self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(usage, critical=True)
            .sign(self._key, SHA256())
        )
        self.file = folder / "ca.pem"
        self.file.write_bytes(certificate.public_bytes(Encoding.PEM))

    def write(self, who: str, folder: Path) -> None:
        """Write `tls.crt` and `tls.key` for somebody; the key first."""
        key = ec.generate_private_key(ec.SECP256R1())
        address = x509.IPAddress(ipaddress.ip_address(HOST))
        certificate = (
            self._builder(_name(who), key.public_key())
            .add_extension(x509.SubjectAlternativeName([address]), critical=False)
            .sign(self._key, SHA256())
        )
        folder.mkdir(parents=True, exist_ok=True)
        pem, plain = Encoding.PEM, (PrivateFormat.PKCS8, NoEncryption())
        (folder / "tls.key").write_bytes(key.private_bytes(pem, *plain))
        (folder / "tls.crt").write_bytes(certificate.public_bytes(pem))

    def _builder(self, who: x509.Name, key: Any) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return x509.CertificateBuilder(
            self._name,
            who,
            key,
            x509.random_serial_number(),
            now - timedelta(days=1),
            now + timedelta(days=1),
        )


class Issuer:
    """Signs tokens; its public key is in `jwks.json`."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        numbers = self._key.public_key().public_numbers()
        self.file = folder / "jwks.json"
        key = {
            "kty": "RSA",
            "kid": "k1",
            "use": "sig",
            "alg": "RS256",
            "n": _bytes_of(numbers.n),
            "e": _bytes_of(numbers.e),
        }
        self.file.write_text(json.dumps({"keys": [key]}), encoding="utf-8")

    def token(self, who: str, lifetime_s: float = 3600.0) -> str:
        """Return a token for somebody, from now on."""
        now = int(time.time())
        claims = {"sub": who, "aud": AUDIENCE, "iat": now, "exp": now + int(lifetime_s)}
        return jwt.encode(claims, self._key, "RS256", {"kid": "k1"})


class SecuredKafka(EmbeddedKafka):
    """A broker with three listeners: without a login (for administrators), SSL, and SASL_SSL.

    On SSL the certificate's name is the principal, on SASL_SSL the user or the token's subject.
    """

    def __init__(self, folder: Path, users: Mapping[str, str]) -> None:
        super().__init__(folder)
        self.authority = Authority(folder / "authority")
        self.issuer = Issuer(folder / "issuer")
        self._users = users
        self.by_tls = f"{HOST}:{free_port()}"
        self.by_sasl = f"{HOST}:{free_port()}"

    def set_scram_password(self, who: str, password: str) -> None:
        """Give a user a password for SCRAM."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        changes = [
            UserScramCredentialUpsertion(
                who, ScramCredentialInfo(mechanism, 4096), password.encode()
            )
            for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
        ]
        # librdkafka takes one change of a user in a request.
        for change in changes:
            for done in admin.alter_user_scram_credentials([change]).values():
                done.result(15)

    def _logging(self, jars: Path) -> tuple[str, list[str]]:
        classpath, options = super()._logging(jars)
        allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={self.issuer.file.as_uri()}"
        return classpath, [*options, allowed]

    def _properties(self) -> dict[str, str | int]:
        plain = super()._properties()
        keys = self.authority.folder / "broker"
        self.authority.write("broker", keys)
        store = keys / "keystore.pem"
        store.write_bytes((keys / "tls.key").read_bytes() + (keys / "tls.crt").read_bytes())
        doors = f"SSL://{self.by_tls},SASL_SSL://{self.by_sasl}"
        kinds = f"{plain['listener.security.protocol.map']},SSL:SSL,SASL_SSL:SASL_SSL"
        users = " ".join(f'user_{who}="{password}"' for who, password in self._users.items())
        sasl = "listener.name.sasl_ssl"
        return {
            **plain,
            "listeners": f"{plain['listeners']},{doors}",
            "advertised.listeners": f"{plain['advertised.listeners']},{doors}",
            "listener.security.protocol.map": kinds,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(store),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority.file),
            "listener.name.ssl.ssl.client.auth": "required",
            "ssl.principal.mapping.rules": "RULE:^CN=(.*?)$/$1/",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
            f"{sasl}.connections.max.reauth.ms": LONGEST_LOGIN_MS,
            f"{sasl}.plain.sasl.jaas.config": f"{_MODULES['plain']} required {users};",
            f"{sasl}.scram-sha-256.sasl.jaas.config": f"{_MODULES['scram']} required;",
            f"{sasl}.scram-sha-512.sasl.jaas.config": f"{_MODULES['scram']} required;",
            f"{sasl}.oauthbearer.sasl.jaas.config": f"{_MODULES['oauthbearer']} required;",
            f"{sasl}.oauthbearer.sasl.server.callback.handler.class": _VALIDATOR,
            "sasl.oauthbearer.jwks.endpoint.url": self.issuer.file.as_uri(),
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
        }


def _name(who: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, who)])


def _bytes_of(number: int) -> str:
    octets = number.to_bytes((number.bit_length() + 7) // 8, "big")
    return base64.urlsafe_b64encode(octets).decode().rstrip("=")
