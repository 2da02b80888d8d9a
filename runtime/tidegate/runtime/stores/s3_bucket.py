"""A bucket of S3, or of a store that speaks its protocol, through s3fs; PUTs by `If-None-Match`."""

import asyncio
import hashlib
import math
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from threading import Lock, local
from typing import Any, Final

from tidegate.delta.errors import Misconfigured
from tidegate.runtime.release import ENGINE
from tidegate.runtime.stores.log_store import FileStat, Turn, at_once
from tidegate.runtime.stores.object_answers import (
    Refusal,
    Verdict,
    is_missing,
    judge,
    read_as_told,
    said,
)
from tidegate.runtime.stores.object_bucket import Head, Page, file_system, send_once
from tidegate.runtime.stores.s3_answers import check_whose, check_written, etag, understood

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
"""The options of S3; each may also be spelled `aws_…`, as AWS's environment variables are."""

PATIENCE_MIN_S: Final = 0.001

ADDRESSES: Final = 8
"""How many addresses S3's DNS gives for a host name."""

CONNECT_MIN_S: Final = 1.0
"""The least connect timeout of an address, unless the deadline is nearer."""

SIGNER_S: Final = 3.0
"""Timeout of the service that gives credentials; those at hand are used until they expire."""

CONNECTIONS_MAX: Final = 64
"""Connections of a client: as many as there are threads that send conditional PUTs."""


OUTDATED: Final = ("ExpiredToken", "InvalidAccessKeyId", "InvalidToken", "TokenRefreshRequired")
"""S3's error codes for credentials that are no longer good: their file may hold new ones by now."""

RENEWAL_S: Final = 30.0
"""Least time between two renewals of credentials; the library itself reads their file only once."""

_turns: Final = local()
"""`of` is the turn for which this thread's PUT waits: the library's events name no caller."""


class _Withheld(Exception):
    """A PUT whose turn never came."""


class S3Bucket:
    """A bucket, by its name. The store has to obey the condition on a PUT."""

    def __init__(self, name: str, told: Mapping[str, str]) -> None:
        self._name = name
        self._told = told
        self._system = _file_system(told)
        # A bucket with Requester Pays wants that said in every request.
        pays = told.get("request_payer", "").lower() == "true"
        self._place = {"Bucket": name, **({"RequestPayer": "requester"} if pays else {})}
        self._is_outdated = False
        self._renewed_s = -math.inf
        self._connecting = asyncio.Lock()
        self._putters: dict[float, Any] = {}
        self._turn = Lock()

    async def page(self, prefix: str, start: str, token: str | None) -> Page:
        """Return objects right under `prefix`; the store begins at `start` by itself."""
        # StartAfter excludes the name itself, so it gets the name without its last character.
        place = {"ContinuationToken": token} if token else {"StartAfter": prefix + start[:-1]}
        page = await self._call("list_objects_v2", Prefix=prefix, Delimiter="/", **place)
        is_part = said(page, "IsTruncated")
        with read_as_told():
            entries = tuple(
                FileStat(one["Key"], one["Size"], int(one["LastModified"].timestamp() * 1000))
                for one in page.get("Contents", ())
            )
        return Page(entries, said(page, "NextContinuationToken") if is_part else None)

    async def head(self, key: str) -> Head:
        """Return what an object is; its ETag is its version."""
        try:
            answer = await self._call("head_object", Key=key)
        except OSError as error:
            if is_missing(error):
                # The answer to a HEAD has no body that tells a store's 404 from a gateway's.
                await self._body(Key=key, Range="bytes=0-0")
            raise
        return Head(said(answer, "ContentLength"), etag(answer))

    async def read(self, key: str) -> bytes:
        """Return an object whole."""
        return await self._body(Key=key)

    async def read_range(self, key: str, start: int, end: int, version: str) -> bytes:
        """Return bytes of that version, and fail where the object is another by now."""
        return await self._body(Key=key, Range=f"bytes={start}-{end - 1}", IfMatch=version)

    async def create(self, key: str, content: bytes) -> None:
        """Write an object whole by one request, which the store refuses where there is one."""
        await self._put(key, content, IfNoneMatch="*")

    def create_now(self, key: str, content: bytes, timeout_s: float, turn: Turn = at_once) -> bool:
        """Do the same synchronously, through botocore itself; False if nothing was sent.

        It is signed before its turn comes. Each wait for the store ends within the timeout.
        Raises: Refusal; OSError, for an answer that did not come; Misconfigured.
        """
        wrong = import_module("botocore.exceptions")
        _turns.of = turn
        try:
            client = self._putter(timeout_s)
            with understood():
                answer = client.put_object(
                    **self._place,
                    Key=key,
                    Body=content,
                    ContentMD5=_checksum(content),
                    IfNoneMatch="*",
                )
        except _Withheld:
            return False
        except wrong.ClientError as error:
            told = error.response.get("Error", {})
            status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            self._heed(error)
            # An element without text is None to the library.
            raise Refusal(status, told.get("Code") or "", told.get("Message") or "") from error
        except wrong.BotoCoreError as error:
            if judge(error) is not Verdict.UNKNOWN:
                return False
            raise OSError(str(error)) from error
        check_written(answer)
        return True

    async def put(self, key: str, content: bytes) -> None:
        """Write an object whole, over what is there."""
        await self._put(key, content)

    async def delete(self, key: str) -> None:
        """Remove an object."""
        await self._call("delete_object", Key=key)

    async def _put(self, key: str, content: bytes, **condition: str) -> None:
        whole = {"Key": key, "Body": content, "ContentMD5": _checksum(content)}
        check_written(await self._call("put_object", **whole, **condition))

    async def _body(self, **request: str) -> bytes:
        try:
            answer = await self._call("get_object", **request)
        except OSError as error:
            check_whose(error)
            raise
        etag(answer)
        async with answer["Body"] as body:
            content: bytes = await body.read()
        return content

    async def _call(self, method: str, **request: Any) -> Any:
        async with self._connecting:
            self._renew(asyncio.get_running_loop().time())
            system = self._system
            with _fitting():
                await system.set_session()
                client = await system.get_s3(self._name)
            http = client._endpoint.http_session
            proxy = http._proxy_config.proxy_url_for(client.meta.endpoint_url)
            send_once(await http._get_session(proxy))
        try:
            with understood():
                return await system._call_s3(method, **self._place, **request)
        except OSError as error:
            self._heed(error.__cause__)
            raise

    def _heed(self, error: BaseException | None) -> None:
        """Note that the credentials were refused, unless they come from the options."""
        told = getattr(error, "response", None) or {}
        if told.get("Error", {}).get("Code") in OUTDATED and "access_key_id" not in self._told:
            self._is_outdated = True

    def _renew(self, now_s: float) -> None:
        """Load the credentials anew if those at hand were refused."""
        if self._is_outdated and now_s >= self._renewed_s + RENEWAL_S:
            self._is_outdated, self._renewed_s = False, now_s
            self._system = _file_system(self._told)
            # In this order, and without the lock: it is held while a client is made, which waits
            # for credentials, and all stores share the event loop that would block here.
            self._putters = {}

    def _putter(self, timeout_s: float) -> Any:
        """Return a client whose timeout is between half of `timeout_s` and all of it.

        A client's timeout is fixed when it is made, which is expensive; so there is one for each
        power of two.
        """
        patience_s = 2.0 ** math.floor(math.log2(max(timeout_s, PATIENCE_MIN_S)))
        with self._turn:
            putters = self._putters
            if patience_s not in putters:
                with _fitting():
                    putters[patience_s] = _client(self._system, patience_s)
            return putters[patience_s]


