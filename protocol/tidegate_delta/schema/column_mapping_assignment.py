"""Assign and check the permanent ids and physical names of column mapping.

Every change of a table's metadata passes `map_columns`, which assigns ids and names to new fields
and keeps those of the others. The caller supplies physical names: nothing here is random.

Spec: "Writer Requirements for Column Mapping"
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import count
from typing import Any, Final

from tidegate_delta.errors import InvalidRequest
from tidegate_delta.log.actions import Metadata
from tidegate_delta.schema.column_mapping import (
    FIELD_ID,
    NESTED_IDS,
    PHYSICAL_NAME,
    ColumnMappingMode,
    field_id,
    mode_of,
    physical_name,
    to_physical,
)
from tidegate_delta.schema.field_paths import (
    FieldPath,
    check_names,
    dotted,
    field_paths,
    illegal_name,
    steps_inside,
    transform,
)
from tidegate_delta.schema.types import (
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    format_schema,
    parse_schema,
    walk,
)

MAX_COLUMN_ID: Final = "delta.columnMapping.maxColumnId"
ID_MAX: Final = 2**31 - 1

_DIGITS_MAX: Final = 19


def check_assigned(metadata: Metadata) -> None:
    """Refuse metadata whose mapped columns lack an id or a name, share one, or exceed the maximum.

    Raises: InvalidRequest, naming the column.
    """
    mode = mode_of(metadata)
    if mode is ColumnMappingMode.NONE:
        return
    schema = parse_schema(metadata.schema_string)
    path_by_id: dict[int, FieldPath] = {}
    for path, field in field_paths(schema):
        _check_field(path, field)
        for number in _ids(field):
            if number in path_by_id:
                raise _broken(path, f"shares the id {number} with {dotted(path_by_id[number])!r}")
            path_by_id[number] = path
    physical: set[FieldPath] = set()
    for physical_path, (path, _) in _physical_paths(schema, mode):
        if physical_path in physical:
            raise _broken(path, f"shares its physical path {dotted(physical_path)!r} with another")
        physical.add(physical_path)
    _check_maximum(metadata, max(path_by_id, default=0))


def check_kept(before: StructType, after: StructType, mode: ColumnMappingMode) -> None:
    """Refuse a schema that gives an existing column another id, or its id to another column.

    Raises: InvalidRequest, naming the column.
    """
    ids: dict[FieldPath, int] = {}
    names: dict[int, str] = {}
    for physical_path, (_, field) in _physical_paths(before, mode):
        number = field_id(field)
        if number is not None:
            ids[physical_path], names[number] = number, physical_name(field, mode)
    for physical_path, (path, field) in _physical_paths(after, mode):
        number = field_id(field)
        if number is None:
            continue
        if ids.get(physical_path, number) != number:
            raise _broken(path, f"had the id {ids[physical_path]} and would get {number}")
        if names.get(number, physical_name(field, mode)) != physical_name(field, mode):
            raise _broken(path, f"would get the id of another column, {number}")


def max_column_id(metadata: Metadata) -> int:
    """Return the largest column id ever assigned in a table, as its metadata records it.

    Raises: InvalidRequest for a record that is no number.
    """
    text = metadata.configuration.get(MAX_COLUMN_ID, "0").strip()
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX):
        raise InvalidRequest(
            f"table property {MAX_COLUMN_ID!r} is {text!r}; expected a whole number: restore the "
            "table to a version before it was changed",
            error_class="InvalidTableProperty",
        )
    return int(text)


def largest_id(schema: StructType) -> int:
    """Return the largest id in a schema, including elements, keys and values; 0 without any.

    Spec: "Writer Requirements for IcebergCompatV2"
    """
    return max((number for field in walk(schema) for number in _ids(field)), default=0)


def nested_ids(field: StructField) -> Mapping[str, Any]:
    """Return the ids that a field's metadata holds for the elements, keys and values inside it.

    Spec: "Writer Requirements for IcebergCompatV2"
    """
    ids = field.metadata.get(NESTED_IDS)
    return ids if isinstance(ids, dict) else {}


def _physical_paths(
    schema: StructType, mode: ColumnMappingMode
) -> Iterator[tuple[FieldPath, tuple[FieldPath, StructField]]]:
    """Yield the physical path of each field, and its logical path with the field."""
    physical = (path for path, _ in field_paths(to_physical(schema, mode)))
    return zip(physical, field_paths(schema), strict=True)


def _ids(field: StructField) -> Iterator[int]:
    own = field_id(field)
    if own is not None:
        yield own
    for number in nested_ids(field).values():
        if isinstance(number, int) and not isinstance(number, bool):
            yield number


def _check_field(path: FieldPath, field: StructField) -> None:
    if field_id(field) is None:
        raise _broken(path, "has no id")
    if not isinstance(field.metadata.get(PHYSICAL_NAME), str) or not field.metadata[PHYSICAL_NAME]:
        raise _broken(path, "has no physical name")
    nested = field.metadata.get(NESTED_IDS, {})
    numbers = nested.values() if isinstance(nested, dict) else (None,)
    if any(isinstance(number, bool) or not isinstance(number, int) for number in numbers):
        raise _broken(path, f"has ids inside it that are none: {nested!r}")


def _check_maximum(metadata: Metadata, largest: int) -> None:
    if MAX_COLUMN_ID not in metadata.configuration:
        raise InvalidRequest(
            f"the table maps its columns, and its property {MAX_COLUMN_ID!r} is not set; set it to "
            f"{largest} at least",
            error_class="DELTA_COLUMN_MAPPING_MAX_COLUMN_ID_NOT_SET",
        )
    recorded = max_column_id(metadata)
    if not largest <= recorded <= ID_MAX:
        raise InvalidRequest(
            f"table property {MAX_COLUMN_ID!r} is {recorded}; expected a number from {largest}, "
            f"the largest id of a column, to {ID_MAX}",
            error_class="DELTA_COLUMN_MAPPING_MAX_COLUMN_ID_NOT_SET_CORRECTLY",
        )


def _broken(path: FieldPath, problem: str) -> InvalidRequest:
    return InvalidRequest(
        f"the table maps its columns, and column {dotted(path)!r} {problem}",
        error_class="ColumnMappingException",
        remedy="restore the table to a version before its schema was changed",
    )


MODE: Final = "delta.columnMapping.mode"

MAPPING_KEYS: Final = frozenset(
    {FIELD_ID, PHYSICAL_NAME, NESTED_IDS, "parquet.field.id", "parquet.field.nested.ids"}
)
"""The metadata keys of a field that belong to column mapping."""

_NESTED_BY: Final = ("delta.enableIcebergCompatV2", "delta.enableIcebergCompatV3")


def physical_names(uuids: Iterable[object]) -> Iterator[str]:
    """Yield physical names for new columns, one for each UUID."""
    return (f"col-{uuid}" for uuid in uuids)


def map_columns(
    before: Metadata | None, after: Metadata, names: Iterator[str], *, overwrites: bool = False
) -> Metadata:
    """Return new metadata in which each field under column mapping has an id and a physical name.

    `before` is None for a table that is to be created. `names` yields unused physical names. When
    mapping is turned on, the columns' names become their physical names. `overwrites` says that all
    files are replaced: then columns of the same path and type keep their ids and names, and the
    mapping may be turned off.
    Law: map_columns(b, map_columns(b, a, n), n) == map_columns(b, a, n)
    Raises: InvalidRequest for a change of mode that is not allowed, and for an invalid result.
    """
    mode = mode_of(after)
    old_mode = mode if before is None else mode_of(before)
    schema = parse_schema(after.schema_string)
    old = parse_schema(before.schema_string) if before else StructType()
    if old_mode is not mode and not (overwrites and mode is ColumnMappingMode.NONE):
        _check_mode_change(old_mode, mode, old)
    if before is None or schema != old:
        check_names(schema, is_mapped=mode is not ColumnMappingMode.NONE)
    if mode is ColumnMappingMode.NONE:
        stray = _is_mapped(schema) and not _is_mapped(old)
        return _with_schema(after, unmapped(schema)) if stray else after
    if old_mode is not mode and len(old):
        schema = _with_logical_as_physical(schema, old)
    if overwrites:
        schema = _as_before(schema, old)
    last = max(largest_id(schema), largest_id(old), max_column_id(after))
    last = max(last, max_column_id(before) if before else 0)
    ids = count(last + 1)
    schema = _assigned(schema, ids, names)
    if any(after.configuration.get(key, "").strip().lower() == "true" for key in _NESTED_BY):
        schema = _with_nested_ids(schema, ids)
    last = max(last, largest_id(schema))
    mapped = after.with_(configuration={**after.configuration, MAX_COLUMN_ID: str(last)})
    mapped = _with_schema(mapped, schema)
    check_assigned(mapped)
    if old_mode is mode:
        check_kept(old, schema, mode)
    return mapped


def unmapped(schema: StructType) -> StructType:
    """Return the schema without the metadata of column mapping.

    Spec: "Column Mapping"
    """
    return transform(
        schema,
        lambda _, field: replace(
            field, metadata={k: v for k, v in field.metadata.items() if k not in MAPPING_KEYS}
        ),
    )


def without_mapping(metadata: Metadata) -> Metadata:
    """Return the metadata of a table whose files have all been rewritten under their logical names.

    Raises: InvalidRequest for column names that files can't contain.
    Spec: "Column Mapping"
    """
    schema = unmapped(parse_schema(metadata.schema_string))
    illegal = [dotted(path) for path, field in field_paths(schema) if illegal_name(field.name)]
    if illegal:
        raise InvalidRequest(
            f"column mapping can't be removed: the columns {', '.join(illegal)} have signs that "
            "files can't spell; rename them first",
            error_class="DELTA_INVALID_COLUMN_NAMES_WHEN_REMOVING_COLUMN_MAPPING",
        )
    mapping_properties = (MODE, MAX_COLUMN_ID)
    kept = {
        key: text for key, text in metadata.configuration.items() if key not in mapping_properties
    }
    return _with_schema(metadata.with_(configuration=kept), schema)


def _check_mode_change(
    old_mode: ColumnMappingMode, mode: ColumnMappingMode, old: StructType
) -> None:
    if (old_mode, mode) != (ColumnMappingMode.NONE, ColumnMappingMode.NAME):
        raise InvalidRequest(
            f"column mapping can't be changed from {old_mode.value!r} to {mode.value!r}: without "
            "its files rewritten a table may only go from 'none' to 'name'; write a new table "
            "instead",
            error_class="DELTA_UNSUPPORTED_COLUMN_MAPPING_MODE_CHANGE",
        )
    if _is_mapped(old):
        raise InvalidRequest(
            "column mapping can't be enabled: the schema holds ids or physical names of an earlier "
            "mapping, which may be wrong; write a new table instead",
            error_class="DELTA_ENABLING_COLUMN_MAPPING_DISALLOWED_WHEN_COLUMN_MAPPING_METADATA_"
            "ALREADY_EXISTS",
        )


def _with_logical_as_physical(schema: StructType, old: StructType) -> StructType:
    """Return the schema with the columns' existing names as physical names."""
    known = {tuple(part.lower() for part in path): field.name for path, field in field_paths(old)}

    def edit(path: FieldPath, field: StructField) -> StructField:
        if PHYSICAL_NAME in field.metadata:
            return field
        name = known.get(tuple(part.lower() for part in path))
        if name is None:
            raise InvalidRequest(
                f"column {dotted(path)!r} can't be added while column mapping is enabled; do one "
                "after the other",
                error_class="DELTA_UNSUPPORTED_COLUMN_MAPPING_SCHEMA_CHANGE",
            )
        return _with(field, PHYSICAL_NAME, name)

    return transform(schema, edit)


