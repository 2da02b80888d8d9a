"""The requests that an object store needs from a bucket, each sent exactly once.

Implementations: `s3_bucket`, `gcs_bucket`, `adls_bucket`. Keys are whole object names. Errors are
raised as the client library raises them; `object_responses` classifies them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

import fsspec

from tidegate_delta.errors import Misconfigured
from tidegate_runtime.storage.log_store import FileStat, Turn, at_once
from tidegate_runtime.storage.object_responses import ErrorResponse

SINGLE_PUT_BYTES_MAX: Final = 5 * 1024 * 1024 * 1024 - 1
"""What every store accepts in one request. Larger objects need several, which is no atomic PUT."""


@dataclass(frozen=True)
class Page:
    """A part of a listing, ordered by name. `token` requests the next one; None at the end.

    `folders` are prefixes, each with a slash at its end, below which there are more objects.
    """

    entries: tuple[FileStat, ...]
    token: str | None = None
    folders: tuple[str, ...] = ()


@dataclass(frozen=True)
class Head:
    """An object without its bytes. `version` is the store's token for exactly these bytes."""

    size: int
    version: str


class Bucket(Protocol):
    """A bucket of an object store. Neither it nor the library below it repeats a request."""

    async def page(
        self, prefix: str, start: str, token: str | None, *, is_deep: bool = False
    ) -> Page:
        """Return objects directly under `prefix`; those before `start` may be left out.

        A deep listing has all objects whose key begins with `prefix`, and no folders.
        """

    async def head(self, key: str) -> Head:
        """Return an object's metadata."""

    async def read(self, key: str) -> bytes:
        """Return a whole object."""

    def read_now(self, key: str, timeout_s: float) -> bytes | ErrorResponse | None:
        """Return the same from the caller's thread, or a refusal for good; None if `read` is to be
        used instead.
        """

    async def read_range(self, key: str, start: int, end: int, version: str) -> bytes:
        """Return bytes of that version; fail if the object has been replaced."""

    async def create(self, key: str, content: bytes) -> None:
        """Write a whole object by one request, which the store refuses if the object exists."""

    def create_now(self, key: str, content: bytes, timeout_s: float, turn: Turn = at_once) -> bool:
        """Do the same from the caller's thread; False if it can't, and nothing was sent.

        Before its turn comes, everything but the sending is done.
        Raises: ErrorResponse; OSError, for a response that did not come in time.
        """

    async def put(self, key: str, content: bytes) -> None:
        """Write a whole object, replacing an existing one."""

    async def delete(self, key: str) -> None:
        """Remove an object; a missing one may be an error."""


def file_system(scheme: str, extra: str, arguments: Mapping[str, Any]) -> Any:
    """Return a new fsspec file system of a scheme, without a cache of listings.

    Raises: Misconfigured, if its library is not installed or refuses the arguments.
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
    """Keep aiohttp from repeating a request by itself when a connection breaks.

    It has no public switch for that; the tests count the requests that arrive.
    """
    session._retry_connection = False
