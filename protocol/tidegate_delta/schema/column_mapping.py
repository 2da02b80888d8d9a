"""Column mapping: the names of columns in data files, statistics and partition values.

The *logical* name is what users see and may change; the *physical* name is what files contain and
stays. Without column mapping both are the same.

Spec: "Column Mapping"
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from tidegate_delta.errors import BrokenLog, InvalidRequest, UnsupportedFeature
from tidegate_delta.log.actions import Metadata
from tidegate_delta.properties import table_properties
from tidegate_delta.schema.field_paths import FieldPath, field_paths, structs_inside
from tidegate_delta.schema.types import (
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    parse_schema,
)

PHYSICAL_NAME: Final = "delta.columnMapping.physicalName"
FIELD_ID: Final = "delta.columnMapping.id"
NESTED_IDS: Final = "delta.columnMapping.nested.ids"


class ColumnMappingMode(Enum):
    """How a column is found in data files: by its name, its physical name or its field id."""

    NONE = "none"
    NAME = "name"
    ID = "id"


def mode_of(metadata: Metadata) -> ColumnMappingMode:
    """Return how the columns of a table are found in its files.

    Raises: InvalidRequest for a mode that the spec lacks.
    Spec: "Reader Requirements for Column Mapping"
    """
    return ColumnMappingMode(table_properties.column_mapping_mode(metadata))


def physical_name(field: StructField, mode: ColumnMappingMode) -> str:
    """Return the name of a field in files, statistics and partition values.

    A field without a physical name, such as one that a reader adds, keeps its name.
    """
    return (
        field.name
        if mode is ColumnMappingMode.NONE
        else str(field.metadata.get(PHYSICAL_NAME, field.name))
    )


def field_id(field: StructField) -> int | None:
    """Return a field's id in files, or None where it has none."""
    number = field.metadata.get(FIELD_ID)
    return number if isinstance(number, int) and not isinstance(number, bool) else None


def to_physical(schema: StructType, mode: ColumnMappingMode) -> StructType:
    """Return the schema with each field, nested ones too, under its physical name.

    Law: to_logical(to_physical(s, m), s, m) == s
    """
    return StructType(
        tuple(
            StructField(
                physical_name(field, mode),
                _physical(field.kind, mode),
                field.nullable,
                field.metadata,
            )
            for field in schema.fields
        )
    )


def to_logical(physical: StructType, schema: StructType, mode: ColumnMappingMode) -> StructType:
    """Return a schema in physical names, or a part of one, with the logical names of `schema`.

    Raises: ValueError for a field that the table's schema lacks.
    """
    known = {physical_name(field, mode): field for field in schema.fields}
    fields = []
    for field in physical.fields:
        if field.name not in known:
            raise ValueError(f"the schema has no column with the physical name {field.name!r}")
        own = known[field.name]
        kind = _logical(field.kind, own.kind, mode)
        fields.append(StructField(own.name, kind, field.nullable, field.metadata))
    return StructType(tuple(fields))


def physical_path(schema: StructType, path: Sequence[str], mode: ColumnMappingMode) -> FieldPath:
    """Return the physical names along a path of logical names.

    Raises: ValueError for a path that the schema lacks.
    Spec: "Field Path"
    """
    for physical, fields in mapped_paths(schema, mode):
        if tuple(fields) == tuple(path):
            return physical
    raise ValueError(f"the schema has no column {'.'.join(path)!r}")


def logical_path(schema: StructType, path: Sequence[str], mode: ColumnMappingMode) -> FieldPath:
    """Return the logical names along a path of physical names.

    Law: logical_path(s, physical_path(s, p, m), m) == p
    Raises: ValueError for a path that the schema lacks.
    Spec: "Field Path"
    """
    for physical, logical in mapped_paths(schema, mode):
        if physical == tuple(path):
            return logical
    raise ValueError(f"the schema has no column with the physical name {'.'.join(path)!r}")


def logical_names(schema: StructType, mode: ColumnMappingMode) -> Mapping[FieldPath, str]:
    """Return the logical name of each field, nested ones too, by its physical field path.

    Spec: "Field Path"
    """
    return {physical: logical[-1] for physical, logical in mapped_paths(schema, mode)}


