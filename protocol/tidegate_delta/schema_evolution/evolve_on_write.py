"""Schema evolution: a table's metadata after rows of another schema are written.

`mergeSchema` is `evolved`, `overwriteSchema` is `overwritten`. Nothing is cast. New fields get ids
and physical names afterwards, by `column_mapping_assignment.map_columns`.

`merged` merges a table's schema with that of rows which are written to it.

Spec: "Change Metadata"
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tidegate_delta.constraints.generated_columns import generated_from, is_generated
from tidegate_delta.constraints.identity_columns import check_alterable
from tidegate_delta.constraints.row_constraints import checks, constraints_on
from tidegate_delta.errors import InvalidRequest
from tidegate_delta.log.actions import Metadata, Protocol
from tidegate_delta.properties import table_properties
from tidegate_delta.schema.char_varchar import keep_limits
from tidegate_delta.schema.column_mapping import ColumnMappingMode, mode_of
from tidegate_delta.schema.field_paths import (
    ELEMENT,
    KEY,
    RESERVED_BY_CHANGES,
    VALUE,
    FieldPath,
    check_names,
    dotted,
    field_at,
    find_field,
    transform,
)
from tidegate_delta.schema.sql_column_references import columns_in, listed
from tidegate_delta.schema.type_widening import Automatic, widens_for_iceberg
from tidegate_delta.schema.types import (
    BYTE,
    INTEGER,
    SHORT,
    VARIANT,
    VOID,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    StructField,
    StructType,
    format_schema,
    holds,
    is_geospatial,
    parse_schema,
)
from tidegate_delta.schema_evolution.type_changes import (
    is_enabled,
    is_supported,
    keeps_to_iceberg,
    with_schema,
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


def evolved(
    metadata: Metadata,
    protocol: Protocol,
    data: StructType,
    automatic: Automatic = Automatic.ALWAYS,
    *,
    keeps_types: bool = False,
) -> Metadata:
    """Return a table's metadata after a write whose schema may change the table's own.

    `keeps_types` is for rows that are cast to the table's types during the write.
    Law: evolved(m, p, schema of m) == m
    Raises: InvalidRequest, naming the column, for types that do not fit, and for a change of a type
    on which constraints or generated columns depend.
    """
    table = parse_schema(metadata.schema_string)

    def check(path: FieldPath, before: DataType, after: DataType) -> None:
        _check_independent(metadata, table, path, f"from {before} to {after}")

    merging = Merging(
        automatic=automatic if is_enabled(protocol, metadata) else Automatic.NEVER,
        for_iceberg=keeps_to_iceberg(protocol),
        stored_alike=not is_supported(protocol),
        keeps_types=keeps_types,
        check=check,
    )
    schema = merged(table, data, merging)
    if schema == table:
        return metadata
    check_added(metadata, schema, table)
    return with_schema(metadata, schema, protocol)


def overwritten(metadata: Metadata, data: StructType, partition_columns: Sequence[str]) -> Metadata:
    """Return a table's metadata after a write that replaces all its rows and its schema.

    CHECK constraints stay, so the columns they name must. `map_columns(..., overwrites=True)` finds
    the columns that keep their ids and names.
    Raises: InvalidRequest, naming the column.
    """
    table, schema = parse_schema(metadata.schema_string), as_data(data)
    check_added(metadata, schema, StructType())
    for check in checks(metadata):
        used = columns_in(check.expression, table) or ()
        missing = sorted({dotted(path[:1]) for path in used if find_field(schema, path[0]) is None})
        if missing:
            raise InvalidRequest(
                f"CHECK constraint {check.name!r} ({check.expression}) names {', '.join(missing)}, "
                "which what is written lacks; drop the constraint first",
                error_class="DELTA_INVALID_CHECK_CONSTRAINT_REFERENCES",
            )
    columns = partitioned_by(schema, partition_columns)
    if schema == table and columns == metadata.partition_columns:
        return metadata
    return metadata.with_(schema_string=format_schema(schema), partition_columns=columns)


def partitioned_by(schema: StructType, names: Sequence[str]) -> tuple[str, ...]:
    """Return the partition columns as the schema writes them.

    Raises: InvalidRequest for columns by which a table can't be partitioned.
    Spec: "Partition Value Serialization"
    """
    columns: list[str] = []
    for name in names:
        column = find_field(schema, name)
        if column is None or column.name in columns:
            raise InvalidRequest(
                f"partition column {name!r} is named twice, or is no column; there are "
                f"{', '.join(schema.names)}",
                error_class="DELTA_PARTITION_COLUMN_NOT_FOUND",
            )
        if isinstance(column.kind, StructType | ArrayType | MapType) or (
            column.kind in (VARIANT, VOID) or is_geospatial(column.kind)
        ):
            raise InvalidRequest(
                f"partition column {column.name!r} has type {column.kind}; choose one of a plain "
                "type",
                error_class="DELTA_INVALID_PARTITION_COLUMN_TYPE",
            )
        columns.append(column.name)
    if columns and len(columns) == len(schema):
        raise InvalidRequest(
            "every column is a partition column; leave one for the data files",
            error_class="DELTA_CANNOT_USE_ALL_COLUMNS_FOR_PARTITION",
        )
    return tuple(columns)


def check_added(metadata: Metadata, schema: StructType, before: StructType) -> None:
    """Refuse a new schema with illegal names, or names that the change feed reserves.

    Raises: InvalidRequest, naming the columns.
    Spec: "Writer Requirements for AddCDCFile"
    """
    check_names(schema, is_mapped=mode_of(metadata) is not ColumnMappingMode.NONE)
    if not table_properties.change_feed_enabled(metadata):
        return
    added = [field.name for field in schema if before.get(field.name) is None]
    reserved = [name for name in added if name.lower() in RESERVED_BY_CHANGES]
    if reserved:
        raise InvalidRequest(
            f"the columns {', '.join(reserved)} are called as those of the change feed, which the "
            "table has; rename them",
            error_class="RESERVED_CDC_COLUMNS_ON_WRITE",
        )


def _check_independent(metadata: Metadata, table: StructType, path: FieldPath, change: str) -> None:
    """Refuse to change a type on which a constraint or a generated column depends."""
    refused = f"column {dotted(path)!r} can't be changed {change}"
    column = field_at(table, path[:1])
    check_alterable(column)
    if is_generated(column):
        raise InvalidRequest(
            f"{refused}: it is generated by an expression of that type; cast what is written",
            error_class="DELTA_GENERATED_COLUMN_UPDATE_TYPE_MISMATCH",
        )
    constraints = constraints_on(metadata, table, path)
    if constraints:
        raise InvalidRequest(
            f"{refused}: {listed(constraints)} of the table name it; drop them first",
            error_class="DELTA_CONSTRAINT_DATA_TYPE_MISMATCH",
        )
    generated = generated_from(table, path)
    if generated:
        raise InvalidRequest(
            f"{refused}: the generated columns {listed(generated)} are computed from it; cast what "
            "is written",
            error_class="DELTA_GENERATED_COLUMNS_DATA_TYPE_MISMATCH",
        )
