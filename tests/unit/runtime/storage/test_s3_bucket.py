"""S3's conditional PUT from the caller's own thread: what is sent, and how answers are read."""

import hashlib
import ssl
import sys
import time
from base64 import b64encode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socket import socket
from threading import Event
from typing import Any
from unittest import mock
from urllib.parse import unquote

import obstore
import obstore.store
import pytest
from botocore.credentials import Credentials
from obstore.exceptions import AlreadyExistsError, GenericError, PermissionDeniedError

from tests.support.certificates import write_certificate
from tests.support.object_stores import PAGE, SetAnswers, serving
from tidegate_delta.errors import Misconfigured, Unavailable
from tidegate_runtime.release import ENGINE
from tidegate_runtime.storage import s3_bucket, s3_by_obstore
from tidegate_runtime.storage.log_store import NO_CONDITION, Put
from tidegate_runtime.storage.object_responses import ErrorResponse, ResponseMeaning, meaning_of
from tidegate_runtime.storage.object_store import ObjectStore
from tidegate_runtime.storage.s3_bucket import S3Bucket

KEY = "t/_delta_log/00000000000000000001.json"
ETAG = '"9e107d9d372bb6826bd81d3542a419d6"'
PATIENCE_S = 60.0
"""How long an expected PUT may take: a busy machine imports libraries slowly."""
Answer = tuple[int, bytes]