def _as_before(schema: StructType, old: StructType) -> StructType:
    """Return the schema with the old ids and physical names of columns of equal path and type."""
    known = {tuple(part.lower() for part in path): field for path, field in field_paths(old)}

    def edit(path: FieldPath, field: StructField) -> StructField:
        old_field = known.get(tuple(part.lower() for part in path))
        if old_field is None or not _holds_as(old_field, field):
            return field
        kept = {key: old_field.metadata[key] for key in MAPPING_KEYS if key in old_field.metadata}
        return replace(field, metadata={**kept, **field.metadata})

    return transform(schema, edit)


def _holds_as(before: StructField, after: StructField) -> bool:
    return (after.nullable or not before.nullable) and _is_same(before.kind, after.kind)


def _is_same(before: DataType, after: DataType) -> bool:
    """Return whether a type is unchanged, apart from allowing more nulls."""
    match before, after:
        case StructType(), StructType():
            return before.names == after.names and all(map(_holds_as, before.fields, after.fields))
        case ArrayType(), ArrayType():
            loosened = after.contains_null or not before.contains_null
            return loosened and _is_same(before.element, after.element)
        case MapType(), MapType():
            loosened = after.value_contains_null or not before.value_contains_null
            return (
                loosened and _is_same(before.key, after.key) and _is_same(before.value, after.value)
            )
        case _:
            return before == after


