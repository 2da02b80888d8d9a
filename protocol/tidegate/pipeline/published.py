"""What the committer tells of a table: one record a version, and one record a table.

`CommitRecord` is a doorbell for followers and an audit trail; `TableRecord` is the registry.
"""

from typing import Literal
from uuid import UUID

from pydantic import NonNegativeInt

from tidegate.pipeline.message import Message
from tidegate.pipeline.proposal import Sha256, TableRoot

Author = Literal["tidegate", "external"]
TableStatus = Literal["staged", "open", "managed", "halted", "dropped"]


class CommitRecord(Message):
    """Version `version` of a table is published. Dense and in order; repeats are identical.

    Units: `size` in bytes; `timestamp` in ms since the Unix epoch: the in-commit timestamp where
    the table has one, else commitInfo's.
    """

    table: UUID
    table_root: TableRoot
    name: str | None = None
    version: NonNegativeInt
    sha256: Sha256
    size: NonNegativeInt
    timestamp: int | None = None
    author: Author
    operation: str | None = None
    proposal_ids: tuple[UUID, ...] = ()


class CommittedFile(Message):
    """A version of a table, and the SHA-256 of the file that it was committed as."""

    version: NonNegativeInt
    sha256: Sha256


class Ruling(Message):
    """The last request of an operator that was obeyed: the how manieth, and where it came.

    `stream` is a topic partition in one of the lives of its topic.
    """

    number: NonNegativeInt
    stream: str
    offset: NonNegativeInt


class TableRecord(Message):
    """A registered table. `published_through` is the last version told on `commits`, or -1.

    `table` is the registry's own id, never the metaData's; `name` is one word or the three parts of
    a catalog's, `catalog.schema.table`. `status`: `staged`, id and root are given out and nothing
    stands there yet; `open`, anybody may read and write by path; `managed`, through its catalog
    alone; `halted`, the log can't be served, see `reason`; `dropped`, no more: its id and its root
    are not given out again. `overwritten` is a version whose file somebody replaced: the table is
    halted until it is restored. `halted_by_hand` is the reason of the operator who halted it: then
    only an operator reopens it. `ruling` is the last request of an operator that was obeyed: a
    record with an earlier one than a record before it is by a committer that had lost the table.
    """

    table: UUID
    table_root: TableRoot
    name: str
    table_id: str | None = None
    proposals_topic: str
    topic_partition: NonNegativeInt
    status: TableStatus = "open"
    reason: str | None = None
    published_through: int = -1
    sha256: Sha256 | None = None
    overwritten: CommittedFile | None = None
    halted_by_hand: str | None = None
    ruling: Ruling | None = None

    @property
    def rulings(self) -> int:
        """How many requests of operators were obeyed."""
        return self.ruling.number if self.ruling else 0
