"""A bucket of Google Cloud Storage, by its JSON protocol. Its condition is `ifGenerationMatch=0`.

gcsfs provides the credentials, the endpoint and the connections. Its own requests are not used: it
repeats each up to five times, and hides a response's status in an exception's text.
"""

import asyncio
import hashlib
import math
import os
import re
import time
from base64 import b64decode
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote, urlsplit
from urllib.request import getproxies, proxy_bypass

import orjson

from tidegate_delta.errors import Misconfigured, Unavailable
from tidegate_runtime.release import ENGINE
from tidegate_runtime.storage.log_store import FileStat, Turn, at_once
from tidegate_runtime.storage.object_bucket import Head, Page, file_system, send_once
from tidegate_runtime.storage.object_responses import (
    ErrorResponse,
    malformed_as_error,
    required_value,
)

OPTIONS: Final = ("google_application_credentials", "google_endpoint_url", "google_anonymous")
"""The options of Google's store. Without credentials the platform's own chain is used."""

_PAGE: Final = 1000

_MD5: Final = re.compile(r"md5=([A-Za-z0-9+/]{22}==)")
_AS_IT_IS: Final = "identity"

Response = tuple[bytes, Mapping[str, str]]
"""A response's content and its headers."""

_AHEAD_S: Final = 300.0
"""How long before its expiry a token is renewed."""

RENEWAL_S: Final = 30.0
"""Minimum time between two searches for new credentials, after those in use failed."""


