"""The store on S3, Google Cloud Storage and Azure: put-if-absent by one conditional PUT.

A refused condition is not yet LOST: the object is read and compared first. A PUT without a clear
response is UNKNOWN. The libraries' own retries are off; requests that may be repeated are repeated
here.
"""

import asyncio
import io
import logging
import os
from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping
from functools import cached_property, partial
from threading import Lock
from typing import Any, BinaryIO, Final
from weakref import WeakValueDictionary

from fsspec.asyn import get_loop, sync

from tidegate_delta.errors import Misconfigured, Unavailable
from tidegate_runtime.observability.logs import log_event
from tidegate_runtime.storage import adls_bucket, gcs_bucket, s3_bucket
from tidegate_runtime.storage.adls_bucket import AdlsBucket
from tidegate_runtime.storage.gcs_bucket import GcsBucket
from tidegate_runtime.storage.log_store import (
    NO_CONDITION,
    FileStat,
    IsWanted,
    Put,
    Turn,
    at_once,
    with_parents,
)
from tidegate_runtime.storage.object_bucket import SINGLE_PUT_BYTES_MAX, Bucket, Head, Page
from tidegate_runtime.storage.object_responses import (
    ErrorResponse,
    Response,
    ResponseMeaning,
    is_missing,
    is_not_implemented,
    meaning_of,
    words,
)
from tidegate_runtime.storage.root_paths import (
    canonical_root,
    checked,
    checked_folder,
    decoded_root,
    joined,
)
from tidegate_runtime.storage.s3_bucket import S3Bucket

BUCKETS: Final[Mapping[str, Callable[[str, Mapping[str, str]], Bucket]]] = {
    "s3": S3Bucket,
    "gs": GcsBucket,
    "abfss": AdlsBucket,
}
"""The class for each URI scheme, which implements the store's protocol."""

OPTIONS: Final = (*s3_bucket.OPTIONS, *gcs_bucket.OPTIONS, *adls_bucket.OPTIONS)
"""The options of all object stores; each store uses its own and ignores the others."""

_PATIENCE_S: Final = 60.0
_SLOWEST_BYTES_PER_S: Final = 256 * 1024
"""The timeout of a request is `_PATIENCE_S` plus its size at this rate, as many tasks may share a
network link.
"""

_ATTEMPTS_MAX: Final = 4
_FIRST_PAUSE_S: Final = 0.1
_READ_BUFFER_BYTES: Final = 1024 * 1024
_NO_OPTIONS: Final[Mapping[str, str]] = {}
_log = logging.getLogger(__name__)


_SKEWED: Final = ("RequestTimeTooSkewed", "Request date header too old", "reasonable timeframe")
"""Texts with which S3, Azure and Google's token service refuse a request from a wrong clock."""

_UNTRUSTED: Final = "CERTIFICATE_VERIFY_FAILED"
"""The text in Python's TLS error for a certificate of an unknown authority."""

Opening = Callable[[str, str, Mapping[str, str]], Bucket]
"""Opens a bucket, given scheme, name and options."""


def opened_alone(scheme: str, name: str, options: Mapping[str, str]) -> Bucket:
    """Return a bucket with connections of its own."""
    return BUCKETS[scheme](name, options)


class SharedBuckets:
    """Opens each bucket once for all stores of a process, and keeps it while one of them lives.

    An S3 client takes 25 MB and half a second to make, and fetches its own credentials, and many
    tables may lie in one bucket. Opening a bucket does not block the others: its credentials may
    come from a service that does not answer.
    """

    def __init__(self) -> None:
        self._opened: WeakValueDictionary[Hashable, Bucket] = WeakValueDictionary()
        self._turns: dict[Hashable, Lock] = {}

    def __call__(self, scheme: str, name: str, options: Mapping[str, str]) -> Bucket:
        """Return a bucket, opening it if necessary. Raises: Misconfigured; Unavailable."""
        # A child process has another event loop, and must not use its parent's connections.
        key = (os.getpid(), scheme, name, tuple(sorted(options.items())))
        with self._turns.setdefault(key, Lock()):
            bucket = self._opened.get(key)
            if bucket is None:
                bucket = self._opened[key] = opened_alone(scheme, name, options)
            return bucket


