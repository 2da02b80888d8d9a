"""Schema evolution: a table's metadata after rows of another schema are written.

`mergeSchema` is `evolved`, `overwriteSchema` is `overwritten`. Nothing is cast. New
fields get ids and physical names afterwards, by `column_mapping_assignment.map_columns`.
"""

from collections.abc import Sequence

from tidegate_delta.constraints.generated_columns import generated_from, is_generated
from tidegate_delta.constraints.identity_columns import check_alterable
from tidegate_delta.constraints.row_constraints import checks, constraints_on
from tidegate_delta.errors import InvalidRequest
from tidegate_delta.log.actions import Metadata, Protocol
from tidegate_delta.properties import table_properties
from tidegate_delta.schema.column_mapping import ColumnMappingMode, mode_of
from tidegate_delta.schema.field_paths import (
    RESERVED_BY_CHANGES,
    FieldPath,
    check_names,
    dotted,
    field_at,
    find_field,
)
from tidegate_delta.schema.sql_column_references import columns_in, listed
from tidegate_delta.schema.type_widening import Automatic
from tidegate_delta.schema.types import (
    VARIANT,
    VOID,
    ArrayType,
    DataType,
    MapType,
    StructType,
    format_schema,
    is_geospatial,
    parse_schema,
)
from tidegate_delta.schema_evolution.schema_merge import Merging, as_data, merged
from tidegate_delta.schema_evolution.type_changes import (
    is_enabled,
    is_supported,
    keeps_to_iceberg,
    with_schema,
)


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
    Spec: "Change Metadata"
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
    Spec: "Change Metadata"
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
