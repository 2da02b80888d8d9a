"""May rows that were written under one schema be told as changes under another?"""

from tidegate.delta.actions import Metadata
from tidegate.delta.schema.mapping import Mode, logical_names, mode_of
from tidegate.delta.schema.types import (
    VOID,
    ArrayType,
    DataType,
    MapType,
    StructType,
    parse_schema,
)


def tells_as(written: Metadata, wanted: Metadata) -> bool:
    """Return whether the changes of one version can be told in the columns of a later one.

    Where columns are mapped, none may have been renamed or dropped, nor the mapping turned off or
    the partitioning changed in between.
    Spec: "Reader Requirements for AddCDCFile"
    """
    before, after = parse_schema(written.schema_string), parse_schema(wanted.schema_string)
    return _is_mapped_as(written, wanted, before, after) and reads_as(before, after)


def _is_mapped_as(
    written: Metadata, wanted: Metadata, before: StructType, after: StructType
) -> bool:
    old_mode, new_mode = mode_of(written), mode_of(wanted)
    if new_mode is Mode.NONE:
        return old_mode is Mode.NONE
    if old_mode not in (Mode.NONE, new_mode):
        return False
    if written.partition_columns != wanted.partition_columns:
        return False
    names = logical_names(after, new_mode)
    old_names = logical_names(before, old_mode)
    return all(names.get(path) == name for path, name in old_names.items())


def reads_as(written: StructType, wanted: StructType) -> bool:
    """Return whether every row of one schema is a row of the other, new columns being null.

    No column may be gone, have another type, or be declared non-null where it could be null.
    Spec: "Reader Requirements for AddCDCFile"
    """
    fields = {one.name.lower(): one for one in written.fields}
    names = {one.name.lower() for one in wanted.fields}
    if not fields.keys() <= names:
        return False
    for new in wanted.fields:
        old = fields.get(new.name.lower())
        if old is None:
            continue
        if old.name != new.name or not _loosens(old.nullable, new.nullable):
            return False
        if not _type_reads_as(old.kind, new.kind):
            return False
    return True


def _type_reads_as(written: DataType, wanted: DataType) -> bool:
    match written, wanted:
        case StructType(), StructType():
            return reads_as(written, wanted)
        case ArrayType(), ArrayType():
            return _loosens(written.contains_null, wanted.contains_null) and _type_reads_as(
                written.element, wanted.element
            )
        case MapType(), MapType():
            return (
                _loosens(written.value_contains_null, wanted.value_contains_null)
                and _type_reads_as(written.key, wanted.key)
                and _type_reads_as(written.value, wanted.value)
            )
    return written in (VOID, wanted)


def _loosens(written_nullable: object, wanted_nullable: object) -> bool:
    return bool(wanted_nullable) or not written_nullable
