"""Object stores for tests: servers that give set answers, and one that knows no condition."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import TypeVar

from tests.fakes.memory_store import MemoryStore
from tidegate_runtime.storage.log_store import Put, Turn, at_once

Server = TypeVar("Server", bound=HTTPServer)

PAGE = b"<html><body>Welcome to the network of this hotel</body></html>"
"""What a gateway answers in a store's place."""


class SetAnswers(BaseHTTPRequestHandler):
    """A handler that keeps connections, and logs nothing.

    Handlers name `BaseHTTPRequestHandler` beside it, so that ruff knows their methods' names.
    """

    protocol_version = "HTTP/1.1"

    def reply(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        """Send a response; its body stays away where only headers are asked for."""
        self.send_response(status)
        for name, value in {"content-length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@contextmanager
def serving(server: Server) -> Iterator[Server]:
    """Serve until the block ends."""
    with server:
        Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield server
        server.shutdown()


class Overwriting(MemoryStore):
    """A store without conditional writes: it overwrites, and answers WON to every writer."""

    def put_if_absent(
        self, path: str, content: bytes, deadline_s: float, turn: Turn = at_once
    ) -> Put:
        """Write the file, whatever is there."""
        self.put(path, content)
        return Put.WON
