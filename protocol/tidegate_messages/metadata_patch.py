"""A metadata patch: the changes that a writer wants, instead of the resulting metadata.

With patches, several writers can change different columns and properties at once. The committer
applies a patch to the table as it is when the patch is committed, and assigns column ids and
physical names.

`applied_patch` is the table definition after a patch: producers check a patch by it, and the
committer applies it.
"""

import hashlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Annotated, Any, Final, Literal
from uuid import UUID, uuid5

import orjson
from pydantic import Field, JsonValue, StringConstraints

from tidegate_delta.constraints import column_defaults, row_constraints
from tidegate_delta.definitions.definition import Definition, refuse
from tidegate_delta.definitions.feature_directives import canonical_keys
from tidegate_delta.definitions.resolve_definition import resolve_definition
from tidegate_delta.errors import InvalidRequest
from tidegate_delta.log.actions import Metadata
from tidegate_delta.properties import table_properties
from tidegate_delta.schema.column_mapping_assignment import map_columns, physical_names
from tidegate_delta.schema.field_paths import FieldPath
from tidegate_delta.schema.types import StructField, parse_schema
from tidegate_delta.schema_evolution import alter_columns
from tidegate_messages.message import Flag, Message

Name = Annotated[str, StringConstraints(min_length=1)]
ColumnPath = Annotated[tuple[str, ...], Field(min_length=1)]
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
    path: ColumnPath


class RenameColumn(Message):
    """Rename a column, on a table with column mapping."""

    op: Literal["rename_column"]
    path: ColumnPath
    name: Name


class ChangeType(Message):
    """Widen the type of a column, element, key or value; `type` is as in `schemaString`."""

    op: Literal["change_type"]
    path: ColumnPath
    type: JsonValue


class AllowNulls(Message):
    """Let a column be null."""

    op: Literal["allow_nulls"]
    path: ColumnPath


class CommentOn(Message):
    """Set the comment of a column, or remove it with null."""

    op: Literal["comment_on"]
    path: ColumnPath
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


_LATE: Final = frozenset(
    prop.key
    for prop in (
        table_properties.max_column_id,
        table_properties.checkpoint_protection_version,
        table_properties.ict_enablement_version,
        table_properties.ict_enablement_timestamp_ms,
    )
)
"""Properties that no patch may set: they are assigned when an entry is written."""


def applied_patch(
    patch: MetadataPatch,
    table: Definition,
    proposal: UUID,
    clustered_by: Collection[FieldPath] = (),
) -> Definition:
    """Return the definition after a patch. New columns get ids, and names derived from the
    proposal's id.

    `clustered_by` are the physical paths of columns that may not be dropped.
    Law: equal inputs give equal results; no id of a column is given twice
    Raises: InvalidRequest for a change that the table does not allow; what parsing raises.
    """
    patched = PatchedTable(table, table.metadata, _names(proposal), clustered_by)
    for change in patch.changes:
        patched = patched.after(change)
    return patched.resolved().base


def _names(proposal: UUID) -> Iterator[str]:
    return physical_names(uuid5(proposal, f"column {number}") for number in count())


@dataclass(frozen=True)
class PatchedTable:
    """A table during a patch: the definition last resolved, and the metadata since then."""

    base: Definition
    metadata: Metadata
    names: Iterator[str] = field(default_factory=lambda: _names(UUID(int=0)))
    clustered_by: Collection[FieldPath] = ()
    is_resolved: bool = True

    def after(self, change: PatchChange) -> "PatchedTable":
        """Return the table after a change.

        Column changes depend on the features that earlier property changes have listed, so the
        definition is resolved between the two. That costs time in proportion to the number of
        columns.
        """
        is_property = isinstance(change, SetProperty | UnsetProperty)
        if not (is_property or self.is_resolved):
            return self.resolved().after(change)
        if isinstance(change, DropColumn):
            altered = alter_columns.drop_column(self.metadata, change.path, self.clustered_by)
        else:
            altered = _altered(change, Definition(self.metadata, self.base.protocol))
        return replace(self, metadata=altered, is_resolved=not is_property)

    def resolved(self) -> "PatchedTable":
        """Return the table with its columns mapped and with the features that it requests."""
        resolved = resolve_definition(
            self.base, map_columns(self.base.metadata, self.metadata, self.names)
        )
        refuse(resolved.flaws, "that is to be patched")
        base = resolved.definition
        return replace(self, base=base, metadata=base.metadata, is_resolved=True)


def _altered(change: PatchChange, before: Definition) -> Metadata:
    metadata, protocol = before
    match change:
        case AddColumn():
            position = alter_columns.FieldPosition(change.first, change.after)
            return alter_columns.add_column(
                metadata, _column(change.column), change.parent, position
            )
        case RenameColumn():
            return alter_columns.rename_column(metadata, change.path, change.name)
        case ChangeType():
            kind = _column({"name": "a", "type": change.type, "nullable": True, "metadata": {}})
            return alter_columns.change_type(metadata, protocol, change.path, kind.kind)
        case AllowNulls():
            return alter_columns.allow_nulls(metadata, change.path)
        case CommentOn():
            return alter_columns.comment_on(metadata, change.path, change.comment)
        case SetDefault():
            return column_defaults.set_default(metadata, protocol, change.column, change.expression)
        case SetProperty():
            return _with_property(metadata, change)
        case UnsetProperty():
            return _without_property(metadata, change)
        case DropColumn():
            raise AssertionError("DropColumn is applied by `PatchedTable.after`")


def _with_property(metadata: Metadata, change: SetProperty) -> Metadata:
    key = _settable(change.key)
    if key.lower().startswith(table_properties.CONSTRAINT_PREFIX):
        name = key[len(table_properties.CONSTRAINT_PREFIX) :]
        return row_constraints.add_check(metadata, name, change.value)
    return metadata.with_(configuration={**metadata.configuration, key: change.value})


def _without_property(metadata: Metadata, change: UnsetProperty) -> Metadata:
    key = _settable(change.key)
    if key.lower().startswith(table_properties.CONSTRAINT_PREFIX):
        name = key[len(table_properties.CONSTRAINT_PREFIX) :]
        return row_constraints.drop_check(metadata, name, if_exists=True)
    kept = {name: text for name, text in metadata.configuration.items() if name != key}
    return metadata.with_(configuration=kept)


def _settable(key: str) -> str:
    """Return a property's canonical key. Raises: InvalidRequest for one that no patch may set."""
    canonical = canonical_property(key)
    if canonical in _LATE:
        raise InvalidRequest(
            f"the property {canonical!r} is assigned by the committer; leave it out",
            error_class="DELTA_CANNOT_MODIFY_TABLE_PROPERTY",
        )
    return canonical


def canonical_property(key: str) -> str:
    """Return a property's key in the case that Delta gives it."""
    [canonical] = canonical_keys({key: ""})
    if canonical.lower().startswith(table_properties.CONSTRAINT_PREFIX):
        return canonical.lower()
    return canonical


def _column(plain: Mapping[str, Any]) -> StructField:
    """Return the field that a JSON object describes. Raises: as `parse_schema`."""
    schema = {"type": "struct", "fields": [{"nullable": True, "metadata": {}, **plain}]}
    return parse_schema(orjson.dumps(schema).decode()).fields[0]
