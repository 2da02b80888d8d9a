"""The conditional PUT of S3 from the caller's own thread, on a connection that is kept.

A commit's PUT is all that its writers wait for. Through s3fs it takes milliseconds of CPU time and
two changes of thread; here it is a signature and a write. How the bucket is reached, by whom and in
which region is not decided here: that is learnt from a request that the library has sent, and what
it did that is not understood here is left to it.
"""

import hashlib
import hmac
import io
import re
import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from http.client import HTTPResponse
from select import select
from threading import Lock
from typing import Any, Final, NamedTuple, Self
from urllib.parse import quote, urlsplit

from tidegate.runtime.clock import SystemClock
from tidegate.runtime.object_answers import Refusal

IDLE_MAX_S: Final = 5.0
"""How long a connection may have rested; stores hang up on those that rest for long."""

_SCOPE: Final = re.compile(r"AWS4-HMAC-SHA256 Credential=[^/]+/\d{8}/([^/]+)/([^/,]+)/aws4_request")
_CODE: Final = re.compile(rb"<Code>([^<]*)</Code>")
_MESSAGE: Final = re.compile(rb"<Message>([^<]*)</Message>")
_FRESH: Final = frozenset(
    {
        "authorization",
        "content-length",
        "content-type",
        "expect",
        "host",
        "if-none-match",
        "user-agent",
        "x-amz-content-sha256",
        "x-amz-date",
        "x-amz-security-token",
        "amz-sdk-invocation-id",
        "amz-sdk-request",
    }
)
"""Headers of the library's own request that are made anew, or say nothing to a store."""


class Secrets(NamedTuple):
    """Who signs. `token` is None where the credentials are not of a session."""

    access_key: str
    secret_key: str
    token: str | None = None


@dataclass(frozen=True)
class Way:
    """How objects of a bucket are reached: the start of their addresses, and what a signature says.

    `prefix` is what stands before a key in a path; `trust` checks certificates, None in plain text.
    """

    scheme: str
    host: str
    prefix: str
    region: str
    service: str
    trust: ssl.SSLContext | None = None

    @classmethod
    def learnt(cls, request: Any, key: str, trust: Callable[[], ssl.SSLContext]) -> Self | None:
        """Return how a request of the library's reached a key; None where it did more than that.

        `request` has a `url` and `headers`; `trust` makes what the library checks certificates by.
        """
        address = urlsplit(request.url)
        headers = {name.lower(): _text(value) for name, value in request.headers.items()}
        scope = _SCOPE.match(headers.get("authorization", ""))
        suffix = quoted(key)
        if scope is None or address.query or not address.path.endswith(suffix):
            return None
        if headers.keys() - _FRESH or headers.get("if-none-match") != "*":
            return None
        prefix = address.path[: -len(suffix)]
        checked = trust() if address.scheme == "https" else None
        return cls(address.scheme, address.netloc, prefix, scope[1], scope[2], checked)

    def path(self, key: str) -> str:
        """Return the path of an object."""
        return self.prefix + quoted(key)

    def connected(self, until_s: float) -> socket.socket:
        """Return a new connection. Raises: OSError."""
        address = urlsplit(f"{self.scheme}://{self.host}")
        port = address.port or (443 if self.trust else 80)
        made = socket.create_connection((address.hostname, port), timeout=_left(until_s))
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.trust is None:
            return made
        made.settimeout(_left(until_s))
        return self.trust.wrap_socket(made, server_hostname=address.hostname)

    def signed(self, path: str, content: bytes, secrets: Secrets, now_ms: int) -> dict[str, str]:
        """Return the headers of a conditional PUT, signed (AWS Signature Version 4)."""
        moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now_ms // 1000))
        date = moment[:8]
        digest = hashlib.sha256(content).hexdigest()
        headers = {
            "host": self.host,
            "if-none-match": "*",
            "x-amz-content-sha256": digest,
            "x-amz-date": moment,
        }
        if secrets.token is not None:
            headers["x-amz-security-token"] = secrets.token
        names = ";".join(headers)
        lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
        asked = "\n".join(("PUT", path, "", lines, names, digest))
        scope = f"{date}/{self.region}/{self.service}/aws4_request"
        hashed = hashlib.sha256(asked.encode()).hexdigest()
        key = f"AWS4{secrets.secret_key}".encode()
        for part in (date, self.region, self.service, "aws4_request"):
            key = _mac(key, part)
        signature = _mac(key, f"AWS4-HMAC-SHA256\n{moment}\n{scope}\n{hashed}").hex()
        by = f"Credential={secrets.access_key}/{scope}"
        told = f"AWS4-HMAC-SHA256 {by}, SignedHeaders={names}, Signature={signature}"
        return {**headers, "authorization": told}


