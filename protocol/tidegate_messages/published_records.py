"""What the services publish of tables: a record for each version, and one for each table.

`CommitRecord` wakes the followers and is an audit trail; `TableRecord` is the registry; by a
`FollowerRecord` a follower says that it leaves a table alone.
"""

from typing import Literal
from uuid import UUID

from pydantic import NonNegativeInt

from tidegate_messages.message import Message
from tidegate_messages.proposal import Sha256, TableRoot

Author = Literal["tidegate", "external"]
TableStatus = Literal["staged", "open", "managed", "halted", "dropped"]


class CommitRecord(Message):
    """Version `version` of a table is in its log. No version is left out; repeats are identical.

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
    """A version of a table, and the SHA-256 of its file when it was committed."""

    version: NonNegativeInt
    sha256: Sha256


class Ruling(Message):
    """The last request of an operator that was carried out: its number, counted from 1, and where
    it came from.

    `stream` is a topic partition of the topic with one id: a topic created anew has another one.
    """

    number: NonNegativeInt
    stream: str
    offset: NonNegativeInt


class FollowerRecord(Message):
    """A table is in quarantine at a follower, which leaves it alone for the `reason`.

    `service` is the follower's name. `attempts` is how often it has failed in a row, `next_try_ms`
    when it tries again: None at its next look. Once the table is served again, or is to be tried at
    once, there is no record.
    Units: `since_ms` and `next_try_ms` in ms since the Unix epoch.
    """

    service: str
    table: UUID
    name: str
    status: Literal["quarantined"] = "quarantined"
    reason: str
    error_class: str
    since_ms: int
    attempts: NonNegativeInt
    next_try_ms: int | None = None


class TableRecord(Message):
    """A registered table. `published_through` is the last version published on `commits`, or -1.

    `table` is the registry's own id, `table_id` the metaData's; `name` is one word or the three
    parts of a catalog's name, `catalog.schema.table`. `status`: `staged`, id and root are reserved
    for a table that does not exist yet, or that a committer is about to register; `open`, anybody
    may read and write by path; `managed`, only through its catalog; `halted`, the gate does not
    commit to it, for the `reason`; `dropped`, its service has ended, and its id and root are not
    given out again. `overwritten` is a version whose file was replaced: the table is halted until
    it is restored. `halted_by_hand` is the reason of the operator who halted it: then only an
    operator reopens it. `ruling` is the last request of an operator that was carried out; a record
    with a lower number than one before it is by a committer that had lost the table, and is
    ignored. Which of several records of a table counts is said in `homes`.
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
        """How many requests of operators were carried out."""
        return self.ruling.number if self.ruling else 0
