"""Type widening: which type changes of a column are allowed, and their record in its metadata.

Files keep the type they were written with, so a reader must support every recorded change.

Spec: "Type Change Metadata"
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final

from tidegate_delta.errors import UnsupportedFeature
from tidegate_delta.schema.field_paths import FieldPath, transform
from tidegate_delta.schema.types import (
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    SHORT,
    STRING,
    TIMESTAMP_NTZ,
    DataType,
    DecimalType,
    StructField,
    StructType,
    parse_type,
    walk,
)

TYPE_CHANGES: Final = "delta.typeChanges"

_INTEGERS: Final = (BYTE, SHORT, INTEGER, LONG)
_SMALL: Final = (BYTE, SHORT, INTEGER)
_DIGITS: Final = {BYTE: 3, SHORT: 5, INTEGER: 10, LONG: 19}
"""Digits of the greatest number of a type."""
_SMALL_DIGITS: Final = 10
_LONG_DIGITS: Final = 20


@dataclass(frozen=True)
class TypeChange:
    """A change in the history of a field; `path` leads to the changed type in arrays and maps."""

    before: DataType
    after: DataType
    path: tuple[str, ...] = ()


def widens(before: DataType, after: DataType) -> bool:
    """Return whether a column may change from one type to the other without rewriting files.

    Law: it is reflexive and transitive; every value of one type is a value of the other
    Spec: "Type Widening"
    """
    if before == after:
        return True
    if before in _INTEGERS and after in _INTEGERS:
        return _INTEGERS.index(before) <= _INTEGERS.index(after)
    if isinstance(after, DecimalType):
        return _widens_to_decimal(before, after)
    if after == DOUBLE:
        return before == FLOAT or before in _SMALL
    return (before, after) == (DATE, TIMESTAMP_NTZ)


def holds(before: DataType, after: DataType) -> bool:
    """Return whether every value of one type is a value of the other, so its files can be read.

    Writers may make fewer changes than these, so that all readers support them.
    Law: whatever `widens` allows, `holds` allows
    Spec: "Reader Requirements for Type Widening"
    """
    if widens(before, after):
        return True
    if isinstance(after, DecimalType) and before in _DIGITS:
        return after.precision - after.scale >= _DIGITS[before]
    return after == FLOAT and before in (BYTE, SHORT)


def widens_for_iceberg(before: DataType, after: DataType) -> bool:
    """Return whether Iceberg can also read files of one type as the other.

    Law: whatever `widens_for_iceberg` allows, `widens` allows
    Spec: "Writer Requirements for Type Widening"
    """
    if not widens(before, after):
        return False
    if isinstance(before, DecimalType) and isinstance(after, DecimalType):
        return before.scale == after.scale
    return before in (after, FLOAT) or (before in _INTEGERS and after in _INTEGERS)


class Automatic(Enum):
    """The type changes that schema evolution may make, where type widening is enabled.

    `SAME_FAMILY` excludes changes from integers to decimals and floating point.
    Spec: "Writer Requirements for Type Widening"
    """

    NEVER = "never"
    SAME_FAMILY = "same_family_type"
    ALWAYS = "always"

    def allows(self, before: DataType, after: DataType) -> bool:
        """Return whether schema evolution may change a column from one type to the other."""
        if self is Automatic.NEVER or not widens(before, after):
            return False
        crosses = before in _INTEGERS and after not in _INTEGERS
        return self is Automatic.ALWAYS or not crosses


def changes(field: StructField) -> tuple[TypeChange, ...]:
    """Return the type changes that a field records, oldest first, including nested types.

    Raises: ValueError for a record that can't be read.
    """
    recorded = field.metadata.get(TYPE_CHANGES)
    if recorded is None:
        return ()
    if not isinstance(recorded, list):
        raise ValueError(f"{recorded!r} is no list of changes")
    return tuple(_change(change) for change in recorded)


def without_changes(schema: StructType) -> StructType:
    """Return a schema that records no change of a type: for a table whose files all have its
    types.
    """

    def edit(_: FieldPath, field: StructField) -> StructField:
        metadata = {key: value for key, value in field.metadata.items() if key != TYPE_CHANGES}
        return replace(field, metadata=metadata)

    return transform(schema, edit)


def check_widened(schema: StructType, table: str) -> None:
    """Refuse a table that records a type change which this release does not support.

    Raises: UnsupportedFeature.
    Spec: "Reader Requirements for Type Widening"
    """
    for field in walk(schema):
        for problem in _unknown(field):
            raise UnsupportedFeature(
                f"column {field.name!r} of table {table} was given another type in a way that "
                f"this release does not know: {problem}",
                feature="typeWidening",
                remedy="read it with a release that does",
            )


def _unknown(field: StructField) -> Iterator[str]:
    try:
        for change in changes(field):
            if not holds(change.before, change.after):
                yield f"from {change.before} to {change.after}"
    except (ValueError, UnsupportedFeature) as error:
        yield error.fault if isinstance(error, UnsupportedFeature) else str(error)


def _widens_to_decimal(before: DataType, after: DecimalType) -> bool:
    integer_digits = after.precision - after.scale
    if isinstance(before, DecimalType):
        return after.scale >= before.scale and integer_digits >= before.precision - before.scale
    if before == LONG:
        return integer_digits >= _LONG_DIGITS
    return before in _SMALL and integer_digits >= _SMALL_DIGITS


def _change(plain: Any) -> TypeChange:
    if not isinstance(plain, dict):
        raise ValueError(f"{plain!r} is no change of type")
    before, after = plain.get("fromType"), plain.get("toType")
    path = plain.get("fieldPath", "")
    if not (isinstance(before, str) and isinstance(after, str) and isinstance(path, str)):
        raise ValueError(f"{plain!r} is no change of type")
    steps = tuple(step for step in path.split(".") if step)
    return TypeChange(_kind(before), _kind(after), steps)


def _kind(name: str) -> DataType:
    """Some writers record CHAR and VARCHAR here, which are strings with a length limit."""
    if name.split("(")[0].strip() in ("char", "varchar"):
        return STRING
    return parse_type(name)
