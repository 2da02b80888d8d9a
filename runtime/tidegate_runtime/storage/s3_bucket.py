"""A bucket of S3, or of a compatible store, through s3fs; conditional PUTs by `If-None-Match`."""

import asyncio
import hashlib
import logging
import math
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from threading import Lock
from typing import Any, Final

from tidegate_delta.errors import Misconfigured
from tidegate_runtime.observability.logs import log_event
from tidegate_runtime.storage.log_store import FileStat, Turn, at_once
from tidegate_runtime.storage.object_bucket import Head, Page, file_system, send_once
from tidegate_runtime.storage.object_responses import (
    OUTDATED,
    ErrorResponse,
    ResponseMeaning,
    ask_region_once,
    check_404_origin,
    check_redirect,
    check_written,
    etag,
    is_missing,
    malformed_as_error,
    meaning_of,
    required_value,
    understood,
)
from tidegate_runtime.storage.s3_by_obstore import (
    CONNECTIONS_MAX,
    ObstoreClients,
    UseOtherWay,
    fetch,
    obstore_clients,
    send,
)

OPTIONS: Final = (
    "endpoint_url",
    "region",
    "access_key_id",
    "secret_access_key",
    "session_token",
    "anonymous",
    "path_style",
    "request_payer",
)
"""The options of S3. Each may also be written `aws_…`, like AWS's environment variables."""

PATIENCE_MIN_S: Final = 0.001

LARGE_BYTES: Final = 4 * 1024 * 1024
"""The size above which a timeout includes the time of the upload."""

RENEWAL_S: Final = 30.0
"""Minimum time between two renewals of credentials; the library itself reads their file only once.
"""

_log = logging.getLogger(__name__)


class S3Bucket:
    """A bucket, by its name. The store has to obey the condition of a PUT."""

    def __init__(self, name: str, options: Mapping[str, str]) -> None:
        self._name = name
        self._options = options
        self._system = _file_system(options)
        # A bucket with Requester Pays needs that in every request.
        pays = options.get("request_payer", "").lower() == "true"
        self._place = {"Bucket": name, **({"RequestPayer": "requester"} if pays else {})}
        self._is_outdated = False
        self._renewed_s = -math.inf
        self._connecting = asyncio.Lock()
        self._clients: ObstoreClients | None = None
        self._takes_other_way = False
        self._turn = Lock()

    async def page(
        self, prefix: str, start: str, token: str | None, *, is_deep: bool = False
    ) -> Page:
        """Return objects directly under `prefix`, or all; the store begins at `start`."""
        # StartAfter excludes the name itself, so it gets the name without its last character.
        continuation = (
            {"ContinuationToken": token} if token else {"StartAfter": prefix + start[:-1]}
        )
        depth = {} if is_deep else {"Delimiter": "/"}
        page = await self._call("list_objects_v2", Prefix=prefix, **depth, **continuation)
        is_part = required_value(page, "IsTruncated")
        with malformed_as_error():
            entries = tuple(
                FileStat(item["Key"], item["Size"], int(item["LastModified"].timestamp() * 1000))
                for item in page.get("Contents", ())
            )
            folders = tuple(item["Prefix"] for item in page.get("CommonPrefixes", ()))
        return Page(
            entries, required_value(page, "NextContinuationToken") if is_part else None, folders
        )

    async def head(self, key: str) -> Head:
        """Return an object's metadata; its ETag is its version."""
        try:
            answer = await self._call("head_object", Key=key)
        except OSError as error:
            if is_missing(error):
                # The response to a HEAD has no body by which to tell a store's 404 from a
                # gateway's.
                await self._body(Key=key, Range="bytes=0-0")
            raise
        return Head(required_value(answer, "ContentLength"), etag(answer))

    async def read(self, key: str) -> bytes:
        """Return a whole object."""
        return await self._body(Key=key)

    def read_now(self, key: str, timeout_s: float) -> bytes | ErrorResponse | None:
        """Return a whole object synchronously, through obstore, or that the store says it is
        missing, or that the credentials are outdated; None for everything else, which `read` finds
        out about. It does not wait for a PUT that loads credentials.
        """
        if self._takes_other_way or self._is_outdated or self._turn.locked():
            return None
        exceptions = import_module("botocore.exceptions")
        try:
            return fetch(self._obstore().client(_patience_s(timeout_s, 0)), key)
        except UseOtherWay as other:
            if other.for_good:
                self._take_other_way(other)
            return None
        except ErrorResponse as refusal:
            self._note_refusal(refusal.code)
            return refusal if is_missing(refusal) or refusal.code in OUTDATED else None
        except (Misconfigured, exceptions.BotoCoreError):
            return None

    async def read_range(self, key: str, start: int, end: int, version: str) -> bytes:
        """Return bytes of that version; fail if the object has been replaced."""
        return await self._body(Key=key, Range=f"bytes={start}-{end - 1}", IfMatch=version)

    async def create(self, key: str, content: bytes) -> None:
        """Write a whole object by one request, which the store refuses if the object exists."""
        await self._put(key, content, IfNoneMatch="*")

    def create_now(self, key: str, content: bytes, timeout_s: float, turn: Turn = at_once) -> bool:
        """Do the same synchronously, through obstore; return False if nothing was written.

        Credentials are loaded before its turn comes. The response comes within the timeout, or
        twice that for a large object.
        Raises: ErrorResponse; OSError, for a response that did not come; Misconfigured.
        """
        if self._takes_other_way:
            return False
        exceptions = import_module("botocore.exceptions")
        try:
            client = self._obstore().client(_patience_s(timeout_s, len(content)))
            if not turn():
                return False
            send(client, key, content)
        except UseOtherWay as other:
            if other.for_good:
                self._take_other_way(other)
            return False
        except ErrorResponse as refusal:
            if not refusal.status:
                # A success in a form that is not S3's: s3fs will show more of the next response.
                self._take_other_way(refusal)
            self._note_refusal(refusal.code)
            raise
        except exceptions.BotoCoreError as error:
            if meaning_of(error) is not ResponseMeaning.UNKNOWN:
                return False
            raise OSError(str(error)) from error
        return True

    async def put(self, key: str, content: bytes) -> None:
        """Write a whole object, replacing an existing one."""
        await self._put(key, content)

    async def delete(self, key: str) -> None:
        """Remove an object."""
        await self._call("delete_object", Key=key)

    async def _put(self, key: str, content: bytes, **condition: str) -> None:
        request = {"Key": key, "Body": content, "ContentMD5": _checksum(content)}
        check_written(await self._call("put_object", **request, **condition))

    async def _body(self, **request: str) -> bytes:
        try:
            answer = await self._call("get_object", **request)
        except OSError as error:
            check_404_origin(error)
            raise
        etag(answer)
        async with answer["Body"] as body:
            content: bytes = await body.read()
        return content

    async def _call(self, method: str, **request: Any) -> Any:
        async with self._connecting:
            self._renew(asyncio.get_running_loop().time())
            system = self._system
            with _options_checked():
                await system.set_session()
                client = await system.get_s3(self._name)
            ask_region_once(client)
            http = client._endpoint.http_session
            proxy = http._proxy_config.proxy_url_for(client.meta.endpoint_url)
            send_once(await http._get_session(proxy))
        try:
            with understood():
                return await system._call_s3(method, **self._place, **request)
        except OSError as error:
            response = getattr(error.__cause__, "response", None) or {}
            self._note_refusal(response.get("Error", {}).get("Code"))
            check_redirect(error)
            raise

    def _note_refusal(self, code: str | None) -> None:
        """Note that the credentials were refused, unless they come from the options."""
        if code in OUTDATED and "access_key_id" not in self._options:
            self._is_outdated = True

    def _renew(self, now_s: float) -> None:
        """Reload the credentials if the current ones were refused."""
        if self._is_outdated and now_s >= self._renewed_s + RENEWAL_S:
            self._is_outdated, self._renewed_s = False, now_s
            self._system = _file_system(self._options)
            # In this order, and without the lock: it is held while a client is made, which waits
            # for credentials, and all stores share the event loop that would block here.
            self._clients = None

    def _take_other_way(self, reason: Exception) -> None:
        self._takes_other_way = True
        log_event(_log, "puts_by_s3fs", bucket=self._name, why=str(reason))

    def _obstore(self) -> ObstoreClients:
        """Return obstore's clients. Raises: UseOtherWay; Misconfigured; botocore's errors."""
        with self._turn:
            if self._clients is None:
                pays = "RequestPayer" in self._place
                with _options_checked():
                    self._clients = obstore_clients(self._system, self._name, pays=pays)
            return self._clients


