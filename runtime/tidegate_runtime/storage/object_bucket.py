"""What a table's store asks of a bucket: a few requests, each sent once and answered as it was.

Implementations: `s3_bucket`, `gcs_bucket`, `adls_bucket`. Keys are whole object names. What goes
wrong is raised as the client library raises it; `object_answers` says what that suggests.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

import fsspec

from tidegate_delta.errors import Misconfigured
from tidegate_runtime.storage.log_store import FileStat, Turn, at_once

SINGLE_PUT_BYTES_MAX: Final = 5 * 1024 * 1024 * 1024 - 1
"""What every store takes in one request: above it they want several, and several are no PUT."""


@dataclass(frozen=True)
class Page:
    """A part of a listing, in the order of names. `token` asks for the next; None at the end."""

    entries: tuple[FileStat, ...]
    token: str | None = None


@dataclass(frozen=True)
class Head:
    """An object without its bytes. `version` is a token of the store's for these very bytes."""

    size: int
    version: str


class Bucket(Protocol):
    """A bucket of an object store. Nothing is sent twice, by it or by the library below it."""

    async def page(self, prefix: str, start: str, token: str | None) -> Page:
        """Return objects right under `prefix`; those before `start` may be left out."""

    async def head(self, key: str) -> Head:
        """Return what an object is."""

    async def read(self, key: str) -> bytes:
        """Return an object whole."""

    async def read_range(self, key: str, start: int, end: int, version: str) -> bytes:
        """Return bytes of that version, and fail where the object is another by now."""

    async def create(self, key: str, content: bytes) -> None:
        """Write an object whole by one request, which the store refuses where there is one."""

    def create_now(self, key: str, content: bytes, timeout_s: float, turn: Turn = at_once) -> bool:
        """Do that from the caller's thread, where there is such a way; False: nothing was sent.

        All but the sending is done when its turn comes.
        Raises: Refusal; OSError, for an answer that did not come in time.
        """

    async def put(self, key: str, content: bytes) -> None:
        """Write an object whole, over what is there."""

    async def delete(self, key: str) -> None:
        """Remove an object; a missing one may be an error."""


def file_system(scheme: str, extra: str, arguments: Mapping[str, Any]) -> Any:
    """Return fsspec's file system of a scheme, of its own and without a memory of listings.

    Raises: Misconfigured, where its library is not installed or refuses the arguments.
    """
    try:
        return fsspec.filesystem(
            scheme, skip_instance_cache=True, use_listings_cache=False, **arguments
        )
    except ImportError as error:
        raise Misconfigured(
            f"{scheme}:// needs a library that is not there; install tidegate[{extra}]"
        ) from error
    except (ValueError, LookupError) as error:
        raise Misconfigured(f"the options of {scheme}:// do not fit: {error!r}") from error


def send_once(session: Any) -> None:
    """Keep aiohttp from sending a request again of its own accord when a connection breaks.

    It has no public switch for that; the tests count what arrives.
    """
    session._retry_connection = False
