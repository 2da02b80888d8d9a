"""What a change of a table's metadata touches, as far as metadata patches depend on it.

It is found by comparing the metadata before and after, so it holds for every writer. Columns are
named by physical paths, which do not change. Column ids and physical names are assigned and do not
count as changes.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal, NamedTuple

from tidegate_delta.log.actions import Metadata
from tidegate_delta.properties import table_properties
from tidegate_delta.schema.column_mapping import (
    ColumnMappingMode,
    mode_of,
    physical_partition_columns,
    to_physical,
)
from tidegate_delta.schema.column_mapping_assignment import MAPPING_KEYS
from tidegate_delta.schema.field_paths import FieldPath, dotted, field_paths
from tidegate_delta.schema.types import (
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    parse_schema,
)

_WHOLE: Final = ("id", "format", "partition columns")
"""Fields that concern the whole table: a change of one conflicts with every patch."""


class MetadataTouch(NamedTuple):
    """A changed part of a table's metadata.

    It is a column by its physical path, the name of a new or renamed column by the physical path of
    its struct, a property, or a field of the metadata.
    """

    kind: Literal["column", "name", "property", "table"]
    path: FieldPath

    def description(self, metadata: Metadata) -> str:
        """Return the touch in words, with a column's name in `metadata` if it has the column."""
        if self.kind == "property":
            return f"the property {self.path[0]!r}"
        if self.kind == "table":
            return f"the table's {self.path[0]}"
        known = columns_by_physical(metadata).get(self.path) if self.kind == "column" else None
        return f"the column {dotted(known.path if known else self.path)!r}"

    def meets(self, other: "MetadataTouch") -> bool:
        """Return whether both touch the same thing, or one touches something inside the other."""
        if self.kind == other.kind:
            short, long = sorted((self.path, other.path), key=len)
            return long[: len(short)] == short if self.kind == "column" else self.path == other.path
        if {self.kind, other.kind} != {"column", "name"}:
            return False
        column, name = (self, other) if self.kind == "column" else (other, self)
        is_inside = len(column.path) < len(name.path)
        return is_inside and name.path[: len(column.path)] == column.path


@dataclass(frozen=True)
class SchemaColumn:
    """A field of a schema with its logical path, and its type without the fields of structs."""

    path: FieldPath
    field: StructField
    shape: DataType


def columns_by_physical(metadata: Metadata) -> Mapping[FieldPath, SchemaColumn]:
    """Return every field of a table, nested ones too, by its physical path."""
    return _columns(metadata.schema_string, mode_of(metadata))


@lru_cache(maxsize=32)
def _columns(schema_string: str, mode: ColumnMappingMode) -> Mapping[FieldPath, SchemaColumn]:
    schema = parse_schema(schema_string)
    physical = field_paths(to_physical(schema, mode))
    return {
        physical_path: SchemaColumn(path, field, _shape(field.kind))
        for (physical_path, _), (path, field) in zip(physical, field_paths(schema), strict=True)
    }


def touched(before: Metadata, after: Metadata) -> frozenset[MetadataTouch]:
    """Return what a change of metadata touches, except for assigned ids and physical names.

    Law: touched(m, m) == frozenset()
    """
    return frozenset((*_fields_touched(before, after), *_columns_touched(before, after)))


def in_common(
    own: frozenset[MetadataTouch], other: frozenset[MetadataTouch]
) -> MetadataTouch | None:
    """Return something that both a patch and a winner touch, or None."""
    for other_touch in sorted(other):
        if other_touch.kind == "table" and other_touch.path[0] in _WHOLE:
            return other_touch
        for touch in sorted(own):
            if touch.meets(other_touch):
                return touch
    return None


def _fields_touched(before: Metadata, after: Metadata) -> Iterator[MetadataTouch]:
    for name in ("id", "format", "name", "description"):
        if getattr(before, name) != getattr(after, name):
            yield MetadataTouch("table", (name,))
    if _partitioning(before) != _partitioning(after):
        yield MetadataTouch("table", ("partition columns",))
    old, new = before.configuration, after.configuration
    for key in old.keys() | new.keys():
        if old.get(key) != new.get(key) and key != table_properties.max_column_id.key:
            yield MetadataTouch("property", (key,))


def _partitioning(metadata: Metadata) -> list[str]:
    return list(physical_partition_columns(metadata).values())


def _columns_touched(before: Metadata, after: Metadata) -> Iterator[MetadataTouch]:
    if before.schema_string == after.schema_string:
        return
    old, new = columns_by_physical(before), columns_by_physical(after)
    for path in old.keys() - new.keys():
        yield MetadataTouch("column", path)
    for path, column in new.items():
        old_column, name = (
            old.get(path),
            MetadataTouch("name", (*path[:-1], column.path[-1].lower())),
        )
        if old_column is None:
            yield name
            continue
        if old_column.path[-1] != column.path[-1]:
            yield name
        if field_definition(old_column) != field_definition(column):
            yield MetadataTouch("column", path)


def field_definition(column: SchemaColumn) -> tuple[object, ...]:
    """Return everything that a schema says of a field itself, without ids and physical names."""
    field = column.field
    metadata = {key: value for key, value in field.metadata.items() if key not in MAPPING_KEYS}
    return field.name, field.nullable, column.shape, metadata


def _shape(kind: DataType) -> DataType:
    """Return a type without the fields of its structs, which are compared by themselves."""
    match kind:
        case StructType():
            return StructType(())
        case ArrayType():
            return ArrayType(_shape(kind.element), kind.contains_null)
        case MapType():
            return MapType(_shape(kind.key), _shape(kind.value), kind.value_contains_null)
        case _:
            return kind
