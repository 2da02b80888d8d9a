"""Column mapping as writers keep it: which fields get which ids and physical names, for ever.

Every change of a table's metadata passes `map_columns`, which gives new fields what they lack and
takes nothing from the others. Physical names arrive from outside: nothing here is made by chance.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import count
from typing import Final

from tidegate.delta.actions import Metadata
from tidegate.delta.errors import InvalidRequest
from tidegate.delta.schema.column_ids import (
    MAX_COLUMN_ID,
    check_assigned,
    check_kept,
    largest_id,
    max_column_id,
    nested_ids,
)
from tidegate.delta.schema.columns import (
    Path,
    check_names,
    dotted,
    field_paths,
    illegal_name,
    steps_inside,
    transform,
)
from tidegate.delta.schema.mapping import (
    FIELD_ID,
    NESTED_IDS,
    PHYSICAL_NAME,
    Mode,
    mode_of,
    physical_name,
)
from tidegate.delta.schema.types import (
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    format_schema,
    parse_schema,
    walk,
)

MODE: Final = "delta.columnMapping.mode"

MAPPING_KEYS: Final = frozenset(
    {FIELD_ID, PHYSICAL_NAME, NESTED_IDS, "parquet.field.id", "parquet.field.nested.ids"}
)
"""What column mapping keeps in the metadata of a field."""

_NESTED_BY: Final = ("delta.enableIcebergCompatV2", "delta.enableIcebergCompatV3")


def physical_names(uuids: Iterable[object]) -> Iterator[str]:
    """Yield physical names for new columns, each from a UUID.

    Spec: "Writer Requirements for Column Mapping"
    """
    return (f"col-{one}" for one in uuids)


def map_columns(
    before: Metadata | None, after: Metadata, names: Iterator[str], *, overwrites: bool = False
) -> Metadata:
    """Return new metadata with each field under column mapping given its id and physical name.

    `before` is None for a table that is to be created. `names` yields unused physical names. A
    table whose mapping begins keeps its columns' names as physical names. `overwrites` says that
    all files are replaced: columns of the same path and type then go on under their old ids and
    names, and the mapping may end.
    Law: map_columns(b, map_columns(b, a, n), n) == map_columns(b, a, n)
    Raises: InvalidRequest for a change of mode that is not allowed, and what is illegal after it.
    Spec: "Writer Requirements for Column Mapping"
    """
    mode = mode_of(after)
    was = mode if before is None else mode_of(before)
    schema = parse_schema(after.schema_string)
    old = parse_schema(before.schema_string) if before else StructType()
    if was is not mode and not (overwrites and mode is Mode.NONE):
        _check_mode_change(was, mode, old)
    if before is None or schema != old:
        check_names(schema, is_mapped=mode is not Mode.NONE)
    if mode is Mode.NONE:
        stray = _is_mapped(schema) and not _is_mapped(old)
        return _with_schema(after, unmapped(schema)) if stray else after
    if was is not mode and len(old):
        schema = _named_as_they_are(schema, old)
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
    if was is mode:
        check_kept(old, schema, mode)
    return mapped


def unmapped(schema: StructType) -> StructType:
    """Return the schema without what column mapping keeps in it.

    Spec: "Column Mapping"
    """
    return transform(
        schema,
        lambda _, one: replace(
            one, metadata={k: v for k, v in one.metadata.items() if k not in MAPPING_KEYS}
        ),
    )


def without_mapping(metadata: Metadata) -> Metadata:
    """Return the metadata of a table whose files have all been rewritten under their logical names.

    Raises: InvalidRequest for column names that files can't spell.
    Spec: "Column Mapping"
    """
    schema = unmapped(parse_schema(metadata.schema_string))
    illegal = [dotted(path) for path, one in field_paths(schema) if illegal_name(one.name)]
    if illegal:
        raise InvalidRequest(
            f"column mapping can't be removed: the columns {', '.join(illegal)} have signs that "
            "files can't spell; rename them first",
            error_class="DELTA_INVALID_COLUMN_NAMES_WHEN_REMOVING_COLUMN_MAPPING",
        )
    gone = (MODE, MAX_COLUMN_ID)
    kept = {key: text for key, text in metadata.configuration.items() if key not in gone}
    return _with_schema(metadata.with_(configuration=kept), schema)


def _check_mode_change(was: Mode, mode: Mode, old: StructType) -> None:
    if (was, mode) != (Mode.NONE, Mode.NAME):
        raise InvalidRequest(
            f"column mapping can't be changed from {was.value!r} to {mode.value!r}: without its "
            "files rewritten a table may only go from 'none' to 'name'; write a new table instead",
            error_class="DELTA_UNSUPPORTED_COLUMN_MAPPING_MODE_CHANGE",
        )
    if _is_mapped(old):
        raise InvalidRequest(
            "column mapping can't be enabled: the schema holds ids or physical names of an earlier "
            "mapping, which may be wrong; write a new table instead",
            error_class="DELTA_ENABLING_COLUMN_MAPPING_DISALLOWED_WHEN_COLUMN_MAPPING_METADATA_"
            "ALREADY_EXISTS",
        )


def _named_as_they_are(schema: StructType, old: StructType) -> StructType:
    """Return the schema with the names that files know its columns by as physical names."""
    known = {tuple(part.lower() for part in path): one.name for path, one in field_paths(old)}

    def edit(path: Path, one: StructField) -> StructField:
        if PHYSICAL_NAME in one.metadata:
            return one
        name = known.get(tuple(part.lower() for part in path))
        if name is None:
            raise InvalidRequest(
                f"column {dotted(path)!r} can't be added while column mapping is enabled; do one "
                "after the other",
                error_class="DELTA_UNSUPPORTED_COLUMN_MAPPING_SCHEMA_CHANGE",
            )
        return _with(one, PHYSICAL_NAME, name)

    return transform(schema, edit)


def _as_before(schema: StructType, old: StructType) -> StructType:
    """Return the schema with ids and physical names of the columns that stay what they were."""
    known = {tuple(part.lower() for part in path): one for path, one in field_paths(old)}

    def edit(path: Path, one: StructField) -> StructField:
        found = known.get(tuple(part.lower() for part in path))
        if found is None or not _holds_as(found, one):
            return one
        kept = {key: found.metadata[key] for key in MAPPING_KEYS if key in found.metadata}
        return replace(one, metadata={**kept, **one.metadata})

    return transform(schema, edit)


def _holds_as(was: StructField, now: StructField) -> bool:
    return (now.nullable or not was.nullable) and _is_same(was.kind, now.kind)


def _is_same(was: DataType, now: DataType) -> bool:
    """Return whether a type is one of before, nulls allowed at least where they were."""
    match was, now:
        case StructType(), StructType():
            return was.names == now.names and all(map(_holds_as, was.fields, now.fields))
        case ArrayType(), ArrayType():
            loosened = now.contains_null or not was.contains_null
            return loosened and _is_same(was.element, now.element)
        case MapType(), MapType():
            loosened = now.value_contains_null or not was.value_contains_null
            return loosened and _is_same(was.key, now.key) and _is_same(was.value, now.value)
        case _:
            return was == now


def _assigned(schema: StructType, ids: Iterator[int], names: Iterator[str]) -> StructType:
    def edit(path: Path, one: StructField) -> StructField:
        if FIELD_ID not in one.metadata:
            one = _with(one, FIELD_ID, next(ids))
        if PHYSICAL_NAME not in one.metadata:
            one = _with(one, PHYSICAL_NAME, _next_name(names, path))
        return one

    return transform(schema, edit)


def _next_name(names: Iterator[str], path: Path) -> str:
    name = next(names, None)
    if name is None:
        raise InvalidRequest(
            f"column {dotted(path)!r} needs a physical name and none was left; give more",
            error_class="ColumnMappingException",
        )
    return name


def _with_nested_ids(schema: StructType, ids: Iterator[int]) -> StructType:
    def edit(_: Path, one: StructField) -> StructField:
        known = dict(nested_ids(one))
        for key in _nested_keys(one.kind, physical_name(one, Mode.NAME)):
            if key not in known:
                known[key] = next(ids)
        return _with(one, NESTED_IDS, known)

    return transform(schema, edit)


def _nested_keys(kind: DataType, above: str) -> Iterator[str]:
    """Yield what the elements, keys and values of a type are called, up to the next struct."""
    for step, inner in steps_inside(kind):
        key = f"{above}.{step}"
        yield key
        yield from _nested_keys(inner, key)


def _is_mapped(schema: StructType) -> bool:
    return any(not MAPPING_KEYS.isdisjoint(one.metadata) for one in walk(schema))


def _with(one: StructField, key: str, value: object) -> StructField:
    return replace(one, metadata={**one.metadata, key: value})


def _with_schema(metadata: Metadata, schema: StructType) -> Metadata:
    return metadata.with_(schema_string=format_schema(schema))