@dataclass(frozen=True)
class Rename:
    """A renamed field: its logical paths before and after."""

    before: FieldPath
    after: FieldPath


def renamed(before: StructType, after: StructType, mode: ColumnMappingMode) -> tuple[Rename, ...]:
    """Return the fields that were renamed from one schema to another, nested ones too.

    A field inside a renamed one does not count as renamed itself.
    Law: renamed(s, s, m) == ()
    """
    names = dict(mapped_paths(after, mode))
    return tuple(
        Rename(logical, names[physical])
        for physical, logical in mapped_paths(before, mode)
        if physical in names and names[physical][-1] != logical[-1]
    )


def dropped(
    before: StructType, after: StructType, mode: ColumnMappingMode
) -> tuple[FieldPath, ...]:
    """Return the logical paths of the fields of one schema that another lacks, nested ones too.

    Law: dropped(s, s, m) == ()
    """
    kept = {physical for physical, _ in mapped_paths(after, mode)}
    return tuple(
        logical for physical, logical in mapped_paths(before, mode) if physical not in kept
    )


def physical_partition_columns(metadata: Metadata) -> Mapping[str, str]:
    """Return, for each partition column, the key of its value in `partitionValues`.

    Spec: "Reader Requirements for Column Mapping"
    """
    mode = mode_of(metadata)
    if mode is ColumnMappingMode.NONE:
        return {name: name for name in metadata.partition_columns}
    schema = parse_schema(metadata.schema_string)
    fields = {field.name: field for field in schema.fields}
    return {
        name: physical_name(fields[name], mode) if name in fields else name
        for name in metadata.partition_columns
    }


def mapped_paths(
    schema: StructType, mode: ColumnMappingMode
) -> Iterator[tuple[FieldPath, FieldPath]]:
    """Yield the physical and the logical path of each field, nested ones too.

    Spec: "Field Path"
    """
    for field in schema.fields:
        physical, logical = (physical_name(field, mode),), (field.name,)
        yield physical, logical
        for step, inner in structs_inside(field.kind):
            for below, called in mapped_paths(inner, mode):
                yield (*physical, *step, *below), (*logical, *step, *called)


def check_mapped(metadata: Metadata, schema: StructType, table: str) -> None:
    """Refuse a schema in which a field lacks the physical name or id that column mapping requires.

    Raises: BrokenLog (`CorruptCommit`); UnsupportedFeature for a mode that the spec lacks.
    """
    try:
        mode = mode_of(metadata)
    except InvalidRequest as error:
        raise UnsupportedFeature(f"table {table}: {error}", feature="columnMapping") from error
    if mode is ColumnMappingMode.NONE:
        return
    for path, field in field_paths(schema):
        named = isinstance(field.metadata.get(PHYSICAL_NAME), str)
        if not named or field_id(field) is None:
            raise BrokenLog(
                f"table {table} maps its columns by {mode.value}, but its column "
                f"{'.'.join(path)!r} has no {'id' if named else 'physical name'}: restore the "
                "table to a version before the commit that set its schema",
                error_class="CorruptCommit",
            )


def _physical(kind: DataType, mode: ColumnMappingMode) -> DataType:
    match kind:
        case StructType():
            return to_physical(kind, mode)
        case ArrayType():
            return ArrayType(_physical(kind.element, mode), kind.contains_null)
        case MapType():
            key, value = _physical(kind.key, mode), _physical(kind.value, mode)
            return MapType(key, value, kind.value_contains_null)
        case _:
            return kind


def _logical(kind: DataType, own: DataType, mode: ColumnMappingMode) -> DataType:
    match kind, own:
        case StructType(), StructType():
            return to_logical(kind, own, mode)
        case ArrayType(), ArrayType():
            return ArrayType(_logical(kind.element, own.element, mode), kind.contains_null)
        case MapType(), MapType():
            key = _logical(kind.key, own.key, mode)
            return MapType(key, _logical(kind.value, own.value, mode), kind.value_contains_null)
        case _:
            return kind