class ObjectStore:
    """A table's prefix in a bucket. It needs a store that supports conditional PUT."""

    def __init__(
        self,
        root: str,
        options: Mapping[str, str] = _NO_OPTIONS,
        opening: Opening = opened_alone,
    ) -> None:
        self._root = canonical_root(root)
        self._scheme, _, location = self._root.partition("://")
        if self._scheme not in BUCKETS:
            raise Misconfigured(
                f"{self._root} is not in an object store; give s3://bucket/key, gs://bucket/key or "
                "abfss://container@account.dfs.core.windows.net/key"
            )
        self._name, _, prefix = location.partition("/")
        self._prefix = decoded_root(prefix)
        self.options: Final = dict(options)
        self._options = _options(options, self._root)
        self._open = opening
        self._turn = Lock()

    @property
    def root(self) -> str:
        """The URI of the table root: `s3://bucket/key` or similar."""
        return self._root

    def list_from(self, folder: str, start: str) -> Iterator[FileStat]:
        """Yield the files directly in `folder` whose bare name is >= `start`, in name order.

        S3 and GCS begin at `start`; Azure lists the folder from its first file.
        Raises: Unavailable.
        """
        parent = checked_folder(folder, self._root)
        prefix = joined(self._prefix, joined(parent, "")) if parent else joined(self._prefix, "")
        for page in self._pages(prefix, start):
            for entry in page.entries:
                name = entry.path[len(prefix) :]
                if name and name >= start:
                    yield FileStat(joined(parent, name), entry.size, entry.modified_ms)

    def list_tree(self, is_wanted: IsWanted) -> Iterator[FileStat]:
        """Yield all files below the root, without those below a folder that is not wanted.

        Folders at the root are listed one by one, so that those not wanted cost nothing; each of
        them is listed with all that lies below it.
        Raises: Unavailable.
        """
        top, are_wanted = joined(self._prefix, ""), with_parents(is_wanted)
        folders: list[str] = []
        for page in self._pages(top, ""):
            folders += (folder for folder in page.folders if is_wanted(folder[len(top) : -1]))
            yield from _below(top, page)
        for folder in folders:
            for page in self._pages(folder, "", is_deep=True):
                for entry in _below(top, page):
                    if are_wanted(entry.path.rpartition("/")[0]):
                        yield entry

    def read(self, path: str) -> bytes | None:
        """Return the bytes of an object, or None if there is none. Raises: Unavailable."""
        key = self._key(path)
        answer: Response = self._bucket.read_now(key, _PATIENCE_S)
        if answer is None:
            answer = self._ask(partial(self._bucket.read, key))
        if is_missing(answer):
            return None
        content: bytes = self._value("read", path, answer)
        return content

    def open(self, path: str) -> BinaryIO:
        """Return a seekable reader. Raises: FileNotFoundError, Unavailable."""
        answer = self._ask(partial(self._bucket.head, self._key(path)))
        if is_missing(answer):
            raise FileNotFoundError(joined(self._root, path))
        head: Head = self._value("open", path, answer)
        return io.BufferedReader(_Ranges(self, path, head), _READ_BUFFER_BYTES)

    def put_if_absent(
        self, path: str, content: bytes, deadline_s: float, turn: Turn = at_once
    ) -> Put:
        """Write an object if none is there, by one request that ends at the deadline.

        For S3 the request is built and signed before its turn comes.
        Raises: Unavailable for errors that no retry cures: no bucket, no rights, no conditional
        PUT.
        """
        key = self._key(path)
        if len(content) > SINGLE_PUT_BYTES_MAX:
            raise Unavailable(
                f"cannot write {path!r} of the table at {self._root}: its {len(content)} bytes are "
                "too many for one request, and only a single request can be conditional"
            )
        answer = self._created(key, content, deadline_s, turn)
        if answer is Put.WITHHELD:
            return Put.WITHHELD
        match meaning_of(answer):
            case ResponseMeaning.DONE:
                return Put.WON
            case ResponseMeaning.REFUSED:
                return self._compare(path, content)
            case ResponseMeaning.UNKNOWN:
                log_event(_log, "unclear", root=self._root, path=path, why=words(answer))
                return Put.UNKNOWN
            case ResponseMeaning.FATAL:
                raise self._unavailable("write", path, answer)

    def put(self, path: str, content: bytes) -> None:
        """Write an object whole, replacing an existing one. Raises: Unavailable."""
        request = partial(self._bucket.put, self._key(path), content)
        self._value("write", path, self._ask(request, _patience_s(len(content))))

    def delete(self, path: str) -> None:
        """Remove an object; a missing one is no error. Raises: Unavailable."""
        answer = self._ask(partial(self._bucket.delete, self._key(path)))
        if not is_missing(answer):
            self._value("delete", path, answer)

    def read_range(self, path: str, start: int, end: int, version: str) -> bytes:
        """Return the bytes from `start` to before `end` of the given version of an object.

        Raises: Unavailable; FileNotFoundError, if the object was deleted.
        """
        key = self._key(path)
        request = partial(self._bucket.read_range, key, start, end, version)
        answer = self._ask(request, _patience_s(end - start))
        if is_missing(answer):
            raise FileNotFoundError(joined(self._root, path))
        content: bytes = self._value("read", path, answer)
        if len(content) != end - start:
            raise Unavailable(
                f"cannot read {path!r} of the table at {self._root}: the store sent {len(content)} "
                f"bytes instead of {end - start}; check proxies in front of the store"
            )
        return content

    @cached_property
    def _opened(self) -> Bucket:
        return self._open(self._scheme, self._name, self._options)

    @property
    def _bucket(self) -> Bucket:
        with self._turn:
            return self._opened

    def _pages(self, prefix: str, start: str, *, is_deep: bool = False) -> Iterator[Page]:
        token: str | None = None
        while True:
            request = partial(self._bucket.page, prefix, start, token, is_deep=is_deep)
            page: Page = self._value("list", prefix, self._ask(request))
            yield page
            if page.token is None:
                return
            token = page.token

    def _key(self, path: str) -> str:
        return joined(self._prefix, checked(path, self._root))

    def _created(self, key: str, content: bytes, timeout_s: float, turn: Turn) -> Response:
        """Send the one conditional PUT, and return the store's response, or WITHHELD."""
        try:
            if self._bucket.create_now(key, content, timeout_s, turn):
                return None
        except (OSError, ErrorResponse) as error:
            return error
        if not turn():
            return Put.WITHHELD
        request = partial(self._bucket.create, key, content)
        return self._ask(request, timeout_s=timeout_s, attempts=1)

    def _compare(self, path: str, content: bytes) -> Put:
        try:
            stored = self.read(path)
        except Unavailable:
            return Put.UNKNOWN
        if stored is None:
            return Put.UNKNOWN
        return Put.WON if stored == content else Put.LOST

    def _ask(
        self,
        request: Callable[[], Awaitable[Any]],
        timeout_s: float = _PATIENCE_S,
        attempts: int = _ATTEMPTS_MAX,
    ) -> Response:
        """Return the store's response, or the exception of the request, as a value.

        Only requests that may be repeated, reads and plain PUTs, get more than one attempt.
        """

        async def patient() -> list[Response]:
            ends = asyncio.get_running_loop().time() + timeout_s
            pause_s = _FIRST_PAUSE_S
            answer: Response = None
            for attempt in range(1, attempts + 1):
                left_s = ends - asyncio.get_running_loop().time()
                bounded = asyncio.wait_for(request(), left_s)
                answer = (await asyncio.gather(bounded, return_exceptions=True))[0]
                if (
                    attempt == attempts
                    or left_s <= pause_s
                    or meaning_of(answer) is not ResponseMeaning.UNKNOWN
                ):
                    break
                await asyncio.sleep(pause_s)
                pause_s *= 3
            return [answer]

        # In a list, because `sync` would raise an exception that is its result.
        answers: list[Response] = sync(get_loop(), patient)
        return answers[0]

    def _value(self, operation: str, path: str, answer: Response) -> Any:
        if meaning_of(answer) is ResponseMeaning.DONE:
            return answer
        raise self._unavailable(operation, path, answer)

    def _unavailable(self, operation: str, path: str, answer: Response) -> Unavailable:
        message = words(answer)
        error = Unavailable(
            f"cannot {operation} {path!r} of the table at {self._root}: {message}; "
            f"{_remedy(message)}",
            error_class=NO_CONDITION if is_not_implemented(answer) else None,
        )
        error.__cause__ = answer if isinstance(answer, BaseException) else None
        return error


