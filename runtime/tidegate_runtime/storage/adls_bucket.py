"""A container of Azure's storage, by the Blob protocol. Its condition is `If-None-Match: *`.

Accounts with a hierarchical namespace (ADLS Gen2) support the same protocol. Their folders appear
as blobs and are skipped. adlfs provides the credentials and the client.
"""

import asyncio
import math
import zlib
from collections.abc import Awaitable, Mapping
from typing import Any, Final, TypeVar

from tidegate_runtime.storage.log_store import FileStat, Turn, at_once
from tidegate_runtime.storage.object_bucket import (
    SINGLE_PUT_BYTES_MAX,
    Head,
    Page,
    file_system,
    send_once,
)
from tidegate_runtime.storage.object_responses import ErrorResponse

OPTIONS: Final = (
    "azure_account_key",
    "azure_sas_token",
    "azure_client_id",
    "azure_client_secret",
    "azure_tenant_id",
    "azure_endpoint_url",
    "azure_anonymous",
)
"""The options of Azure's store. Without a key the platform's credential chain is used."""

T = TypeVar("T")

_PAGE: Final = 5000
_ONCE: Final = {"retry_total": 0}

_CHAIN: Final = "DefaultAzureCredential"
_NO_TOKEN: Final = "ClientAuthenticationError"
"""The client's exception when it gets no token, or the store refuses it."""

RENEWAL_S: Final = 30.0
"""Minimum time between two reloads of credentials."""


class AdlsBucket:
    """A container of an account: `container@account.dfs.core.windows.net`."""

    def __init__(self, name: str, options: Mapping[str, str]) -> None:
        container, _, host = name.partition("@")
        self._system = file_system("abfss", "adls", _arguments(host, options))
        client = self._system.service_client
        # The client would split larger blobs into blocks: several requests, of which the last
        # decides.
        client._config.max_single_put_size = SINGLE_PUT_BYTES_MAX
        self._container = client.get_container_client(container)
        self._searched_s = -math.inf

    async def page(
        self, prefix: str, start: str, token: str | None, *, is_deep: bool = False
    ) -> Page:
        """Return objects directly under `prefix`, or all; the store ignores `start`."""
        return await self._sent(self._page(prefix, token, is_deep=is_deep))

    async def head(self, key: str) -> Head:
        """Return an object's metadata; its ETag is its version."""
        properties = await self._read(self._blob(key).get_blob_properties(**_ONCE))
        if properties.size is None or properties.etag is None:
            raise ErrorResponse(0, "", "the answer has no size or no ETag, so it is no store's")
        return Head(properties.size, properties.etag)

    async def read(self, key: str) -> bytes:
        """Return a whole object."""
        return await self._read(self._download(key))

    def read_now(self, key: str, timeout_s: float) -> None:
        """Return None: there is no synchronous way for this store."""

    async def read_range(self, key: str, start: int, end: int, version: str) -> bytes:
        """Return bytes of that version; fail if the object has been replaced."""
        part = self._download(key, offset=start, length=end - start, if_match=version)
        return await self._read(part)

    async def create(self, key: str, content: bytes) -> None:
        """Write a whole object by one request, which the store refuses if the object exists."""
        await self._sent(self._blob(key).upload_blob(content, overwrite=False, **_ONCE))

    def create_now(self, key: str, content: bytes, timeout_s: float, turn: Turn = at_once) -> bool:
        """Return False: there is no synchronous way for this store."""
        return False

    async def put(self, key: str, content: bytes) -> None:
        """Write a whole object, replacing an existing one."""
        await self._sent(self._blob(key).upload_blob(content, overwrite=True, **_ONCE))

    async def delete(self, key: str) -> None:
        """Remove an object; a missing one is an error."""
        await self._sent(self._blob(key).delete_blob(**_ONCE))

    def _blob(self, key: str) -> Any:
        return self._container.get_blob_client(key)

    async def _page(self, prefix: str, token: str | None, *, is_deep: bool) -> Page:
        options: dict[str, Any] = {"include": ["metadata"], "results_per_page": _PAGE, **_ONCE}
        pages = (
            self._container.list_blobs(prefix, **options)
            if is_deep
            else self._container.walk_blobs(prefix, delimiter="/", **options)
        ).by_page(token)
        blobs = [blob async for blob in await anext(pages)]
        entries = tuple(
            FileStat(blob.name, blob.size, int(blob.last_modified.timestamp() * 1000))
            for blob in blobs
            if "size" in blob and (blob.metadata or {}).get("hdi_isfolder") != "true"
        )
        folders = tuple(blob.name for blob in blobs if "size" not in blob)
        return Page(entries, pages.continuation_token or None, folders)

    async def _download(self, key: str, **part: Any) -> bytes:
        stream = await self._blob(key).download_blob(**part, **_ONCE)
        content: bytes = await stream.readall()
        return content

    async def _read(self, request: Awaitable[T]) -> T:
        """Return the response, as `_sent` does.

        Raises: as `_sent`; ErrorResponse also for a 404 that is not from the store: Azure names
        every error in a header, and a gateway in front of it does not.
        """
        try:
            return await self._sent(request)
        except Exception as error:
            if getattr(error, "status_code", None) == 404 and not getattr(error, "error_code", ""):
                message = "a 404 without a code is no store's: look at the endpoint"
                raise ErrorResponse(0, "", message) from error
            raise

    async def _sent(self, request: Awaitable[T]) -> T:
        """Return the response.

        Raises: as azure.core does; ErrorResponse for a response that it cannot read.
        """
        transport = self._system.service_client._pipeline._transport
        await transport.open()
        send_once(transport.session)
        try:
            return await request
        except (TypeError, AttributeError, ValueError, zlib.error) as error:
            # The client fails on errors without a code or a message, as gateways send them, and on
            # content that is not compressed as declared.
            raise ErrorResponse(0, "", f"the answer cannot be read: {error}") from error
        except Exception as error:
            if any(kind.__name__ == _NO_TOKEN for kind in type(error).__mro__):
                await self._search_credentials()
            raise

    async def _search_credentials(self) -> None:
        """Let the platform's credential chain look for its credentials again.

        It reads a certificate only once, and the file may hold another one by now.
        """
        chain, now_s = self._system.credential, asyncio.get_running_loop().time()
        if type(chain).__name__ == _CHAIN and now_s >= self._searched_s + RENEWAL_S:
            self._searched_s = now_s
            await chain.close()
            chain.__init__()


def _arguments(host: str, options: Mapping[str, str]) -> dict[str, Any]:
    account = host.partition(".")[0]
    key = options.get("azure_account_key")
    endpoint = options.get("azure_endpoint_url")
    if endpoint is not None:
        parts = {"AccountName": account, "AccountKey": key, "BlobEndpoint": endpoint}
        settings = [f"{name}={value}" for name, value in parts.items() if value is not None]
        sas = options.get("azure_sas_token")
        settings += [f"SharedAccessSignature={sas.removeprefix('?')}"] if sas else []
        return {"account_name": account, "connection_string": ";".join(settings)}
    return {
        "account_name": account,
        "account_host": host.replace(".dfs.", ".blob.", 1),
        "account_key": key,
        "sas_token": options.get("azure_sas_token"),
        "client_id": options.get("azure_client_id"),
        "client_secret": options.get("azure_client_secret"),
        "tenant_id": options.get("azure_tenant_id"),
        "anon": options.get("azure_anonymous", "").lower() == "true",
    }
