"""A metadata patch: what a writer wants changed of a table, not what the table becomes.

So several writers may each change columns and properties of their own: the committer applies the
patch to the table as it is when the patch is committed, and gives out ids and physical names then.
"""

import hashlib
from typing import Annotated, Any, Literal

import orjson
from pydantic import Field, JsonValue, StringConstraints

from tidegate.delta.actions import Metadata
from tidegate.pipeline.message import Message

Name = Annotated[str, StringConstraints(min_length=1)]
Path = Annotated[tuple[str, ...], Field(min_length=1)]
"""The names on the way to a field; `element`, `key` and `value` inside arrays and maps."""


class AddColumn(Message):
    """A new column, or a new field of the struct at `parent`; it may be null.

    `column` is a field as a `schemaString` spells it. It stands first, after the field `after`, or,
    by neither, last.
    """

    op: Literal["add_column"]
    column: dict[str, JsonValue]
    parent: tuple[str, ...] = ()
    first: bool = False
    after: Name | None = None


class DropColumn(Message):
    """A column goes, on a table with column mapping."""

    op: Literal["drop_column"]
    path: Path


class RenameColumn(Message):
    """A column gets another name, on a table with column mapping."""

    op: Literal["rename_column"]
    path: Path
    name: Name


class ChangeType(Message):
    """A column, an element, key or value gets a wider type, as a `schemaString` spells it."""

    op: Literal["change_type"]
    path: Path
    type: JsonValue


class AllowNulls(Message):
    """A column may be null from now on."""

    op: Literal["allow_nulls"]
    path: Path


class CommentOn(Message):
    """A column gets a comment, or, by null, has none any more."""

    op: Literal["comment_on"]
    path: Path
    comment: str | None = None


class SetDefault(Message):
    """A column gets a default, or, by null, has none any more."""

    op: Literal["set_default"]
    column: Name
    expression: str | None = None


class SetProperty(Message):
    """A property gets a value. `delta.constraints.NAME` adds a CHECK constraint,
    `delta.feature.NAME` a feature."""

    op: Literal["set_property"]
    key: Name
    value: str


class UnsetProperty(Message):
    """A property goes; where there is none, nothing happens."""

    op: Literal["unset_property"]
    key: Name


Change = Annotated[
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
    """Changes of a table's metadata, one after the other.

    `base` is the `metadata_hash` of what the writer read at `read_version`, where it says so.
    """

    changes: Annotated[tuple[Change, ...], Field(min_length=1, max_length=100)]
    base: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")] | None = None


def metadata_hash(metadata: Metadata) -> str:
    """Return the SHA-256 of what a patch may change of a table's metadata.

    Shape: of the UTF-8 JSON object of `schemaString`, `partitionColumns` and `configuration`, as
    the log holds them, its keys sorted, without spaces.
    """
    told: dict[str, Any] = {
        "schemaString": metadata.schema_string,
        "partitionColumns": list(metadata.partition_columns),
        "configuration": dict(metadata.configuration),
    }
    return hashlib.sha256(orjson.dumps(told, option=orjson.OPT_SORT_KEYS)).hexdigest()
