"""The door to where a table lies: a few verbs, the same for every store.

Paths are relative to the table root, already percent-decoded, with `/` between parts.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import BinaryIO, Final, Protocol


class Put(Enum):
    """What a put-if-absent came to.

    WON: the object holds exactly these bytes. LOST: it was read, and holds others.
    UNKNOWN: anything else; the caller reads and compares before it does anything (RESOLVE).
    WITHHELD: its turn never came, and nothing was sent.
    """

    WON = "won"
    LOST = "lost"
    UNKNOWN = "unknown"
    WITHHELD = "withheld"


NO_CONDITION: Final = "NoPutIfAbsent"
"""The class of the Unavailable of a store that takes no conditional PUT at all."""

Turn = Callable[[], bool]
"""Returns True once a PUT's turn has come, and False when it never will. To be asked again does no
harm."""


def at_once() -> bool:
    """The turn of a PUT that waits for nobody."""
    return True


@dataclass(frozen=True)
class FileStat:
    """A file as a listing shows it. Units: `size` in bytes, `modified_ms` since the Unix epoch."""

    path: str
    size: int
    modified_ms: int


class LogStore(Protocol):
    """A table's folder in a store. Implementations: local, S3 and its like, memory."""

    @property
    def root(self) -> str:
        """The canonical URI of the table root: `file:///abs` or `s3://...`, no trailing slash."""

    def list_from(self, folder: str, start: str) -> Iterator[FileStat]:
        """Yield the files directly in `folder` whose bare name is >= `start`, in name order.

        A missing folder yields nothing. Raises: Unavailable.
        """

    def read(self, path: str) -> bytes | None:
        """Return the bytes of a file, or None where there is none. Raises: Unavailable."""

    def open(self, path: str) -> BinaryIO:
        """Return a seekable reader. Raises: FileNotFoundError, Unavailable."""

    def put_if_absent(
        self, path: str, content: bytes, deadline_s: float, turn: Turn = at_once
    ) -> Put:
        """Write a file whole and durably if no file is there; never overwrite.

        What can be made ready is, then its turn is awaited: no other writer sees anything before.
        `deadline_s` bounds the life of the request, in seconds from now or from its turn.
        Raises: Unavailable for what no retry cures (no space, no rights; NO_CONDITION).
        """

    def put(self, path: str, content: bytes) -> None:
        """Write a file whole, over what is there: for hints and files under fresh names.

        Raises: Unavailable.
        """

    def delete(self, path: str) -> None:
        """Remove a file; a missing one is no error. Raises: Unavailable."""
