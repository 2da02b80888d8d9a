"""The PUT of S3 that we sign and send ourselves, beside botocore's and over a real socket."""

import socket
import ssl
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from http.client import HTTPException
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from tidegate.runtime.object_answers import Refusal, Verdict, judge
from tidegate.runtime.s3_bucket import S3Bucket
from tidegate.runtime.s3_direct import Direct, Secrets, Way, quoted

SECRETS = Secrets("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")
KEY = "tables/t/_delta_log/00000000000000000001.json"
DONE = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
LATE = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"
PIECES = (b"<Error><Code>PreconditionFailed</Code><Messag", b"e>no</Message></Error>", b"")
REFUSED = b"HTTP/1.1 412 Precondition Failed\r\nTransfer-Encoding: chunked\r\n\r\n" + b"".join(
    b"%x\r\n%s\r\n" % (len(piece), piece) for piece in PIECES
)


def way(host: str = "bucket.s3.eu-west-1.amazonaws.com", scheme: str = "https") -> Way:
    return Way(scheme, host, "/", "eu-west-1", "s3")


def trust() -> ssl.SSLContext:
    return ssl.create_default_context()


@pytest.mark.parametrize("token", [None, "a/session+token=="])
@pytest.mark.parametrize(
    "key", [KEY, "a b/ü~(1)/x=1+2%/_delta_log/1.json", "t/_delta_log/_staged_commits/1.a.json"]
)
def test_a_signature_is_the_one_that_botocore_makes(key: str, token: str | None) -> None:
    made = way().signed(
        way().path(key), b"content", SECRETS._replace(token=token), 1_795_282_140_587
    )
    request = AWSRequest("PUT", f"https://{way().host}{way().path(key)}", data=b"content")
    for name, value in made.items():
        if name not in ("authorization", "host"):
            request.headers[name] = value
    request.context["timestamp"] = made["x-amz-date"]
    signer = S3SigV4Auth(Credentials(*SECRETS[:2], token), "s3", "eu-west-1")
    theirs = signer.signature(
        signer.string_to_sign(request, signer.canonical_request(request)), request
    )
    assert made["authorization"].endswith(f"Signature={theirs}")
    assert signer.scope(request) in made["authorization"]


def sent(url: str, **more: str) -> Any:
    scope = "AKIDEXAMPLE/20261121/eu-west-1/s3/aws4_request"
    headers = {
        "If-None-Match": "*",
        "User-Agent": "any",
        "X-Amz-Date": "20261121T000000Z",
        "Authorization": f"AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=host, Signature=0",
        **more,
    }
    return SimpleNamespace(url=url, headers={name: one.encode() for name, one in headers.items()})


@pytest.mark.parametrize("start", ["https://b.s3.amazonaws.com/", "http://127.0.0.1:9000/b/"])
def test_the_way_is_learnt_from_a_request_of_the_librarys(start: str) -> None:
    learnt = Way.learnt(sent(start + quoted("a b/1.json")), "a b/1.json", trust)
    assert learnt is not None
    assert f"{learnt.scheme}://{learnt.host}{learnt.path('c d')}" == f"{start}c%20d"
    assert (learnt.region, learnt.service) == ("eu-west-1", "s3")
    assert (learnt.trust is not None) == start.startswith("https")


@pytest.mark.parametrize(
    "request_sent",
    [
        sent("https://h/b/other"),
        sent("https://h/b/key?versionId=1"),
        sent("https://h/b/key", **{"X-Amz-Server-Side-Encryption": "aws:kms"}),
        sent("https://h/b/key", **{"If-None-Match": "no"}),
        sent("https://h/b/key", Authorization="AWS4-ECDSA-P256-SHA256 Credential=a/b"),
    ],
)
def test_what_the_library_does_beyond_that_is_left_to_it(request_sent: Any) -> None:
    assert Way.learnt(request_sent, "key", trust) is None


@dataclass
class Server:
    """Answers each request of a connection by script; b"" hangs up without an answer."""

    script: list[Sequence[bytes]]
    requests: list[bytes] = field(default_factory=list)
    connections: int = 0
    open: list[socket.socket] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.host = f"127.0.0.1:{self.listening.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        for answers in self.script:
            connection = self.listening.accept()[0]
            self.connections += 1
            for answer in answers:
                got = b""
                while not got.endswith(b"\r\n\r\ncontent"):
                    got += connection.recv(65536)
                self.requests.append(got)
                connection.sendall(answer)
            self.open.append(connection)
            if answers[-1] != LATE:
                connection.close()


@pytest.fixture
def served(request: pytest.FixtureRequest) -> Iterator[Server]:
    server = Server(request.param)
    yield server
    server.listening.close()
    for connection in server.open:
        connection.close()


def create(direct: Direct, timeout_s: float = 10.0) -> None:
    direct.create(KEY, b"content", SECRETS, timeout_s)


