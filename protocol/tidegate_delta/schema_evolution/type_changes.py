"""Type changes as writers make them: check them and record them in the schema.

A change is recorded at the nearest field of a struct. Statistics and partition values of older
files stay as they were written; readers parse them as values of the wider type.

Spec: "Writer Requirements for Type Widening"
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from tidegate_delta.errors import InvalidRequest
from tidegate_delta.log.actions import Metadata, Protocol
from tidegate_delta.log.protocol_versions import writer_features
from tidegate_delta.schema.column_mapping import PHYSICAL_NAME
from tidegate_delta.schema.field_paths import (
    FieldPath,
    dotted,
    steps_inside,
    transform,
)
from tidegate_delta.schema.type_widening import (
    TYPE_CHANGES,
    TypeChange,
    widens,
    widens_for_iceberg,
)
from tidegate_delta.schema.types import (
    VOID,
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    format_schema,
    parse_schema,
)

ENABLED: Final = "delta.enableTypeWidening"

_FEATURES: Final = frozenset({"typeWidening", "typeWidening-preview"})
_ICEBERG: Final = ("icebergCompatV1", "icebergCompatV2", "icebergCompatV3")


def is_supported(protocol: Protocol) -> bool:
    """Return whether a table may have files with narrower types than its schema.

    Spec: "Type Widening"
    """
    return not _FEATURES.isdisjoint(writer_features(protocol))


def is_enabled(protocol: Protocol, metadata: Metadata) -> bool:
    """Return whether types of a table may be widened."""
    is_set = metadata.configuration.get(ENABLED, "").strip().lower() == "true"
    return is_set and is_supported(protocol)


def keeps_to_iceberg(protocol: Protocol) -> bool:
    """Return whether a table's types may be widened only in ways that Iceberg can read."""
    return not writer_features(protocol).isdisjoint(_ICEBERG)


def check_change(
    path: FieldPath, before: DataType, after: DataType, protocol: Protocol, metadata: Metadata
) -> None:
    """Refuse a change of a single type (no struct) that a table does not allow.

    Raises: InvalidRequest, naming the column and both types.
    """
    if before in (VOID, after):
        return
    change = f"column {dotted(path)!r} can't be changed from {before} to {after}"
    if not widens(before, after):
        raise InvalidRequest(
            f"{change}: files of the one type can't be read as the other; write a new column",
            error_class="DELTA_UNSUPPORTED_ALTER_TABLE_CHANGE_COL_OP",
        )
    if not is_enabled(protocol, metadata):
        raise InvalidRequest(
            f"{change}: type widening is not enabled; set {ENABLED} to true first",
            error_class="DELTA_UNSUPPORTED_ALTER_TABLE_CHANGE_COL_OP",
        )
    if keeps_to_iceberg(protocol) and not widens_for_iceberg(before, after):
        raise InvalidRequest(
            f"{change}: the table is to be read as an Iceberg table, and Iceberg lacks this change",
            error_class="DELTA_ICEBERG_COMPAT_VIOLATION",
        )


def changed(before: DataType, after: DataType) -> Iterator[TypeChange]:
    """Yield the differences of two types, through arrays and maps down to the next structs.

    Spec: "Type Change Metadata"
    """
    match before, after:
        case (StructType(), StructType()):
            return
        case (ArrayType(), ArrayType()) | (MapType(), MapType()):
            pairs = zip(steps_inside(before), steps_inside(after), strict=True)
            for (step, inner_before), (_, inner_after) in pairs:
                for change in changed(inner_before, inner_after):
                    yield TypeChange(change.before, change.after, (step, *change.path))
        case _:
            if before != after:
                yield TypeChange(before, after)


def record(schema: StructType, before: StructType, version: int | None = None) -> StructType:
    """Return a schema that records its type changes since `before`.

    Columns are paired by their physical names. Existing records are kept. `version` is for the
    preview of the feature, whose readers look for the table's version.
    Law: record(record(s, b), b) == record(s, b); record(s, s) == s
    Spec: "Type Change Metadata"
    """
    pairs = {
        path: old_field for path, old_field, _ in _pairs(before, schema, (), spelled_after=True)
    }

    def edit(path: FieldPath, field: StructField) -> StructField:
        return _recorded(pairs[path], field, version) if path in pairs else field

    return transform(schema, edit)


def with_schema(metadata: Metadata, schema: StructType, protocol: Protocol) -> Metadata:
    """Return metadata with another schema, with type changes recorded if the table asks for it."""
    if is_supported(protocol):
        schema = record(schema, parse_schema(metadata.schema_string))
    return metadata.with_(schema_string=format_schema(schema))


def _recorded(before: StructField, after: StructField, version: int | None) -> StructField:
    """Return a field with its recorded type changes and the new ones."""
    kept, own = _history(before), _history(after)
    if len(own) > len(kept) and own[: len(kept)] == kept:
        return after
    added = [
        _row(step, version)
        for step in changed(before.kind, after.kind)
        if step.before != VOID and widens(step.before, step.after)
    ]
    return _with_history(after, [*kept, *added])


def _history(field: StructField) -> list[Any]:
    recorded = field.metadata.get(TYPE_CHANGES)
    return list(recorded) if isinstance(recorded, list) else []


def _with_history(field: StructField, history: list[Any]) -> StructField:
    if _history(field) == history and bool(history) == (TYPE_CHANGES in field.metadata):
        return field
    rest: Mapping[str, Any] = {k: v for k, v in field.metadata.items() if k != TYPE_CHANGES}
    return replace(field, metadata={**rest, TYPE_CHANGES: history} if history else rest)


def _row(change: TypeChange, version: int | None) -> dict[str, Any]:
    row: dict[str, Any] = {} if version is None else {"tableVersion": version}
    row |= {"fromType": str(change.before), "toType": str(change.after)}
    return row | ({"fieldPath": ".".join(change.path)} if change.path else {})


def _pairs(
    before: StructType, after: StructType, above: FieldPath, *, spelled_after: bool = False
) -> Iterator[tuple[FieldPath, StructField, StructField]]:
    """Yield each field that both schemas have, with its path in `before` (or in `after`)."""
    known = {_key(field): field for field in before.fields}
    for new_field in after.fields:
        old_field = known.get(_key(new_field))
        if old_field is None:
            continue
        path = (*above, new_field.name if spelled_after else old_field.name)
        yield path, old_field, new_field
        for steps, (old, new) in _structs_in_both(old_field.kind, new_field.kind):
            yield from _pairs(old, new, (*path, *steps), spelled_after=spelled_after)


def _structs_in_both(
    before: DataType, after: DataType
) -> Iterator[tuple[FieldPath, tuple[StructType, StructType]]]:
    match before, after:
        case StructType(), StructType():
            yield (), (before, after)
        case (ArrayType(), ArrayType()) | (MapType(), MapType()):
            steps = zip(steps_inside(before), steps_inside(after), strict=True)
            for (step, inner_before), (_, inner_after) in steps:
                for rest, structs in _structs_in_both(inner_before, inner_after):
                    yield (step, *rest), structs


def _key(field: StructField) -> str:
    return str(field.metadata.get(PHYSICAL_NAME, field.name))
