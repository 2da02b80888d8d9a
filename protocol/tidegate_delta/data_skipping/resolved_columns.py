"""Resolve a predicate's columns to their physical names and types."""

from dataclasses import dataclass
from typing import Final

from tidegate_delta.schema.column_mapping import ColumnMappingMode, physical_name
from tidegate_delta.schema.type_widening import TYPE_CHANGES
from tidegate_delta.schema.types import DOUBLE, DataType, StructField, StructType

COLLATIONS: Final = "__COLLATIONS"
"""The key in a field's metadata that marks strings which are not compared by their bytes."""


@dataclass(frozen=True)
class NamedColumn:
    """A column by its physical names.

    Spec: "Column Mapping"
    """

    path: tuple[str, ...]
    kind: DataType
    was_widened: bool

    @property
    def was_float(self) -> bool:
        """Whether some files may have been written while the column was a float.

        Spec: "Reader Requirements for Type Widening"
        """
        return self.kind == DOUBLE and self.was_widened


def resolved(
    schema: StructType, path: tuple[str, ...], mode: ColumnMappingMode
) -> NamedColumn | None:
    """Return the column of a path, or None where it can't be resolved unambiguously.

    Spec: "Per-file Statistics"
    """
    names: list[str] = []
    kind: DataType = schema
    was_widened = False
    for name in path:
        field = _field(kind, name)
        if field is None:
            return None
        if COLLATIONS in field.metadata:
            # Strings that are equal under a collation may be outside of bounds that compare bytes.
            return None
        names.append(physical_name(field, mode))
        kind, was_widened = field.kind, TYPE_CHANGES in field.metadata
    return NamedColumn(tuple(names), kind, was_widened)


def _field(kind: DataType, name: str) -> StructField | None:
    if not isinstance(kind, StructType):
        return None
    exact = [field for field in kind.fields if field.name == name]
    fields = exact or [field for field in kind.fields if field.name.lower() == name.lower()]
    return fields[0] if len(fields) == 1 else None
