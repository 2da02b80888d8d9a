"""A proposal: a proposed commit, with what its writer read. The record of the topic `proposals`."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import Field, JsonValue, NonNegativeInt, StringConstraints, model_validator

from tidegate.pipeline.identity_values import LONG_MAX, IdentityDemand, IdentityUsage
from tidegate.pipeline.message import Message
from tidegate.pipeline.metadata_patch import MetadataPatch
from tidegate.pipeline.read_set import ReadSet
from tidegate.pipeline.row_intent import RowIntent
from tidegate.pipeline.row_mapping import RowMapping

Kind = Literal["commit", "cancel", "register", "halt", "reopen", "drop", "verbatim"]
CdcMode = Literal["explicit", "implicit", "none"]
Isolation = Literal["default", "Serializable", "WriteSerializable", "SnapshotIsolation"]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
TableRoot = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9+.-]*://.*[^/]$")]


class Operation(Message):
    """What the commit calls itself in `commitInfo`: Delta's names (`WRITE`, `DELETE`, ...)."""

    name: str = "WRITE"
    parameters: Mapping[str, JsonValue] = {}
    metrics: Mapping[str, JsonValue] = {}


class ClaimCheck(Message):
    """Where the actions and row intents lie when they are too large for a record.

    Shape: newline-delimited JSON, one action a line, or one row intent under `dv_intent`. `path` is
    relative to the table root.
    Units: `size` in bytes.
    """

    path: str
    size: NonNegativeInt
    sha256: Sha256


class AppTxn(Message):
    """The application's own version that this proposal brings: it is committed at most once."""

    app_id: Annotated[str, StringConstraints(min_length=1)]
    version: Annotated[int, Field(ge=0, le=LONG_MAX)]


class Proposal(Message):
    """A proposed commit.

    A proposal's identity is (`proposal_id`, SHA-256 of the record's value): a repeat is the same
    bytes. `table` is the registry's UUID; `table_id` is `metaData.id` at `read_version`, null in a
    create, whose `read_version` is -1. `actions` are rows of the log in canonical Delta JSON; the
    committer adds commitInfo and all that is assigned late. `dv_intents` are the rows that leave
    files which stay: each file stands there once, and not among the actions. A `metadata_patch`
    comes alone, without actions or intents. A `row_mapping` tells of a compaction where the rows of
    the files that it removes lie in those that it adds. A verbatim one brings
    the bytes of version `exact_version`, ready, in the file of its claim check; `read_version` is
    where its work began, `txn_id` the commitInfo's, the same in each of its attempts. `reason` is
    an operator's, for a halt by hand: each writer who is refused reads it.

    What only the writer can vouch for: `constraints_enforced` are the hashes of the expressions
    that hold for every row it adds (or, where it adds a constraint, for every row there is), as
    `delta.features.constraints.hashes` makes them. `cdc_mode` says how readers of the change feed
    learn of the rows: `explicit`, from the `cdc` actions; `implicit`, from the files that join and
    leave, since no row that leaves comes back; `none`, for no row changes. `identity_usage` are the
    values of identity columns in its files, `identity_leases` those that it wants for later files.

    Units: `created_ms`, `deadline_ms`, `files_since_ms` in ms since the Unix epoch.
    Spec: "Terminology: Commits"
    """

    proposal_id: UUID
    kind: Kind = "commit"
    table: UUID
    table_root: TableRoot
    table_id: str | None = None
    name: str | None = None
    read_version: Annotated[int, Field(ge=-1)]
    operation: Operation = Operation()
    actions: tuple[Mapping[str, Any], ...] = ()
    claim_check: ClaimCheck | None = None
    reads: ReadSet | None = None
    isolation: Isolation = "default"
    app_txn: AppTxn | None = None
    dv_intents: tuple[RowIntent, ...] = ()
    metadata_patch: MetadataPatch | None = None
    constraints_enforced: tuple[Sha256, ...] = ()
    cdc_mode: CdcMode | None = None
    identity_usage: tuple[IdentityUsage, ...] = ()
    identity_leases: tuple[IdentityDemand, ...] = ()
    row_mapping: tuple[RowMapping, ...] = ()
    created_ms: int | None = None
    files_since_ms: int | None = None
    deadline_ms: int | None = None
    engine_info: str | None = None
    user_metadata: str | None = None
    exact_version: NonNegativeInt | None = None
    txn_id: Annotated[str, StringConstraints(min_length=1, max_length=255)] | None = None
    cancels: UUID | None = None
    reason: Annotated[str, StringConstraints(min_length=1, max_length=1_000)] | None = None

    @model_validator(mode="after")
    def _kind_has_its_fields(self) -> "Proposal":
        if self.kind == "cancel" and self.cancels is None:
            raise ValueError("a cancel names the proposal it gives up in `cancels`")
        if self.kind == "halt" and self.reason is None:
            raise ValueError("a halt says why, in `reason`")
        if self.kind == "verbatim" and (self.exact_version is None or self.claim_check is None):
            raise ValueError("a verbatim proposal has `exact_version` and `claim_check`")
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
        """The claim check, of a proposal that has one."""
        assert self.claim_check is not None, "only who makes a claim is asked for it"
        return self.claim_check

    @property
    def is_create(self) -> bool:
        """Whether the proposal brings version 0 of a table."""
        return self.kind == "commit" and self.read_version == -1
