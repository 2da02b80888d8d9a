"""Physical columns -> logical ones: the values of a data file in the types of the schema."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.delta.schema.arrow import arrow_type
from tidegate.delta.schema.types import ArrayType, DataType, MapType, StructType


class WrongType(Exception):
    """A physical column that can't be read as the logical type; the message says which."""


def find_name(names: Sequence[str], wanted: str) -> str | None:
    """Return the name itself, else the only one that differs in case alone, else None."""
    if wanted in names:
        return wanted
    found = [name for name in names if name.lower() == wanted.lower()]
    return found[0] if len(found) == 1 else None


def conform(array: pa.Array, kind: DataType) -> pa.Array:
    """Return physical values as logical ones: widened, in microseconds, missing fields null.

    Raises: WrongType.
    """
    target = arrow_type(kind)
    if array.type == target:
        return array
    if pa.types.is_null(array.type) or pa.types.is_null(target):
        return pa.nulls(len(array), target)
    try:
        match kind:
            case StructType():
                return _struct(array, kind, target)
            case ArrayType():
                return _list(_owned(array), kind, target)
            case MapType():
                return _map(_owned(array), kind, target)
            case _:
                return _plain(array, target)
    except (pa.ArrowException, AttributeError) as error:
        raise WrongType(f"{array.type} can't be read as {kind} ({error})") from error


def _struct(array: Any, kind: StructType, target: Any) -> pa.Array:
    names = [one.name for one in array.type]
    parts = dict(zip(names, array.flatten(), strict=True))
    columns = []
    for one in kind.fields:
        name = find_name(names, one.name)
        found = parts[name] if name is not None else None
        columns.append(
            pa.nulls(len(array), arrow_type(one.kind))
            if found is None
            else conform(found, one.kind)
        )
    if not columns:
        return pa.array([None if gone else {} for gone in pc.is_null(array).to_pylist()], target)
    return pa.StructArray.from_arrays(columns, fields=list(target), mask=pc.is_null(array))


def _list(array: Any, kind: ArrayType, target: Any) -> pa.Array:
    if not pa.types.is_list(array.type):
        array = _owned(array.cast(pa.list_(array.type.value_type)))
    values = conform(array.values, kind.element)
    return pa.ListArray.from_arrays(array.offsets, values, type=target, mask=pc.is_null(array))


def _map(array: Any, kind: MapType, target: Any) -> pa.Array:
    keys, items = conform(array.keys, kind.key), conform(array.items, kind.value)
    return pa.MapArray.from_arrays(array.offsets, keys, items, type=target, mask=pc.is_null(array))


def _owned(array: Any) -> Any:
    """Return the array with its own buffers from their start: offsets of a slice mislead."""
    return array if array.offset == 0 else pa.concat_arrays([array, array.slice(0, 0)])


def _plain(array: Any, target: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(array.type):
        return _plain(array.dictionary_decode(), target)
    if array.type == target:
        return array
    if _family(array.type) != _family(target):
        raise WrongType(f"{array.type} can't be read as {target}")
    if pa.types.is_timestamp(array.type):
        array = array.cast(pa.timestamp("us", tz=array.type.tz), safe=False)
    return array.cast(target)


def _family(kind: pa.DataType) -> str:
    is_ = pa.types
    if is_.is_integer(kind) or is_.is_floating(kind) or is_.is_decimal(kind):
        return "number"
    if is_.is_date(kind) or is_.is_timestamp(kind):
        return "moment"
    texts = (
        is_.is_string,
        is_.is_large_string,
        is_.is_string_view,
        is_.is_binary,
        is_.is_large_binary,
        is_.is_binary_view,
        is_.is_fixed_size_binary,
    )
    return "bytes" if any(is_one(kind) for is_one in texts) else str(kind)
