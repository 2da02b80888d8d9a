"""A schema registry that answers over HTTP as Confluent's does, for schemas of the test's own."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

SUBJECTS = "subjects"


@contextmanager
def serving(schemas: Mapping[int, Mapping[str, Any]]) -> Iterator[str]:
    """Serve schemas by their ids, and return the URL; each is version 1 of the subject `s<id>`.

    One of Protobuf is given only to who asks for it as a serialized descriptor.
    """

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            url = urlsplit(self.path)
            parts = url.path.strip("/").split("/")
            number = parts[1].removeprefix("s") if parts[0] == SUBJECTS else parts[-1]
            schema = schemas.get(int(number))
            is_serialized = parse_qs(url.query).get("format") == ["serialized"]
            if schema is None or (schema.get("schemaType") == "PROTOBUF" and not is_serialized):
                self._answer(404, {"error_code": 40403, "message": "Schema not found"})
            else:
                version = {"subject": f"s{number}", "version": 1, "id": int(number)}
                self._answer(200, {**(version if parts[0] == SUBJECTS else {}), **schema})

        def _answer(self, status: int, content: Mapping[str, Any]) -> None:
            text = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
