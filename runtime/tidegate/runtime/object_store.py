"""The store on S3 and what speaks like it: one conditional PUT, and the object decides.

An answer only suggests. A refused condition is read and compared, and what was sent and not clearly
answered is unknown. The libraries' retries are off; aiohttp alone sends a PUT once more when its
connection breaks, the same bytes within the same deadline, which the comparison makes harmless.
"""

import asyncio
import io
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, BinaryIO, Final

import fsspec
from fsspec.asyn import sync

from tidegate.delta.errors import Misconfigured, Unavailable
from tidegate.runtime.log_store import FileStat, Put
from tidegate.runtime.object_answers import Answer, Verdict, is_missing, judge
from tidegate.runtime.store_paths import canonical_root, checked, checked_folder, joined

OPTIONS: Final = (
    "endpoint_url",
    "region",
    "access_key_id",
    "secret_access_key",
    "session_token",
    "anonymous",
    "path_style",
)
"""What an object store may be told; `AWS_ENDPOINT_URL` and the like are the same words."""

_READ_TIMEOUT_S: Final = 60.0
_READ_BUFFER_BYTES: Final = 1024 * 1024
_ATTEMPTS_MAX: Final = 2
_NO_OPTIONS: Final[Mapping[str, str]] = {}


class ObjectStore:
    """A table's prefix in a bucket. Needs a store that obeys `If-None-Match: *` on PUT."""

    def __init__(self, root: str, options: Mapping[str, str] = _NO_OPTIONS) -> None:
        self._root = canonical_root(root)
        scheme, _, place = self._root.partition("://")
        if scheme != "s3":
            raise Misconfigured(f"{self._root} is not in an object store; give s3://bucket/key")
        self._bucket, _, self._prefix = place.partition("/")
        told = _told(options, self._root)
        # Reading may be repeated as the libraries like; what writes a commit may not.
        self._patient = _file_system(told, attempts=4)
        self._single = _file_system(told, attempts=1)

    @property
    def root(self) -> str:
        """The URI of the table root: `s3://bucket/key`."""
        return self._root

    def list_from(self, folder: str, start: str) -> Iterator[FileStat]:
        """Yield the files directly in `folder` whose bare name is >= `start`, in name order.

        The store begins at `start`; it does not list what lies before. Raises: Unavailable.
        """
        bare = checked_folder(folder, self._root)
        prefix = joined(self._prefix, joined(bare, "")) if bare else joined(self._prefix, "")
        # StartAfter excludes the name itself, so it is given all but the last letter of it.
        place: dict[str, str] = {"StartAfter": prefix + start[:-1]}
        while True:
            page = self._asked("list", folder, "list_objects_v2", Prefix=prefix, **place)
            for entry in page.get("Contents", ()):
                name = entry["Key"][len(prefix) :]
                if name and name >= start:
                    modified_ms = int(entry["LastModified"].timestamp() * 1000)
                    yield FileStat(joined(bare, name), entry["Size"], modified_ms)
            if not page.get("IsTruncated"):
                return
            place = {"ContinuationToken": page["NextContinuationToken"]}

    def read(self, path: str) -> bytes | None:
        """Return the bytes of an object, or None where there is none. Raises: Unavailable."""
        return self._fetched(path, {})

    def open(self, path: str) -> BinaryIO:
        """Return a seekable reader. Raises: FileNotFoundError, Unavailable."""
        answer = self._ask(self._call(self._patient, "head_object", Key=self._key(path)))
        if is_missing(answer):
            raise FileNotFoundError(joined(self._root, path))
        head = self._value("open", path, answer)
        ranges = _Ranges(self, path, head["ContentLength"], head["ETag"])
        return io.BufferedReader(ranges, _READ_BUFFER_BYTES)

    def put_if_absent(self, path: str, content: bytes, deadline_s: float) -> Put:
        """Write an object if none is there, by one request that ends at the deadline.

        Raises: Unavailable for what no retry cures: no bucket, no rights, no conditional PUT.
        """
        answer = self._ask(
            self._call(
                self._single, "put_object", Key=self._key(path), Body=content, IfNoneMatch="*"
            ),
            timeout_s=deadline_s,
        )
        match judge(answer):
            case Verdict.DONE:
                return Put.WON
            case Verdict.REFUSED:
                return self._compare(path, content)
            case Verdict.UNKNOWN:
                return Put.UNKNOWN
            case Verdict.FATAL:
                raise self._unavailable("write", path, answer)

    def put(self, path: str, content: bytes) -> None:
        """Write an object whole, over what is there. Raises: Unavailable."""
        self._asked("write", path, "put_object", Key=self._key(path), Body=content)

    def delete(self, path: str) -> None:
        """Remove an object; a missing one is no error. Raises: Unavailable."""
        self._asked("delete", path, "delete_object", Key=self._key(path))

    def read_range(self, path: str, start: int, end: int, etag: str) -> bytes:
        """Return the bytes from `start` to before `end` of the object as it was opened.

        Raises: Unavailable, FileNotFoundError when the object went away.
        """
        content = self._fetched(path, {"Range": f"bytes={start}-{end - 1}", "IfMatch": etag})
        if content is None:
            raise FileNotFoundError(joined(self._root, path))
        return content

    def _key(self, path: str) -> str:
        return joined(self._prefix, checked(path, self._root))

    def _compare(self, path: str, content: bytes) -> Put:
        try:
            there = self.read(path)
        except Unavailable:
            return Put.UNKNOWN
        if there is None:
            return Put.UNKNOWN
        return Put.WON if there == content else Put.LOST

    def _fetched(self, path: str, conditions: Mapping[str, str]) -> bytes | None:
        async def fetch() -> bytes:
            got = await self._call(self._patient, "get_object", Key=self._key(path), **conditions)()
            async with got["Body"] as body:
                content: bytes = await body.read()
            return content

        answer = self._ask(fetch)
        for _ in range(_ATTEMPTS_MAX - 1):
            if judge(answer) is not Verdict.UNKNOWN:
                break
            answer = self._ask(fetch)
        if is_missing(answer):
            return None
        fetched: bytes = self._value("read", path, answer)
        return fetched

    def _asked(self, verb: str, path: str, method: str, **request: Any) -> Any:
        if method == "list_objects_v2":
            request["Delimiter"] = "/"
        return self._value(verb, path, self._ask(self._call(self._patient, method, **request)))

    def _call(self, system: Any, method: str, **request: Any) -> Callable[[], Awaitable[Any]]:
        async def call() -> Any:
            return await system._call_s3(method, Bucket=self._bucket, **request)

        return call

    def _ask(
        self, call: Callable[[], Awaitable[Any]], timeout_s: float = _READ_TIMEOUT_S
    ) -> Answer:
        """Return what the store answered, or how it failed, as a value."""

        async def bounded() -> list[Answer]:
            answers = await asyncio.gather(
                asyncio.wait_for(call(), timeout_s), return_exceptions=True
            )
            return [answers[0]]

        # In a list, for `sync` raises an exception that is returned to it bare.
        answers: list[Answer] = sync(self._patient.loop, bounded)
        return answers[0]

    def _value(self, verb: str, path: str, answer: Answer) -> Any:
        if judge(answer) is Verdict.DONE:
            return answer
        raise self._unavailable(verb, path, answer)

    def _unavailable(self, verb: str, path: str, answer: Answer) -> Unavailable:
        error = Unavailable(
            f"cannot {verb} {path!r} of the table at {self._root}: {type(answer).__name__}: "
            f"{answer}; look at the bucket, the rights and the options"
        )
        error.__cause__ = answer if isinstance(answer, BaseException) else None
        return error


