"""A candidate: one delivery of a proposal, with everything that follows from its bytes alone."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal
from uuid import UUID

from tidegate_committer.cached_property import CachedProperty
from tidegate_committer.intake.identity_leases import IdentityEffects
from tidegate_committer.intake.proposal_actions import EMPTY, CheckedActions, canonical
from tidegate_committer.intake.row_intents import (
    MovedRemoval,
    MovedRows,
    Relocations,
    RowDelete,
)
from tidegate_committer.policy import Level
from tidegate_delta.data_skipping.predicate_tree import weight_of
from tidegate_delta.features.row_tracking import DOMAIN as ROW_TRACKING
from tidegate_delta.log.actions import Metadata, Protocol, Txn
from tidegate_messages.codec import Headers
from tidegate_messages.metadata_patch import MetadataPatch
from tidegate_messages.outcome import Rejection
from tidegate_messages.proposal import ClaimCheck, Proposal, ReadSet
from tidegate_messages.record_headers import NO_REPLY, ReplyRequest

CHANGES_DATA = frozenset(
    {
        "WRITE",
        "STREAMING UPDATE",
        "DELETE",
        "TRUNCATE",
        "CONVERT",
        "MERGE",
        "UPDATE",
        "CREATE TABLE AS SELECT",
        "REPLACE TABLE",
        "REPLACE TABLE AS SELECT",
        "CREATE OR REPLACE TABLE",
        "CREATE OR REPLACE TABLE AS SELECT",
        "RESTORE",
        "CLONE",
    }
)
"""Operations that count as changing data, whatever `dataChange` their actions say."""

BACKFILL = "ROW TRACKING BACKFILL"
UNBACKFILL = "ROW TRACKING UNBACKFILL"
ROW_ID_OPERATIONS = frozenset({BACKFILL, UNBACKFILL})
"""Operations that add files again only to give them row ids, or to remove these."""

COMPUTE_STATS = "COMPUTE STATS"
"""The operation that adds files again only to give them statistics."""

REPLACES_TABLE = frozenset(name for name in CHANGES_DATA if "REPLACE TABLE" in name)
"""Operations that replace the table's definition and all of its files."""

_MIND_WINNERS = ROW_ID_OPERATIONS | REPLACES_TABLE
"""Operations whose own actions depend on what the winners wrote, though they read no rows."""

_WHOLE_TABLE = ReadSet(whole_table=True)

ChangeKind = Literal["append", "change", "rearrangement", "bare", "mixed"]


