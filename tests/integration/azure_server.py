"""A scripted server for the part of Azure's Blob protocol that we use.

It does not check signatures, and it follows the published reference. It keeps ETags and their
conditions, refuses blocks (a blob comes in one request or not at all), pages its listings, and
answers ranges. `make emulators` brings a real protocol server, Azurite.
"""

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime
from itertools import count
from urllib.parse import unquote
from xml.sax.saxutils import escape

from aiohttp import web

from tests.integration.loop_server import LoopServer

PAGE_MAX = 300
"""Small, so that a listing of a table's log is paged."""


@dataclass(frozen=True)
class Stored:
    """A blob. `is_folder` marks the entry that a hierarchical namespace has for a folder."""

    content: bytes
    etag: str
    modified: str
    is_folder: bool = False


@dataclass
class AzureServer:
    """The container `token_bucket` of any account. `asked` are the requests' methods and paths."""

    blobs: dict[str, Stored] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._numbers = count(1)
        self.server = LoopServer(self._answer)

    def make_folder(self, name: str) -> None:
        """Add the entry that an account with a hierarchical namespace has for a folder."""
        self.blobs[name] = self._stored(b"", is_folder=True)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        body = await request.content.read()
        path = request.raw_path.partition("?")[0]
        self.asked.append((request.method, path))
        _, _account, container, *rest = path.split("/", 3)
        if container != "bucket":
            return _refused(404, "ContainerNotFound")
        # Nothing is awaited from here on, so that each request is handled atomically.
        if request.query.get("comp") == "list":
            return self._list(dict(request.query))
        name = unquote(rest[0]) if rest else ""
        match request.method:
            case "PUT":
                return self._write(request, name, body)
            case "DELETE":
                if self.blobs.pop(name, None) is None:
                    return _refused(404, "BlobNotFound")
                return web.Response(status=202)
            case _:
                return self._read(request, name)

    def _write(self, request: web.BaseRequest, name: str, body: bytes) -> web.Response:
        if "comp" in request.query or request.headers.get("x-ms-blob-type") != "BlockBlob":
            return _refused(400, "UnsupportedHeader")
        if request.headers.get("If-None-Match") == "*" and name in self.blobs:
            return _refused(409, "BlobAlreadyExists")
        self.blobs[name] = stored = self._stored(body)
        return web.Response(status=201, headers=_headers(stored))

    def _read(self, request: web.BaseRequest, name: str) -> web.Response:
        there = self.blobs.get(name)
        if there is None:
            return _refused(404, "BlobNotFound")
        if request.headers.get("If-Match", there.etag) != there.etag:
            return _refused(412, "ConditionNotMet")
        size = len(there.content)
        headers = {**_headers(there), "x-ms-blob-type": "BlockBlob"}
        if request.method == "HEAD":
            return web.Response(body=there.content, headers=headers)
        asked = request.headers.get("x-ms-range", request.headers.get("Range", ""))
        part = re.fullmatch(r"bytes=(\d+)-(\d*)", asked)
        if part is None:
            return web.Response(body=there.content, headers=headers)
        start, last = int(part[1]), min(int(part[2] or size), size - 1)
        if start >= size:
            return _refused(416, "InvalidRange")
        headers["Content-Range"] = f"bytes {start}-{last}/{size}"
        return web.Response(status=206, body=there.content[start : last + 1], headers=headers)

    def _list(self, query: dict[str, str]) -> web.Response:
        prefix, marker = query.get("prefix", ""), query.get("marker", "")
        names = sorted(n for n in self.blobs if n.startswith(prefix) and n > marker)
        is_deep = "delimiter" not in query
        right_under = [name for name in names if is_deep or "/" not in name[len(prefix) :]]
        deeper = sorted({prefix + n[len(prefix) :].split("/")[0] + "/" for n in names} - {prefix})
        page = right_under[: min(PAGE_MAX, int(query.get("maxresults", PAGE_MAX)))]
        folders = (
            [name for name in deeper if name[:-1] not in right_under]
            if not (marker or is_deep)
            else []
        )
        result = "".join(self._entry(name) for name in page)
        result += "".join(f"<BlobPrefix><Name>{escape(n)}</Name></BlobPrefix>" for n in folders)
        following = page[-1] if len(page) < len(right_under) else ""
        text = (
            '<?xml version="1.0" encoding="utf-8"?><EnumerationResults ContainerName="bucket">'
            f"<Prefix>{escape(prefix)}</Prefix><Blobs>{result}</Blobs>"
            f"<NextMarker>{escape(following)}</NextMarker></EnumerationResults>"
        )
        return web.Response(body=text.encode(), content_type="application/xml")

    def _entry(self, name: str) -> str:
        blob = self.blobs[name]
        folder = "<hdi_isfolder>true</hdi_isfolder>" if blob.is_folder else ""
        return (
            f"<Blob><Name>{escape(name)}</Name><Properties>"
            f"<Last-Modified>{blob.modified}</Last-Modified><Etag>{escape(blob.etag)}</Etag>"
            f"<Content-Length>{len(blob.content)}</Content-Length><BlobType>BlockBlob</BlobType>"
            f"</Properties><Metadata>{folder}</Metadata></Blob>"
        )

    def _stored(self, content: bytes, *, is_folder: bool = False) -> Stored:
        modified = format_datetime(datetime.now(UTC), usegmt=True)
        return Stored(content, f'"0x{next(self._numbers):X}"', modified, is_folder)


def _headers(stored: Stored) -> dict[str, str]:
    return {"ETag": stored.etag, "Last-Modified": stored.modified}


def _refused(status: int, code: str) -> web.Response:
    said = f"<Error><Code>{code}</Code><Message>As scripted.</Message></Error>"
    text = f'<?xml version="1.0" encoding="utf-8"?>{said}'
    headers = {"x-ms-error-code": code}
    return web.Response(
        status=status, body=text.encode(), content_type="application/xml", headers=headers
    )
