"""Azure's responses as they come over the wire: missing objects, and responses of a proxy."""

import time
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.object_stores import SetAnswers, serving
from tidegate_delta.errors import Unavailable
from tidegate_runtime.storage import adls_bucket
from tidegate_runtime.storage.log_store import Put
from tidegate_runtime.storage.object_store import ObjectStore


class Store(HTTPServer):
    """Answers every request with a page, a status and extra headers."""

    status = 404
    said: Mapping[str, str]

    def opened(self) -> ObjectStore:
        endpoint = f"http://127.0.0.1:{self.server_port}/account"
        result = {"azure_endpoint_url": endpoint, "azure_account_key": "a2V5"}
        return ObjectStore("abfss://files@account.dfs.core.windows.net/t", result)


class _Answer(SetAnswers, BaseHTTPRequestHandler):
    server: Store

    def do_GET(self) -> None:
        page = b"<html><body>Not Found</body></html>"
        self.reply(self.server.status, page, self.server.said)
        self.close_connection = True

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.do_GET()

    do_HEAD = do_GET  # noqa: N815 the base class's name


@pytest.fixture
def store() -> Iterator[Store]:
    pytest.importorskip("adlfs")
    with serving(Store(("127.0.0.1", 0), _Answer)) as served:
        yield served


def test_a_file_is_missing_where_the_store_says_so_and_not_a_gateway(store: Store) -> None:
    store.said = {"x-ms-error-code": "BlobNotFound"}
    assert store.opened().read("a") is None
    with pytest.raises(FileNotFoundError):
        store.opened().open("a")
    store.said = {}
    with pytest.raises(Unavailable, match="no store's"):
        store.opened().read("a")
    with pytest.raises(Unavailable, match="no store's"):
        store.opened().open("a")


def test_a_false_content_encoding_ends_no_process(store: Store) -> None:
    store.said = {"content-encoding": "gzip"}
    store.status = 201
    assert store.opened().put_if_absent("a", b"one", 5.0) is Put.UNKNOWN
    store.status = 200
    with pytest.raises(Unavailable, match="cannot be read"):
        list(store.opened().list_from("_delta_log", ""))


def test_a_certificate_that_is_renewed_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("adlfs")
    wrong = pytest.importorskip("azure.core.exceptions")
    certificate = tmp_path / "certificate.pem"
    certificate.write_text("expired")
    asked: list[str] = []

    class DefaultAzureCredential:
        def __init__(self) -> None:
            self.certificate = certificate.read_text()

        async def get_token(self, *_: str, **__: Any) -> Any:
            asked.append(self.certificate)
            if self.certificate == "expired":
                raise wrong.ClientAuthenticationError("AADSTS700027: the certificate is over")
            return SimpleNamespace(token="good", expires_on=int(time.time()) + 3600)

        async def close(self) -> None:
            """Do nothing."""

    monkeypatch.setattr("azure.identity.aio.DefaultAzureCredential", DefaultAzureCredential)
    store = ObjectStore("abfss://files@account.dfs.invalid/t")
    with pytest.raises(Unavailable, match="AADSTS700027"):
        store.put_if_absent("a", b"one", 5.0)
    certificate.write_text("fresh")
    with pytest.raises(Unavailable, match="AADSTS700027"):
        store.put_if_absent("a", b"one", 5.0)
    monkeypatch.setattr(adls_bucket, "RENEWAL_S", 0.0)
    with pytest.raises(Unavailable, match="AADSTS700027"):
        store.put_if_absent("a", b"one", 5.0)
    assert store.put_if_absent("a", b"one", 5.0) is Put.UNKNOWN, "it is sent, and nobody is there"
    assert asked == ["expired", "expired", "expired", "fresh"]
