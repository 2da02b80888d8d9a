"""Open the store of a table root.

A placeholder for a store that can't be opened: its methods raise why; other tables continue.

A folder below a table's root, as the root of another table, for reading.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import BinaryIO, Final

from tidegate_delta.errors import Misconfigured, Unavailable
from tidegate_delta.log.file_paths import encode_place
from tidegate_runtime.storage.local_store import LocalStore
from tidegate_runtime.storage.log_store import FileStat, IsWanted, LogStore, Put, Turn, at_once
from tidegate_runtime.storage.object_store import ObjectStore, SharedBuckets
from tidegate_runtime.storage.root_paths import canonical_root, checked, joined

__all__ = ["canonical_root", "open_store"]

_BUCKETS: Final = SharedBuckets()
_NO_OPTIONS: Final[Mapping[str, str]] = {}


def open_store(
    root: str, options: Mapping[str, str] = _NO_OPTIONS, within: Sequence[str] = ()
) -> LogStore:
    """Return the store of a table root; it connects at its first use.

    `options` are the object store's (`object_store.OPTIONS`); a local table needs none. The real
    path of a local root under one of the URI prefixes `within` must lie under one as well.
    Raises: Misconfigured, for a root without a store or an unknown option.
    """
    canonical = canonical_root(root)
    scheme = canonical.partition("://")[0]
    match scheme:
        case "file":
            return LocalStore(canonical, within=within)
        case "s3" | "gs" | "abfss":
            return ObjectStore(canonical, options, _BUCKETS)
        case _:
            raise Misconfigured(f"{canonical} lives in one process's memory and cannot be opened")


@dataclass(frozen=True)
class UnavailableStore:
    """A table's folder that this release can't open. Every method raises `why`."""

    root: str
    why: Exception

    def list_from(self, folder: str, start: str) -> Iterator[FileStat]:
        """Raise `why`."""
        raise self.why

    def list_tree(self, is_wanted: IsWanted) -> Iterator[FileStat]:
        """Raise `why`."""
        raise self.why

    def read(self, path: str) -> bytes | None:
        """Raise `why`."""
        raise self.why

    def open(self, path: str) -> BinaryIO:
        """Raise `why`."""
        raise self.why

    def put_if_absent(
        self, path: str, content: bytes, deadline_s: float, turn: Turn = at_once
    ) -> Put:
        """Raise `why`."""
        raise self.why

    def put(self, path: str, content: bytes) -> None:
        """Raise `why`."""
        raise self.why

    def delete(self, path: str) -> None:
        """Raise `why`."""
        raise self.why


class ReadOnlyFolder:
    """A `LogStore` over a folder of another store. It refuses to write."""

    def __init__(self, store: LogStore, folder: str) -> None:
        self._store = store
        self._folder = checked(folder, store.root)
        self._prefix = joined(folder, "")

    @property
    def root(self) -> str:
        """The URI of the folder."""
        return joined(self._store.root, encode_place(self._folder))

    def list_from(self, folder: str, start: str) -> Iterator[FileStat]:
        """Yield the files directly in `folder` whose bare name is >= `start`, in name order."""
        for stat in self._store.list_from(f"{self._prefix}{folder}", start):
            yield replace(stat, path=stat.path.removeprefix(self._prefix))

    def list_tree(self, is_wanted: IsWanted) -> Iterator[FileStat]:
        """Yield all files below the folder, without those below one that is not wanted."""
        own, prefix = self._folder, self._prefix

        def is_wanted_above(path: str) -> bool:
            if path.startswith(prefix):
                return is_wanted(path.removeprefix(prefix))
            return path == own or own.startswith(f"{path}/")

        for stat in self._store.list_tree(is_wanted_above):
            if stat.path.startswith(prefix):
                yield replace(stat, path=stat.path.removeprefix(prefix))

    def read(self, path: str) -> bytes | None:
        """Return the bytes of a file, or None if there is none."""
        return self._store.read(f"{self._prefix}{path}")

    def open(self, path: str) -> BinaryIO:
        """Return a seekable reader. Raises: FileNotFoundError, Unavailable."""
        return self._store.open(f"{self._prefix}{path}")

    def put_if_absent(
        self, path: str, content: bytes, deadline_s: float, turn: Turn = at_once
    ) -> Put:
        """Raise Unavailable: another table is only read."""
        raise self._refusal(path)

    def put(self, path: str, content: bytes) -> None:
        """Raise Unavailable: another table is only read."""
        raise self._refusal(path)

    def delete(self, path: str) -> None:
        """Raise Unavailable: another table is only read."""
        raise self._refusal(path)

    def _refusal(self, path: str) -> Unavailable:
        return Unavailable(
            f"{path!r} belongs to the table at {self.root}, and is only read by work on the table "
            f"at {self._store.root}; open that table by its own root"
        )