def _checksum(content: bytes) -> str:
    """Return the Content-MD5, without which a bucket with Object Lock refuses a PUT."""
    return b64encode(hashlib.md5(content, usedforsecurity=False).digest()).decode()


def is_led_elsewhere() -> bool:
    """Whether AWS's configuration files name another endpoint, which the library would use.

    Files that can't be read count as no: opening the store raises their error.
    """
    try:
        wrong = import_module("botocore.exceptions")
    except ImportError:
        return False
    try:
        told = import_module("botocore.session").Session().get_scoped_config()
    except wrong.BotoCoreError:
        return False
    return "endpoint_url" in told or "services" in told


@contextmanager
def _fitting() -> Iterator[None]:
    """Turn the library's complaints about options into our error. Raises: Misconfigured."""
    try:
        yield
    except ValueError as error:
        raise Misconfigured(f"the storage options of s3:// are wrong: {error}") from error


def _client(system: Any, timeout_s: float) -> Any:
    """Return a botocore client with the same options and configuration as s3fs has."""
    patience = {"connect_timeout": _connect_s(timeout_s), "read_timeout": timeout_s}
    # A store's access log shows the user agent; botocore would compose its own for each request.
    told = {**system.config_kwargs, **patience, "user_agent": ENGINE}
    signer = {
        "aws_access_key_id": system.key,
        "aws_secret_access_key": system.secret,
        "aws_session_token": system.token,
    }
    if system.anon:
        told["signature_version"] = import_module("botocore").UNSIGNED
        signer = {}
    arguments = {"endpoint_url": system.endpoint_url, **signer, **system.client_kwargs}
    config = import_module("botocore.config").Config(**told)
    session = import_module("botocore.session").Session()
    # Credentials are renewed in the thread of a PUT, and by default as patiently as any request is
    # sent: a minute for each address, five times.
    asked = {"connect_timeout": SIGNER_S, "read_timeout": SIGNER_S}
    session.set_default_client_config(
        import_module("botocore.config").Config(**asked, retries={"total_max_attempts": 2})
    )
    client = session.create_client("s3", config=config, **arguments)
    client.meta.events.register("request-created.s3.PutObject", _send_at_once)
    client.meta.events.register("before-send.s3.PutObject", _wait_for_its_turn)
    return client


def _connect_s(timeout_s: float) -> float:
    """Return the connect timeout of one address; the library tries those of a name in turn."""
    return min(timeout_s, max(CONNECT_MIN_S, timeout_s / ADDRESSES))


def _send_at_once(request: Any, **_: Any) -> None:
    """Send the body right after the headers: `Expect: 100-continue` costs another round trip."""
    del request.headers["Expect"]


def _wait_for_its_turn(**_: Any) -> None:
    if not _turns.of():
        raise _Withheld


def _file_system(told: Mapping[str, str]) -> Any:
    region = {"region_name": told["region"]} if "region" in told else {}
    style = {"addressing_style": "path"} if told.get("path_style", "").lower() == "true" else {}
    arguments = {
        "anon": told.get("anonymous", "").lower() == "true",
        "endpoint_url": told.get("endpoint_url"),
        "key": told.get("access_key_id"),
        "secret": told.get("secret_access_key"),
        "token": told.get("session_token"),
        "client_kwargs": region,
        "config_kwargs": {
            "retries": {"mode": "standard", "total_max_attempts": 1},
            "request_checksum_calculation": "when_required",
            "max_pool_connections": CONNECTIONS_MAX,
            "s3": style,
        },
    }
    system = file_system("s3", "s3", arguments)
    # s3fs would repeat any request on top of botocore; the store above repeats what may be.
    system.retries = 1
    return system
