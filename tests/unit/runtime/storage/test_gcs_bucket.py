"""Google Cloud Storage: the meaning of responses, and the source of the token."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from fsspec.asyn import get_loop

from tests.support.object_stores import PAGE, SetAnswers, serving
from tidegate_delta.errors import Misconfigured, Unavailable
from tidegate_runtime.storage import gcs_bucket, object_store
from tidegate_runtime.storage.gcs_bucket import GcsBucket
from tidegate_runtime.storage.log_store import Put
from tidegate_runtime.storage.object_store import ObjectStore

pytest.importorskip("gcsfs")
google = pytest.importorskip("google.auth.exceptions")
Credentials: Any = pytest.importorskip("google.auth.credentials").Credentials

WRITTEN = b'{"name": "t/a", "generation": "7", "size": "4"}'
MISSING = b'{"error": {"message": "No such object: lake/t/a", "errors": [{"reason": "notFound"}]}}'
MD5 = "md5=kYuB216R0DFUi5Y8k4ReWw=="
"""The MD5 of `mine`."""

Answer = tuple[int, bytes]


class Store(ThreadingHTTPServer):
    """Gives set answers, and records requests and their tokens."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Request)
        self.answers: list[Answer] = []
        self.came: list[tuple[str, str]] = []
        self.tokens: list[str | None] = []
        self.said = {"location": "/login"}

    def options(self, host: str = "127.0.0.1") -> dict[str, str]:
        where = f"http://{host}:{self.server_port}"
        return {"google_endpoint_url": where, "google_anonymous": "true"}

    def opened(self, token: Any = None, host: str = "127.0.0.1") -> ObjectStore:
        store = ObjectStore("gs://lake/t", self.options(host))
        if token is not None:
            bucket = store._bucket
            assert isinstance(bucket, GcsBucket)
            bucket._system.credentials.credentials = token
        return store


class _Request(SetAnswers, BaseHTTPRequestHandler):
    server: Store

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.do_GET()

    def do_GET(self) -> None:
        self.server.came.append((self.command, self.path.partition("?")[0]))
        self.server.tokens.append(self.headers["authorization"])
        self.reply(*self.server.answers.pop(0), self.server.said)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setattr(object_store, "_FIRST_PAUSE_S", 0.001)
    with serving(Store()) as served:
        yield served


class Token(Credentials):  # type: ignore[misc]  # its library is optional
    """Credentials whose token is valid or not, and whose refresh succeeds, fails or hangs."""

    def __init__(self, how: str, *, is_good: bool) -> None:
        super().__init__()
        self.how = how
        self.token = "old"
        self.is_good = is_good
        self.asked = 0
        self.answered = threading.Event()

    @property
    def valid(self) -> bool:
        return self.is_good

    @property
    def expiry(self) -> datetime | None:
        """Return an expiry close to now, so that gcsfs asks for a new token."""
        return datetime.now(UTC).replace(tzinfo=None) if self.token == "old" else None

    @expiry.setter
    def expiry(self, _: Any) -> None:
        """Ignore the value."""

    def refresh(self, request: Any) -> None:
        self.asked += 1
        match self.how:
            case "fails":
                raise google.RefreshError("the metadata server does not answer")
            case "hangs":
                self.answered.wait(30)
        self.token, self.is_good = "new", True


def test_who_is_led_elsewhere_has_written_nothing(store: Store) -> None:
    store.answers = [(302, b""), (200, WRITTEN)]
    with pytest.raises(Unavailable, match="302"):
        store.opened().put_if_absent("a", b"mine", 5.0)
    assert [method for method, _ in store.came] == ["POST"]


@pytest.mark.parametrize("body", [PAGE, b"", b"[]", b"{}"])
def test_a_gateways_answer_is_no_success(store: Store, body: bytes) -> None:
    store.answers = [(200, body)]
    assert store.opened().put_if_absent("a", b"mine", 5.0) is Put.UNKNOWN
    store.answers = [(200, WRITTEN)]
    assert store.opened().put_if_absent("a", b"mine", 5.0) is Put.WON


@pytest.mark.parametrize("body", [PAGE, b"", b'{"items": [', b'{"error": "go away"}'])
def test_a_gateways_answer_is_no_listing(store: Store, body: bytes) -> None:
    store.answers = [(200, body)] * 8
    with pytest.raises(Unavailable, match="no store's"):
        list(store.opened().list_from("_delta_log", ""))
    with pytest.raises(Unavailable, match="no store's"):
        store.opened().open("a")


