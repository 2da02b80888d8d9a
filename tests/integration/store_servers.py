"""The object-store servers of the tests: their protocols, and how to configure a store for each.

moto, and scripted servers of ours for GCS and Azure, run everywhere. `make emulators` installs
fake-gcs-server and Azurite from the registries of Go and npm; where they are missing, their tests
are skipped with that reason.
"""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Final

import pytest

from tests.integration.azure_server import AzureServer
from tests.integration.gcs_server import GcsServer
from tests.integration.moto_server import moto_server
from tidegate_runtime.storage.object_store import ObjectStore

Throttled = tuple[int, Mapping[str, str], bytes]
ROOT: Final = Path(__file__).parents[2]
BROUGHT: Final = ROOT / ".cache" / "emulators"
ACCOUNT: Final = "devstoreaccount1"
KEY: Final = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)
"""The public account and key from Azurite's documentation."""

STARTS_S: Final = 30.0


@dataclass(frozen=True)
class Kind:
    """A server's protocol. `throttled` is the response by which it asks for fewer requests."""

    name: str
    scheme: str
    serve: Callable[[], AbstractContextManager[int]]
    throttled: Throttled

    def root(self, folder: str) -> str:
        """Return a table root in the bucket `token_bucket`."""
        at = f"@{ACCOUNT}.dfs.core.windows.net" if self.scheme == "abfss" else ""
        return f"{self.scheme}://bucket{at}/{folder}"

    def opened(self, port: int, root: str) -> ObjectStore:
        """Return a new store with its own connections to a local port."""
        return ObjectStore(root, self.options(port))

    def options(self, port: int) -> dict[str, str]:
        """Return the options for a store of this kind on a local server."""
        endpoint = f"http://127.0.0.1:{port}"
        match self.scheme:
            case "s3":
                secrets = {"access_key_id": "any", "secret_access_key": "any"}
                return {"AWS_ENDPOINT_URL": endpoint, "region": "us-east-1", **secrets}
            case "gs":
                return {"google_endpoint_url": endpoint, "google_anonymous": "true"}
            case _:
                return {"azure_endpoint_url": f"{endpoint}/{ACCOUNT}", "azure_account_key": KEY}


@contextmanager
def _gcs() -> Iterator[int]:
    pytest.importorskip("gcsfs")
    with GcsServer().server as server:
        yield server.port


@contextmanager
def _azure() -> Iterator[int]:
    pytest.importorskip("adlfs")
    with AzureServer().server as server:
        yield server.port


@contextmanager
def _fake_gcs() -> Iterator[int]:
    pytest.importorskip("gcsfs")
    program = BROUGHT / "fake-gcs-server"
    if not program.exists():
        pytest.skip("fake-gcs-server is not here; `make emulators` brings it")
    port = _free_port()
    arguments = ["-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-backend", "memory"]
    with _running([str(program), *arguments, "-log-level", "error"], port):
        _request(port, "POST", "/storage/v1/b", b'{"name": "bucket"}')
        yield port


@contextmanager
def _azurite() -> Iterator[int]:
    pytest.importorskip("adlfs")
    program = BROUGHT / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
    node = shutil.which("node")
    if node is None or not program.exists():
        pytest.skip("Azurite is not here; `make emulators` brings it")
    port = _free_port()
    arguments = [
        "--blobPort",
        str(port),
        "--inMemoryPersistence",
        "--skipApiVersionCheck",
        "--silent",
    ]
    with _running([node, str(program), *arguments, "--disableTelemetry"], port):
        store = AZURITE.opened(port, AZURITE.root("t"))
        store._ask(store._bucket._container.create_container)  # type: ignore[attr-defined]  # no verb of ours makes a container
        yield port


@contextmanager
def _running(command: list[str], port: int) -> Iterator[None]:
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=dict(os.environ)
    )
    try:
        ends = time.monotonic() + STARTS_S
        while not _answers(port):
            assert process.poll() is None, f"{command[0]} ended with {process.returncode}"
            assert time.monotonic() < ends, f"{command[0]} does not answer on port {port}"
            time.sleep(0.1)
        yield
    finally:
        process.terminate()
        process.wait(STARTS_S)


def _answers(port: int) -> bool:
    with socket.socket() as attempt:
        return attempt.connect_ex(("127.0.0.1", port)) == 0


def _free_port() -> int:
    with socket.socket() as asking:
        asking.bind(("127.0.0.1", 0))
        port: int = asking.getsockname()[1]
        return port


def _request(port: int, method: str, path: str, body: bytes = b"") -> None:
    connection = HTTPConnection("127.0.0.1", port)
    connection.request(method, path, body)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    assert answer.status == 200, f"{method} {path}: {answer.status}"


_S3_BUSY: Final[Throttled] = (
    503,
    {"Content-Type": "application/xml"},
    b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>",
)
_GCS_BUSY: Final[Throttled] = (429, {}, b'{"error": {"code": 429, "message": "rateLimitExceeded"}}')
_AZURE_BUSY: Final[Throttled] = (503, {"x-ms-error-code": "ServerBusy"}, b"")

MOTO: Final = Kind("moto", "s3", moto_server, _S3_BUSY)
GCS: Final = Kind("gcs, scripted", "gs", _gcs, _GCS_BUSY)
AZURE: Final = Kind("azure, scripted", "abfss", _azure, _AZURE_BUSY)
FAKE_GCS: Final = Kind("fake-gcs-server", "gs", _fake_gcs, _GCS_BUSY)
AZURITE: Final = Kind("azurite", "abfss", _azurite, _AZURE_BUSY)
KINDS: Final = (MOTO, GCS, AZURE, FAKE_GCS, AZURITE)
