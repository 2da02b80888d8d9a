"""The table definition after a metadata patch: producers check a patch by it, and the committer
applies it.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, Final
from uuid import UUID, uuid5

import orjson

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
from tidegate_messages.metadata_patch import (
    AddColumn,
    AllowNulls,
    ChangeType,
    CommentOn,
    DropColumn,
    MetadataPatch,
    PatchChange,
    RenameColumn,
    SetDefault,
    SetProperty,
    UnsetProperty,
)

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


def applied(
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
