"""ALTER TABLE: add, drop, rename, move and change single columns.

Each function takes a table's metadata and returns the changed one. New columns get their ids and
physical names afterwards, by `column_mapping_assignment.map_columns`.

`replace_columns` is `REPLACE COLUMNS`, which lists all columns of a table again: order and comments
may change, and columns may be added or dropped. The files stay as they are.

Spec: "Struct Type"
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tidegate_delta.constraints.column_defaults import check_no_default
from tidegate_delta.constraints.generated_columns import generated_from, is_generated
from tidegate_delta.constraints.identity_columns import check_alterable, identity_of
from tidegate_delta.constraints.row_constraints import constraints_on
from tidegate_delta.errors import InvalidRequest
from tidegate_delta.log.actions import Metadata, Protocol
from tidegate_delta.properties import table_properties
from tidegate_delta.schema.char_varchar import keep_limits, limited, limits, loosens, parse_limit
from tidegate_delta.schema.column_mapping import ColumnMappingMode, mode_of, physical_path
from tidegate_delta.schema.field_paths import (
    ELEMENT,
    KEY,
    VALUE,
    FieldPath,
    dotted,
    edit_at,
    field_at,
    find_field,
    kind_at,
    resolve,
    same_name,
    set_at,
)
from tidegate_delta.schema.sql_column_references import listed
from tidegate_delta.schema.types import (
    STRING,
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    format_schema,
    parse_schema,
    walk,
)
from tidegate_delta.schema_evolution.evolve_on_write import as_data, check_added
from tidegate_delta.schema_evolution.type_changes import changed, check_change, with_schema

COMMENT: Final = "comment"
STATISTICS_COLUMNS: Final = "delta.dataSkippingStatsColumns"


@dataclass(frozen=True)
class FieldPosition:
    """The position of a field in its struct: first, after a named field, or (neither given)
    last.
    """

    is_first: bool = False
    after: str | None = None


LAST: Final = FieldPosition()
FIRST: Final = FieldPosition(is_first=True)


def add_column(
    metadata: Metadata,
    column: StructField,
    parent: Sequence[str] = (),
    position: FieldPosition = LAST,
) -> Metadata:
    """Return a table's metadata with a new column, or a new field of the struct at a path.

    Raises: InvalidRequest for a column that existing rows can't lack, and for illegal names.
    Spec: "Change Metadata"
    """
    schema = parse_schema(metadata.schema_string)
    column_struct = StructType((column,))
    check_no_default(column)
    if any(not field.nullable or _is_computed(field) for field in walk(column_struct)):
        raise InvalidRequest(
            f"column {dotted((*parent, column.name))!r} can't be added as NOT NULL, generated or "
            "numbered: the rows that are there lack it; add it as a plain column",
            error_class="DELTA_OPERATION_NOT_ALLOWED",
        )
    new = as_data(column_struct).fields[0]

    def edit(kind: DataType) -> DataType:
        if not isinstance(kind, StructType):
            raise InvalidRequest(
                f"{dotted(parent)!r} is a {kind} and takes no column {column.name!r}; name a "
                "struct",
                error_class="DELTA_ADD_COLUMN_PARENT_NOT_STRUCT",
            )
        return _placed(kind, new, position)

    altered = keep_limits(schema, edit_at(schema, parent, edit))
    check_added(metadata, altered, schema)
    return metadata.with_(schema_string=format_schema(altered))


def drop_column(
    metadata: Metadata, path: Sequence[str], clustered_by: Collection[FieldPath] = ()
) -> Metadata:
    """Return a table's metadata without a column. `clustered_by` are physical paths.

    Raises: InvalidRequest without column mapping, for the last field of its struct, and for a
    column that others depend on.
    Spec: "Column Mapping"
    """
    schema = parse_schema(metadata.schema_string)
    resolved, parent = _in_struct(schema, path)
    mode = mode_of(metadata)
    if mode is ColumnMappingMode.NONE:
        raise _unmapped("dropped", "DELTA_UNSUPPORTED_DROP_COLUMN")
    name = dotted(resolved)
    if len(parent) == 1:
        raise InvalidRequest(
            f"column {name!r} is the only one of its struct; drop the struct, or add another",
            error_class="DELTA_DROP_COLUMN_ON_SINGLE_FIELD_SCHEMA",
        )
    if len(resolved) == 1 and any(
        same_name(partition_column, resolved[0]) for partition_column in metadata.partition_columns
    ):
        raise InvalidRequest(
            f"the table is partitioned by {name!r}, which can't be dropped",
            error_class="DELTA_UNSUPPORTED_DROP_PARTITION_COLUMN",
        )
    physical = physical_path(schema, resolved, mode)
    if any(tuple(clustering_path)[: len(physical)] == physical for clustering_path in clustered_by):
        raise InvalidRequest(
            f"the table is clustered by {name!r}; cluster it by other columns first",
            error_class="DELTA_UNSUPPORTED_DROP_CLUSTERING_COLUMN",
        )
    check_independent(metadata, resolved)
    rest = StructType(tuple(field for field in parent if field.name != resolved[-1]))
    altered = keep_limits(schema, set_at(schema, resolved[:-1], rest))
    if len(altered) == len(metadata.partition_columns):
        raise InvalidRequest(
            f"column {name!r} is the last one that is no partition column; add another first",
            error_class="DELTA_CANNOT_USE_ALL_COLUMNS_FOR_PARTITION",
        )
    new = metadata.with_(schema_string=format_schema(altered))
    return _with_statistics_columns(new, resolved, None)


def rename_column(metadata: Metadata, path: Sequence[str], name: str) -> Metadata:
    """Return a table's metadata with a column renamed; its physical name stays.

    Partition columns and properties follow.
    Law: rename_column(rename_column(m, p, n), p', old name) == m
    Raises: InvalidRequest without column mapping, for a name that is taken, and for a column that
    others depend on.
    Spec: "Column Mapping"
    """
    schema = parse_schema(metadata.schema_string)
    resolved, parent = _in_struct(schema, path)
    if mode_of(metadata) is ColumnMappingMode.NONE:
        raise _unmapped("renamed", "DELTA_UNSUPPORTED_RENAME_COLUMN")
    if name == resolved[-1]:
        return metadata
    check_independent(metadata, resolved)
    fields = tuple(
        replace(field, name=name) if field.name == resolved[-1] else field
        for field in parent.fields
    )
    altered = set_at(schema, resolved[:-1], StructType(fields))
    check_added(metadata, altered, schema)
    new_path = (*resolved[:-1], name)
    if len(resolved) > 1:
        altered = keep_limits(schema, altered, (resolved, new_path))
    columns = tuple(
        name
        if len(resolved) == 1 and same_name(partition_column, resolved[0])
        else partition_column
        for partition_column in metadata.partition_columns
    )
    new = metadata.with_(schema_string=format_schema(altered), partition_columns=columns)
    return _with_statistics_columns(new, resolved, new_path)


def move_column(metadata: Metadata, path: Sequence[str], position: FieldPosition) -> Metadata:
    """Return a table's metadata with a column at another position in its struct.

    Raises: InvalidRequest for a path or a neighbour that does not exist.
    """
    schema = parse_schema(metadata.schema_string)
    resolved, parent = _in_struct(schema, path)
    column = field_at(schema, resolved)
    if position.after is not None and same_name(position.after, column.name):
        return metadata
    rest = StructType(tuple(field for field in parent if field.name != resolved[-1]))
    altered = set_at(schema, resolved[:-1], _placed(rest, column, position))
    return metadata.with_(schema_string=format_schema(keep_limits(schema, altered)))


def change_type(
    metadata: Metadata, protocol: Protocol, path: Sequence[str], kind: DataType
) -> Metadata:
    """Return a table's metadata with another type at a path: a column, an element, key or value.

    Raises: InvalidRequest for a change that the table does not allow, or of a type that others
    depend on.
    Spec: "Writer Requirements for Type Widening"
    """
    schema = parse_schema(metadata.schema_string)
    resolved = resolve(schema, path)
    current = kind_at(schema, resolved)
    steps = tuple(changed(current, kind))
    altered = schema
    for step in steps:
        changed_path = (*resolved, *step.path)
        check_change(changed_path, step.before, step.after, protocol, metadata)
        altered = set_at(altered, changed_path, step.after)
    if kind_at(altered, resolved) != kind:
        raise _unsupported(
            resolved, f"from {current} to {kind}: change what is inside, or its nulls"
        )
    if not steps:
        return metadata
    check_alterable(field_at(schema, resolved[:1]))
    check_independent(metadata, resolved)
    return with_schema(metadata, keep_limits(schema, altered), protocol)


def change_limit(metadata: Metadata, path: Sequence[str], text: str) -> Metadata:
    """Return a table's metadata with another length limit on a string, such as `varchar(10)`.

    Raises: InvalidRequest for a type that is no string, and a limit that existing strings may
    exceed.
    Spec: "Column Metadata"
    """
    schema = parse_schema(metadata.schema_string)
    resolved = resolve(schema, path)
    limit = parse_limit(text)
    column = field_at(schema, resolved[:1])
    known = limits(column)
    if kind_at(schema, resolved) != STRING or not loosens(known.get(resolved[1:]), limit):
        old_type = known.get(resolved[1:], kind_at(schema, resolved))
        raise _unsupported(
            resolved, f"from {old_type} to {text}: strings that are there may be longer"
        )
    kept_limits = {
        limited_path: limited_to
        for limited_path, limited_to in known.items()
        if limited_path != resolved[1:]
    }
    new = limited(column, kept_limits | ({resolved[1:]: limit} if limit else {}))
    return _with_field(metadata, schema, resolved[:1], new)


def allow_nulls(metadata: Metadata, path: Sequence[str]) -> Metadata:
    """Return a table's metadata with a column made nullable. The reverse is not supported.

    Raises: InvalidRequest for a path that is no column.
    Spec: "Struct Field"
    """
    schema = parse_schema(metadata.schema_string)
    field = field_at(schema, path)
    return _with_field(metadata, schema, path, replace(field, nullable=True))


def comment_on(metadata: Metadata, path: Sequence[str], comment: str | None) -> Metadata:
    """Return a table's metadata with a comment on a column, or with None, without one.

    Raises: InvalidRequest for a path that is no column.
    Spec: "Column Metadata"
    """
    schema = parse_schema(metadata.schema_string)
    field = field_at(schema, path)
    field_metadata = {key: value for key, value in field.metadata.items() if key != COMMENT}
    if comment is not None:
        field_metadata[COMMENT] = comment
    return _with_field(metadata, schema, path, replace(field, metadata=field_metadata))


def check_independent(metadata: Metadata, path: Sequence[str]) -> None:
    """Refuse to change a column that a constraint or a generated column may name.

    Raises: InvalidRequest, with the names and expressions.
    Spec: "Generated Columns"
    """
    schema = parse_schema(metadata.schema_string)
    refused = f"column {dotted(path)!r} can't be changed"
    constraints = constraints_on(metadata, schema, path)
    if constraints:
        raise InvalidRequest(
            f"{refused}: {listed(constraints)} of the table name it; drop them first",
            error_class="DELTA_CONSTRAINT_DEPENDENT_COLUMN_CHANGE",
        )
    generated = generated_from(schema, path)
    if generated:
        raise InvalidRequest(
            f"{refused}: the generated columns {listed(generated)} are computed from it; drop them "
            "first",
            error_class="DELTA_GENERATED_COLUMNS_DEPENDENT_COLUMN_CHANGE",
        )


def _is_computed(field: StructField) -> bool:
    return is_generated(field) or identity_of(field) is not None


def _in_struct(schema: StructType, path: Sequence[str]) -> tuple[FieldPath, StructType]:
    """Return the path of a field as the schema writes it, and the struct that holds it."""
    resolved = resolve(schema, path)
    parent = kind_at(schema, resolved[:-1]) if resolved else None
    if not isinstance(parent, StructType):
        raise InvalidRequest(
            f"{dotted(resolved)!r} is no field of a struct; name one, such as a column",
            error_class="DELTA_UNSUPPORTED_DROP_NESTED_COLUMN_FROM_NON_STRUCT_TYPE",
        )
    return resolved, parent


def _placed(struct: StructType, column: StructField, position: FieldPosition) -> StructType:
    fields = list(struct.fields)
    if position.is_first:
        return StructType((column, *fields))
    if position.after is None:
        return StructType((*fields, column))
    neighbour = find_field(struct, position.after)
    if neighbour is None:
        raise InvalidRequest(
            f"there is no column {position.after!r} to put {column.name!r} after; there are "
            f"{', '.join(struct.names)}",
            error_class="DELTA_COLUMN_NOT_FOUND_IN_SCHEMA",
        )
    index = fields.index(neighbour) + 1
    return StructType((*fields[:index], column, *fields[index:]))


def _with_field(
    metadata: Metadata, schema: StructType, path: Sequence[str], new: StructField
) -> Metadata:
    resolved, parent = _in_struct(schema, path)
    fields = tuple(new if field.name == resolved[-1] else field for field in parent)
    altered = set_at(schema, resolved[:-1], StructType(fields))
    return metadata.with_(schema_string=format_schema(altered))


def _with_statistics_columns(
    metadata: Metadata, path: FieldPath, new_path: FieldPath | None
) -> Metadata:
    """Return metadata whose list of statistics columns follows a renamed or dropped column."""
    known = table_properties.stats_columns(metadata)
    if known is None:
        return metadata
    kept = []
    for stats_path in known:
        is_inside = len(stats_path) >= len(path) and all(map(same_name, stats_path, path))
        if not is_inside:
            kept.append(stats_path)
        elif new_path is not None:
            kept.append((*new_path, *stats_path[len(path) :]))
    if tuple(kept) == known:
        return metadata
    own = {**metadata.configuration, STATISTICS_COLUMNS: ",".join(map(dotted, kept))}
    return metadata.with_(configuration=own)


def _unmapped(change: str, error_class: str) -> InvalidRequest:
    return InvalidRequest(
        f"columns of the table can't be {change}: its files know them by name; set "
        "delta.columnMapping.mode to name first",
        error_class=error_class,
    )


def _unsupported(path: FieldPath, change: str) -> InvalidRequest:
    return InvalidRequest(
        f"column {dotted(path)!r} can't be changed {change}",
        error_class="DELTA_UNSUPPORTED_ALTER_TABLE_CHANGE_COL_OP",
    )


def replace_columns(metadata: Metadata, protocol: Protocol, columns: StructType) -> Metadata:
    """Return a table's metadata with the columns of another schema; matching names keep the column.

    A kept column keeps its name, its id and its metadata; order, comment and nullability come from
    the other schema. New columns have no default.
    Law: replace_columns(m, p, schema of m) == m, where no two names are equal
    Raises: InvalidRequest, naming the column, for what the table's files do not allow.
    Spec: "Change Metadata"
    """
    table = parse_schema(metadata.schema_string)
    numbered = [column.name for column in table if identity_of(column) is not None]
    if numbered:
        raise InvalidRequest(
            f"the table numbers its column {dotted(numbered[:1])!r}, so its columns can't be "
            "replaced; change them one at a time",
            error_class="DELTA_IDENTITY_COLUMNS_REPLACE_COLUMN_NOT_SUPPORTED",
        )
    check_added(metadata, columns, table)
    replacing = _Replacing(metadata, protocol)
    schema = keep_limits(table, replacing.struct(table, columns, ()))
    if schema == table:
        return metadata
    return with_schema(metadata, schema, protocol)


@dataclass(frozen=True)
class _Replacing:
    metadata: Metadata
    protocol: Protocol

    def struct(self, before: StructType, after: StructType, above: FieldPath) -> StructType:
        """Return the fields of `after`, in its order, with what `before` has of them kept."""
        kept = [field for field in before if find_field(after, field.name) is not None]
        dropped = [field for field in before if find_field(after, field.name) is None]
        if dropped:
            self._check_gone(dropped, above, adds=len(kept) < len(after))
        return StructType(tuple(self._fields(before, after, above)))

    def _fields(
        self, before: StructType, after: StructType, above: FieldPath
    ) -> Iterator[StructField]:
        for field in after:
            old_field = find_field(before, field.name)
            if old_field is None:
                path = (*above, field.name)
                _check_nulls(path, may_be=field.nullable, might_be=True)
                yield as_data(StructType((field,))).fields[0]
                continue
            path = (*above, old_field.name)
            _check_nulls(path, may_be=field.nullable, might_be=old_field.nullable)
            field_metadata = {
                **old_field.metadata,
                **{k: v for k, v in field.metadata.items() if k == COMMENT},
            }
            kind = self._kind(old_field.kind, field.kind, path)
            yield replace(old_field, kind=kind, nullable=field.nullable, metadata=field_metadata)

    def _kind(self, before: DataType, after: DataType, path: FieldPath) -> DataType:
        match before, after:
            case StructType(), StructType():
                return self.struct(before, after, path)
            case ArrayType(), ArrayType():
                inner_path = (*path, ELEMENT)
                _check_nulls(inner_path, may_be=after.contains_null, might_be=before.contains_null)
                return replace(
                    before, element=self._kind(before.element, after.element, inner_path)
                )
            case MapType(), MapType():
                inner_path = (*path, VALUE)
                might_be = before.value_contains_null
                _check_nulls(inner_path, may_be=after.value_contains_null, might_be=might_be)
                key = self._kind(before.key, after.key, (*path, KEY))
                return replace(
                    before, key=key, value=self._kind(before.value, after.value, inner_path)
                )
        if before != after:
            check_change(path, before, after, self.protocol, self.metadata)
            check_independent(self.metadata, path)
        return after

    def _check_gone(self, dropped: list[StructField], above: FieldPath, *, adds: bool) -> None:
        names = ", ".join(dotted((*above, field.name)) for field in dropped)
        if adds:
            raise InvalidRequest(
                f"the columns {names} would go while others come, which may be meant as a rename; "
                "make one change at a time",
                error_class="DELTA_AMBIGUOUS_DATA_TYPE_CHANGE",
            )
        if mode_of(self.metadata) is ColumnMappingMode.NONE:
            raise _refusal(f"the columns {names} can't be dropped without column mapping")
        for field in dropped:
            if not above and field.name in self.metadata.partition_columns:
                raise _refusal(f"the table is partitioned by {dotted((field.name,))!r}")
            check_independent(self.metadata, (*above, field.name))


def _check_nulls(path: FieldPath, *, may_be: bool, might_be: bool) -> None:
    if might_be and not may_be:
        raise _refusal(f"rows that are there may hold nulls in {dotted(path)!r}")


def _refusal(reason: str) -> InvalidRequest:
    return InvalidRequest(
        f"the columns can't be replaced: {reason}; change the list of columns",
        error_class="DELTA_UNSUPPORTED_ALTER_TABLE_REPLACE_COL_OP",
    )