def test_a_gateways_answer_is_no_file(store: Store) -> None:
    store.answers = [(200, PAGE)] * 4
    with pytest.raises(Unavailable, match="no store's"):
        store.opened().read("a")
    store.answers = [(200, WRITTEN), *[(200, PAGE[:4])] * 4]
    with pytest.raises(Unavailable, match="no store's"):
        store.opened().open("a").read()


def test_bytes_that_are_not_the_objects_are_no_file(store: Store) -> None:
    store.said = {"x-goog-generation": "7", "x-goog-hash": f"crc32c=AAAAAA==,{MD5}"}
    store.answers = [(200, b"mine"), *[(200, b"main")] * 4]
    assert store.opened().read("a") == b"mine"
    with pytest.raises(Unavailable, match="not those of the object"):
        store.opened().read("a")
    store.said["x-goog-stored-content-encoding"] = "gzip"
    store.answers = [(200, b"unpacked")]
    assert store.opened().read("a") == b"unpacked", "the hash is that of the packed bytes"


def test_bytes_of_another_generation_are_no_part_of_the_one_that_was_opened(store: Store) -> None:
    store.said = {"x-goog-generation": "8"}
    store.answers = [(200, WRITTEN), *[(206, b"mine")] * 4]
    with pytest.raises(Unavailable, match="generation 7"):
        store.opened().open("a").read()


@pytest.mark.parametrize("page", [PAGE, b"", b"404 page not found"])
def test_a_file_is_missing_where_the_store_says_so_and_not_a_gateway(
    store: Store, page: bytes
) -> None:
    store.answers = [(404, page)] * 8
    with pytest.raises(Unavailable, match="no store's"):
        store.opened().read("a")
    store.answers = [(404, page)] * 4
    with pytest.raises(Unavailable, match="no store's"):
        store.opened().open("a")
    store.answers = [(404, b"Not Found"), (404, MISSING)]
    assert store.opened().read("a") is None, "as an emulator has it"
    store.answers = [(404, MISSING)]
    with pytest.raises(FileNotFoundError):
        store.opened().open("a")


@pytest.mark.parametrize("item", [b"null", b"[{}]", b'[{"name": "t/_delta_log/0", "size": "x"}]'])
def test_an_entry_that_cannot_be_read_ends_no_process(store: Store, item: bytes) -> None:
    store.answers = [(200, b'{"kind": "storage#objects", "items": ' + item + b"}")] * 4
    with pytest.raises(Unavailable, match="cannot be read"):
        list(store.opened().list_from("_delta_log", ""))


def test_a_missing_bucket_is_distinguished_from_a_missing_file_in_plain_text_too(
    store: Store,
) -> None:
    store.answers = [(404, b"No such object: lake/t/a")]
    assert store.opened().read("a") is None
    store.answers = [(404, b"The specified bucket does not exist.")]
    with pytest.raises(Unavailable, match="bucket does not exist"):
        store.opened().read("a")


def test_a_token_that_cannot_be_had_is_unavailable(store: Store) -> None:
    opened = store.opened(Token("fails", is_good=False))
    with pytest.raises(Unavailable, match="the metadata server does not answer"):
        opened.put_if_absent("a", b"mine", 5.0)
    with pytest.raises(Unavailable, match="the metadata server does not answer"):
        opened.read("a")
    assert store.came == []


def test_a_token_is_requested_while_the_one_before_it_is_valid(store: Store) -> None:
    token = Token("fails", is_good=True)
    opened = store.opened(token)
    store.answers = [(200, WRITTEN)] * 2
    assert opened.put_if_absent("a", b"mine", 5.0) is Put.WON
    token.how = "succeeds"
    assert opened.put_if_absent("a", b"mine", 5.0) is Put.WON
    assert store.tokens[0] == "Bearer old"
    assert token.asked >= 1


def test_a_token_that_is_long_in_coming_holds_up_neither_deadline_nor_loop(store: Store) -> None:
    token = Token("hangs", is_good=False)
    slow, other = store.opened(token), store.opened()
    store.answers = [(200, WRITTEN)]
    told: list[Put] = []
    waiting = Thread(target=lambda: told.append(slow.put_if_absent("a", b"mine", 1.0)))
    waiting.start()
    while not token.asked:
        time.sleep(0.01)
    assert other.put_if_absent("a", b"mine", 0.9) is Put.WON, "the loop goes on"
    waiting.join()
    assert told == [Put.UNKNOWN]
    token.answered.set()
    store.answers = [(200, WRITTEN)]
    assert slow.put_if_absent("a", b"mine", 5.0) is Put.WON
    assert (store.tokens[-1], token.asked) == ("Bearer new", 1)


