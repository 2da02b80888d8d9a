"""A slow S3 store: a process of its own with its objects in memory.

It supports what a Delta log needs: PUT with `If-None-Match: *`, GET (also of ranges), HEAD, DELETE
and listings. A request is answered after the latency of its kind and takes effect only then, so
that a lost race costs as much as a won one. Requests are counted by kind.
"""

import asyncio
import bisect
import hashlib
import json
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.client import HTTPConnection
from typing import Any, Final, Self
from urllib.parse import parse_qs, unquote
from xml.sax.saxutils import escape

BUCKET: Final = "slow"
PUT_MS, GET_MS, LIST_MS = 30.0, 15.0, 25.0
KEYS_A_PAGE: Final = 1_000
START_TIMEOUT_S: Final = 20.0
_REASONS: Final = {
    200: "OK",
    204: "No Content",
    206: "Partial Content",
    404: "Not Found",
    412: "Precondition Failed",
    501: "Not Implemented",
}
_XML: Final = ("Content-Type: application/xml",)


class SlowStore:
    """The store as a child process, from its start to its end."""

    def __init__(self, put_ms: float = PUT_MS) -> None:
        self._put_ms = put_ms

    def __enter__(self) -> Self:
        argv = [sys.executable, "-m", "bench.slow_store", str(self._put_ms)]
        self._process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None, "it is read from"
        self.port = int(self._process.stdout.readline())
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()

    @property
    def endpoint(self) -> str:
        """The address."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def ours(self) -> dict[str, str]:
        """The options by which our services reach it."""
        return {
            "endpoint_url": self.endpoint,
            "region": "us-east-1",
            "access_key_id": "any",
            "secret_access_key": "any",
        }

    @property
    def theirs(self) -> dict[str, str]:
        """The options by which delta-rs reaches it."""
        return {
            "aws_endpoint": self.endpoint,
            "aws_region": "us-east-1",
            "aws_access_key_id": "any",
            "aws_secret_access_key": "any",
            "aws_allow_http": "true",
            "aws_conditional_put": "etag",
        }

    def count(self, table: str) -> Counter[str]:
        """Return the requests at a table so far, by kind and mostly with their status."""
        return Counter(json.loads(self._ask("GET", f"/__count/{BUCKET}/{table}")))

    def commits(self, table: str) -> list[bytes]:
        """Return the bytes of a table's commit files in order, without any latency or count."""
        contents = json.loads(self._ask("GET", f"/__commits/{BUCKET}/{table}/_delta_log/"))
        return [content.encode() for content in contents]

    def _ask(self, method: str, path: str) -> bytes:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=START_TIMEOUT_S)
        connection.request(method, path)
        content = connection.getresponse().read()
        connection.close()
        return content


@dataclass(frozen=True)
class _Stored:
    """An object. Units: `written_s` since the Unix epoch."""

    content: bytes
    etag: str
    written_s: float


@dataclass(frozen=True)
class _Request:
    """One HTTP request."""

    method: str
    key: str
    query: Mapping[str, list[str]]
    headers: Mapping[str, str]
    body: bytes

    @property
    def names_an_object(self) -> bool:
        return "/" in self.key.rstrip("/") and "list-type" not in self.query

    @property
    def table(self) -> str:
        """The bucket and the first folder of the key, or of the prefix of a listing."""
        full_key = (
            self.key
            if self.names_an_object
            else f"{self.key.strip('/')}/{self.parameter('prefix')}"
        )
        return "/".join(full_key.split("/")[:2])

    def parameter(self, name: str) -> str:
        """Return a query parameter, or ""."""
        return self.query.get(name, [""])[0]


