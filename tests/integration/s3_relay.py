"""A proxy between a store and an object store's server, for responses that no emulator gives."""

import threading
from dataclasses import dataclass, field
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal, Self

Step = Literal["forward", "lose the answer", "lose the request", "hang"] | int
"""What happens to a write; a number is a status to answer with, without forwarding."""

_HANGS_S = 20.0
_POLLS_S = 0.02
_KEPT = (
    *("content-type", "etag", "last-modified", "content-range"),
    *("x-ms-error-code", "x-goog-generation", "x-goog-hash"),
)


@dataclass
class Relay:
    """Forwards to `port`; `script` decides on the next writes, one each. `puts` are their paths.

    One that `forgets` drops conditional headers, as stores do that do not know them.
    """

    port: int
    script: list[Step] = field(default_factory=list)
    puts: list[str] = field(default_factory=list)
    forgets: bool = False
    ended: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Self:
        relay: Relay = self

        class ForThisRelay(_Request):
            told: Relay = relay

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), ForThisRelay)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(_POLLS_S,))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def front(self) -> int:
        """The port of the proxy."""
        return self._server.server_address[1]


class _Request(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    told: Relay

    def do_GET(self) -> None:
        self._forward(b"")

    do_HEAD = do_GET  # noqa: N815 the base class's name
    do_DELETE = do_GET  # noqa: N815 the base class's name

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        self.told.puts.append(self.path)
        match self.told.script.pop(0) if self.told.script else "forward":
            case "forward":
                self._forward(body)
            case "lose the answer":
                self._ask(body)
                self.close_connection = True
            case "lose the request":
                self.close_connection = True
            case "hang":
                self.told.ended.wait(_HANGS_S)
                self.close_connection = True
            case status:
                assert isinstance(status, int), "a number is a status"
                content = b"<Error><Code>Scripted</Code><Message>as told</Message></Error>"
                self._answer(status, content, {"content-type": "application/xml"})

    do_POST = do_PUT  # noqa: N815 the base class's name

    def _ask(self, body: bytes) -> tuple[int, bytes, dict[str, str]]:
        upstream = HTTPConnection("127.0.0.1", self.told.port)
        headers, path = dict(self.headers.items()), self.path
        if self.told.forgets:
            headers = {n: one for n, one in headers.items() if n.lower() != "if-none-match"}
            path = path.replace("ifGenerationMatch=0", "")
        upstream.request(self.command, path, body, headers)
        reply = upstream.getresponse()
        content = reply.read()
        answered = {name.lower(): value for name, value in reply.getheaders()}
        upstream.close()
        size = answered["content-length"] if self.command == "HEAD" else str(len(content))
        kept = {name: answered[name] for name in _KEPT if name in answered}
        return reply.status, content, {**kept, "content-length": size}

    def _forward(self, body: bytes) -> None:
        self._answer(*self._ask(body))

    def _answer(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"content-length": str(len(content)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""