class GcsBucket:
    """A bucket, by its name. Raises: Misconfigured; Unavailable, without credentials."""

    def __init__(self, name: str, options: Mapping[str, str]) -> None:
        self._bucket = f"b/{quote(name, safe='')}/o"
        is_anonymous = options.get("google_anonymous", "").lower() == "true"
        arguments = {
            "token": "anon" if is_anonymous else _key_file(options),
            "endpoint_url": options.get("google_endpoint_url"),
        }
        self._system = file_system("gs", "gcs", arguments)
        if not is_anonymous and self._system.on_google and not self._system.credentials.credentials:
            # Without credentials gcsfs continues anonymously, and does not look for them again.
            raise Unavailable(
                f"no credentials for gs://{name}: look at the environment and the metadata server, "
                "or set google_application_credentials, or google_anonymous"
            )
        self._proxy = _proxy(self._system._location)
        self._renewing: asyncio.Future[None] | None = None
        # A thread of its own: the event loop has few, in which the host names of all stores are
        # resolved.
        self._thread = ThreadPoolExecutor(1, "token")
        self._is_refused = False
        self._searched_s = -math.inf

    async def page(
        self, prefix: str, start: str, token: str | None, *, is_deep: bool = False
    ) -> Page:
        """Return objects directly under `prefix`, or all; the store begins at `start`."""
        continuation = {"pageToken": token} if token else {}
        parameters = {
            "prefix": prefix,
            **({} if is_deep else {"delimiter": "/"}),
            "startOffset": prefix + start,
            "maxResults": str(_PAGE),
            "fields": "kind,items(name,size,updated),prefixes,nextPageToken",
        }
        page = _object(await self._send("GET", self._bucket, {**parameters, **continuation}))
        required_value(page, "kind")
        with malformed_as_error():
            entries = tuple(
                FileStat(item["name"], int(item.get("size", 0)), _ms(item["updated"]))
                for item in page.get("items", ())
            )
        return Page(entries, page.get("nextPageToken"), tuple(page.get("prefixes", ())))

    async def head(self, key: str) -> Head:
        """Return an object's metadata; its generation is its version."""
        try:
            metadata = _object(await self._send("GET", self._object(key), {}))
        except ErrorResponse as refusal:
            if _is_unattributed(refusal):
                message = "a 404 without a reason is no store's: look at the endpoint"
                raise ErrorResponse(0, "", message) from refusal
            raise
        with malformed_as_error():
            return Head(int(metadata.get("size", 0)), str(required_value(metadata, "generation")))

    async def read(self, key: str) -> bytes:
        """Return a whole object."""
        content, said_of_it = await self._media(key, {})
        _generation(said_of_it)
        _check_hash(content, said_of_it)
        return content

    def read_now(self, key: str, timeout_s: float) -> None:
        """Return None: there is no synchronous way for this store."""

    async def read_range(self, key: str, start: int, end: int, version: str) -> bytes:
        """Return bytes of that version; fail if the object has been replaced."""
        part = {"Range": f"bytes={start}-{end - 1}"}
        content, said_of_it = await self._media(key, {"ifGenerationMatch": version}, part)
        if _generation(said_of_it) != version:
            raise ErrorResponse(
                0, "", f"the answer is not of generation {version}, as was asked for"
            )
        return content

    async def create(self, key: str, content: bytes) -> None:
        """Write a whole object by one request, which the store refuses if the object exists."""
        await self._upload(key, content, {"ifGenerationMatch": "0"})

    def create_now(self, key: str, content: bytes, timeout_s: float, turn: Turn = at_once) -> bool:
        """Return False: there is no synchronous way for this store."""
        return False

    async def put(self, key: str, content: bytes) -> None:
        """Write a whole object, replacing an existing one."""
        await self._upload(key, content, {})

    async def delete(self, key: str) -> None:
        """Remove an object; a missing one is an error."""
        await self._send("DELETE", self._object(key), {})

    def _object(self, key: str) -> str:
        return f"{self._bucket}/{quote(key, safe='')}"

    async def _media(
        self, key: str, condition: Mapping[str, str], headers: Mapping[str, str] | None = None
    ) -> Response:
        """Return an object's bytes, or a part of them, and the headers.

        For a missing object the store answers this request in plain text. A 404 with plain text may
        also be a gateway's, so the object's metadata is requested to tell.
        Raises: ErrorResponse.
        """
        try:
            parameters = {"alt": "media", **condition}
            return await self._send("GET", self._object(key), parameters, headers=headers)
        except ErrorResponse as refusal:
            if _is_unattributed(refusal):
                await self.head(key)
                raise ErrorResponse(
                    0, "", "a 404 for what is there: look at the endpoint"
                ) from refusal
            raise

    async def _upload(self, key: str, content: bytes, condition: Mapping[str, str]) -> None:
        url = f"{self._system._location}/upload/storage/v1/{self._bucket}"
        parameters = {"uploadType": "media", "name": key, **condition}
        kind = {"Content-Type": "application/octet-stream"}
        response = await self._send("POST", url, parameters, headers=kind, content=content)
        required_value(_object(response), "generation")

    async def _send(
        self,
        method: str,
        path_or_url: str,
        parameters: Mapping[str, str],
        headers: Mapping[str, str] | None = None,
        content: bytes | None = None,
    ) -> Response:
        """Send one request, and return the response's content and headers.

        Raises: ErrorResponse; or as aiohttp and, without a token, gcsfs and google.auth do.
        """
        session = await self._system._set_session()
        send_once(session)
        url = path_or_url if path_or_url.startswith("http") else self._system.base + path_or_url
        # aiohttp follows a redirect with a GET, whose response is not that of the request.
        options = {"allow_redirects": False, "proxy": self._proxy}
        signed_headers = await self._signed(headers or {})
        async with session.request(
            method, url, params=parameters, headers=signed_headers, data=content, **options
        ) as response:
            body: bytes = await response.read()
            if response.status == 401:
                self._is_refused = True
            if response.status >= 300:
                raise ErrorResponse(response.status, *_reason(body))
            # The hashes may come in separate headers.
            names = {name.lower() for name in response.headers}
            return body, {name: ",".join(response.headers.getall(name)) for name in names}

    async def _signed(self, headers: Mapping[str, str]) -> dict[str, str]:
        """Return the headers with those of the credentials.

        The token is requested in a thread, as that may take any time, and the event loop serves all
        stores. While the previous one is valid, no request waits for the new one.
        Raises: ErrorResponse.
        """
        keeper = self._system.credentials
        signed = {"User-Agent": ENGINE, **headers}
        if keeper.credentials is None:
            return signed
        if self._is_refused or not keeper._credentials_valid(_AHEAD_S):
            if self._renewing is None or self._renewing.done():
                self._renewing = asyncio.ensure_future(self._renew())
                self._renewing.add_done_callback(_retrieve_exception)
            if self._is_refused or not keeper.credentials.valid:
                await asyncio.shield(self._renewing)
        self._system.credentials.credentials.apply(signed)
        return signed

    async def _renew(self) -> None:
        """Get a token with the current credentials, or with new ones if they fail.

        The credentials' file may hold others by now. Raises: ErrorResponse.
        """
        keeper, was_refused, failed = self._system.credentials, self._is_refused, None
        self._is_refused = False
        if not was_refused:
            failed = await self._in_thread(keeper.maybe_refresh, _AHEAD_S)
            if failed is None:
                return
        if self._is_due():
            renewed = await self._in_thread(_new_credentials, keeper)
            if not isinstance(renewed, BaseException):
                self._system.credentials = renewed
                return
            failed = failed or renewed
        if failed is not None:
            # gcsfs wraps the token service's message in its own.
            raise ErrorResponse(
                401, "", f"there is no token: {failed.__cause__ or failed}"
            ) from failed

    async def _in_thread(self, call: Callable[..., Any], *arguments: object) -> Any:
        """Run a call in the thread, and return its result or its exception."""
        future = asyncio.get_running_loop().run_in_executor(self._thread, call, *arguments)
        return (await asyncio.gather(future, return_exceptions=True))[0]

    def _is_due(self) -> bool:
        """Return whether to search for credentials, which is done at most every `RENEWAL_S`."""
        now_s = time.monotonic()
        is_due = now_s >= self._searched_s + RENEWAL_S
        self._searched_s = now_s if is_due else self._searched_s
        return is_due