@dataclass
class _Objects:
    """All objects by bucket and key, and the counts of requests."""

    put_s: float
    kept: dict[str, _Stored] = field(default_factory=dict)
    keys: list[str] = field(default_factory=list)
    asked: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    """Counts by table, which is the first folder of a key."""

    def latency_s(self, request: _Request) -> float:
        """Return the latency of a request."""
        if request.key.startswith("__"):
            return 0.0
        if request.method in ("PUT", "DELETE"):
            return self.put_s
        return (GET_MS if request.names_an_object else LIST_MS) / 1000

    def answer(self, request: _Request) -> bytes:
        """Execute a request now."""
        if request.key.startswith("__count/"):
            return _reply(200, json.dumps(self.asked[request.key[8:]]).encode())
        if request.key.startswith("__commits/"):
            return _reply(200, json.dumps(self._commits(request.key[10:])).encode())
        if not request.names_an_object:
            if request.method == "GET":
                return self._page(request)
            return _reply(200 if request.method in ("PUT", "HEAD") else 501)
        match request.method:
            case "PUT":
                return self._put(request)
            case "GET" | "HEAD":
                return self._get(request)
            case "DELETE":
                self.asked[request.table]["DELETE"] += 1
                if self.kept.pop(request.key, None) is not None:
                    self.keys.remove(request.key)
                return _reply(204)
            case _:
                return _reply(501, _error("NotImplemented"), _XML)

    def _put(self, request: _Request) -> bytes:
        key = request.key
        if "partnumber" in str(request.query):
            return _reply(501, _error("NotImplemented"), _XML)
        body = request.body
        if "aws-chunked" in request.headers.get("content-encoding", ""):
            body = _without_chunks(body)
        if request.headers.get("if-none-match") == "*" and key in self.kept:
            self.asked[request.table]["PUT 412"] += 1
            return _reply(412, _error("PreconditionFailed"), _XML)
        if key not in self.kept:
            bisect.insort(self.keys, key)
        etag = hashlib.md5(body, usedforsecurity=False).hexdigest()
        self.kept[key] = _Stored(body, etag, time.time())
        self.asked[request.table]["PUT 200"] += 1
        return _reply(200, b"", (f'ETag: "{etag}"',))

    def _get(self, request: _Request) -> bytes:
        stored = self.kept.get(request.key)
        self.asked[request.table][f"{request.method} {404 if stored is None else 200}"] += 1
        if stored is None:
            body = b"" if request.method == "HEAD" else _error("NoSuchKey")
            return _reply(404, body, _XML)
        modified = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(stored.written_s))
        headers = (f'ETag: "{stored.etag}"', f"Last-Modified: {modified}", "Accept-Ranges: bytes")
        size = len(stored.content)
        if request.method == "HEAD":
            return _head(200, size, headers)
        byte_range = request.headers.get("range")
        if byte_range is None:
            return _reply(200, stored.content, headers)
        first, _, last = byte_range.removeprefix("bytes=").partition("-")
        start = int(first) if first else max(0, size - int(last))
        end = min(size, int(last) + 1) if first and last else size
        place = f"Content-Range: bytes {start}-{end - 1}/{size}"
        return _reply(206, stored.content[start:end], (*headers, place))

    def _page(self, request: _Request) -> bytes:
        self.asked[request.table]["LIST"] += 1
        bucket, prefix = request.key.strip("/"), request.parameter("prefix")
        most = int(request.parameter("max-keys") or KEYS_A_PAGE)
        whole, cut = f"{bucket}/{prefix}", len(bucket) + 1
        place = bisect.bisect_left(self.keys, request.parameter("continuation-token") or whole)
        if after := request.parameter("start-after"):
            place = max(place, bisect.bisect_right(self.keys, f"{bucket}/{after}"))
        contents: list[str] = []
        folders: dict[str, None] = {}
        following = ""
        while place < len(self.keys) and self.keys[place].startswith(whole):
            if len(contents) + len(folders) >= most:
                following = self.keys[place]
                break
            key = self.keys[place][cut:]
            end = key.find(request.parameter("delimiter") or "\0", len(prefix))
            if end >= 0:
                folders[key[: end + 1]] = None
            else:
                contents.append(_contents(key, self.kept[self.keys[place]]))
            place += 1
        body = "".join(
            (
                "<?xml version='1.0' encoding='UTF-8'?><ListBucketResult>",
                f"<Name>{bucket}</Name><Prefix>{escape(prefix)}</Prefix>",
                f"<KeyCount>{len(contents) + len(folders)}</KeyCount><MaxKeys>{most}</MaxKeys>",
                f"<IsTruncated>{str(bool(following)).lower()}</IsTruncated>",
                f"<NextContinuationToken>{escape(following)}</NextContinuationToken>"
                if following
                else "",
                *contents,
                *(
                    f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>"
                    for folder in folders
                ),
                "</ListBucketResult>",
            )
        )
        return _reply(200, body.encode(), _XML)

    def _commits(self, prefix: str) -> list[str]:
        start = bisect.bisect_left(self.keys, prefix)
        end = bisect.bisect_left(self.keys, prefix + "\U0010ffff")
        names = [key for key in self.keys[start:end] if key.endswith(".json")]
        return [self.kept[key].content.decode() for key in names if key[-25:-5].isdigit()]