class Store(ThreadingHTTPServer):
    """Gives set answers to PUTs, and records the requests."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Put)
        self.answers: list[Answer] = []
        self.came: list[tuple[str, str | None, bytes]] = []
        self.said = {"etag": ETAG}
        self.asked_first = 0
        self.head_status = 307
        self.heads = 0
        self.callers: set[str | None] = set()
        self.checksums: list[str | None] = []
        self.signers: list[str] = []
        self.payers: list[str | None] = []
        self.tokens: list[str | None] = []

    @property
    def place(self) -> dict[str, str]:
        """The options that lead here, without keys."""
        endpoint = f"http://127.0.0.1:{self.server_port}"
        return {"endpoint_url": endpoint, "region": "eu-west-1", "path_style": "true"}

    def options(self, told: dict[str, str]) -> dict[str, str]:
        return {**self.place, "access_key_id": "a", "secret_access_key": "b", **told}

    def bucket(self, **fields: str) -> S3Bucket:
        return S3Bucket("lake", self.options(fields))

    def opened(self, **fields: str) -> ObjectStore:
        return ObjectStore("s3://lake/t", self.options(fields))


class _Put(SetAnswers, BaseHTTPRequestHandler):
    server: Store

    def handle_expect_100(self) -> bool:
        self.server.asked_first += 1
        return super().handle_expect_100()

    def do_PUT(self) -> None:
        content = self.rfile.read(int(self.headers["content-length"]))
        self.server.callers.add(self.headers["user-agent"])
        checksum = self.headers["content-md5"] or self.headers["x-amz-checksum-sha256"]
        self.server.checksums.append(checksum)
        self.server.came.append((self.path, self.headers["if-none-match"], content))
        self._answer(*self.server.answers.pop(0))

    def do_GET(self) -> None:
        self.server.callers.add(self.headers["user-agent"])
        self._answer(*self.server.answers.pop(0))

    def do_HEAD(self) -> None:
        self.server.heads += 1
        if self.server.head_status == 200:
            self.send_response(200)
            self.send_header("etag", '"x"')
            self.end_headers()
            self.close_connection = True
        else:
            self._answer(self.server.head_status, b"")

    def _answer(self, status: int, body: bytes) -> None:
        self.server.payers.append(self.headers["x-amz-request-payer"])
        self.server.tokens.append(self.headers["x-amz-security-token"])
        signed = str(self.headers["authorization"])
        self.server.signers.append(signed.partition("Credential=")[2].partition("/")[0])
        self.reply(status, body, self.server.said)


@pytest.fixture
def store() -> Iterator[Store]:
    with serving(Store()) as served:
        yield served


def test_one_request_carries_the_whole_and_the_condition(store: Store) -> None:
    store.answers = [(200, b""), (200, b"")]
    bucket = store.bucket()
    assert bucket.create_now(KEY, b"one", PATIENCE_S)
    assert bucket.create_now(KEY, b"two", PATIENCE_S)
    assert store.came == [(f"/lake/{KEY}", "*", b"one"), (f"/lake/{KEY}", "*", b"two")]
    assert store.callers == {ENGINE}, "a store's access log says who wrote"
    assert store.asked_first == 0, "the body need not wait until it is asked for"


def test_each_put_carries_the_checksum_that_a_bucket_with_retention_requires(store: Store) -> None:
    store.answers = [(200, b"")] * 2
    opened = store.opened()
    opened.put_if_absent("a", b"one", 5.0)
    opened.put("a", b"one")
    sha256 = b64encode(hashlib.sha256(b"one").digest()).decode()
    assert store.checksums == [sha256, "+XxdKZQb+xsv2rCHSQargg=="]


def test_a_request_is_sent_after_its_turn_and_credentials_are_fetched_before(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.answers = [(200, b"")]
    happened: list[str] = []
    asked = Credentials.get_frozen_credentials

    def ask(credentials: Credentials) -> object:
        happened.append("credentials")
        return asked(credentials)

    def turn() -> bool:
        happened.append(f"turn, {len(store.came)} sent")
        return True

    monkeypatch.setattr(Credentials, "get_frozen_credentials", ask)
    assert store.bucket().create_now(KEY, b"one", 5.0, turn)
    assert happened == ["credentials", "turn, 0 sent"]
    assert len(store.came) == 1


def test_a_request_whose_turn_never_comes_is_not_sent(store: Store) -> None:
    assert not store.bucket().create_now(KEY, b"one", 5.0, lambda: False)
    assert store.came == []


def test_one_client_sends_whatever_is_left_of_the_deadline(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each client has its own connection pool, so a second client would open more connections.
    made: list[object] = []
    constructor: Any = obstore.store.S3Store

    def make(*arguments: object, **options: object) -> object:
        made.append(constructor(*arguments, **options))
        return made[-1]

    monkeypatch.setattr(obstore.store, "S3Store", make)
    store.answers = [(200, b"")] * 4
    bucket = store.bucket()
    for left_s in (59.9, 59.5, 40.25, 33.0):
        assert bucket.create_now(KEY, b"one", left_s)
    assert len(store.came) == 4
    assert len(made) == 1


@pytest.mark.parametrize(
    ("status", "body", "verdict"),
    [
        (412, b"", ResponseMeaning.REFUSED),
        (412, b"<Error><Code>PreconditionFailed</Code><Message/></Error>", ResponseMeaning.REFUSED),
        (409, b"<Error><Code>ConditionalRequestConflict</Code></Error>", ResponseMeaning.UNKNOWN),
        (
            503,
            b"<Error><Code>SlowDown</Code><Message>rest</Message></Error>",
            ResponseMeaning.UNKNOWN,
        ),
        (
            403,
            b"<Error><Code>AccessDenied</Code><Message>no</Message></Error>",
            ResponseMeaning.FATAL,
        ),
    ],
)
def test_a_refusal_keeps_its_status_and_is_sent_once(
    store: Store, status: int, body: bytes, verdict: ResponseMeaning
) -> None:
    store.answers = [(status, body)]
    with pytest.raises(ErrorResponse) as raised:
        store.bucket().create_now(KEY, b"one", 5.0)
    assert raised.value.status == status
    assert meaning_of(raised.value) is verdict
    assert len(store.came) == 1


@pytest.mark.parametrize(
    ("kind", "verdict"),
    [
        (AlreadyExistsError, ResponseMeaning.REFUSED),
        (PermissionDeniedError, ResponseMeaning.FATAL),
        (FileNotFoundError, ResponseMeaning.FATAL),
        (GenericError, ResponseMeaning.UNKNOWN),
    ],
)
def test_a_refusal_in_other_words_is_known_by_its_class(
    store: Store, monkeypatch: pytest.MonkeyPatch, kind: type[Exception], verdict: ResponseMeaning
) -> None:
    def put(*_: object, **__: object) -> None:
        raise kind("as a later release may say it")

    monkeypatch.setattr(obstore, "put", put)
    with pytest.raises((ErrorResponse, OSError), match="later release") as raised:
        store.bucket().create_now(KEY, b"one", 5.0)
    assert meaning_of(raised.value) is verdict


def test_a_store_that_is_not_there_is_in_doubt(store: Store) -> None:
    bucket = store.bucket(endpoint_url="http://127.0.0.1:1")
    with pytest.raises(OSError, match=r"127\.0\.0\.1.*ConnectionRefused") as raised:
        bucket.create_now(KEY, b"one", 5.0)
    assert meaning_of(raised.value) is ResponseMeaning.UNKNOWN


@pytest.mark.parametrize("key", ["", "/t/a", "t//a", "t/./a", "t/a/"])
def test_what_would_be_sent_under_another_key_is_left_to_the_other_way(
    store: Store, key: str
) -> None:
    assert not store.bucket().create_now(key, b"one", 5.0)
    assert store.came == []


def test_a_key_is_spelled_as_it_is_by_the_other_way(store: Store) -> None:
    store.answers = [(200, b"")] * 2
    opened = store.opened()
    odd = "a b/\u00e9=%20+&?#~*'()[]{}|^`\u4e2d.json"
    opened.put_if_absent(odd, b"one", 5.0)
    opened.put(odd, b"one")
    assert len({unquote(path) for path, *_ in store.came}) == 1
    assert store.came[0][0].isascii()


def test_a_file_is_read_by_one_request_from_the_callers_thread(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = store.opened()
    monkeypatch.setattr(opened, "_ask", mock.Mock(side_effect=AssertionError("s3fs is not used")))
    store.answers = [
        (200, b"one"),
        (200, b""),
        (404, b"<Error><Code>NoSuchKey</Code><Message>no</Message></Error>"),
    ]
    assert [opened.read("a"), opened.read("a"), opened.read("a")] == [b"one", b"", None]
    assert store.callers == {ENGINE}


def test_what_a_read_can_not_tell_is_found_out_the_other_way(store: Store) -> None:
    opened = store.opened()
    for other in ((500, b""), (404, b"default backend - 404")):
        store.answers = [other, (200, b"one")]
        assert opened.read("a") == b"one"
    store.said = {}
    store.answers = [(200, b"a page of a gateway"), *[(200, PAGE)] * 4]
    with pytest.raises(Unavailable, match="no store's"):
        opened.read("a")


def test_a_bucket_elsewhere_is_read_the_other_way_from_then_on(store: Store) -> None:
    opened = store.opened()
    store.answers = [(307, b""), (200, b"one"), (200, b"two")]
    assert [opened.read("a"), opened.read("a")] == [b"one", b"two"]
    assert store.answers == []


def test_a_bucket_that_obstore_can_not_open_is_tried_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, make = store.opened(), mock.Mock(side_effect=s3_by_obstore.UseOtherWay("not there"))
    monkeypatch.setattr(s3_bucket, "obstore_clients", make)
    store.answers = [(200, b"one")] * 2
    assert [opened.read("a"), opened.read("a")] == [b"one"] * 2
    make.assert_called_once()


def test_a_page_that_a_gateway_answers_with_is_no_success(store: Store) -> None:
    store.said = {}
    store.answers = [(200, PAGE)]
    with pytest.raises(ErrorResponse, match="no store's") as raised:
        store.bucket().create_now(KEY, b"one", 5.0)
    assert meaning_of(raised.value) is ResponseMeaning.UNKNOWN


@pytest.mark.parametrize(("etag", "page"), [('W/"5-x"', b""), ('"x"', PAGE)])
def test_a_page_with_an_etag_is_no_success_either(store: Store, etag: str, page: bytes) -> None:
    store.said = {"etag": etag}
    store.answers = [(200, page), *[(200, page)] * 4, *[(200, page)] * 4]
    opened = store.opened()
    assert opened.put_if_absent("a", b"one", 5.0) is Put.UNKNOWN
    with pytest.raises(Unavailable, match="no store's"):
        opened.put("a", b"one")
    store.said = {"etag": 'W/"5-x"'}
    with pytest.raises(Unavailable, match="no store's"):
        opened.read("a")


@pytest.mark.parametrize("ask", ["read", "list"])
def test_a_page_that_a_gateway_answers_with_is_neither_a_file_nor_an_empty_folder(
    store: Store, ask: str
) -> None:
    store.said = {}
    store.answers = [(200, PAGE)] * 5
    opened = store.opened()
    with pytest.raises(Unavailable, match="no store's"):
        opened.read("a") if ask == "read" else list(opened.list_from("_delta_log", ""))


def test_a_store_that_redirects_every_request_is_unavailable(store: Store) -> None:
    store.answers = [(307, b"")] * 2
    with pytest.raises(Unavailable, match="leads elsewhere"):
        store.opened().put_if_absent("a", b"one", 60.0)
    assert len(store.came) == 2, "obstore's, and the one of s3fs, which would follow to a region"
    assert store.heads == 1, "the client asks for the bucket's region once"
    store.answers = [(307, b"")] * 2
    with pytest.raises(Unavailable, match="leads elsewhere"):
        store.opened().read("a")


def test_a_header_that_the_client_cannot_read_leaves_the_answer_in_doubt(store: Store) -> None:
    store.said["x-amz-object-size"] = "large"
    store.answers = [(200, b"")] * 4
    with pytest.raises(Unavailable, match="cannot be read"):
        store.opened().put("a", b"one")


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (301, "PermanentRedirect"),
        (400, "AuthorizationHeaderMalformed"),
        (400, "InvalidArgument"),
        (501, "NotImplemented"),
    ],
)
def test_what_a_store_takes_only_otherwise_is_sent_by_s3fs_from_then_on(
    store: Store, caplog: pytest.LogCaptureFixture, status: int, code: str
) -> None:
    refusal = f"<Error><Code>{code}</Code><Message>not so</Message></Error>".encode()
    store.answers = [(status, refusal), *[(200, b"")] * 2]
    opened = store.opened()
    with caplog.at_level("INFO", "tidegate_runtime.storage"):
        assert opened.put_if_absent("a", b"one", PATIENCE_S) is Put.WON
        assert opened.put_if_absent("b", b"two", PATIENCE_S) is Put.WON
    conditions = [(path, condition) for path, condition, _ in store.came]
    assert conditions == [("/lake/t/a", "*")] * 2 + [("/lake/t/b", "*")]
    [record] = caplog.records
    assert record.getMessage().startswith("puts_by_s3fs bucket=lake ")


def test_a_bucket_with_rules_of_its_own_is_left_to_the_other_way(store: Store) -> None:
    for name in ("arn:aws:s3:eu-west-1:123456789012:accesspoint/lake", "lake--use1-az4--x-s3"):
        assert not S3Bucket(name, store.options({})).create_now(KEY, b"one", 5.0)
    assert store.came == []


def test_without_the_faster_client_the_other_way_is_taken(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    store.answers = [(200, b"")]
    assert store.opened().put_if_absent("a", b"one", PATIENCE_S) is Put.WON
    assert store.came == [("/lake/t/a", "*", b"one")]


def test_another_signature_is_left_to_the_other_way(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config").write_text("[default]\ns3 =\n  signature_version = s3\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    assert not store.bucket().create_now(KEY, b"one", 5.0)
    assert store.came == []


def test_environment_variables_of_other_clients_are_ignored(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, result in {
        "AWS_ENDPOINT": "http://127.0.0.1:1",
        "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:1",
        "AWS_SESSION_TOKEN": "of others",
        "AWS_SKIP_SIGNATURE": "true",
        "AWS_CONDITIONAL_PUT": "disabled",
        "AWS_REQUEST_PAYER": "true",
        "AWS_S3_EXPRESS": "true",
        "AWS_UNSIGNED_PAYLOAD": "true",
        "AWS_CHECKSUM_ALGORITHM": "crc64nvme",
    }.items():
        monkeypatch.setenv(name, result)
    store.answers = [(200, b"")]
    assert store.bucket().create_now(KEY, b"one", 5.0)
    assert store.came == [(f"/lake/{KEY}", "*", b"one")]
    assert (store.signers, store.payers, store.tokens) == (["a"], [None], [None])


def test_requests_are_unsigned_where_configured(store: Store) -> None:
    store.answers = [(200, b"")]
    assert S3Bucket("lake", {**store.place, "anonymous": "true"}).create_now(KEY, b"one", 5.0)
    assert store.signers == [""]


def test_a_file_of_certificates_that_is_not_there_is_named(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_CA_BUNDLE", str(tmp_path / "none.pem"))
    with pytest.raises(Misconfigured, match=r"AWS_CA_BUNDLE.*none\.pem: No such file"):
        store.bucket().create_now(KEY, b"one", 5.0)


def test_a_success_with_an_unusual_etag_is_compared_and_s3fs_reads_the_next(store: Store) -> None:
    store.said = {"etag": '"0x8DC-unusual"'}
    store.answers = [(200, b""), (200, b""), (200, PAGE)]
    opened = store.opened()
    assert opened.put_if_absent("a", b"one", 5.0) is Put.UNKNOWN
    assert opened.put_if_absent("b", b"one", PATIENCE_S) is Put.WON
    assert opened.put_if_absent("c", b"one", 5.0) is Put.UNKNOWN, "that one brought a page"


def test_a_token_goes_with_its_key(store: Store) -> None:
    store.answers = [(200, b"")]
    assert store.bucket(session_token="t").create_now(KEY, b"one", 5.0)
    assert store.tokens == ["t"]


@pytest.mark.parametrize("ask", ["put", "read"])
def test_an_endpoint_that_is_none_is_misconfigured(store: Store, ask: str) -> None:
    opened = store.opened(endpoint_url="localhost:9000")
    with pytest.raises(Misconfigured, match="localhost:9000"):
        opened.read("a") if ask == "read" else opened.put_if_absent("a", b"one", 5.0)


def test_a_file_is_missing_where_the_store_says_so_and_not_a_gateway(store: Store) -> None:
    store.answers = [(404, b"<Error><Code>NoSuchKey</Code><Message>no</Message></Error>")]
    assert store.opened().read("a") is None
    for page in (b"default backend - 404", b"<html><body>Not Found</body></html>"):
        store.answers = [(404, page)] * 5
        with pytest.raises(Unavailable, match="no store's"):
            store.opened().read("a")
    store.head_status = 404
    store.answers = [(404, b"default backend - 404")] * 4
    with pytest.raises(Unavailable, match="no store's"):
        store.opened().open("a")


EXPIRED = (400, b"<Error><Code>ExpiredToken</Code><Message>it is over</Message></Error>")


def written(file: Path, key: str) -> None:
    secret = f"aws_access_key_id = {key}\naws_secret_access_key = s\n"
    file.write_text(f"[default]\n{secret}")


@pytest.fixture
def credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    file = tmp_path / "credentials"
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    written(file, "old")
    return file


def test_expired_credentials_are_resolved_again(store: Store, credentials: Path) -> None:
    opened = ObjectStore("s3://lake/t", store.place)
    store.answers = [(200, b""), EXPIRED, (200, b"one"), (200, b"")]
    assert opened.put_if_absent("a", b"one", PATIENCE_S) is Put.WON
    written(credentials, "new")
    with pytest.raises(Unavailable, match="ExpiredToken"):
        opened.put_if_absent("b", b"one", 5.0)
    assert opened.read("a") == b"one"
    assert opened.put_if_absent("b", b"one", PATIENCE_S) is Put.WON
    assert store.signers == ["old", "old", "new", "new"]


def test_credentials_are_not_resolved_at_every_refusal(store: Store, credentials: Path) -> None:
    opened = ObjectStore("s3://lake/t", store.place)
    store.answers = [EXPIRED] * 3
    for _ in range(3):
        with pytest.raises(Unavailable):
            opened.read("a")
        written(credentials, f"key{len(store.signers)}")
    assert store.signers == ["old", "key1", "key1"]


def test_a_giver_of_credentials_that_hangs_keeps_no_other_store_waiting(
    store: Store, credentials: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = ObjectStore("s3://lake/t", store.place)
    store.answers = [EXPIRED, *[(200, b"one")] * 3]
    with pytest.raises(Unavailable, match="ExpiredToken"):
        opened.read("a")
    assert opened.read("a") == b"one"
    asks, answers = Event(), Event()
    make = s3_by_obstore._credentials

    def patiently(session: object, system: Any) -> object:
        if not system.key:
            asks.set()
            answers.wait(20)
        return make(session, system)

    monkeypatch.setattr(s3_by_obstore, "_credentials", patiently)
    with ThreadPoolExecutor() as pool:
        put = pool.submit(opened.put_if_absent, "b", b"one", 5.0)
        assert asks.wait(10)
        renewed, other = pool.submit(opened.read, "a"), pool.submit(store.opened().read, "a")
        try:
            assert [item.result(10) for item in (renewed, other)] == [b"one", b"one"]
        finally:
            store.answers.append((200, b""))
            answers.set()
        assert put.result(10) is Put.WON


def test_each_request_carries_the_requester_pays_header_where_it_is_configured(
    store: Store,
) -> None:
    listing = b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>"
    store.answers = [(200, b""), (200, b""), (200, b"one"), (200, listing), (200, b"")]
    paying = store.opened(aws_request_payer="true")
    assert paying.put_if_absent("a", b"one", PATIENCE_S) is Put.WON
    paying.put("a", b"one")
    assert paying.read("a") == b"one"
    assert list(paying.list_from("_delta_log", "")) == []
    assert store.opened().put_if_absent("b", b"one", PATIENCE_S) is Put.WON
    assert store.payers == [*["requester"] * 4, None]


def test_a_wrong_clock_is_distinguished_from_missing_rights(store: Store) -> None:
    code = b"<Error><Code>RequestTimeTooSkewed</Code><Message>too large</Message></Error>"
    store.answers = [(403, code)] * 3
    with pytest.raises(Unavailable, match="set this machine's clock"):
        store.opened().read("a")
    with pytest.raises(Unavailable, match="set this machine's clock"):
        store.opened().put_if_absent("a", b"one", 5.0)


def test_an_unknown_certificate_authority_is_distinguished_from_missing_rights_and_can_be_trusted(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_certificate(tmp_path, "localhost")
    shown = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    shown.load_cert_chain(tmp_path / "me.pem", tmp_path / "me.key")
    store.socket = shown.wrap_socket(store.socket, server_side=True)
    options = {"endpoint_url": f"https://localhost:{store.server_port}"}
    with pytest.raises(Unavailable, match="S3: AWS_CA_BUNDLE"):
        store.opened(**options).read("a")
    monkeypatch.setenv("AWS_CA_BUNDLE", str(tmp_path / "me.pem"))
    store.answers = [(200, b"one"), (200, b"")]
    trusting = store.opened(**options)
    assert trusting.read("a") == b"one"
    assert trusting.put_if_absent("b", b"two", PATIENCE_S) is Put.WON


def test_a_stores_answer_to_a_put_in_doubt_is_logged(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    full = b"<Error><Code>XMinioStorageFull</Code><Message>no room</Message></Error>"
    store.answers = [(507, full)]
    with caplog.at_level("INFO", "tidegate_runtime.storage"):
        assert store.opened().put_if_absent("a", b"one", 5.0) is Put.UNKNOWN
    [record] = caplog.records
    assert record.getMessage().startswith("unclear ")
    assert "507 XMinioStorageFull: no room" in record.getMessage()


def test_an_entry_that_cannot_be_read_ends_no_process(store: Store) -> None:
    entry = b"<Contents><Key>t/_delta_log/0</Key><Size>1</Size></Contents>"
    listing = b"<ListBucketResult><IsTruncated>false</IsTruncated>" + entry + b"</ListBucketResult>"
    store.answers = [(200, listing)] * 4
    with pytest.raises(Unavailable, match="LastModified"):
        list(store.opened().list_from("_delta_log", ""))


def test_a_file_of_no_size_ends_no_process(store: Store) -> None:
    store.head_status = 200
    with pytest.raises(Unavailable, match="no ContentLength"):
        store.opened().open("a")


def test_a_giver_of_tokens_that_does_not_answer_is_not_waited_for_beyond_measure(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text("who I am")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "token"))
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/gate")
    monkeypatch.setattr(s3_by_obstore, "SIGNER_S", 0.2)
    with socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", f"http://127.0.0.1:{silent.getsockname()[1]}")
        where = {name: store.options({})[name] for name in ("endpoint_url", "region")}
        bucket = S3Bucket("lake", where)
        bucket._obstore()
        began_s = time.monotonic()
        with pytest.raises(OSError, match="timeout"):
            bucket.create_now(KEY, b"one", 5.0)
        assert time.monotonic() - began_s < 30.0, "botocore's own patience is 60 s"
    assert store.came == []


def test_a_store_without_conditional_puts_raises_its_own_error_class(store: Store) -> None:
    for status, said in ((501, NO_CONDITION), (403, "Unavailable")):
        store.answers = [(status, b"<Error><Code>No</Code></Error>")] * 2
        with pytest.raises(Unavailable) as raised:
            store.opened().put_if_absent("a", b"one", 5.0)
        assert raised.value.error_class == said
