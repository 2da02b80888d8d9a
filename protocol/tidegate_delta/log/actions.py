"""The actions of a commit: one frozen model per action; a row of the log <-> an action.

Objects serve where a commit is read or written. A table's whole file set never goes through here:
that is `delta.files.columns` (one Python object per live file would not fit).
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, NamedTuple, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    Strict,
    StringConstraints,
    ValidationError,
)
from pydantic.alias_generators import to_camel

from tidegate_delta.errors import BrokenLog
from tidegate_delta.log.json_lines import settled
from tidegate_delta.value_limits import KEPT_DEPTH_MAX, LONG_MAX, MOMENT_MAX, is_deeper, is_moment


def _kept(value: Any) -> Any:
    """Return a value that nothing depends on, or None where it is nested too deeply to be kept."""
    return None if is_deeper(value, KEPT_DEPTH_MAX) else value


def _within(value: Any) -> Any:
    """Return a time as near as it can be told where its writer dates it past all that we tell."""
    if is_moment(value):
        return value
    return MOMENT_MAX if value > 0 else -MOMENT_MAX


NonEmpty = Annotated[str, StringConstraints(min_length=1)]
Long = Annotated[int, Field(ge=-LONG_MAX - 1, le=LONG_MAX)]
Integer = Annotated[int, Field(ge=-(2**31), lt=2**31)]
StrictLong = Annotated[Long, Strict()]
StrictInteger = Annotated[Integer, Strict()]
Moment = Annotated[int, Field(ge=-MOMENT_MAX, le=MOMENT_MAX), BeforeValidator(_within)]
"""Milliseconds since the Unix epoch; what lies past MOMENT_MAX is read as that.