def _patience_s(timeout_s: float, size: int) -> float:
    """Return the timeout of a request: a power of two, as each timeout has a client of its own.

    It lies between half of `timeout_s` and all of it or, if the upload itself takes a while,
    between all of it and twice as much.
    """
    at_most_s = 2.0 ** math.floor(math.log2(max(timeout_s, PATIENCE_MIN_S)))
    return at_most_s if size <= LARGE_BYTES else 2 * at_most_s


def _checksum(content: bytes) -> str:
    """Return the Content-MD5, without which a bucket with Object Lock refuses a PUT."""
    return b64encode(hashlib.md5(content, usedforsecurity=False).digest()).decode()


def aws_config_names_endpoint() -> bool:
    """Return whether AWS's configuration files name another endpoint, which the library would use.

    Files that can't be read count as no: opening the store raises their error.
    """
    try:
        exceptions = import_module("botocore.exceptions")
    except ImportError:
        return False
    try:
        config = import_module("botocore.session").Session().get_scoped_config()
    except exceptions.BotoCoreError:
        return False
    return "endpoint_url" in config or "services" in config


@contextmanager
def _options_checked() -> Iterator[None]:
    """Turn the library's errors about options into ours. Raises: Misconfigured."""
    try:
        yield
    except ValueError as error:
        raise Misconfigured(f"the storage options of s3:// are wrong: {error}") from error


def _file_system(options: Mapping[str, str]) -> Any:
    region = {"region_name": options["region"]} if "region" in options else {}
    style = {"addressing_style": "path"} if options.get("path_style", "").lower() == "true" else {}
    arguments = {
        "anon": options.get("anonymous", "").lower() == "true",
        "endpoint_url": options.get("endpoint_url"),
        "key": options.get("access_key_id"),
        "secret": options.get("secret_access_key"),
        "token": options.get("session_token"),
        "client_kwargs": region,
        "config_kwargs": {
            "retries": {"mode": "standard", "total_max_attempts": 1},
            "request_checksum_calculation": "when_required",
            "max_pool_connections": CONNECTIONS_MAX,
            "s3": style,
        },
    }
    system = file_system("s3", "s3", arguments)
    # s3fs would repeat any request on top of botocore; `ObjectStore` repeats those that may be.
    system.retries = 1
    return system
