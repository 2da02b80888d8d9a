"""Run moto's S3 as a server; of two writes of one name only one can succeed."""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from typing import Any

from moto.moto_server.werkzeug_app import (
    DomainDispatcherApplication,
    MotoRequestHandler,
    create_backend_app,
)
from werkzeug.serving import make_server

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
HOST = "127.0.0.1"


class OneWriteOfAName:
    """Serialize writes of one name: moto checks, then writes, so two at once would both succeed."""

    def __init__(self, application: Application) -> None:
        self._application = application
        self._turns: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

    def __call__(self, asked: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        """Handle a request; a write waits for other writes of its name."""
        if asked["REQUEST_METHOD"] in ("GET", "HEAD"):
            return self._application(asked, start)
        with self._turns[asked["PATH_INFO"]]:
            return self._application(asked, start)


@contextmanager
def moto_server() -> Iterator[int]:
    """Run the server with an empty bucket `token_bucket`, and yield its port."""
    application = OneWriteOfAName(DomainDispatcherApplication(create_backend_app))
    server = make_server(HOST, 0, application, threaded=True, request_handler=MotoRequestHandler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    connection = HTTPConnection(HOST, server.server_port)
    connection.request("PUT", "/bucket")
    assert connection.getresponse().status == 200
    connection.close()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