class _Connection(asyncio.Protocol):
    """One connection: a request at a time, as HTTP/1.1 clients without pipelining send them."""

    def __init__(self, objects: _Objects) -> None:
        self._objects = objects
        self._got = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport), "a stream"
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._got += data
        while (request := self._take()) is not None:
            loop, wait_s = asyncio.get_running_loop(), self._objects.latency_s(request)
            loop.call_later(wait_s, self._reply, request) if wait_s else self._reply(request)

    def _take(self) -> _Request | None:
        end = self._got.find(b"\r\n\r\n")
        if end < 0:
            return None
        first, *rest = self._got[:end].decode().split("\r\n")
        pairs = (line.partition(":") for line in rest)
        headers = {name.lower(): value.strip() for name, _, value in pairs}
        if headers.pop("expect", None):
            # Sent once: the header that asks for it is removed from the buffer.
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            header_lines = [line for line in rest if not line.lower().startswith("expect:")]
            self._got = "\r\n".join((first, *header_lines)).encode() + self._got[end:]
            return self._take()
        size = end + 4 + int(headers.get("content-length", 0))
        if len(self._got) < size:
            return None
        body, self._got = self._got[end + 4 : size], self._got[size:]
        method, target, _ = first.split(" ")
        path, _, query = target.partition("?")
        parameters: dict[str, list[str]] = parse_qs(query, keep_blank_values=True)
        return _Request(method, unquote(path).lstrip("/"), parameters, headers, body)

    def _reply(self, request: _Request) -> None:
        answer = self._objects.answer(request)
        if not self._transport.is_closing():
            self._transport.write(answer)


def _without_chunks(body: bytes) -> bytes:
    """Return what Amazon's SDK for Java sends in chunks, each behind a line with its size."""
    content, place = b"", 0
    while True:
        line_end = body.index(b"\r\n", place)
        size = int(body[place:line_end].partition(b";")[0], 16)
        if size == 0:
            return content
        content += body[line_end + 2 : line_end + 2 + size]
        place = line_end + 2 + size + 2


def _contents(key: str, stored: _Stored) -> str:
    modified = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(stored.written_s))
    return (
        f"<Contents><Key>{escape(key)}</Key><LastModified>{modified}</LastModified>"
        f"<ETag>&quot;{stored.etag}&quot;</ETag><Size>{len(stored.content)}</Size>"
        "<StorageClass>STANDARD</StorageClass></Contents>"
    )


def _error(code: str) -> bytes:
    return f"<?xml version='1.0'?><Error><Code>{code}</Code><Message/></Error>".encode()


def _reply(status: int, body: bytes = b"", headers: tuple[str, ...] = ()) -> bytes:
    return _head(status, len(body), headers) + body


def _head(status: int, size: int, headers: tuple[str, ...]) -> bytes:
    lines = (f"HTTP/1.1 {status} {_REASONS[status]}", f"Content-Length: {size}", *headers, "", "")
    return "\r\n".join(lines).encode()


async def _serve(put_ms: float) -> None:
    objects = _Objects(put_ms / 1000)
    loop = asyncio.get_running_loop()
    server: Any = await loop.create_server(
        lambda: _Connection(objects), "127.0.0.1", 0, backlog=512
    )
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve(float(sys.argv[1])))