@dataclass(frozen=True, eq=False)
class Candidate:
    """One delivery of a proposal.

    Its identity is (`id`, `sha256`), where `sha256` is the hash of the record's value. `flaw` says
    why it can't be committed, whatever the table holds. `proposal` is None if the record was
    malformed but its identity could be read. `is_admin` says that it came on the topic of
    operators' requests, in which `offset` counts then. `intents` are the rows that it deletes by
    deletion vectors, `moves` the rows that its compaction moves to new files. `producer`,
    `trace` and `reply` come from the record's headers. `files_verified`: the presence and size of
    its new files were checked; if one is wrong, `flaw` names it.

    The rebase over winners sets the others: `tags` for the commitInfo, `numbers` of identity
    columns, `came` the rows that it read where winners moved them, `packed` all files into which
    winners moved rows, if it may meet these, `leaving` the files that it removes whose rows winners
    moved, `returned` the files of winners' compactions that it adds again, `moved_away` its intents
    on files that a winner compacted, `removed_domains` the domains that it removes because a winner
    set them.
    Units: `size` in bytes; `sent_ms`, the time of its record, in ms since the Unix epoch.
    """

    id: UUID
    sha256: str
    offset: int
    table: UUID
    read_version: int
    size: int
    proposal: Proposal | None = None
    content: CheckedActions = EMPTY
    flaw: Rejection | None = None
    intents: tuple[RowDelete, ...] = ()
    producer: str = ""
    trace: Headers = ()
    tags: Mapping[str, str] | None = None
    numbers: IdentityEffects | None = None
    moves: Relocations = field(default_factory=dict)
    came: tuple[MovedRows, ...] = ()
    packed: frozenset[str] = frozenset()
    leaving: tuple[MovedRemoval, ...] = ()
    returned: frozenset[str] = frozenset()
    moved_away: tuple[RowDelete, ...] = ()
    removed_domains: frozenset[str] = frozenset()
    sent_ms: int | None = None
    is_admin: bool = False
    reply: ReplyRequest = NO_REPLY
    files_verified: bool = False

    @property
    def since_ms(self) -> int | None:
        """When its oldest file was written; if unknown, when it was created or else sent.

        Units: ms since the Unix epoch.
        """
        assert self.proposal is not None, "who brings files proposes them"
        times_ms = (self.proposal.files_since_ms, self.proposal.created_ms, self.sent_ms)
        return next((time_ms for time_ms in times_ms if time_ms is not None), None)

    @property
    def is_cancel(self) -> bool:
        """Whether it cancels another proposal."""
        return self.proposal is not None and self.proposal.kind == "cancel"

    @property
    def is_question(self) -> bool:
        """Whether it asks for the versions of applications, and changes nothing."""
        return self.proposal is not None and self.proposal.kind == "app_versions"

    @property
    def is_verbatim(self) -> bool:
        """Whether it brings a verbatim entry: the bytes of one version."""
        return self.proposal is not None and self.proposal.kind == "verbatim"

    @property
    def claim(self) -> ClaimCheck:
        """Its claim check: the file that holds its actions or its verbatim entry."""
        assert self.proposal is not None, "a claim check stands in a proposal"
        return self.proposal.claim

    @property
    def patch(self) -> MetadataPatch | None:
        """The metadata changes that it asks for, to be applied to the table at the head."""
        return self.proposal.metadata_patch if self.proposal else None

    def with_table(self, metadata: Metadata, protocol: Protocol | None) -> "Candidate":
        """Return the candidate with the metadata and protocol that it will write."""
        content = replace(self.content, metadata=metadata, protocol=protocol)
        return replace(self, content=content)

    @property
    def writes_metadata(self) -> bool:
        """Whether it writes metaData, as an action or as a patch."""
        return bool(self.content.metadata or self.patch)

    @property
    def changes_definition(self) -> bool:
        """Whether it writes metaData (as an action or as a patch) or a protocol."""
        return self.writes_metadata or self.content.protocol is not None

    @CachedProperty
    def reads(self) -> ReadSet:
        """Its read set. A proposal that states none counts as having read the whole table."""
        return (self.proposal and self.proposal.reads) or _WHOLE_TABLE

    @CachedProperty
    def weight(self) -> int:
        """The cost of testing one file against its predicates."""
        return sum(map(weight_of, self.reads.predicates))

    @CachedProperty
    def files_read(self) -> frozenset[str]:
        """The canonical paths of the files that were read."""
        read = frozenset(self.reads.files)
        if not (self.content.is_plain and read <= self.content.removed):
            read = frozenset(map(canonical, read))
        return read.union(rows.path for rows in self.came) if self.came else read

    @CachedProperty
    def followed(self) -> frozenset[str]:
        """The files into which winners moved rows that it read, or files that it removes."""
        if not (self.came or self.leaving):
            return frozenset()
        return frozenset(
            (*[rows.path for rows in self.came], *[removal.rows.path for removal in self.leaving])
        )

    @CachedProperty
    def intended(self) -> frozenset[str]:
        """The canonical paths of the files from which its intents delete rows."""
        return frozenset(intent.path for intent in self.intents)

    @property
    def takes_rows(self) -> bool:
        """Whether it deletes rows of files, or removes files whose rows winners moved."""
        return bool(self.intents or self.leaving)

    @CachedProperty
    def data_changes(self) -> frozenset[bool]:
        """The values of `dataChange` of its files; an intent counts as true."""
        content = self.content
        if not (content.removes or self.takes_rows) and len(content.adds) == 1:
            return frozenset((content.adds[0].data_change,))
        data_changes = {file.data_change for file in (*content.adds, *content.removes)}
        return frozenset(data_changes | {True} if self.takes_rows else data_changes)

    @CachedProperty
    def change_kind(self) -> ChangeKind:
        """Which kind of change it is to a streaming reader of the table.

        An append only adds rows; a change also removes some; a rearrangement (`dataChange` false)
        moves rows between files, as OPTIMIZE does; a bare one names no files; a mixed one does
        several of these at once.
        """
        content = self.content
        if not (content.adds or content.removes or content.changes or self.takes_rows):
            return "bare"
        flags = self.data_changes
        if len(flags) > 1 or (content.changes and False in flags):
            return "mixed"
        if False in flags:
            return "rearrangement"
        return "change" if content.removes or content.changes or self.takes_rows else "append"

    @CachedProperty
    def only_deletes_rows(self) -> bool:
        """Whether it holds row intents and nothing else."""
        content = self.content
        has_more = content.metadata or content.protocol or content.domains or self.txns
        return bool(self.intents) and not (content.has_files or has_more or self.leaving)

    @property
    def is_rewrite(self) -> bool:
        """Whether it says where it moves rows and changes none, as a packing of files does."""
        return self.proposal is not None and bool(self.proposal.row_mapping)

    @CachedProperty
    def tolerates_row_deletes(self) -> bool:
        """Whether it stays valid when others delete other rows of the files that it read."""
        return self.reads.delete_insensitive or bool(self.moves)

    @property
    def may_meet_packed_rows(self) -> bool:
        """Whether a file into which rows were packed since it read the table may match its
        predicates, by statistics of rows that it had not read.
        """
        return self.tolerates_row_deletes and bool(self.reads.predicates)

    @CachedProperty
    def is_blind_append(self) -> bool:
        """Whether it read nothing and only adds files."""
        content = self.content
        return self.reads.is_empty and not (content.removes or content.changes or self.takes_rows)

    @CachedProperty
    def is_rearranging(self) -> bool:
        """Whether it only rearranges rows (`dataChange` false throughout), as OPTIMIZE does."""
        if True in self.data_changes:
            return False
        kept = self.removed_domains | {ROW_TRACKING}
        own = any(domain.domain not in kept for domain in self.content.domains)
        return not (self.changes_definition or own or self.txns or self.takes_rows)

    @CachedProperty
    def is_plain_append(self) -> bool:
        """Whether it is a blind append with which only metadata or protocol can conflict."""
        content = self.content
        return (
            self.is_blind_append
            and not (self.changes_definition or content.domains)
            and not (self.reads.app_ids or self.reads.domains)
            and not (content.has_row_ids or self.operation in _MIND_WINNERS)
        )

    @CachedProperty
    def depends_on_added_files(self) -> bool:
        """Whether winners that only wrote files may change its actions (row ids, feature drops)."""
        content = self.content
        return content.has_row_ids or content.protocol is not None or self.only_moves_row_ids

    @property
    def is_backfill(self) -> bool:
        """Whether it gives row ids to files that have none."""
        return self.operation == BACKFILL

    @property
    def is_unbackfill(self) -> bool:
        """Whether it removes row ids."""
        return self.operation == UNBACKFILL

    @property
    def only_moves_row_ids(self) -> bool:
        """Whether it is a backfill or unbackfill. Files that winners add are no conflict then."""
        return self.operation in ROW_ID_OPERATIONS

    @CachedProperty
    def txns(self) -> tuple[Txn, ...]:
        """The app transactions: those among the actions, then the proposal's own."""
        proposal, txns = self.proposal, self.content.txns
        if proposal is None or not (proposal.app_txn or proposal.app_txns):
            return txns
        own = (*((proposal.app_txn,) if proposal.app_txn else ()), *proposal.app_txns)
        return (*txns, *(Txn(app_id=txn.app_id, version=txn.version) for txn in own))

    @property
    def operation(self) -> str:
        """The operation's name in commitInfo."""
        return self.proposal.operation.name if self.proposal else "WRITE"

    def level(self, table_level: Level) -> Level:
        """Return the isolation level that applies to it on a table with the given level.

        A commit that only rearranges rows needs no check against concurrent appends. Under
        WriteSerializable this also requires that its operation is not one that changes data.
        """
        requested = self.proposal.isolation if self.proposal else "default"
        level = table_level if requested == "default" else requested
        if not self.is_rearranging:
            return level
        if level == "WriteSerializable" and self.operation in CHANGES_DATA:
            return level
        return "SnapshotIsolation"
