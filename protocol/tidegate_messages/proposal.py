"""A proposal: a proposed commit and what its writer read. The record of the topic `proposals`.

The read set says what a writer read of the table to make its proposal. Predicates are trees of
nodes with `op`, over physical column paths.

| node | fields |
|---|---|
| `=` `!=` `<` `<=` `>` `>=` `<=>` | `column` (path), `value`, `type` |
| `in` | `column`, `values`, `type` |
| `is_null`, `is_not_null` | `column` |
| `and`, `or` | `args` |
| `not` | `arg` |
| `true` | everything |
| `opaque` | `columns`, `text`: what the grammar can't express; it matches everything |

A row intent has rows that a proposal deletes from one live file, which stays. It names the rows,
not the file's new deletion vector. So several writers can delete rows of one file at once, and the
committer merges them into one vector.

A row mapping says where the rows of the files that a compaction removes lie in its new files. With
it, a delete of rows and a compaction of the same file can both commit, in either order.

Writers put the values of identity columns into files, and the committer keeps them unique. A writer
uses values beyond the column's high-water mark and declares them. Or it first leases a block of
values, by a proposal of its own, and uses these in later files.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import (
    Field,
    InstanceOf,
    JsonValue,
    PositiveInt,
    Strict,
    StringConstraints,
    model_validator,
)

from tidegate_messages.message import Count, Flag, HyphenatedUuid, JsonObject, Message, Whole
from tidegate_messages.metadata_patch import MetadataPatch

Predicate = Mapping[str, JsonValue]


class ReadSet(Message):
    """What the proposal's rows depend on: files, predicates, applications and metadata domains.

    A proposal without a read set counts as one that read the whole table. An empty read set says
    that nothing was read. `delete_insensitive` says that each written row depends only on the row
    that it replaces (a DELETE or UPDATE without sub-queries over the table), so that deletes of
    other rows by other writers are no conflict.
    """

    whole_table: Flag = False
    predicates: tuple[JsonObject, ...] = ()
    files: tuple[str, ...] = ()
    app_ids: tuple[str, ...] = ()
    domains: tuple[str, ...] = ()
    delete_insensitive: Flag = False

    @property
    def is_empty(self) -> bool:
        """Whether no row of the table was read."""
        return not (self.whole_table or self.predicates or self.files)


ROW_INTENT: Final = "dv_intent"
"""The key of a row intent on its line of a claim check file."""

Purpose = Literal["delete", "update"]


RowCount = Annotated[int, Strict(), Field(ge=0, le=2**47)]
"""A number of rows of a file. No file has more; rows past 2^48 fit into no deletion vector."""


class RowIntent(Message):
    """Rows to delete from a file that stays.

    `base` is the unique id of the deletion vector that the file had at `read_version`, absent if it
    had none. `rows` is a deletion vector descriptor in Delta's form, inline or in a file below the
    table root. It holds the rows to delete, without those that `base` holds. `num_records` is the
    number of physical rows of the file. With `update` the proposal adds new images of these rows,
    so no other proposal may have deleted them.
    Spec: "Deletion Vector Descriptor Schema"
    """

    path: Annotated[str, StringConstraints(min_length=1)]
    base: str | None = None
    rows: Mapping[str, JsonValue]
    num_records: RowCount
    op: Purpose = "delete"


FilePath = Annotated[str, StringConstraints(min_length=1)]


class Source(Message):
    """A removed file whose rows a new file holds, in their order, from row `offset` on.

    `rows` is their number, without the rows in the deletion vector that the file had when it was
    read. `base` is that vector, present if the file was removed with another one. The committer
    sets it if rows were deleted after the compaction had read the file. Writers leave it out.
    Spec: "Deletion Vector Descriptor Schema"
    """

    path: FilePath
    offset: RowCount
    rows: RowCount
    base: Mapping[str, JsonValue] | None = None


class RowMapping(Message):
    """The sources of a new file at `path`, in the order of its rows, all of which they provide.

    `keeps_row_ids` says that the file holds the ids of its rows in the columns of row tracking. A
    table with row tracking requires it, else moved rows would get new ids.
    Spec: "Row Tracking"
    """

    path: FilePath
    sources: Annotated[tuple[Source, ...], Field(min_length=1)]
    keeps_row_ids: Flag = False


LONG_MIN: Final = -(2**63)
LONG_MAX: Final = 2**63 - 1

Long = Annotated[int, Strict(), Field(ge=LONG_MIN, le=LONG_MAX)]
ColumnName = Annotated[str, StringConstraints(min_length=1, max_length=1_024)]


class IdentityUsage(Message):
    """The least and the greatest value of an identity column in the files of a proposal.

    `column` is the physical name. `lease` is the id of the proposal that leased the block to which
    the values belong. Without it they must lie beyond the column's high-water mark.
    Spec: "Identity Columns"
    """

    column: ColumnName
    low: Long
    high: Long
    lease: HyphenatedUuid | None = None

    @model_validator(mode="after")
    def _is_a_range(self) -> "IdentityUsage":
        if self.low > self.high:
            raise ValueError("`low` is greater than `high`")
        return self


class IdentityDemand(Message):
    """A request to lease `count` values of an identity column, given by its physical name.

    Spec: "Identity Columns"
    """

    column: ColumnName
    count: Annotated[int, Strict(), Field(gt=0, le=LONG_MAX)]


class IdentityBlock(Message):
    """The values that a lease has reserved: `count` of them, `first`, `first + step`, ...

    Spec: "Identity Columns"
    """

    column: ColumnName
    first: Long
    step: Long
    count: PositiveInt


ProposalKind = Literal[
    "commit", "cancel", "app_versions", "register", "halt", "reopen", "drop", "move", "verbatim"
]
OPERATOR_REQUESTS: Final = frozenset({"halt", "reopen", "drop", "move"})
"""The kinds of operators' requests. They go to the topic `admin`; all others to `proposals`."""

