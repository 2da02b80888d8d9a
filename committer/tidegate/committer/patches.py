"""Metadata patches: what they touch of a table, and what the table becomes by them.

What a patch touches is told under the table that its writer read, and what a winner touched by
comparing the metadata before and after it. Where the two have nothing in common the patch says the
same of the table after the winner as of the table before it: docs/adr/0021 has the proof.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial
from itertools import count
from typing import Any, Final
from uuid import UUID, uuid5

import orjson

from tidegate.committer.standing import Basis
from tidegate.committer.touched import Touch, columns_by_physical
from tidegate.delta.actions import Metadata
from tidegate.delta.errors import InvalidRequest
from tidegate.delta.features import constraints, defaults, properties
from tidegate.delta.features.definition import Definition, refuse
from tidegate.delta.features.instructions import canonical_keys
from tidegate.delta.features.settling import settle
from tidegate.delta.schema import alteration
from tidegate.delta.schema.assignment import map_columns, physical_names
from tidegate.delta.schema.columns import Path, resolve
from tidegate.delta.schema.sql_text import columns_in
from tidegate.delta.schema.types import StructField, parse_schema
from tidegate.pipeline.metadata_patch import (
    AddColumn,
    AllowNulls,
    Change,
    ChangeType,
    CommentOn,
    DropColumn,
    MetadataPatch,
    RenameColumn,
    SetDefault,
    SetProperty,
    UnsetProperty,
)

_LATE: Final = frozenset(
    one.key
    for one in (
        properties.max_column_id,
        properties.checkpoint_protection_version,
        properties.ict_enablement_version,
        properties.ict_enablement_timestamp_ms,
    )
)
"""Properties that nobody sets: they are assigned when an entry is written."""


def touches(patch: MetadataPatch, read: Basis) -> frozenset[Touch]:
    """Return what a patch touches of the table that its writer read.

    A property that names columns touches them, for it would not hold without them.
    Raises: InvalidRequest for what the table does not let be changed so.
    """
    found = set[Touch]()
    names = _names(UUID(int=0))
    definition = Definition(read.metadata, read.protocol)
    for change in patch.changes:
        found.update(_touches(change, definition.metadata))
        definition = _step(change, definition, names)
    return frozenset(found)


def applied(
    patch: MetadataPatch, basis: Basis, proposal: UUID, clustered_by: Collection[Path] = ()
) -> Basis:
    """Return the table after a patch; columns that come get ids, and names made of the proposal's.

    `clustered_by` are the physical paths of columns that have to stay.
    Law: the same of the same; no id of a column is given twice
    Raises: InvalidRequest for what the table does not let be changed so; what parsing raises.
    """
    definition = Definition(basis.metadata, basis.protocol)
    names = _names(proposal)
    for change in patch.changes:
        definition = _step(change, definition, names, clustered_by)
    return Basis(definition.metadata, definition.protocol)


def _names(proposal: UUID) -> Iterator[str]:
    return physical_names(uuid5(proposal, f"column {number}") for number in count())


def _step(
    change: Change, before: Definition, names: Iterator[str], clustered_by: Collection[Path] = ()
) -> Definition:
    """Return a table after one change: mapped, and with the features that it asks for."""
    if isinstance(change, DropColumn):
        altered = alteration.drop_column(before.metadata, change.path, clustered_by)
    else:
        altered = _altered(change, before)
    changed = map_columns(before.metadata, altered, names)
    settled = settle(before, changed)
    refuse(settled.flaws, "that is to be patched")
    return settled.definition


def _altered(change: Change, before: Definition) -> Metadata:
    metadata, protocol = before
    match change:
        case AddColumn():
            place = alteration.Place(change.first, change.after)
            return alteration.add_column(metadata, _column(change.column), change.parent, place)
        case RenameColumn():
            return alteration.rename_column(metadata, change.path, change.name)
        case ChangeType():
            kind = _column({"name": "a", "type": change.type, "nullable": True, "metadata": {}})
            return alteration.change_type(metadata, protocol, change.path, kind.kind)
        case AllowNulls():
            return alteration.allow_nulls(metadata, change.path)
        case CommentOn():
            return alteration.comment_on(metadata, change.path, change.comment)
        case SetDefault():
            return defaults.set_default(metadata, protocol, change.column, change.expression)
        case SetProperty():
            return _with_property(metadata, change)
        case UnsetProperty():
            return _without_property(metadata, change)
        case DropColumn():
            raise AssertionError("a column is dropped by who knows what the table is clustered by")


def _with_property(metadata: Metadata, change: SetProperty) -> Metadata:
    key = _settable(change.key)
    if key.lower().startswith(properties.CONSTRAINT_PREFIX):
        name = key[len(properties.CONSTRAINT_PREFIX) :]
        return constraints.add_check(metadata, name, change.value)
    return metadata.with_(configuration={**metadata.configuration, key: change.value})


def _without_property(metadata: Metadata, change: UnsetProperty) -> Metadata:
    key = _settable(change.key)
    if key.lower().startswith(properties.CONSTRAINT_PREFIX):
        name = key[len(properties.CONSTRAINT_PREFIX) :]
        return constraints.drop_check(metadata, name, if_exists=True)
    kept = {one: text for one, text in metadata.configuration.items() if one != key}
    return metadata.with_(configuration=kept)


def _settable(key: str) -> str:
    """Return a property as it is kept. Raises: InvalidRequest for one that nobody sets."""
    canonical = _canonical(key)
    if canonical in _LATE:
        raise InvalidRequest(
            f"the property {canonical!r} is assigned by the committer; leave it out",
            error_class="DELTA_CANNOT_MODIFY_TABLE_PROPERTY",
        )
    return canonical


def _canonical(key: str) -> str:
    [canonical] = canonical_keys({key: ""})
    if canonical.lower().startswith(properties.CONSTRAINT_PREFIX):
        return canonical.lower()
    return canonical


def _column(plain: Mapping[str, Any]) -> StructField:
    """Return the field that a plain object spells. Raises: as `parse_schema`."""
    schema = {"type": "struct", "fields": [{"nullable": True, "metadata": {}, **plain}]}
    return parse_schema(orjson.dumps(schema).decode()).fields[0]


def _touches(change: Change, metadata: Metadata) -> Iterator[Touch]:
    on = partial(_physical, metadata)
    match change:
        case AddColumn():
            name = str(change.column.get("name", "")).lower()
            yield Touch("name", (*on(change.parent), name))
            if change.after is not None:
                yield Touch("column", on((*change.parent, change.after)))
        case RenameColumn():
            yield Touch("column", on(change.path))
            yield Touch("name", (*on(change.path[:-1]), change.name.lower()))
            yield from _followed(metadata)
        case DropColumn():
            yield Touch("column", on(change.path))
            yield from _followed(metadata)
        case SetDefault():
            yield Touch("column", on((change.column,)))
        case SetProperty() | UnsetProperty():
            key = _canonical(change.key)
            yield Touch("property", (key,))
            if isinstance(change, SetProperty):
                yield from (Touch("column", on(path)) for path in _named(metadata, key, change))
        case _:
            yield Touch("column", on(change.path))


def _followed(metadata: Metadata) -> Iterator[Touch]:
    """Yield the property that follows columns which go or get another name, where it is set."""
    if alteration.STATISTICS_COLUMNS in metadata.configuration:
        yield Touch("property", (alteration.STATISTICS_COLUMNS,))


def _named(metadata: Metadata, key: str, change: SetProperty) -> Iterable[Path]:
    """Return the columns that a property names: all of them where that can't be told."""
    schema = parse_schema(metadata.schema_string)
    every = [(name,) for name in schema.names]
    if key == alteration.STATISTICS_COLUMNS:
        try:
            return properties.stats_columns.of({key: change.value}) or ()
        except InvalidRequest:
            return every
    if not key.startswith(properties.CONSTRAINT_PREFIX):
        return ()
    found = columns_in(change.value, schema)
    return every if found is None else found


def _physical(metadata: Metadata, path: Path) -> Path:
    """Return the physical path of the field at a path, with the steps that lead on from it.

    What leads nowhere is what it says.
    """
    try:
        found = resolve(parse_schema(metadata.schema_string), path)
    except InvalidRequest:
        return tuple(path)
    known = {column.path: there for there, column in columns_by_physical(metadata).items()}
    for end in range(len(found), 0, -1):
        if found[:end] in known:
            return (*known[found[:end]], *found[end:])
    return found
