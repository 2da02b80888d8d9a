"""What a metadata patch touches of a table.

What a patch touches is determined from the table that its writer read. What a winner touched is
determined by comparing the metadata before and after it. If the two have nothing in common, the
patch means the same for the table after the winner as before it: docs/adr/0021 has the proof.
"""

from collections.abc import Iterable, Iterator
from functools import partial

from tidegate_committer.state.metadata_diff import MetadataTouch
from tidegate_delta.definitions.definition import Definition
from tidegate_delta.errors import InvalidRequest
from tidegate_delta.log.actions import Metadata
from tidegate_delta.properties import table_properties
from tidegate_delta.schema.column_mapping import mode_of, physical_name
from tidegate_delta.schema.field_paths import FieldPath, resolve, steps_inside
from tidegate_delta.schema.sql_column_references import columns_in
from tidegate_delta.schema.types import DataType, StructType, parse_schema
from tidegate_delta.schema_evolution import alter_columns
from tidegate_messages.metadata_patch import (
    AddColumn,
    DropColumn,
    MetadataPatch,
    PatchChange,
    RenameColumn,
    SetDefault,
    SetProperty,
    UnsetProperty,
)
from tidegate_messages.patch_apply import PatchedTable, canonical_property


def touches(patch: MetadataPatch, read: Definition) -> frozenset[MetadataTouch]:
    """Return what a patch touches of the table that its writer read.

    A property that names columns touches them, because it depends on them.
    Raises: InvalidRequest for a change that the table does not allow.
    """
    touched = set[MetadataTouch]()
    patched = PatchedTable(read, read.metadata)
    for change in patch.changes:
        touched.update(_touches(change, patched.metadata))
        patched = patched.after(change)
    return frozenset(touched)


def _touches(change: PatchChange, metadata: Metadata) -> Iterator[MetadataTouch]:
    physical = partial(_physical, metadata)
    match change:
        case AddColumn():
            name = str(change.column.get("name", "")).lower()
            yield MetadataTouch("name", (*physical(change.parent), name))
            if change.after is not None:
                yield MetadataTouch("column", physical((*change.parent, change.after)))
        case RenameColumn():
            yield MetadataTouch("column", physical(change.path))
            yield MetadataTouch("name", (*physical(change.path[:-1]), change.name.lower()))
            yield from _followed(metadata)
        case DropColumn():
            yield MetadataTouch("column", physical(change.path))
            yield from _followed(metadata)
        case SetDefault():
            yield MetadataTouch("column", physical((change.column,)))
        case SetProperty() | UnsetProperty():
            key = canonical_property(change.key)
            yield MetadataTouch("property", (key,))
            if isinstance(change, SetProperty):
                yield from (
                    MetadataTouch("column", physical(path))
                    for path in _named(metadata, key, change)
                )
        case _:
            yield MetadataTouch("column", physical(change.path))


def _followed(metadata: Metadata) -> Iterator[MetadataTouch]:
    """Yield the property of statistics columns, if set: it follows dropped and renamed columns."""
    if alter_columns.STATISTICS_COLUMNS in metadata.configuration:
        yield MetadataTouch("property", (alter_columns.STATISTICS_COLUMNS,))


def _named(metadata: Metadata, key: str, change: SetProperty) -> Iterable[FieldPath]:
    """Return the columns that a property names, or all columns if it can't be parsed."""
    schema = parse_schema(metadata.schema_string)
    all_columns = [(name,) for name in schema.names]
    if key == alter_columns.STATISTICS_COLUMNS:
        try:
            return table_properties.stats_columns.of({key: change.value}) or ()
        except InvalidRequest:
            return all_columns
    if not key.startswith(table_properties.CONSTRAINT_PREFIX):
        return ()
    named = columns_in(change.value, schema)
    return all_columns if named is None else named


def _physical(metadata: Metadata, path: FieldPath) -> FieldPath:
    """Return the physical path of a path, or the path itself if it does not exist."""
    mode = mode_of(metadata)
    kind: DataType = parse_schema(metadata.schema_string)
    try:
        resolved = resolve(kind, path) if isinstance(kind, StructType) else path
    except InvalidRequest:
        return tuple(path)
    physical: list[str] = []
    for step in resolved:
        if isinstance(kind, StructType):
            column = kind.get(step)
            assert column is not None, "a path that was resolved leads somewhere"
            physical.append(physical_name(column, mode))
            kind = column.kind
        else:
            physical.append(step)
            kind = dict(steps_inside(kind))[step]
    return tuple(physical)