CdcMode = Literal["explicit", "implicit", "none"]
Isolation = Literal["default", "Serializable", "WriteSerializable", "SnapshotIsolation"]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
TableRoot = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9+.-]*://.*[^/]$")]


_NOTHING: Final[Mapping[str, Any]] = {}


class Operation(Message):
    """The operation of the commit's `commitInfo`, by Delta's names (`WRITE`, `DELETE`, ...)."""

    name: str = "WRITE"
    parameters: JsonObject = _NOTHING
    metrics: JsonObject = _NOTHING


class ClaimCheck(Message):
    """The file that holds the actions and row intents of a proposal too large for a record.

    Shape: newline-delimited JSON, one action a line, or one row intent under `dv_intent`. `path` is
    relative to the table root.
    Units: `size` in bytes.
    """

    path: str
    size: Count
    sha256: Sha256


NO_APP_VERSION: Final = -1
"""The version of an application that the table has not seen."""

APP_TXNS_MAX: Final = 1_000
"""How many applications a proposal may advance or ask for."""

AppId = Annotated[str, StringConstraints(min_length=1)]
AppVersion = Annotated[int, Strict(), Field(ge=0, le=LONG_MAX)]


class AppTxn(Message):
    """An application transaction by Delta's rule: `version` must be above the table's own."""

    app_id: AppId
    version: AppVersion


class AppTxnAdvance(Message):
    """Sets the version of an application, if the table has it at `expected`: compare-and-set.

    `expected` is the last version that the writer knows to be in the table, -1 if it knows of none.
    """

    app_id: AppId
    version: AppVersion
    expected: Annotated[int, Strict(), Field(ge=NO_APP_VERSION, le=LONG_MAX)]

    @model_validator(mode="after")
    def _version_advances(self) -> "AppTxnAdvance":
        if self.version <= self.expected:
            raise ValueError("`version` must be above `expected`")
        return self