def _assigned(schema: StructType, ids: Iterator[int], names: Iterator[str]) -> StructType:
    def edit(path: FieldPath, field: StructField) -> StructField:
        if FIELD_ID not in field.metadata:
            field = _with(field, FIELD_ID, next(ids))
        if PHYSICAL_NAME not in field.metadata:
            field = _with(field, PHYSICAL_NAME, _next_name(names, path))
        return field

    return transform(schema, edit)


def _next_name(names: Iterator[str], path: FieldPath) -> str:
    name = next(names, None)
    if name is None:
        raise InvalidRequest(
            f"column {dotted(path)!r} needs a physical name and none was left; give more",
            error_class="ColumnMappingException",
        )
    return name


def _with_nested_ids(schema: StructType, ids: Iterator[int]) -> StructType:
    def edit(_: FieldPath, field: StructField) -> StructField:
        known = dict(nested_ids(field))
        for key in _nested_keys(field.kind, physical_name(field, ColumnMappingMode.NAME)):
            if key not in known:
                known[key] = next(ids)
        return _with(field, NESTED_IDS, known)

    return transform(schema, edit)


def _nested_keys(kind: DataType, above: str) -> Iterator[str]:
    """Yield the nested-id keys of a type's elements, keys and values, down to the next struct."""
    for step, inner in steps_inside(kind):
        key = f"{above}.{step}"
        yield key
        yield from _nested_keys(inner, key)


def _is_mapped(schema: StructType) -> bool:
    return any(not MAPPING_KEYS.isdisjoint(field.metadata) for field in walk(schema))


def _with(field: StructField, key: str, value: object) -> StructField:
    return replace(field, metadata={**field.metadata, key: value})


def _with_schema(metadata: Metadata, schema: StructType) -> Metadata:
    return metadata.with_(schema_string=format_schema(schema))