class _Ranges(io.RawIOBase):
    """An object as a file: each read asks for a range of the version that was opened."""

    def __init__(self, store: ObjectStore, path: str, size: int, etag: str) -> None:
        self._store = store
        self._path = path
        self._size = size
        self._etag = etag
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        origin = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, origin + offset)
        return self._at

    def readinto(self, buffer: Any, /) -> int:
        end = min(self._size, self._at + len(buffer))
        if end <= self._at:
            return 0
        content = self._store.read_range(self._path, self._at, end, self._etag)
        buffer[: len(content)] = content
        self._at += len(content)
        return len(content)


def _told(options: Mapping[str, str], root: str) -> dict[str, str]:
    told = {name.lower().removeprefix("aws_"): value for name, value in options.items()}
    unknown = sorted(set(told) - set(OPTIONS))
    if unknown:
        raise Misconfigured(
            f"unknown storage options for {root}: {', '.join(unknown)}; there are: "
            f"{', '.join(OPTIONS)}"
        )
    return told


def _file_system(told: Mapping[str, str], attempts: int) -> Any:
    region = {"region_name": told["region"]} if "region" in told else {}
    style = {"addressing_style": "path"} if told.get("path_style", "").lower() == "true" else {}
    try:
        system = fsspec.filesystem(
            "s3",
            skip_instance_cache=True,
            use_listings_cache=False,
            anon=told.get("anonymous", "").lower() == "true",
            endpoint_url=told.get("endpoint_url"),
            key=told.get("access_key_id"),
            secret=told.get("secret_access_key"),
            token=told.get("session_token"),
            client_kwargs=region,
            config_kwargs={
                "retries": {"mode": "standard", "total_max_attempts": attempts},
                "request_checksum_calculation": "when_required",
                "s3": style,
            },
        )
    except ImportError as error:
        raise Misconfigured("s3:// needs s3fs; install tidegate[s3]") from error
    # s3fs repeats on top of botocore, whatever the request: once is enough for both of ours.
    system.retries = 1
    return system