def test_slow_tokens_take_no_thread_of_name_resolution(store: Store) -> None:
    get_loop().set_default_executor(ThreadPoolExecutor(1))
    token = Token("hangs", is_good=False)
    slow, other = store.opened(token), store.opened(host="localhost")
    store.answers = [(200, WRITTEN)]
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(slow.put_if_absent, "a", b"mine", 3.0)
        try:
            while not token.asked:
                time.sleep(0.01)
            assert other.put_if_absent("a", b"mine", 2.0) is Put.WON
            assert waiting.result() is Put.UNKNOWN
        finally:
            token.answered.set()
            get_loop().set_default_executor(ThreadPoolExecutor())


def test_a_key_file_that_is_written_anew_is_read_again(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "key.json"
    file.write_text("old")

    def read(keeper: Any, name: str) -> None:
        is_new = Path(name).read_text() == "new"
        keeper.credentials = Token("succeeds" if is_new else "fails", is_good=False)

    monkeypatch.setattr("gcsfs.credentials.GoogleCredentials._connect_token", read)
    where = {**store.options(), "google_anonymous": "false"}
    opened = ObjectStore("gs://lake/t", {**where, "google_application_credentials": str(file)})
    with pytest.raises(Unavailable, match="does not answer"):
        opened.put_if_absent("a", b"mine", 5.0)
    file.write_text("new")
    with pytest.raises(Unavailable, match="does not answer"):
        opened.put_if_absent("a", b"mine", 5.0)
    monkeypatch.setattr(gcs_bucket, "RENEWAL_S", 0.0)
    store.answers = [(200, WRITTEN)]
    assert opened.put_if_absent("a", b"mine", 5.0) is Put.WON
    assert store.tokens == ["Bearer new"]


def test_a_token_that_the_store_refuses_is_requested_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = Token("succeeds", is_good=True)
    refused.token = "revoked"
    opened = store.opened(refused)
    keeper = "gcsfs.credentials.GoogleCredentials.connect"
    fresh = Token("succeeds", is_good=False)
    monkeypatch.setattr(keeper, lambda one, method=None: setattr(one, "credentials", fresh))
    store.answers = [(401, b'{"error": {"message": "Invalid Credentials"}}'), (200, b"mine")]
    store.said = {"x-goog-generation": "7"}
    with pytest.raises(Unavailable, match="401"):
        opened.read("a")
    assert opened.read("a") == b"mine"
    assert store.tokens == ["Bearer revoked", "Bearer new"]


def test_without_credentials_nobody_goes_on_as_anybody(monkeypatch: pytest.MonkeyPatch) -> None:
    keeper = "gcsfs.credentials.GoogleCredentials._connect_google_default"
    monkeypatch.setenv("NO_GCE_CHECK", "true")

    def none_found(_: Any) -> None:
        raise google.DefaultCredentialsError("no metadata server")

    monkeypatch.setattr(keeper, none_found)
    store = ObjectStore("gs://lake/t")
    with pytest.raises(Unavailable, match="no credentials"):
        store.read("a")
    monkeypatch.setattr(keeper, lambda one: setattr(one, "credentials", Token("", is_good=True)))
    assert isinstance(store._bucket, GcsBucket), "they are looked for again"


def test_a_file_of_credentials_that_is_not_there_is_misconfigured(tmp_path: Path) -> None:
    name = str(tmp_path / "key.json")
    with pytest.raises(Misconfigured, match="there is no file"):
        GcsBucket("lake", {"google_application_credentials": name})
    (tmp_path / "key.json").write_text('{"type": "external_account"}')
    with pytest.raises(Misconfigured, match="do not fit"):
        GcsBucket("lake", {"google_application_credentials": name})


def test_the_proxy_is_the_one_that_the_environment_names(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{store.server_port}")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    store.answers = [(200, WRITTEN)] * 2
    assert store.opened().put_if_absent("a", b"mine", 5.0) is Put.WON
    far = {"google_endpoint_url": "http://gcs.example", "google_anonymous": "true"}
    assert ObjectStore("gs://lake/t", far).put_if_absent("a", b"mine", 5.0) is Put.WON
    direct, by_proxy = (place for _, place in store.came)
    assert direct.startswith("/upload/")
    assert by_proxy.startswith("http://gcs.example/upload/")
