"""Checks the columns of rows to write against the table's; an error names the column.

Names match without regard to case, as in Spark. A type fits another if each of its values can be
converted to the other without loss: shorter integers, float to double, a decimal with fewer digits.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from tidegate_delta.constraints.column_defaults import CURRENT, EXISTS
from tidegate_delta.errors import InvalidRequest
from tidegate_delta.schema.types import (
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    walk,
)

_ILLEGAL: Final = re.compile(r"[ ,;{}()\n\t=]")
_WIDER: Final = {
    "byte": ("short", "integer", "long", "float", "double"),
    "short": ("integer", "long", "float", "double"),
    "integer": ("long", "double"),
    "float": ("double",),
}
_DIGITS: Final = {"byte": 3, "short": 5, "integer": 10, "long": 20}


def check_frame(frame: StructType, table: StructType, root: str) -> None:
    """Check that rows with the columns of `frame` can be appended to a table.

    Raises: InvalidRequest, naming the column, what was expected and what was given.
    """
    _check_fields(frame, table, "", root)


def check_new(
    schema: StructType, partition_columns: Sequence[str], root: str, *, is_mapped: bool = False
) -> None:
    """Check the columns of a new table; under column mapping names may have any character.

    Raises: InvalidRequest, naming the column.
    """
    if not schema.fields:
        raise _invalid("DELTA_EMPTY_DATA", f"{root}: a table needs at least one column")
    counts = Counter(name.lower() for name in schema.names)
    twice = [name for name in schema.names if counts[name.lower()] > 1]
    if twice:
        raise _invalid(
            "DELTA_DUPLICATE_COLUMNS_FOUND",
            f"{root}: the names of the columns {twice} differ only in case; rename all but one",
        )
    for one in walk(schema):
        if _ILLEGAL.search(one.name) and not is_mapped:
            raise _invalid(
                "DELTA_INVALID_CHARACTERS_IN_COLUMN_NAMES",
                f"{root}: the column name {one.name!r} holds one of ' ,;{{}}()=' or a tab or line "
                "break, for which a table needs column mapping: rename the column, or set the "
                "property delta.columnMapping.mode to name",
            )
    resolve_partition_columns(schema, partition_columns, root)


def resolve_partition_columns(
    schema: StructType, names: Sequence[str], root: str
) -> tuple[str, ...]:
    """Return the partition columns, spelled as in the schema.

    Raises: InvalidRequest, naming the column.
    """
    by_name = {field.name.lower(): field for field in schema.fields}
    found: list[str] = []
    for name in names:
        one = by_name.get(name.lower())
        if one is None:
            raise _invalid(
                "DELTA_INVALID_PARTITION_COLUMN",
                f"{root}: the partition column {name!r} is not in the schema; its columns are "
                f"{', '.join(schema.names)}",
            )
        if isinstance(one.kind, StructType | ArrayType | MapType):
            raise _invalid(
                "DELTA_INVALID_PARTITION_COLUMN_TYPE",
                f"{root}: partition column {one.name!r} has type {one.kind}; it must not be a "
                "struct, array or map",
            )
        if one.name not in found:
            found.append(one.name)
    if found and len(found) == len(schema.fields):
        raise _invalid(
            "DELTA_CANNOT_USE_ALL_COLUMNS_FOR_PARTITION",
            f"{root}: every column is a partition column; at least one must not be",
        )
    return tuple(found)


def check_partitioning(
    asked: Sequence[str] | None, schema: StructType, actual: Sequence[str], root: str
) -> None:
    """Check that the requested partition columns, if any, are the table's.

    Raises: InvalidRequest.
    """
    if asked is not None and resolve_partition_columns(schema, asked, root) != tuple(actual):
        raise _invalid(
            "DELTA_METADATA_MISMATCH",
            f"{root} is partitioned by {list(actual)}, not by {list(asked)}: leave the option "
            "partitionColumns out, or write another table",
        )


def as_nullable(schema: StructType) -> StructType:
    """Return the schema with every column and element nullable, as a first write creates it.

    `delta.*` metadata and column defaults are dropped: they belong to the table from which the rows
    were read.
    """
    return StructType(tuple(_nullable_field(field) for field in schema.fields))


def as_stored(frame: StructType, table: StructType) -> StructType:
    """Return the frame's columns, with the table's type where the rows are converted to it."""
    by_name = {field.name.lower(): field for field in table.fields}
    return StructType(
        tuple(
            replace(one, kind=_stored_kind(one.kind, there.kind))
            if (there := by_name.get(one.name.lower())) is not None
            else one
            for one in frame.fields
        )
    )


def _stored_kind(given: DataType, wanted: DataType) -> DataType:
    match given, wanted:
        case StructType(), StructType():
            return as_stored(given, wanted)
        case ArrayType(), ArrayType():
            return ArrayType(_stored_kind(given.element, wanted.element), given.contains_null)
        case MapType(), MapType():
            key, value = (
                _stored_kind(given.key, wanted.key),
                _stored_kind(given.value, wanted.value),
            )
            return MapType(key, value, given.value_contains_null)
        case _:
            return wanted if fits(given, wanted) else given


def fits(given: DataType, wanted: DataType) -> bool:
    """Return whether every value of one type can be converted to another without loss."""
    match given, wanted:
        case (PrimitiveType("void"), _):
            return True
        case (PrimitiveType(), PrimitiveType()):
            return given == wanted or wanted.name in _WIDER.get(given.name, ())
        case (PrimitiveType(), DecimalType()):
            digits = _DIGITS.get(given.name)
            return digits is not None and wanted.precision - wanted.scale >= digits
        case (DecimalType(), DecimalType()):
            whole = given.precision - given.scale
            return wanted.scale >= given.scale and wanted.precision - wanted.scale >= whole
        case (ArrayType(), ArrayType()):
            return fits(given.element, wanted.element)
        case (MapType(), MapType()):
            return fits(given.key, wanted.key) and fits(given.value, wanted.value)
        case (StructType(), StructType()):
            return _struct_fits(given, wanted)
        case _:
            return False


def _struct_fits(given: StructType, wanted: StructType) -> bool:
    by_name = {field.name.lower(): field for field in wanted.fields}
    names = {field.name.lower() for field in given.fields}
    return all(
        (there := by_name.get(field.name.lower())) is not None and fits(field.kind, there.kind)
        for field in given.fields
    ) and all(one.nullable or name in names for name, one in by_name.items())


def _check_fields(frame: StructType, table: StructType, prefix: str, root: str) -> None:
    by_name = {field.name.lower(): field for field in table.fields}
    seen: set[str] = set()
    for one in frame.fields:
        where = f"{prefix}{one.name}"
        there = by_name.get(one.name.lower())
        if there is None:
            raise _invalid(
                "DELTA_METADATA_MISMATCH",
                f"{root} has no column {where!r}; its columns are {_names(table, prefix)}: drop "
                "the column from the DataFrame, or give the option mergeSchema=true, which adds "
                "it to the table",
            )
        if one.name.lower() in seen:
            raise _invalid(
                "DELTA_DUPLICATE_COLUMNS_ON_INSERT", f"{root}: column {where!r} is given twice"
            )
        seen.add(one.name.lower())
        if isinstance(one.kind, StructType) and isinstance(there.kind, StructType):
            _check_fields(one.kind, there.kind, f"{where}.", root)
        elif not fits(one.kind, there.kind):
            raise _invalid(
                "DELTA_FAILED_TO_MERGE_FIELDS",
                f"{root}: column {where!r} has type {there.kind}, but the DataFrame's has type "
                f"{one.kind}: cast it to {there.kind}",
            )
    for name, one in by_name.items():
        if name not in seen and not one.nullable:
            raise _invalid(
                "DELTA_MISSING_NOT_NULL_COLUMN_VALUE",
                f"{root}: column {prefix + one.name!r} is NOT NULL, and the DataFrame lacks it: "
                f"add a column of type {one.kind}",
            )


def _names(schema: StructType, prefix: str) -> str:
    return ", ".join(f"{prefix}{name}" for name in schema.names)


def _nullable_field(one: StructField) -> StructField:
    own = {
        key: value
        for key, value in one.metadata.items()
        if not key.startswith("delta.") and key not in (CURRENT, EXISTS)
    }
    return replace(one, kind=_nullable(one.kind), nullable=True, metadata=own)


def _nullable(kind: DataType) -> DataType:
    match kind:
        case StructType():
            return as_nullable(kind)
        case ArrayType():
            return ArrayType(_nullable(kind.element), True)
        case MapType():
            return MapType(_nullable(kind.key), _nullable(kind.value), True)
        case _:
            return kind


def _invalid(error_class: str, message: str) -> InvalidRequest:
    return InvalidRequest(f"{message}; nothing was proposed", error_class=error_class)
