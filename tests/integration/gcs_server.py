"""A scripted server for the part of Google Cloud Storage's JSON protocol that we use.

It checks no permissions, and it follows the published reference. It keeps generations, their
preconditions and hashes, pages its listings, and answers ranges. `make emulators` brings a real
protocol server, fake-gcs-server.
"""

import hashlib
import re
from base64 import b64encode
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from urllib.parse import unquote

from aiohttp import web

from tests.integration.loop_server import LoopServer

PAGE_MAX = 300
"""Small, so that a listing of a table's log is paged."""

_OBJECTS = re.compile(r"/(?:upload/)?storage/v1/b/([^/]+)/o(?:/(.+))?")


@dataclass(frozen=True)
class Stored:
    """An object. Generations begin at 1; 0 means that the object does not exist."""

    content: bytes
    generation: int
    updated: str


@dataclass
class GcsServer:
    """The bucket `token_bucket`. `asked` are the requests' methods and queries, in order."""

    objects: dict[str, Stored] = field(default_factory=dict)
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._generations = count(1)
        self.server = LoopServer(self._answer)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        body = await request.content.read()
        query = dict(request.query)
        path, _, _ = request.raw_path.partition("?")
        self.asked.append((request.method, query))
        found = _OBJECTS.fullmatch(path)
        if found is None:
            return _refused(404, "notFound", f"no such method: {path}")
        if found[1] != "bucket":
            return _refused(404, "notFound", "The specified bucket does not exist.")
        # Nothing is awaited from here on, so that each request is handled atomically.
        if path.startswith("/upload/"):
            return self._write(query, body)
        if found[2] is None:
            return self._list(query)
        return self._object(request, unquote(found[2]), query)

    def _write(self, query: dict[str, str], body: bytes) -> web.Response:
        if query.get("uploadType") != "media":
            return _refused(400, "invalid", "only what goes in one request is taken")
        there = self.objects.get(query["name"])
        expected = query.get("ifGenerationMatch")
        if expected is not None and int(expected) != (there.generation if there else 0):
            return _refused(412, "conditionNotMet", "At least one condition did not hold.")
        stored = Stored(body, next(self._generations), datetime.now(UTC).isoformat())
        self.objects[query["name"]] = stored
        return web.json_response(_resource(query["name"], stored))

    def _object(self, request: web.BaseRequest, name: str, query: dict[str, str]) -> web.Response:
        there = self.objects.get(name)
        if there is None and query.get("alt") == "media":
            return web.Response(status=404, text=f"No such object: bucket/{name}")
        if there is None:
            return _refused(404, "notFound", f"No such object: bucket/{name}")
        if query.get("ifGenerationMatch", str(there.generation)) != str(there.generation):
            return _refused(412, "conditionNotMet", "At least one condition did not hold.")
        if request.method == "DELETE":
            del self.objects[name]
            return web.Response(status=204)
        if query.get("alt") != "media":
            return web.json_response(_resource(name, there))
        part = re.fullmatch(r"bytes=(\d+)-(\d+)", request.headers.get("Range", ""))
        md5 = b64encode(hashlib.md5(there.content, usedforsecurity=False).digest()).decode()
        headers = {"X-Goog-Generation": str(there.generation), "X-Goog-Hash": f"md5={md5}"}
        if part is None:
            return web.Response(body=there.content, headers=headers)
        start, last = int(part[1]), min(int(part[2]), len(there.content) - 1)
        headers["Content-Range"] = f"bytes {start}-{last}/{len(there.content)}"
        return web.Response(status=206, body=there.content[start : last + 1], headers=headers)

    def _list(self, query: dict[str, str]) -> web.Response:
        prefix, start = query.get("prefix", ""), query.get("startOffset", "")
        after = query.get("pageToken", "")
        names = sorted(
            name
            for name in self.objects
            if name.startswith(prefix) and name >= start and name > after
        )
        is_deep = "delimiter" not in query
        right_under = [name for name in names if is_deep or "/" not in name[len(prefix) :]]
        page = right_under[: min(PAGE_MAX, int(query.get("maxResults", PAGE_MAX)))]
        result: dict[str, object] = {"kind": "storage#objects"}
        if page:
            result["items"] = [_resource(name, self.objects[name]) for name in page]
        deeper = {name[len(prefix) :].partition("/")[0] for name in set(names) - set(right_under)}
        if deeper and not after:
            result["prefixes"] = sorted(f"{prefix}{name}/" for name in deeper)
        if len(page) < len(right_under):
            result["nextPageToken"] = page[-1]
        return web.json_response(result)


def _resource(name: str, stored: Stored) -> dict[str, str]:
    return {
        "name": name,
        "size": str(len(stored.content)),
        "generation": str(stored.generation),
        "updated": stored.updated,
    }


def _refused(status: int, reason: str, message: str) -> web.Response:
    error = {"code": status, "message": message, "errors": [{"reason": reason, "message": message}]}
    return web.json_response({"error": error}, status=status)