@dataclass
class Direct:
    """The way to a bucket, with the connections that rest between two PUTs."""

    way: Way
    resting: list[tuple[socket.socket, float]] = field(default_factory=list)
    turn: Lock = field(default_factory=Lock)

    def create(self, key: str, content: bytes, secrets: Secrets, timeout_s: float) -> None:
        """Write an object whole by one request, sent once, which ends within the timeout.

        Raises: Refusal; OSError and HTTPException, for an answer that did not come.
        """
        until_s = time.monotonic() + timeout_s
        path = self.way.path(key)
        headers = self.way.signed(path, content, secrets, SystemClock().now_ms())
        head = [f"PUT {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
        head += [f"content-length: {len(content)}", "", ""]
        connection = self._connection(until_s)
        is_kept = False
        try:
            connection.settimeout(_left(until_s))
            connection.sendall("\r\n".join(head).encode() + content)
            status, body, is_kept = _answer(connection, until_s)
        finally:
            if is_kept:
                with self.turn:
                    self.resting.append((connection, time.monotonic()))
            else:
                connection.close()
        if status != HTTPStatus.OK:
            raise Refusal(status, _first(_CODE, body), _first(_MESSAGE, body))

    def _connection(self, until_s: float) -> socket.socket:
        """Return one that rests and is whole, or a new one."""
        while True:
            with self.turn:
                if not self.resting:
                    break
                connection, since_s = self.resting.pop()
            # What can be read where nothing was asked for is the end of it.
            is_quiet = not select([connection], [], [], 0)[0]
            if is_quiet and time.monotonic() - since_s < IDLE_MAX_S:
                return connection
            connection.close()
        return self.way.connected(until_s)


def quoted(key: str) -> str:
    """Return a key as it stands in an address and in what is signed."""
    return quote(key, safe="/~")


def _answer(connection: socket.socket, until_s: float) -> tuple[int, bytes, bool]:
    """Return the status, the body, and whether the connection may be used again."""
    # Of a socket it takes no more than a file to read from.
    pieces: Any = _Until(connection, until_s)
    with HTTPResponse(pieces, method="PUT") as answer:
        answer.begin()
        return answer.status, answer.read(), not answer.will_close


class _Until:
    """A socket to be read from until a moment, however slowly the pieces come."""

    def __init__(self, sock: socket.socket, until_s: float) -> None:
        self._pieces = _Pieces(sock, until_s)

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(self._pieces)


class _Pieces(io.RawIOBase):
    def __init__(self, sock: socket.socket, until_s: float) -> None:
        self._sock = sock
        self._until_s = until_s

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        self._sock.settimeout(_left(self._until_s))
        return self._sock.recv_into(buffer)


def _left(until_s: float) -> float:
    left_s = until_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError("the request did not end within its time")
    return left_s


def _mac(key: bytes, text: str) -> bytes:
    return hmac.digest(key, text.encode(), "sha256")


def _first(wanted: re.Pattern[bytes], body: bytes) -> str:
    found = wanted.search(body)
    return found[1].decode(errors="replace") if found else ""


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