Spec: "In-Commit Timestamps"
"""
Kept = Annotated[JsonValue, BeforeValidator(_kept)]
"""Any JSON on which nothing depends: null where it is nested deeper than KEPT_DEPTH_MAX."""


class LogicalFile(NamedTuple):
    """The key of a file in a snapshot: its path as the log spells it, and its deletion vector.

    Spec: "Add File and Remove File"
    """

    path: str
    dv_id: str | None = None


class Action(BaseModel):
    """One row of a commit. Fields we do not know are kept, so a commit survives a round trip.

    Spec: "Actions"
    """

    model_config = ConfigDict(
        frozen=True,
        extra="allow",
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        hide_input_in_errors=True,
    )
    wire_name: ClassVar[str] = ""
    __pydantic_extra__: dict[str, Annotated[Any, BeforeValidator(_kept)]]

    def to_row(self) -> dict[str, JsonValue]:
        """Return the row as the log spells it: camelCase, and absent rather than null."""
        return {self.wire_name: self.model_dump(mode="json", by_alias=True, exclude_none=True)}

    def with_(self, **fields: Any) -> Self:
        """Return a copy with some fields changed, by their Python names."""
        return self.model_copy(update=fields)


class DeletionVector(Action):
    """Where the deleted rows of a data file are written.

    Units: `size_in_bytes` and `offset` in bytes; `cardinality` in rows.
    Spec: "Deletion Vector Descriptor Schema"
    """

    storage_type: NonEmpty
    path_or_inline_dv: str
    offset: Integer | None = None
    size_in_bytes: Integer
    cardinality: Long

    @property
    def unique_id(self) -> str:
        """The vector's part of a logical file's key.

        Spec: "Derived Fields"
        """
        tail = "" if self.offset is None else f"@{self.offset}"
        return f"{self.storage_type}{self.path_or_inline_dv}{tail}"


class FileAction(Action):
    """What `add` and `remove` share: a path, perhaps with a deletion vector.

    Spec: "Add File and Remove File"
    """

    path: NonEmpty
    data_change: bool
    deletion_vector: DeletionVector | None = None
    base_row_id: Long | None = None
    default_row_commit_version: Long | None = None
    tags: Mapping[str, str | None] | None = None

    @property
    def key(self) -> LogicalFile:
        """The key of this file in a snapshot."""
        dv = self.deletion_vector
        return LogicalFile(self.path, dv.unique_id if dv else None)


class Add(FileAction):
    """A data file joins the table.

    Units: `size` in bytes; `modification_time` in ms since the Unix epoch.
    Spec: "Add File and Remove File"
    """

    wire_name: ClassVar[str] = "add"
    partition_values: Mapping[str, str | None]
    size: StrictLong
    modification_time: StrictLong
    stats: str | None = None
    clustering_provider: str | None = None


class Remove(FileAction):
    """A data file leaves the table; the row stays as a tombstone until it expires.

    Units: `size` in bytes; `deletion_timestamp` in ms since the Unix epoch.
    Spec: "Add File and Remove File"
    """

    wire_name: ClassVar[str] = "remove"
    deletion_timestamp: StrictLong | None = None
    extended_file_metadata: bool | None = None
    partition_values: Mapping[str, str | None] | None = None
    size: StrictLong | None = None
    stats: str | None = None


class Cdc(Action):
    """A file with the row-level changes of its version.

    Spec: "Add CDC File"
    """

    wire_name: ClassVar[str] = "cdc"
    path: NonEmpty
    partition_values: Mapping[str, str | None]
    size: StrictLong
    data_change: bool = False
    tags: Mapping[str, str | None] | None = None


class Format(Action):
    """How the data files are encoded: always parquet.

    Spec: "Format Specification"
    """

    provider: str = "parquet"
    options: Mapping[str, str] = {}


class Metadata(Action):
    """Schema, partitioning and properties of the table.

    Spec: "Change Metadata"
    """

    wire_name: ClassVar[str] = "metaData"
    id: NonEmpty
    name: str | None = None
    description: str | None = None
    format: Format = Format()
    schema_string: str
    partition_columns: tuple[str, ...] = ()
    configuration: Mapping[str, str] = {}
    created_time: Long | None = None


class Protocol(Action):
    """Which versions and features a reader or writer must know.

    Spec: "Protocol Evolution"
    """

    wire_name: ClassVar[str] = "protocol"
    min_reader_version: StrictInteger
    min_writer_version: StrictInteger
    reader_features: tuple[str, ...] | None = None
    writer_features: tuple[str, ...] | None = None


class Txn(Action):
    """The progress of an application: the last of its own versions that is in the table.

    Units: `last_updated` in ms since the Unix epoch.
    Spec: "Transaction Identifiers"
    """

    wire_name: ClassVar[str] = "txn"
    app_id: str
    version: StrictLong
    last_updated: Long | None = None


class DomainMetadata(Action):
    """A named string of configuration.

    Spec: "Domain Metadata"
    """

    wire_name: ClassVar[str] = "domainMetadata"
    domain: str
    configuration: str
    removed: bool = False


class CommitInfo(Action):
    """Where a commit comes from. Readers must not rely on it, but for the in-commit timestamp.

    Units: `timestamp` and `in_commit_timestamp` in ms since the Unix epoch.
    Spec: "Commit Provenance Information"
    """

    wire_name: ClassVar[str] = "commitInfo"
    timestamp: Moment | None = None
    in_commit_timestamp: Moment | None = None
    operation: str | None = None
    operation_parameters: Mapping[str, Kept] | None = None
    operation_metrics: Mapping[str, Kept] | None = None
    isolation_level: str | None = None
    is_blind_append: bool | None = None
    read_version: Long | None = None
    engine_info: str | None = None
    txn_id: str | None = None
    user_metadata: str | None = None
    tags: Mapping[str, Kept] | None = None
    tidegate: Mapping[str, Kept] | None = None


class CheckpointMetadata(Action):
    """That a checkpoint is of the second kind, and of which version; never in a commit.

    Spec: "Checkpoint Metadata"
    """

    wire_name: ClassVar[str] = "checkpointMetadata"
    version: StrictLong
    tags: Mapping[str, str | None] | None = None


class Sidecar(Action):
    """A file that holds some of a checkpoint's file actions; never in a commit.

    Units: `size_in_bytes` in bytes; `modification_time` in ms since the Unix epoch.
    Spec: "Sidecar File Information"
    """

    wire_name: ClassVar[str] = "sidecar"
    path: NonEmpty
    size_in_bytes: StrictLong
    modification_time: StrictLong
    tags: Mapping[str, str | None] | None = None


class Unknown(Action):
    """A row that this release does not know, or (no name) one that names nothing known: ignored.

    Spec: "Protocol Evolution"
    """

    name: str
    body: JsonValue

    def to_row(self) -> dict[str, JsonValue]:
        """Return the row as it was read."""
        return {self.name: self.body} if self.name else {}


KINDS: dict[str, type[Action]] = {
    kind.wire_name: kind
    for kind in (CommitInfo, Protocol, Metadata, Txn, DomainMetadata, Remove, Add, Cdc)
}


def from_row(row: Mapping[str, Any]) -> Action:
    """Return the action that a row of the log spells.

    What commitInfo says is its writer's own affair: a field that is not as we know it is left out.
    Raises: BrokenLog (`CorruptCommit`), which names the first field of another action that is not.
    Spec: "Actions"
    """
    named: list[tuple[str, Any]] = [(name, one) for name, one in row.items() if one is not None]
    if len(named) > 1:
        # What a later protocol may put beside an action is ignored, as a row of its own would be.
        named = [(name, body) for name, body in named if name in KINDS]
    if len(named) > 1:
        raise BrokenLog(
            f"a row of the log must hold one action, not {sorted(row)}",
            error_class="CorruptCommit",
        )
    name, body = (named or [("", None)])[0]
    kind = KINDS.get(name)
    if kind is None or (kind is CommitInfo and not isinstance(body, dict)):
        is_kept = _kept(body) is not None
        return Unknown(name=name if is_kept else "", body=body if is_kept else None)
    try:
        return kind.model_validate(settled(name, body))
    except ValidationError as error:
        errors = error.errors(include_url=False, include_context=False, include_input=False)
        if kind is CommitInfo:
            wrong = {one["loc"][0] for one in errors}
            told = {key: body[key] for key in body if wrong.isdisjoint((key, to_camel(key)))}
            return CommitInfo.model_validate(told)
        first = errors[0]
        where = ".".join(map(str, first["loc"])) or "all of it"
        raise BrokenLog(
            f"action {name!r} is malformed: {where}: {first['msg']}", error_class="CorruptCommit"
        ) from error


def read_row(where: str, row: Mapping[str, Any]) -> Action:
    """Return the action that a row of a file of the log spells; `where` names the file.

    Raises: BrokenLog (`CorruptCommit`), as `from_row`.
    Spec: "Actions"
    """
    try:
        return from_row(row)
    except BrokenLog as error:
        raise BrokenLog(
            f"{where} holds a row that can't be read: {error}",
            error_class=error.error_class,
            remedy="restore it from a backup, or the table to an earlier version",
        ) from error


def check_single(where: str, found: Sequence[Action]) -> None:
    """Refuse several actions in one file of which the protocol allows one.

    Raises: BrokenLog (`CorruptCommit`).
    Spec: "Action Reconciliation"
    """
    if len(found) > 1:
        raise BrokenLog(
            f"{where} holds {len(found)} {found[0].wire_name} actions, and not which is valid",
            error_class="CorruptCommit",
            remedy="restore it from a backup, or the table to an earlier version",
        )
