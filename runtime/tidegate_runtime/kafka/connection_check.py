"""Find out why brokers don't answer: name, address, port, TLS, login. It sends no records."""

import socket
import ssl
import time
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from tidegate_delta.errors import TidegateError
from tidegate_runtime.kafka.error_translation import make_client, translated
from tidegate_runtime.kafka.librdkafka_logs import LIBRARY
from tidegate_runtime.kafka.security import KafkaSecurity, current_token, ssl_context
from tidegate_runtime.kafka.settings import KafkaSettings, for_librdkafka

CONNECT_S: Final = 3.0
LOGIN_S: Final = 10.0
_TICK_S: Final = 0.2
_SILENT: Final = 0
"""librdkafka's log level: the error is returned."""

_SETTLED: Final = frozenset(
    {KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError.SASL_AUTHENTICATION_FAILED}
)
"""Errors that another attempt does not cure."""


def fault_of_server(server: str, security: KafkaSecurity) -> str | None:
    """Return what is wrong with the way to one broker, with the remedy, or None.

    It connects, and shakes hands if TLS is configured. Otherwise a broker that speaks TLS on this
    port is found, too.
    """
    host, _, port = server.strip().rpartition(":")
    if not host or not port.isdigit():
        return f"{server!r} is no address: write host:port in `kafka.bootstrap_servers`"
    try:
        with socket.create_connection((host.strip("[]"), int(port)), CONNECT_S) as plain:
            return _fault_of_tls(plain, host.strip("[]"), security)
    except socket.gaierror as error:
        return f"the name {host} is not known here ({error.strerror}): correct it, or look at DNS"
    except TimeoutError:
        return f"no answer within {CONNECT_S:g} s: a firewall or a network policy drops packets"
    except OSError as error:
        reason = error.strerror or str(error)
        return f"{reason}: start the broker, or correct the address and the port"


def login_error(settings: KafkaSettings, timeout_s: float = LOGIN_S) -> TidegateError | None:
    """Return why the brokers let this client not in, or None if they do."""
    errors: list[KafkaError] = []
    config: dict[str, Any] = {
        "logger": LIBRARY,
        **for_librdkafka(settings),
        "log_level": _SILENT,
        "error_cb": errors.append,
    }
    try:
        if settings.security.uses_oauth:
            # The library waits for ten seconds before it says that it has no token.
            current_token(settings.security)
        admin = make_client(AdminClient, config)
    except TidegateError as error:
        return error
    until_s = time.monotonic() + timeout_s
    while True:
        admin.poll(0)
        final = next((error for error in errors if error.code() in _SETTLED), None)
        if final is not None:
            return translated(final, f"log in at {settings.bootstrap_servers}")
        try:
            admin.list_topics(timeout=_TICK_S)
        except KafkaException as error:
            if time.monotonic() > until_s:
                return translated(error, f"list the topics at {settings.bootstrap_servers}")
        else:
            return None


def _fault_of_tls(plain: socket.socket, host: str, security: KafkaSecurity) -> str | None:
    if not security.uses_tls:
        return None
    try:
        context = ssl_context(security)
        assert context is not None, "TLS is used"
        with context.wrap_socket(plain, server_hostname=host):
            return None
    except ssl.SSLCertVerificationError as error:
        return (
            f"its certificate is refused ({error.verify_message}): check `ca_location`, the name "
            "in the address, and the certificate's dates"
        )
    except ssl.SSLError as error:
        return (
            f"the TLS handshake fails ({error.reason or error}): does this port speak TLS, and "
            "does the broker ask for a certificate of the client?"
        )


def speaks_tls(server: str) -> bool:
    """Return whether a broker's port answers a TLS handshake, whatever its certificate."""
    host, _, port = server.strip().rpartition(":")
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with (
            socket.create_connection((host.strip("[]"), int(port)), CONNECT_S) as plain,
            context.wrap_socket(plain, server_hostname=host.strip("[]")),
        ):
            return True
    except (OSError, ValueError):
        return False