@pytest.mark.parametrize("served", [[[DONE, DONE, REFUSED, DONE]]], indirect=True)
def test_one_connection_carries_one_request_after_the_other(served: Server) -> None:
    direct = Direct(way(served.host, "http"))
    create(direct)
    create(direct)
    with pytest.raises(Refusal) as refused:
        create(direct)
    create(direct)
    assert (refused.value.status, refused.value.code) == (412, "PreconditionFailed")
    assert judge(refused.value) is Verdict.REFUSED
    assert served.connections == 1
    assert len(served.requests) == 4
    assert served.requests[0].startswith(f"PUT /{KEY} HTTP/1.1\r\nhost: {served.host}\r\n".encode())
    assert b"\r\nif-none-match: *\r\n" in served.requests[0]
    assert b"\r\ncontent-length: 7\r\n" in served.requests[0]


@pytest.mark.parametrize("served", [[[DONE], [DONE]]], indirect=True)
def test_a_connection_that_ended_while_it_rested_is_not_sent_on(served: Server) -> None:
    direct = Direct(way(served.host, "http"))
    create(direct)
    kept = direct.resting[0][0]
    kept.settimeout(10.0)
    assert kept.recv(1, socket.MSG_PEEK) == b"", "it has ended"
    create(direct)
    assert served.connections == 2


@pytest.mark.parametrize("served", [[[b""], [DONE]]], indirect=True)
def test_an_answer_that_does_not_come_is_in_doubt_and_nothing_is_sent_again(served: Server) -> None:
    direct = Direct(way(served.host, "http"))
    with pytest.raises((OSError, HTTPException)) as lost:
        create(direct)
    assert judge(lost.value) is Verdict.UNKNOWN
    assert len(served.requests) == 1
    assert not direct.resting


@pytest.mark.parametrize("served", [[[b"no HTTP at all\r\n\r\n"]]], indirect=True)
def test_an_answer_that_is_none_is_in_doubt(served: Server) -> None:
    with pytest.raises(HTTPException) as lost:
        create(Direct(way(served.host, "http")))
    assert judge(lost.value) is Verdict.UNKNOWN


@pytest.mark.parametrize("served", [[[LATE]]], indirect=True)
def test_an_answer_is_waited_for_no_longer_than_the_timeout(served: Server) -> None:
    direct = Direct(way(served.host, "http"))
    with pytest.raises(TimeoutError) as lost:
        create(direct, timeout_s=0.2)
    assert judge(lost.value) is Verdict.UNKNOWN
    assert not direct.resting


def answered(status: int, code: str) -> bytes:
    body = f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode()
    return b"HTTP/1.1 %d No\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body)


def bucket_at(host: str) -> S3Bucket:
    bucket = S3Bucket("bucket", {"region": "eu-west-1"})
    bucket._direct = Direct(way(host, "http"))
    bucket._credentials = Credentials(*SECRETS[:2])
    return bucket


@pytest.mark.parametrize(
    "served",
    [
        [[answered(403, "ExpiredToken")]],
        [[answered(301, "PermanentRedirect")]],
        [[answered(400, "AuthorizationHeaderMalformed")]],
    ],
    indirect=True,
)
def test_what_the_library_may_cure_is_left_to_it_from_then_on(served: Server) -> None:
    bucket = bucket_at(served.host)
    for _ in range(2):
        assert not bucket.create_now(KEY, b"content", 10.0)
    assert len(served.requests) == 1


@pytest.mark.parametrize(
    ("served", "verdict"),
    [
        ([[answered(400, "RequestTimeout")]], Verdict.UNKNOWN),
        ([[answered(503, "SlowDown")]], Verdict.UNKNOWN),
        ([[answered(404, "NoSuchBucket")]], Verdict.FATAL),
    ],
    indirect=["served"],
)
def test_any_other_refusal_is_told(served: Server, verdict: Verdict) -> None:
    bucket = bucket_at(served.host)
    with pytest.raises(Refusal) as refused:
        bucket.create_now(KEY, b"content", 10.0)
    assert judge(refused.value) is verdict


def test_nothing_is_sent_before_the_library_has_shown_the_way() -> None:
    assert not S3Bucket("bucket", {"region": "eu-west-1"}).create_now(KEY, b"content", 10.0)


def test_credentials_that_are_about_to_end_are_left_to_the_library() -> None:
    bucket = bucket_at("127.0.0.1:1")
    bucket._credentials = SimpleNamespace(refresh_needed=lambda: True)
    assert not bucket.create_now(KEY, b"content", 10.0)


def test_a_store_that_is_not_there_is_in_doubt() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        host = f"127.0.0.1:{gone.getsockname()[1]}"
    with pytest.raises(OSError, match="refused") as lost:
        create(Direct(way(host, "http")))
    assert judge(lost.value) is Verdict.UNKNOWN
