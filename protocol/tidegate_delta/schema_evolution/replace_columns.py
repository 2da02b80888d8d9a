"""`ALTER TABLE ... REPLACE COLUMNS`: list all columns of a table again.

Order and comments may change, and columns may be added or dropped. The files stay as they are.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tidegate_delta.constraints.identity_columns import identity_of
from tidegate_delta.errors import InvalidRequest
from tidegate_delta.log.actions import Metadata, Protocol
from tidegate_delta.schema.char_varchar import keep_limits
from tidegate_delta.schema.column_mapping import ColumnMappingMode, mode_of
from tidegate_delta.schema.field_paths import ELEMENT, KEY, VALUE, FieldPath, dotted, find_field
from tidegate_delta.schema.types import (
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    parse_schema,
)
from tidegate_delta.schema_evolution.alter_columns import COMMENT, check_independent
from tidegate_delta.schema_evolution.evolve_on_write import check_added
from tidegate_delta.schema_evolution.schema_merge import as_data
from tidegate_delta.schema_evolution.type_changes import check_change, with_schema


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
