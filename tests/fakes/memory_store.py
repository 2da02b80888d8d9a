"""An in-memory store for tests and simulation: deterministic, single-threaded, never waiting.

Tests inject faults by wrapping it; it never fails by itself.
"""

import io
from collections.abc import Callable, Iterator
from typing import BinaryIO

from tests.fakes.memory_bus import MemoryBus
from tidegate_runtime.storage.log_store import FileStat, IsWanted, Put, Turn, at_once, with_parents
from tidegate_runtime.storage.root_paths import checked, checked_folder, joined

__all__ = ["MemoryBus", "MemoryStore"]


def _epoch() -> int:
    return 0


class MemoryStore:
    """A table's folder as a mapping from path to bytes.

    Tests may write `files` directly. Modification times come from `now_ms`.
    """

    def __init__(self, root: str = "memory://t", now_ms: Callable[[], int] = _epoch) -> None:
        self._root = root
        self._now_ms = now_ms
        self.files: dict[str, bytes] = {}
        self.modified: dict[str, int] = {}

    @property
    def root(self) -> str:
        """The URI of the table root."""
        return self._root

    def list_from(self, folder: str, start: str) -> Iterator[FileStat]:
        """Yield the files directly in `folder` whose bare name is >= `start`, in name order."""
        bare = checked_folder(folder, self._root)
        prefix = joined(bare, "")
        names = sorted(
            name
            for path in self.files
            if path.startswith(prefix) and "/" not in (name := path[len(prefix) :])
        )
        for name in names:
            path = prefix + name
            if name >= start and path in self.files:
                yield FileStat(path, len(self.files[path]), self.modified.get(path, 0))

    def list_tree(self, is_wanted: IsWanted) -> Iterator[FileStat]:
        """Yield all files, without those below a folder that is not wanted."""
        are_wanted = with_parents(is_wanted)
        for path, content in list(self.files.items()):
            folder = path.rpartition("/")[0]
            if not folder or are_wanted(folder):
                yield FileStat(path, len(content), self.modified.get(path, 0))

    def read(self, path: str) -> bytes | None:
        """Return the bytes of a file, or None where there is none."""
        return self.files.get(checked(path, self._root))

    def open(self, path: str) -> BinaryIO:
        """Return a seekable reader. Raises: FileNotFoundError."""
        content = self.read(path)
        if content is None:
            raise FileNotFoundError(joined(self._root, path))
        return io.BytesIO(content)

    def put_if_absent(
        self, path: str, content: bytes, deadline_s: float, turn: Turn = at_once
    ) -> Put:
        """Write a file if it does not exist, and return whether it was written."""
        if not turn():
            return Put.WITHHELD
        there = self.files.get(checked(path, self._root))
        if there is not None:
            return Put.WON if there == content else Put.LOST
        self._write(path, content)
        return Put.WON

    def put(self, path: str, content: bytes) -> None:
        """Write a whole file, replacing any that exists."""
        self._write(checked(path, self._root), content)

    def delete(self, path: str) -> None:
        """Delete a file; a missing one is no error."""
        self.files.pop(checked(path, self._root), None)
        self.modified.pop(path, None)

    def _write(self, path: str, content: bytes) -> None:
        self.files[path] = bytes(content)
        self.modified[path] = self._now_ms()
