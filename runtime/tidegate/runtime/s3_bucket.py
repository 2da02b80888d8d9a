"""A bucket of S3 and what speaks like it, through s3fs. Its condition is `If-None-Match: *`."""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from tidegate.runtime.log_store import FileStat
from tidegate.runtime.object_answers import Refusal, Verdict, judge
from tidegate.runtime.object_bucket import Head, Page, file_system, send_once
from tidegate.runtime.s3_direct import Direct, Secrets, Way

OPTIONS: Final = (
    "endpoint_url",
    "region",
    "access_key_id",
    "secret_access_key",
    "session_token",
    "anonymous",
    "path_style",
)
"""What S3 may be told; `AWS_ENDPOINT_URL` and the like are the same words."""

_FOR_THE_LIBRARY: Final = frozenset({301, 307, 400, 403})
"""What says that the region, the address or the credentials are others by now; nothing was done."""


class S3Bucket:
    """A bucket, by its name. Needs a store that obeys the condition on PUT."""

    def __init__(self, name: str, told: Mapping[str, str]) -> None:
        self._name = name
        self._system = _file_system(told)
        self._connecting = asyncio.Lock()
        self._sent: Any = None
        self._direct: Direct | None = None
        self._credentials: Any = None

    async def page(self, prefix: str, start: str, token: str | None) -> Page:
        """Return objects right under `prefix`; the store begins at `start` by itself."""
        # StartAfter excludes the name itself, so it is given all but the last letter of it.
        place = {"ContinuationToken": token} if token else {"StartAfter": prefix + start[:-1]}
        page = await self._call("list_objects_v2", Prefix=prefix, Delimiter="/", **place)
        entries = tuple(
            FileStat(one["Key"], one["Size"], int(one["LastModified"].timestamp() * 1000))
            for one in page.get("Contents", ())
        )
        return Page(entries, page["NextContinuationToken"] if page.get("IsTruncated") else None)

    async def head(self, key: str) -> Head:
        """Return what an object is; its ETag is its version."""
        answer = await self._call("head_object", Key=key)
        return Head(answer["ContentLength"], answer["ETag"])

    async def read(self, key: str) -> bytes:
        """Return an object whole."""
        return await self._body(Key=key)

    async def read_range(self, key: str, start: int, end: int, version: str) -> bytes:
        """Return bytes of that version, and fail where the object is another by now."""
        return await self._body(Key=key, Range=f"bytes={start}-{end - 1}", IfMatch=version)

    async def create(self, key: str, content: bytes) -> None:
        """Write an object whole by one request, which the store refuses where there is one."""
        client = await self._client()
        client.meta.events.register("before-send.s3.PutObject", self._note, "tidegate")
        await self._call("put_object", Key=key, Body=content, IfNoneMatch="*")
        self._learn(client, key)

    def create_now(self, key: str, content: bytes, timeout_s: float) -> bool:
        """Do the same as the last `create` did, from this thread; False where it is not known how.

        Raises: Refusal; OSError and HTTPException.
        """
        direct, secrets = self._direct, self._secrets()
        if direct is None or secrets is None:
            return False
        try:
            direct.create(key, content, secrets, timeout_s)
        except Refusal as refusal:
            if refusal.status not in _FOR_THE_LIBRARY or judge(refusal) is not Verdict.FATAL:
                raise
            self._direct = None
            return False
        return True

    async def put(self, key: str, content: bytes) -> None:
        """Write an object whole, over what is there."""
        await self._call("put_object", Key=key, Body=content)

    async def delete(self, key: str) -> None:
        """Remove an object."""
        await self._call("delete_object", Key=key)

    async def _body(self, **request: str) -> bytes:
        answer = await self._call("get_object", **request)
        async with answer["Body"] as body:
            content: bytes = await body.read()
        return content

    async def _call(self, method: str, **request: Any) -> Any:
        await self._client()
        return await self._system._call_s3(method, Bucket=self._name, **request)

    async def _client(self) -> Any:
        async with self._connecting:
            await self._system.set_session()
            client = await self._system.get_s3(self._name)
            http = client._endpoint.http_session
            send_once(await http._get_session(_proxy(client)))
        return client

    def _note(self, request: Any, **_: Any) -> None:
        """Remember what the library is about to send."""
        self._sent = request

    def _learn(self, client: Any, key: str) -> None:
        """Learn from what was sent and answered how to send the next by ourselves."""
        http, sent = client._endpoint.http_session, self._sent
        if _proxy(client) or http._cert_file or not http._verify or sent is None:
            return
        if self._direct is None:
            way = Way.learnt(sent, key, http._build_verify_context)
            self._direct = Direct(way) if way else None
        self._credentials = client._request_signer._credentials

    def _secrets(self) -> Secrets | None:
        """Return who signs; None where the library has to ask for new credentials first."""
        known = self._credentials
        if known is None:
            return None
        if hasattr(known, "refresh_needed"):
            if known.refresh_needed():
                return None
            known = known._frozen_credentials
        return Secrets(known.access_key, known.secret_key, known.token)


def _proxy(client: Any) -> str | None:
    found: str | None = client._endpoint.http_session._proxy_config.proxy_url_for(
        client.meta.endpoint_url
    )
    return found


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
            "s3": style,
        },
    }
    system = file_system("s3", "s3", arguments)
    # s3fs repeats on top of botocore, whatever the request: once is enough.
    system.retries = 1
    return system
