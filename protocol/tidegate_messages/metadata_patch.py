"""A metadata patch: the changes that a writer wants, instead of the resulting metadata.

With patches, several writers can change different columns and properties at once. The committer
applies a patch to the table as it is when the patch is committed, and assigns column ids and
physical names.
"""

import hashlib
from typing import Annotated, Any, Literal

import orjson
from pydantic import Field, JsonValue, StringConstraints

from tidegate_delta.log.actions import Metadata
from tidegate_messages.message import Message
from tidegate_messages.strict_types import Flag

Name = Annotated[str, StringConstraints(min_length=1)]
FieldPath = Annotated[tuple[str, ...], Field(min_length=1)]
"""The names on the way to a field; `element`, `key` and `value` inside arrays and maps."""


class AddColumn(Message):
    """Add a column, or a field to the struct at `parent`; it must be nullable.

    `column` is a field in the JSON form of `schemaString`. It is placed `first`, or after the field
    named `after`, or else last.
    """

    op: Literal["add_column"]
    column: dict[str, JsonValue]
    parent: tuple[str, ...] = ()
    first: Flag = False
    after: Name | None = None


class DropColumn(Message):
    """Drop a column, on a table with column mapping."""

    op: Literal["drop_column"]
    path: FieldPath


class RenameColumn(Message):
    """Rename a column, on a table with column mapping."""

    op: Literal["rename_column"]
    path: FieldPath
    name: Name


class ChangeType(Message):
    """Widen the type of a column, element, key or value; `type` is as in `schemaString`."""

    op: Literal["change_type"]
    path: FieldPath
    type: JsonValue


class AllowNulls(Message):
    """Let a column be null."""

    op: Literal["allow_nulls"]
    path: FieldPath


class CommentOn(Message):
    """Set the comment of a column, or remove it with null."""

    op: Literal["comment_on"]
    path: FieldPath
    comment: str | None = None


class SetDefault(Message):
    """Set the default of a column, or remove it with null."""

    op: Literal["set_default"]
    column: Name
    expression: str | None = None


class SetProperty(Message):
    """Set a table property. `delta.constraints.NAME` adds a CHECK constraint, `delta.feature.NAME`
    a feature.
    """

    op: Literal["set_property"]
    key: Name
    value: str


class UnsetProperty(Message):
    """Remove a table property, if there is one."""

    op: Literal["unset_property"]
    key: Name


PatchChange = Annotated[
    AddColumn
    | DropColumn
    | RenameColumn
    | ChangeType
    | AllowNulls
    | CommentOn
    | SetDefault
    | SetProperty
    | UnsetProperty,
    Field(discriminator="op"),
]


class MetadataPatch(Message):
    """Changes to a table's metadata, applied one after the other.

    `base`, optional, is the `metadata_hash` of the metadata that the writer read.
    """

    changes: Annotated[tuple[PatchChange, ...], Field(min_length=1, max_length=100)]
    base: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")] | None = None


def metadata_hash(metadata: Metadata) -> str:
    """Return the SHA-256 of the parts of a table's metadata that a patch may change.

    Shape: of the UTF-8 JSON object of `schemaString`, `partitionColumns` and `configuration`, as
    the log holds them, its keys sorted, without spaces.
    """
    patchable: dict[str, Any] = {
        "schemaString": metadata.schema_string,
        "partitionColumns": list(metadata.partition_columns),
        "configuration": dict(metadata.configuration),
    }
    return hashlib.sha256(orjson.dumps(patchable, option=orjson.OPT_SORT_KEYS)).hexdigest()