class Proposal(Message):
    """A proposed commit.

    A proposal's identity is (`proposal_id`, SHA-256 of the record's value): to repeat it, send the
    same bytes. `table` is the registry's UUID, `table_id` is `metaData.id` at `read_version`. To
    create a table, set `read_version` to -1 and `table_id` to null. `actions` are lines of the log
    in Delta's JSON form. The committer adds commitInfo, row ids, timestamps and versions.
    `dv_intents` are rows to delete from files that stay: one object for each file, which must not
    be among the actions. A `metadata_patch` comes alone, without actions or intents. The
    `app_txns` are positions of the writer's sources: each is compared with the table's and set, all
    or none. `app_txn` is the older form, by Delta's rule. The kind `app_versions` asks for the
    table's versions of `app_ids`; it changes nothing, and its `read_version` is not looked at. The
    `row_mapping` of a compaction says where the rows of each removed file lie in the new files. For
    the kind `verbatim`, the file of the claim check holds the bytes of the whole entry of version
    `exact_version`; `read_version` is the version that the writer's work began from; `txn_id` is
    commitInfo's, the same in each attempt; `table_id` may be null, as the writer of a log may not
    know it. Version 0 creates the table. `reason` is for the kind `halt` and is passed on to
    writers. The kind `move` gives the table another topic partition, `to_partition`.

    What only the writer can know: `constraints_enforced` are the hashes of the constraints that it
    has checked for every row it adds (or, where it adds a constraint, for every row of the table),
    as `tidegate_delta.constraints.row_constraints.hashes` makes them. `cdc_mode` says how readers
    of the change feed learn which rows changed: `explicit`, from the `cdc` actions; `implicit`,
    from the added and removed files, as no removed row is among the added ones; `none`, as no row
    changes. `identity_usage` are the values of identity columns in its files, `identity_leases`
    values that it wants to reserve for later files. Without files of its own, a lease has no
    application transactions: they come with the files.

    `verify_files` asks the committer to look, before it decides, whether each new file is there and
    has its `size`; the table property `tidegate.verifyFiles` asks for it for all proposals.

    Units: `created_ms`, `deadline_ms`, `files_since_ms` in ms since the Unix epoch.
    Spec: "Terminology: Commits"
    """

    proposal_id: HyphenatedUuid
    kind: ProposalKind = "commit"
    table: HyphenatedUuid
    table_root: TableRoot
    table_id: str | None = None
    name: str | None = None
    read_version: Annotated[int, Strict(), Field(ge=-1)]
    operation: Operation = Operation()
    actions: tuple[InstanceOf[Mapping[str, Any]], ...] = ()
    claim_check: ClaimCheck | None = None
    reads: ReadSet | None = None
    isolation: Isolation = "default"
    app_txn: AppTxn | None = None
    app_txns: Annotated[tuple[AppTxnAdvance, ...], Field(max_length=APP_TXNS_MAX)] = ()
    app_ids: Annotated[tuple[AppId, ...], Field(max_length=APP_TXNS_MAX)] = ()
    dv_intents: tuple[RowIntent, ...] = ()
    metadata_patch: MetadataPatch | None = None
    constraints_enforced: tuple[Sha256, ...] = ()
    cdc_mode: CdcMode | None = None
    identity_usage: tuple[IdentityUsage, ...] = ()
    identity_leases: tuple[IdentityDemand, ...] = ()
    row_mapping: tuple[RowMapping, ...] = ()
    created_ms: Whole | None = None
    files_since_ms: Whole | None = None
    deadline_ms: Whole | None = None
    engine_info: str | None = None
    user_metadata: str | None = None
    verify_files: Annotated[bool, Strict()] | None = None
    exact_version: Count | None = None
    txn_id: Annotated[str, StringConstraints(min_length=1, max_length=255)] | None = None
    cancels: HyphenatedUuid | None = None
    reason: Annotated[str, StringConstraints(min_length=1, max_length=1_000)] | None = None
    to_partition: Count | None = None

    @model_validator(mode="after")
    def _kind_has_its_fields(self) -> "Proposal":
        if self.kind == "cancel" and self.cancels is None:
            raise ValueError("a cancel names the proposal it gives up in `cancels`")
        if self.kind == "halt" and self.reason is None:
            raise ValueError("a halt says why, in `reason`")
        if self.kind == "move" and self.to_partition is None:
            raise ValueError("a move names the topic partition, in `to_partition`")
        if self.kind == "app_versions" and not self.app_ids:
            raise ValueError("a question for `app_versions` names the applications in `app_ids`")
        if self.kind == "verbatim" and (self.exact_version is None or self.claim_check is None):
            raise ValueError("a verbatim proposal has `exact_version` and `claim_check`")
        if self.verify_files and self.kind != "commit":
            raise ValueError("`verify_files` is for proposals of the kind `commit`")
        if self.exact_version is not None and self.exact_version <= self.read_version:
            raise ValueError("`exact_version` comes after `read_version`")
        if (self.actions or self.dv_intents) and self.claim_check is not None:
            raise ValueError("give `actions` and `dv_intents`, or a `claim_check`, not both")
        if self.metadata_patch is not None and (
            self.actions or self.dv_intents or self.row_mapping or self.claim_check is not None
        ):
            raise ValueError("a `metadata_patch` comes without actions, intents or a claim check")
        if self.row_mapping and self.dv_intents:
            raise ValueError("rows that move (`row_mapping`) come without rows that leave")
        if self.identity_leases and self._has_only_transactions:
            raise ValueError(
                "`identity_leases` without rows come without `app_txn`, `app_txns` and `txn` "
                "actions: send those with the rows, which would else count as written already"
            )
        return self

    @property
    def _has_only_transactions(self) -> bool:
        """Whether application transactions are all that it would change."""
        if self.claim_check or self.dv_intents or self.metadata_patch or self.row_mapping:
            return False
        has_others = any("txn" not in action for action in self.actions)
        return not has_others and bool(self.actions or self.app_txn or self.app_txns)

    @property
    def claim(self) -> ClaimCheck:
        """The claim check of a proposal that has one."""
        assert self.claim_check is not None, "only who makes a claim is asked for it"
        return self.claim_check

    @property
    def is_create(self) -> bool:
        """Whether the proposal creates a table."""
        is_version_0 = self.kind == "verbatim" and self.exact_version == 0
        return self.read_version == -1 and (self.kind == "commit" or is_version_0)
