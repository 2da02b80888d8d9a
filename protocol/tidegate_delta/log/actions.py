"""The actions of a commit: one frozen model for each, converted from and to JSON rows.

These objects serve for reading and writing single commits. A table's whole file set uses the
columns of `snapshots.file_action_columns`: one Python object per live file would not fit.

Spec: "Add File and Remove File"
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
from tidegate_delta.log.json_lines import with_defaults
from tidegate_delta.value_limits import (
    KEPT_DEPTH_MAX,
    LONG_MAX,
    TIMESTAMP_MAX,
    is_deeper,
    is_moment,
)


def _kept(value: Any) -> Any:
    """Return a value that nothing depends on, or None where it is nested too deeply."""
    return None if is_deeper(value, KEPT_DEPTH_MAX) else value


def _within(value: Any) -> Any:
    """Return a time clamped to the range that we represent."""
    if is_moment(value):
        return value
    return TIMESTAMP_MAX if value > 0 else -TIMESTAMP_MAX


NonEmpty = Annotated[str, StringConstraints(min_length=1)]
Long = Annotated[int, Field(ge=-LONG_MAX - 1, le=LONG_MAX)]
Integer = Annotated[int, Field(ge=-(2**31), lt=2**31)]
StrictLong = Annotated[Long, Strict()]
StrictInteger = Annotated[Integer, Strict()]
Timestamp = Annotated[int, Field(ge=-TIMESTAMP_MAX, le=TIMESTAMP_MAX), BeforeValidator(_within)]
"""Milliseconds since the Unix epoch, clamped to TIMESTAMP_MAX.

Spec: "In-Commit Timestamps"
"""
Kept = Annotated[JsonValue, BeforeValidator(_kept)]
"""Any JSON value that nothing depends on: None where it is nested deeper than KEPT_DEPTH_MAX."""


class LogicalFile(NamedTuple):
    """The key of a file in a snapshot: its path as written in the log, and its deletion vector."""

    path: str
    dv_id: str | None = None


class Action(BaseModel):
    """One row of a commit. Unknown fields are kept, so a commit survives a round trip.

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
        """Return the row as the log writes it: camelCase, with null fields left out."""
        return {self.wire_name: self.model_dump(mode="json", by_alias=True, exclude_none=True)}

    def __eq__(self, other: object) -> bool:
        """Return whether both say the same, whichever models read them: limits are no content."""
        return (
            isinstance(other, Action)
            and self.wire_name == other.wire_name
            and vars(self) == vars(other)
            and self.model_extra == other.model_extra
        )

    def with_(self, **fields: Any) -> Self:
        """Return a copy with some fields changed, by their Python names."""
        return self.model_copy(update=fields)


class DeletionVector(Action):
    """The location of a deletion vector: which rows of a data file are deleted.

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
    """The common part of `add` and `remove`: a path and an optional deletion vector."""

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
    """A data file is added to the table.

    Units: `size` in bytes; `modification_time` in ms since the Unix epoch.
    """

    wire_name: ClassVar[str] = "add"
    partition_values: Mapping[str, str | None]
    size: StrictLong
    modification_time: StrictLong
    stats: str | None = None
    clustering_provider: str | None = None


class Remove(FileAction):
    """A data file is removed from the table; the row stays as a tombstone until it expires.

    Units: `size` in bytes; `deletion_timestamp` in ms since the Unix epoch.
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
    """The versions and features that a reader or writer must support.

    Spec: "Protocol Evolution"
    """

    wire_name: ClassVar[str] = "protocol"
    min_reader_version: StrictInteger
    min_writer_version: StrictInteger
    reader_features: tuple[str, ...] | None = None
    writer_features: tuple[str, ...] | None = None


class Txn(Action):
    """The progress of an application: the last of its own versions that was committed to the table.

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
    """The provenance of a commit. Readers must not rely on it, except for the in-commit timestamp.

    Units: `timestamp` and `in_commit_timestamp` in ms since the Unix epoch.
    Spec: "Commit Provenance Information"
    """

    wire_name: ClassVar[str] = "commitInfo"
    timestamp: Timestamp | None = None
    in_commit_timestamp: Timestamp | None = None
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
    """Marks a V2 checkpoint and states its version; never in a commit.

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
    """A row that this release does not know, or a row without an action (no name). It is ignored.

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
    """Return the action in a row of the log.

    A malformed field of commitInfo is left out: its content is up to its writer.
    Raises: BrokenLog (`CorruptCommit`), naming the first malformed field of any other action.
    Spec: "Actions"
    """
    named: list[tuple[str, Any]] = [(name, body) for name, body in row.items() if body is not None]
    if len(named) > 1:
        # A later protocol may put more keys beside an action. They are ignored, as rows of their
        # own would be.
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
        return kind.model_validate(with_defaults(name, body))
    except ValidationError as error:
        errors = error.errors(include_url=False, include_context=False, include_input=False)
        if kind is CommitInfo:
            malformed = {error["loc"][0] for error in errors}
            readable = {
                key: body[key] for key in body if malformed.isdisjoint((key, to_camel(key)))
            }
            return CommitInfo.model_validate(readable)
        first = errors[0]
        location = ".".join(map(str, first["loc"])) or "all of it"
        raise BrokenLog(
            f"action {name!r} is malformed: {location}: {first['msg']}", error_class="CorruptCommit"
        ) from error


def read_row(file_name: str, row: Mapping[str, Any]) -> Action:
    """Return the action in a row of the log file `file_name`.

    Raises: BrokenLog (`CorruptCommit`), as `from_row`.
    Spec: "Actions"
    """
    try:
        return from_row(row)
    except BrokenLog as error:
        raise BrokenLog(
            f"{file_name} holds a row that can't be read: {error}",
            error_class=error.error_class,
            remedy="restore it from a backup, or the table to an earlier version",
        ) from error


def check_single(file_name: str, actions: Sequence[Action]) -> None:
    """Refuse a file with several actions of a kind of which the protocol allows one.

    Raises: BrokenLog (`CorruptCommit`).
    Spec: "Action Reconciliation"
    """
    if len(actions) > 1:
        raise BrokenLog(
            f"{file_name} holds {len(actions)} {actions[0].wire_name} actions; the "
            "protocol allows one",
            error_class="CorruptCommit",
            remedy="restore it from a backup, or the table to an earlier version",
        )
