"""A folder below a table's root, as the root of another table, for reading."""

from collections.abc import Iterator
from dataclasses import replace
from typing import BinaryIO

from tidegate_delta.errors import Unavailable
from tidegate_delta.log.file_paths import encode_place
from tidegate_runtime.storage.log_store import FileStat, IsWanted, LogStore, Put, Turn, at_once
from tidegate_runtime.storage.root_paths import checked, joined


class StoreBelow:
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
