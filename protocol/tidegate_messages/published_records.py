"""What the services publish about tables: one record for each version, and one for each table.

A `CommitRecord` notifies the followers and is an audit trail. A `TableRecord` is the registry's
record. A `FollowerRecord` says that a follower skips a table. A `LeaseRecord` keeps versions of a
table from cleanup. A `MaintenanceRecord` says that a table's maintenance is paused, or what was
done and comes next.

A `Gate` says who needs which versions of a table, which no cleanup and no vacuum may take. A
`ChangeSignal` is an operator's signal to a change stream, in Debezium's words, on `cdc-signals`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal
from uuid import UUID

from pydantic import Field, NonNegativeInt, model_validator

from tidegate_messages.message import Message
from tidegate_messages.proposal import Sha256, TableRoot

Author = Literal["tidegate", "external"]
HOLDER_MAX: Final = 100
TableStatus = Literal["staged", "open", "managed", "halted", "dropped"]


class CommitRecord(Message):
    """Version `version` of a table is in its log. No version is left out; repeats are identical.

    Units: `size` in bytes; `timestamp` in ms since the Unix epoch: the in-commit timestamp if the
    table has one, else commitInfo's.
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
    """The last operator request that was carried out: its number, counted from 1, and its source.

    `stream` identifies a partition of a topic with a certain id: a recreated topic has another one.
    `others` has the last offset of each other stream that had a request of the table, for one that
    has moved: a request that is delivered again is known by these.
    """

    number: NonNegativeInt
    stream: str
    offset: NonNegativeInt
    others: Mapping[str, NonNegativeInt] | None = None


class FollowerRecord(Message):
    """A table is in quarantine at a follower, which skips it because of `reason`.

    `service` is the follower's name. `attempts` is how often it has failed in a row, `next_try_ms`
    when it tries again: None means at its next pass. There is no record once the table is served
    again, or is to be tried at once.
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


class LeaseRecord(Message):
    """`holder` needs the versions of a table from `needed_from` on, until `until_ms`.

    Until then, no cleanup of the log deletes what these versions are read from. The key is
    `holder/table`: a later record of a holder replaces the one before, a tombstone gives the lease
    back. `reason` is shown to operators.
    Units: `until_ms` in ms since the Unix epoch.
    """

    table: UUID
    holder: str = Field(min_length=1, max_length=HOLDER_MAX, pattern=r"^[A-Za-z0-9._-]+$")
    needed_from: NonNegativeInt
    until_ms: NonNegativeInt
    reason: str | None = None


MaintenanceKind = Literal["pack", "purge", "recluster", "statistics", "vacuum", "check"]


class MaintenanceChore(Message):
    """A task of the maintainer: what is done to which partitions, at what price, and why.

    `outcome` is `committed`, or the rule by which it gave way; absent before.
    Units: `size_bytes` of the files that are read; `at_ms` in ms since the Unix epoch, when it was
    done.
    """

    kind: MaintenanceKind
    partitions: tuple[str, ...] = ()
    size_bytes: NonNegativeInt = 0
    why: str
    outcome: str | None = None
    at_ms: int | None = None


class DamagedFile(Message):
    """A live data file that a check found damaged: `kind` as `tidegate table fsck` names it."""

    path: str
    kind: str
    what: str


class MaintenanceRecord(Message):
    """What an operator wants, or the maintainer reports, of a table's maintenance.

    The key is `pause/table` or `report/table`, as `about` says; a tombstone of a pause resumes. A
    report has the `last` task and the `next` one; without one, `reason` says why nothing is due. Of
    a pause, it is the operator's. `vacuumed_ms` is when a vacuum was last looked for. `deaths` is
    how many processes in a row ended within a task; a maintainer raises it before each one.
    `damaged` are files that the check at `checked_ms` found so. `spent` is when how many bytes of
    the budgets were used in the last day, that of a task under way included.
    Units: `at_ms`, `vacuumed_ms`, `checked_ms` in ms since the Unix epoch.
    """

    table: UUID
    name: str
    about: Literal["pause", "report"]
    at_ms: int
    reason: str | None = None
    last: MaintenanceChore | None = None
    next: MaintenanceChore | None = None
    vacuumed_ms: int | None = None
    checked_ms: int | None = None
    damaged: tuple[DamagedFile, ...] = ()
    spent: tuple[tuple[int, NonNegativeInt], ...] = ()
    deaths: NonNegativeInt = 0


class TableRecord(Message):
    """A registered table. `published_through` is the last version published on `commits`, or -1.

    `table` is the registry's own id, `table_id` the metaData's. `name` is one word or the three
    parts of a catalog's name, `catalog.schema.table`. `status`: `staged`, id and root are reserved
    for a table that does not exist yet, or that a committer is about to register; `open`, anybody
    may read and write by path; `managed`, only through its catalog; `halted`, the committer does
    not commit to it, because of `reason`; `dropped`, it is no longer served, and its id and root
    are not used again. `overwritten` is a version whose file was replaced: the table is halted
    until the file is restored. `halted_by_hand` is the reason of the operator who halted it: then
    only an operator reopens it. `ruling` is the last operator request that was carried out. A
    record with a lower number than one before it comes from a committer that had lost the table,
    and is ignored. If a table has several records, `table_home` decides which counts.
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
        """The number of operator requests that were carried out."""
        return self.ruling.number if self.ruling else 0


@dataclass(frozen=True)
class Gate:
    """`holder` needs every version from `needed_from` on: its commits and, with `reads_rows`, the
    files that these versions name.
    """

    needed_from: int
    holder: str
    reads_rows: bool = True


SignalType = Literal[
    "execute-snapshot",
    "pause-snapshot",
    "resume-snapshot",
    "stop-snapshot",
    "set-position",
    "reset-position",
]
REASON_MAX = 2_000
FILTER_MAX = 10_000


class ChangeSignal(Message):
    """What the publisher is to do with the stream of a table, once, in the order of the topic.

    `execute-snapshot` publishes all rows: at once and instead of all that is not published yet, if
    `snapshot` is `blocking`, or `incremental`, between the versions that follow. The latter may be
    paused, resumed and stopped, and `filter`, a SQL condition as Spark reads it, limits it to rows
    for which it is true. `set-position` goes on behind `version`; versions that it passes over are
    announced as a gap. `reset-position` begins the stream anew. The key is the table's id.
    """

    table: UUID
    type: SignalType
    snapshot: Literal["incremental", "blocking"] = "incremental"
    version: NonNegativeInt | None = None
    reason: str | None = Field(default=None, max_length=REASON_MAX)
    filter: str | None = Field(default=None, min_length=1, max_length=FILTER_MAX)

    @model_validator(mode="after")
    def _has_its_version(self) -> "ChangeSignal":
        if self.type == "set-position" and self.version is None:
            raise ValueError("set-position needs `version`, the last one that is not to follow")
        return self

    @model_validator(mode="after")
    def _filters_what_it_can(self) -> "ChangeSignal":
        is_incremental = self.type == "execute-snapshot" and self.snapshot == "incremental"
        if self.filter is not None and not is_incremental:
            raise ValueError(
                "`filter` is for incremental snapshots: after others readers forget all other rows"
            )
        return self
