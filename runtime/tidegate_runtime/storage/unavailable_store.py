"""A placeholder for a store that can't be opened: its methods raise why; other tables continue."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from tidegate_runtime.storage.log_store import FileStat, IsWanted, Put, Turn, at_once


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
