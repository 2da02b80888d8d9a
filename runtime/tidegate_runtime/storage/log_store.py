"""`LogStore`: the operations on a table's folder that every store offers.

Paths are relative to the table root, percent-decoded, with `/` between parts.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import BinaryIO, Final, Protocol


class Put(Enum):
    """The result of a put-if-absent.

    WON: the file holds exactly these bytes. LOST: it was read, and holds others. UNKNOWN: it may
    have been written; the caller has to read and compare before anything else. WITHHELD: its turn
    never came, and nothing was written.
    """

    WON = "won"
    LOST = "lost"
    UNKNOWN = "unknown"
    WITHHELD = "withheld"


NO_CONDITION: Final = "NoPutIfAbsent"
"""The `error_class` of the Unavailable that a store without conditional PUT raises."""

Turn = Callable[[], bool]
"""Waits until a PUT's turn has come and returns True, or False if it never will. May be called
again.
"""


IsWanted = Callable[[str], bool]
"""Whether files below a folder are asked for, given its path from the table root."""


def with_parents(is_wanted: IsWanted) -> IsWanted:
    """Return whether a folder and all folders above it are wanted."""

    @cache
    def are_wanted(folder: str) -> bool:
        parent = folder.rpartition("/")[0]
        return (not parent or are_wanted(parent)) and is_wanted(folder)

    return are_wanted


def at_once() -> bool:
    """The turn of a PUT that need not wait."""
    return True


@dataclass(frozen=True)
class FileStat:
    """A file as a listing shows it. Units: `size` in bytes, `modified_ms` since the Unix epoch."""

    path: str
    size: int
    modified_ms: int


class LogStore(Protocol):
    """A table's folder in a store. Implementations: local files, object stores, memory."""

    @property
    def root(self) -> str:
        """The canonical URI of the table root: `file:///abs` or `s3://...`, no trailing slash."""

    def list_from(self, folder: str, start: str) -> Iterator[FileStat]:
        """Yield the files directly in `folder` whose bare name is >= `start`, in name order.

        A missing folder yields nothing. Raises: Unavailable.
        """

    def list_tree(self, is_wanted: IsWanted) -> Iterator[FileStat]:
        """Yield all files below the root, without those below a folder that is not wanted.

        The order is any. Links to folders are not followed. Raises: Unavailable.
        """

    def read(self, path: str) -> bytes | None:
        """Return the bytes of a file, or None if there is none. Raises: Unavailable."""

    def open(self, path: str) -> BinaryIO:
        """Return a seekable reader. Raises: FileNotFoundError, Unavailable."""

    def put_if_absent(
        self, path: str, content: bytes, deadline_s: float, turn: Turn = at_once
    ) -> Put:
        """Write a file whole and durably if no file is there; never overwrite.

        It prepares what it can, then waits for `turn`; nothing is visible to others before that.
        `deadline_s` limits the life of the request, in seconds from now or from its turn.
        Raises: Unavailable for errors that no retry cures (no space, no rights; NO_CONDITION).
        """

    def put(self, path: str, content: bytes) -> None:
        """Write a file whole, replacing an existing one: for hints and for files under fresh names.

        Raises: Unavailable.
        """

    def delete(self, path: str) -> None:
        """Remove a file; a missing one is no error. Raises: Unavailable."""
