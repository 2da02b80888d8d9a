"""Convert physical columns to logical ones: a data file's values in the types of the schema."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tidegate_delta.schema.arrow_types import arrow_type, is_nanos
from tidegate_delta.schema.column_mapping import ColumnMappingMode, field_id, physical_name
from tidegate_delta.schema.types import (
    VARIANT,
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
)
from tidegate_runtime.table_io.variant_columns import to_variants

_FIELD_ID: Final = b"PARQUET:field_id"


class WrongType(Exception):
    """A physical column that can't be read as the logical type; the message says which."""


def find_name(names: Sequence[str], wanted: str) -> str | None:
    """Return the name itself, else the only one that differs only in case, else None."""
    if wanted in names:
        return wanted
    matches = [name for name in names if name.lower() == wanted.lower()]
    return matches[0] if len(matches) == 1 else None


def sources_of(
    physical: pa.Schema, wanted: Sequence[StructField], mode: ColumnMappingMode
) -> Mapping[str, str | None]:
    """Return the file's name for each column of the table, or None for one that it lacks.

    Raises: WrongType for a file without field ids, if the table's columns are found by them; as
    `find_field`.
    """
    stored = list(physical)
    has_ids = any(_id_of(field) is not None for field in stored)
    if mode is ColumnMappingMode.ID and stored and wanted and not has_ids:
        raise WrongType("the table finds its columns by field ids, of which the file has none")
    indexes = {field.name: find_field(stored, field, mode) for field in wanted}
    return {name: None if index is None else stored[index].name for name, index in indexes.items()}


def find_field(
    stored: Sequence[pa.Field], wanted: StructField, mode: ColumnMappingMode
) -> int | None:
    """Return which of a file's fields holds a field of the table, or None.

    A field without an id, such as the change type, is found by its name in every mode.
    Raises: WrongType if several match, as it is unknown which one holds the values.
    """
    number = field_id(wanted)
    if mode is ColumnMappingMode.ID and number is not None:
        return next((index for index, field in enumerate(stored) if _id_of(field) == number), None)
    names, name = [field.name for field in stored], physical_name(wanted, mode)
    alike = [name] * names.count(name) or [
        candidate for candidate in names if candidate.lower() == name.lower()
    ]
    if len(alike) > 1:
        raise WrongType(f"column {wanted.name!r} is in the file {len(alike)} times, as {alike}")
    return names.index(alike[0]) if alike else None


def conform(
    array: pa.Array, kind: DataType, mode: ColumnMappingMode = ColumnMappingMode.NONE
) -> pa.Array:
    """Return physical values as logical ones: widened, in microseconds, missing fields null.

    Raises: WrongType.
    """
    target = arrow_type(kind)
    if isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    # If fields have other names in files, equal types may be a coincidence.
    if array.type == target and (mode is ColumnMappingMode.NONE or not pa.types.is_nested(target)):
        return array
    if pa.types.is_null(array.type) or pa.types.is_null(target):
        return pa.nulls(len(array), target)
    try:
        if kind == VARIANT:
            return to_variants(array, target)
        match kind:
            case StructType():
                return _struct(array, kind, target, mode)
            case ArrayType():
                return _list(_owned(array), kind, target, mode)
            case MapType():
                return _map(_owned(array), kind, target, mode)
            case _:
                return _plain(array, target)
    except (pa.ArrowException, AttributeError) as error:
        raise WrongType(f"{array.type} can't be read as {kind} ({error})") from error


def _struct(array: Any, kind: StructType, target: Any, mode: ColumnMappingMode) -> pa.Array:
    if not pa.types.is_struct(array.type):
        raise WrongType(f"{array.type} can't be read as {kind}")
    stored, parts = list(array.type), array.flatten()
    columns = []
    for field in kind.fields:
        index = find_field(stored, field, mode)
        columns.append(
            pa.nulls(len(array), arrow_type(field.kind))
            if index is None
            else conform(parts[index], field.kind, mode)
        )
    if not columns:
        return pa.array(
            [None if is_null else {} for is_null in pc.is_null(array).to_pylist()], target
        )
    return pa.StructArray.from_arrays(columns, fields=list(target), mask=pc.is_null(array))


def _list(array: Any, kind: ArrayType, target: Any, mode: ColumnMappingMode) -> pa.Array:
    if not pa.types.is_list(array.type):
        array = _owned(array.cast(pa.list_(array.type.value_type)))
    values = conform(array.values, kind.element, mode)
    return pa.ListArray.from_arrays(array.offsets, values, type=target, mask=pc.is_null(array))


def _map(array: Any, kind: MapType, target: Any, mode: ColumnMappingMode) -> pa.Array:
    keys = conform(array.keys, kind.key, mode)
    items = conform(array.items, kind.value, mode)
    return pa.MapArray.from_arrays(array.offsets, keys, items, type=target, mask=pc.is_null(array))


def _owned(array: Any) -> Any:
    """Return the array with buffers of its own, as a slice's offsets refer to the whole array."""
    return array if array.offset == 0 else pa.concat_arrays([array, array.slice(0, 0)])


def _id_of(field: pa.Field) -> int | None:
    text = (field.metadata or {}).get(_FIELD_ID)
    return int(text) if text is not None else None


def _plain(array: Any, target: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(array.type):
        return _plain(array.dictionary_decode(), target)
    if array.type == target:
        return array
    if _family(array.type) != _family(target):
        raise WrongType(f"{array.type} can't be read as {target}")
    if pa.types.is_timestamp(array.type) and not is_nanos(target):
        array = array.cast(pa.timestamp("us", tz=array.type.tz), safe=False)
    return array.cast(target)


def _family(kind: pa.DataType) -> str:
    types = pa.types
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        return "number"
    if types.is_date(kind) or types.is_timestamp(kind):
        return "moment"
    texts = (
        types.is_string,
        types.is_large_string,
        types.is_string_view,
        types.is_binary,
        types.is_large_binary,
        types.is_binary_view,
        types.is_fixed_size_binary,
    )
    return "bytes" if any(is_one(kind) for is_one in texts) else str(kind)
