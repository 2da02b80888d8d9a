"""The way to a broker: each fault has its own words. The servers here are plain sockets."""

import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tidegate_runtime.kafka.cluster_state import fault_of_server, speaks_tls
from tidegate_runtime.kafka.settings import KafkaSecurity

PLAIN = KafkaSecurity()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return a self-signed certificate for `localhost`, and its key."""
    folder = tmp_path_factory.mktemp("tls")
    certificate, key = folder / "cert.pem", folder / "key.pem"
    command = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 "
        f"-subj /CN=localhost -addext subjectAltName=DNS:localhost -keyout {key} -out {certificate}"
    )
    subprocess.run(command.split(), check=True, capture_output=True)
    return certificate, key


def serving(answer: ssl.SSLContext | None) -> Iterator[int]:
    """Yield the port of a server that accepts connections, and shakes hands with a context."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    with suppress(OSError), connection:
                        if answer is None:
                            connection.sendall(b"no TLS here\n")
                        else:
                            answer.wrap_socket(connection, server_side=True).close()

        threading.Thread(target=serve, daemon=True).start()
        yield int(server.getsockname()[1])
        server.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def plain_port() -> Iterator[int]:
    yield from serving(None)


@pytest.fixture
def tls_port(certificate: tuple[Path, Path]) -> Iterator[int]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    yield from serving(context)


def test_a_port_that_accepts_connections_is_well(plain_port: int) -> None:
    assert fault_of_server(f"127.0.0.1:{plain_port}", PLAIN) is None
    assert not speaks_tls(f"127.0.0.1:{plain_port}")


@pytest.mark.parametrize("server", ["localhost", "localhost:kafka", ":9092"])
def test_an_invalid_address_is_reported(server: str) -> None:
    assert "write host:port" in (fault_of_server(server, PLAIN) or "")


def test_a_closed_port_and_an_unknown_name_are_distinguished() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert "refused" in (fault_of_server(f"127.0.0.1:{port}", PLAIN) or "")
    assert "not known here" in (fault_of_server("no-such-broker.invalid:9092", PLAIN) or "")


def test_tls_is_well_where_the_authority_is_trusted(
    tls_port: int, certificate: tuple[Path, Path]
) -> None:
    security = KafkaSecurity(protocol="SSL", ca_location=str(certificate[0]))
    assert fault_of_server(f"localhost:{tls_port}", security) is None
    assert speaks_tls(f"localhost:{tls_port}")


def test_a_certificate_that_is_not_trusted_or_of_another_name_is_refused(
    tls_port: int, certificate: tuple[Path, Path]
) -> None:
    unknown = KafkaSecurity(protocol="SSL")
    assert "`ca_location`" in (fault_of_server(f"localhost:{tls_port}", unknown) or "")
    security = KafkaSecurity(protocol="SSL", ca_location=str(certificate[0]))
    assert "IP address mismatch" in (fault_of_server(f"127.0.0.1:{tls_port}", security) or "")


def test_tls_to_a_port_without_it_is_named(plain_port: int) -> None:
    security = KafkaSecurity(protocol="SSL")
    assert "speak TLS" in (fault_of_server(f"127.0.0.1:{plain_port}", security) or "")
