"""What `fsck` finds wrong with a table, and how much it reads to find it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from tidegate_messages.published_records import CommittedFile

FOOTERS: Final = 1_000
"""How many data files' footers and deletion vectors are read unless told otherwise."""

Repair = Literal["remove_file", "delete_checkpoint", "move_hint", "delete_checksum"]
Kind = Literal[
    "gap",
    "unreadable_commit",
    "overwritten_commit",
    "torn_checkpoint",
    "lying_checkpoint",
    "stale_hint",
    "lying_checksum",
    "missing_file",
    "wrong_size",
    "wrong_row_count",
    "unreadable_file",
    "broken_vector",
    "orphans",
]


@dataclass(frozen=True)
class Finding:
    """Something wrong with a table: a file of the log or a path, what it is, and what to do.

    `repair` is what `--repair` does about it; None leaves it to a person.
    """

    kind: Kind
    about: str
    what: str
    remedy: str
    repair: Repair | None = None


@dataclass(frozen=True)
class CheckRequest:
    """How much is read. `footers` is how many data files are opened; `checks_all` compares every
    checkpoint with the log, not only the newest. `committed` is a version as the registry knows it.
    """

    now_ms: int
    footers: int = FOOTERS
    checks_all: bool = False
    committed: CommittedFile | None = None


Progress = Callable[[str], None]