def _retrieve_exception(future: "asyncio.Future[None]") -> None:
    """Retrieve the exception, which asyncio would log: later requests raise it anyway."""
    if not future.cancelled():
        future.exception()


def _new_credentials(keeper: Any) -> Any:
    """Return newly found credentials, with a token. Raises: as gcsfs does; ErrorResponse."""
    renewed = type(keeper)(keeper.project, keeper.access, keeper.token, None, keeper.on_google)
    if renewed.credentials is None:
        raise ErrorResponse(401, "", "the credentials are gone")
    renewed.maybe_refresh(_AHEAD_S)
    return renewed


def _key_file(options: Mapping[str, str]) -> str | None:
    """Return the credentials' file. If it does not exist, gcsfs would take its name for a token.

    Raises: Misconfigured.
    """
    name = options.get("google_application_credentials")
    if name is not None and os.sep in name and not os.path.isfile(name):
        raise Misconfigured(f"google_application_credentials: there is no file {name}")
    return name


def _proxy(url: str) -> str | None:
    """Return the proxy that the environment names.

    aiohttp reads it only on request, and then reads passwords from a file, too.
    """
    parts = urlsplit(url)
    return None if proxy_bypass(parts.netloc) else getproxies().get(parts.scheme)


def _is_unattributed(refusal: ErrorResponse) -> bool:
    return refusal.status == 404 and not refusal.code


def _generation(headers: Mapping[str, str]) -> str:
    """Return the generation of an object's content. Raises: ErrorResponse, without one."""
    return str(required_value(headers, "x-goog-generation"))


def _check_hash(content: bytes, headers: Mapping[str, str]) -> None:
    """Compare a whole object with its MD5. Raises: ErrorResponse.

    A composed object has none, and a compressed one has that of its compressed bytes.
    """
    match = _MD5.search(headers.get("x-goog-hash", ""))
    is_packed = headers.get("x-goog-stored-content-encoding", _AS_IT_IS) != _AS_IT_IS
    if match is None or is_packed or "content-encoding" in headers:
        return
    if b64decode(match[1]) != hashlib.md5(content, usedforsecurity=False).digest():
        message = (
            "the answer's bytes are not those of the object: look at what lies before the store"
        )
        raise ErrorResponse(0, "", message)


def _object(answer: Response) -> dict[str, Any]:
    """Return a response's JSON object. Raises: ErrorResponse, if it is none."""
    try:
        value = orjson.loads(answer[0])
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise ErrorResponse(0, "", "the answer is no JSON object, so it is no store's")
    return value


def _reason(body: bytes) -> tuple[str, str]:
    """Return the store's error code and message, which may come as JSON or plain text."""
    text = body.decode("utf-8", errors="replace")
    try:
        error: Any = orjson.loads(body)["error"]
        if isinstance(error, str):
            return "", error
        reasons = [entry.get("reason", "") for entry in error.get("errors", ())]
        message = str(error.get("message", ""))
    except (ValueError, LookupError, TypeError, AttributeError):
        reasons, message = [], text
    if message.startswith("No such object"):
        return "notFound", message
    if "bucket does not exist" in message:
        return "NoSuchBucket", message
    return next(iter(reasons), ""), message


def _ms(time: str) -> int:
    return int(datetime.fromisoformat(time).timestamp() * 1000)
