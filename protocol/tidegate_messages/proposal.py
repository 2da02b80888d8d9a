"""A proposal: a proposed commit and what its writer read. The record of the topic `proposals`."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import Field, InstanceOf, Strict, StringConstraints, model_validator

from tidegate_messages.identity_values import LONG_MAX, IdentityDemand, IdentityUsage
from tidegate_messages.message import Message
from tidegate_messages.metadata_patch import MetadataPatch
from tidegate_messages.read_set import ReadSet
from tidegate_messages.row_intent import RowIntent
from tidegate_messages.row_mapping import RowMapping
from tidegate_messages.strict_types import Count, HyphenatedUuid, JsonObject, Whole

ProposalKind = Literal[
    "commit", "cancel", "app_versions", "register", "halt", "reopen", "drop", "verbatim"
]
OPERATOR_REQUESTS: Final = frozenset({"halt", "reopen", "drop"})
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
    commitInfo's, the same in each attempt. `reason` is for the kind `halt` and is passed on to
    writers.

    What only the writer can know: `constraints_enforced` are the hashes of the constraints that it
    has checked for every row it adds (or, where it adds a constraint, for every row of the table),
    as `tidegate_delta.constraints.row_constraints.hashes` makes them. `cdc_mode` says how readers
    of the change feed learn which rows changed: `explicit`, from the `cdc` actions; `implicit`,
    from the added and removed files, as no removed row is among the added ones; `none`, as no row
    changes. `identity_usage` are the values of identity columns in its files, `identity_leases`
    values that it wants to reserve for later files.

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

    @model_validator(mode="after")
    def _kind_has_its_fields(self) -> "Proposal":
        if self.kind == "cancel" and self.cancels is None:
            raise ValueError("a cancel names the proposal it gives up in `cancels`")
        if self.kind == "halt" and self.reason is None:
            raise ValueError("a halt says why, in `reason`")
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
        return self

    @property
    def claim(self) -> ClaimCheck:
        """The claim check of a proposal that has one."""
        assert self.claim_check is not None, "only who makes a claim is asked for it"
        return self.claim_check

    @property
    def is_create(self) -> bool:
        """Whether the proposal creates a table."""
        return self.kind == "commit" and self.read_version == -1