class _Ranges(io.RawIOBase):
    """An object as a file: each read requests a range of the version that was opened."""

    def __init__(self, store: ObjectStore, path: str, head: Head) -> None:
        self._store = store
        self._path = path
        self._size = head.size
        self._version = head.version
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        origin = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, origin + offset)
        return self._position

    def readinto(self, buffer: Any, /) -> int:
        end = min(self._size, self._position + len(buffer))
        if end <= self._position:
            return 0
        content = self._store.read_range(self._path, self._position, end, self._version)
        buffer[: len(content)] = content
        self._position += len(content)
        return len(content)


def _below(top: str, page: Page) -> Iterator[FileStat]:
    """Yield the objects of a page with their paths from the root, without markers of folders."""
    for entry in page.entries:
        path = entry.path[len(top) :]
        if path and not path.endswith("/"):
            yield FileStat(path, entry.size, entry.modified_ms)


def _remedy(message: str) -> str:
    if any(sign in message for sign in _SKEWED):
        return "set this machine's clock"
    if _UNTRUSTED in message:
        return "have the authority of the store's certificate trusted (S3: AWS_CA_BUNDLE)"
    return "check the bucket, the access rights and the storage options"


def _patience_s(size: int) -> float:
    return _PATIENCE_S + size / _SLOWEST_BYTES_PER_S


def _options(options: Mapping[str, str], root: str) -> dict[str, str]:
    known_options = {name.lower().removeprefix("aws_"): value for name, value in options.items()}
    unknown = sorted(set(known_options) - set(OPTIONS))
    if unknown:
        raise Misconfigured(
            f"unknown storage options for {root}: {', '.join(unknown)}; there are: "
            f"{', '.join(OPTIONS)}"
        )
    return known_options
