"""Merge a table's schema with the schema of rows that are written to it."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from tidegate_delta.errors import InvalidRequest
from tidegate_delta.schema.char_varchar import keep_limits
from tidegate_delta.schema.field_paths import (
    ELEMENT,
    KEY,
    VALUE,
    FieldPath,
    check_names,
    dotted,
    transform,
)
from tidegate_delta.schema.type_widening import Automatic, widens_for_iceberg
from tidegate_delta.schema.types import (
    BYTE,
    INTEGER,
    SHORT,
    VOID,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    StructField,
    StructType,
    holds,
)

_STORED_ALIKE: Final = (BYTE, SHORT, INTEGER)
_OF_A_TABLE: Final = ("delta.", "parquet.field.", "CURRENT_DEFAULT", "EXISTS_DEFAULT")


def _any_change(path: FieldPath, before: DataType, after: DataType) -> None:
    """Allow every change."""


@dataclass(frozen=True)
class Merging:
    """How a table's types combine with those of the rows.

    `automatic` selects the changes that schema evolution may make; `for_iceberg` excludes those
    that Iceberg lacks. `stored_alike` allows integers of up to 32 bits to widen, because files
    store them alike: for tables that do not support type widening. `keeps_types` is for rows that
    are cast during the write. `check` may refuse a change of type.
    Spec: "Writer Requirements for Type Widening"
    """

    automatic: Automatic = Automatic.NEVER
    for_iceberg: bool = False
    stored_alike: bool = False
    keeps_types: bool = False
    check: Callable[[FieldPath, DataType, DataType], None] = _any_change

    def becomes(self, before: DataType, after: DataType) -> bool:
        """Return whether a column's type changes when rows of another type are written."""
        return before == VOID or self._widens(before, after) or self._is_alike(before, after)

    def stays(self, before: DataType, after: DataType) -> bool:
        """Return whether a column accepts rows of another type and keeps its own."""
        if after in (before, VOID):
            return True
        if before == VOID or self._widens(before, after):
            return False
        if before in _STORED_ALIKE and after in _STORED_ALIKE:
            return self.keeps_types or not _is_narrower(before, after)
        return self.keeps_types and not (_is_nested(before) or _is_nested(after))

    def _widens(self, before: DataType, after: DataType) -> bool:
        if self.for_iceberg and not widens_for_iceberg(before, after):
            return False
        return self.automatic.allows(before, after)

    def _is_alike(self, before: DataType, after: DataType) -> bool:
        return self.stored_alike and _is_narrower(before, after)


def merged(table: StructType, data: StructType, merging: Merging) -> StructType:
    """Return a table's schema extended so that rows of another fit: its own columns, then new ones.

    Columns match by name, without regard to case. Names, nullability and comments are the table's.
    Law: merged(s, s, m) == s; merged(merged(t, d, m), d, m) == merged(t, d, m)
    Raises: InvalidRequest, naming the column, for incompatible types.
    Spec: "Schema Serialization Format"
    """
    check_names(data, is_mapped=True)
    return keep_limits(table, _merged_struct(table, as_data(data), (), merging))


def as_data(schema: StructType) -> StructType:
    """Return a schema as that of incoming rows: all nullable, without what belongs to a table.

    Law: as_data(as_data(s)) == as_data(s)
    Spec: "Column Metadata"
    """
    return transform(schema, _as_data)


def _as_data(_: FieldPath, field: StructField) -> StructField:
    own = {key: value for key, value in field.metadata.items() if not key.startswith(_OF_A_TABLE)}
    return StructField(field.name, _with_nulls_allowed(field.kind), True, own)


def _with_nulls_allowed(kind: DataType) -> DataType:
    match kind:
        case ArrayType():
            return ArrayType(_with_nulls_allowed(kind.element), True)
        case MapType():
            return MapType(_with_nulls_allowed(kind.key), _with_nulls_allowed(kind.value), True)
        case _:
            return kind


def _merged_struct(
    table: StructType, data: StructType, above: FieldPath, merging: Merging
) -> StructType:
    fields = []
    data_fields = {field.name.lower(): field for field in data}
    for field in table:
        other = data_fields.get(field.name.lower())
        path = (*above, field.name)
        kind = _merged(field.kind, other.kind, path, merging) if other else field.kind
        fields.append(replace(field, kind=kind))
    known = {field.name.lower() for field in table}
    for other in data:
        if other.name.lower() not in known:
            _check_added(other, (*above, other.name))
            fields.append(other)
    return StructType(tuple(fields))


def _merged(current: DataType, update: DataType, path: FieldPath, merging: Merging) -> DataType:
    match current, update:
        case StructType(), StructType():
            return _merged_struct(current, update, path, merging)
        case ArrayType(), ArrayType():
            element = _merged(current.element, update.element, (*path, ELEMENT), merging)
            return ArrayType(element, current.contains_null)
        case MapType(), MapType():
            key = _merged(current.key, update.key, (*path, KEY), merging)
            value = _merged(current.value, update.value, (*path, VALUE), merging)
            return MapType(key, value, current.value_contains_null)
    if merging.stays(current, update):
        return current
    merging.check(path, current, update)
    if merging.becomes(current, update):
        return update
    raise _failure(path, current, update)


def _check_added(field: StructField, path: FieldPath) -> None:
    """Refuse a new column of arrays or maps of the null type, whose files could not be read."""
    if holds(field.kind, lambda kind: not isinstance(kind, StructType) and _holds_void(kind)):
        raise InvalidRequest(
            f"column {dotted(path)!r} of type {field.kind} holds an array or a map of void; cast "
            "it to a type that has values",
            error_class="DELTA_COMPLEX_TYPE_COLUMN_CONTAINS_NULL_TYPE",
        )


def _holds_void(kind: DataType) -> bool:
    return kind != VOID and holds(kind, lambda inner: inner == VOID)


def _failure(path: FieldPath, current: DataType, update: DataType) -> InvalidRequest:
    is_decimal = isinstance(current, DecimalType) and isinstance(update, DecimalType)
    error = InvalidRequest(
        f"column {dotted(path)!r} has type {current}, what is written has {update}, and the two do "
        f"not merge; cast it to {current}",
        error_class="DELTA_FAILED_TO_MERGE_FIELDS",
    )
    error.__cause__ = InvalidRequest(
        f"{current} and {update} do not merge",
        error_class="DELTA_MERGE_INCOMPATIBLE_DECIMAL_TYPE"
        if is_decimal
        else "DELTA_MERGE_INCOMPATIBLE_DATATYPE",
    )
    return error


def _is_narrower(before: DataType, after: DataType) -> bool:
    """Return whether both are integers that files store alike, and the first is narrower."""
    if before not in _STORED_ALIKE or after not in _STORED_ALIKE:
        return False
    return _STORED_ALIKE.index(before) < _STORED_ALIKE.index(after)


def _is_nested(kind: DataType) -> bool:
    return isinstance(kind, StructType | ArrayType | MapType)
