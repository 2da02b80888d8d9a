"""Read variants of data files: plain structs of bytes as they are, shredded ones reassembled.

Shredding stores parts of a variant in columns of their own (`typed_value`) beside the rest of it
(`value`). A group of both is a variant again, nested to any depth.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tidegate_delta.schema import variant_encoding
from tidegate_delta.schema.variant_encoding import Dictionary

_Encode = Callable[[Any], bytes]
_Built = Sequence[bytes | None]

_UUID_BYTES: Final = 16
_NS: Final = "ns"


def to_variants(column: Any, target: pa.DataType) -> pa.Array:
    """Return variants as structs of `metadata` and `value`.

    Raises: ValueError for bytes that are no variants; AttributeError or ArrowException for columns
    that can't hold any.
    """
    parts = _parts(column)
    if "metadata" not in parts or not parts.keys() & {"value", "typed_value"}:
        raise ValueError(f"{column.type} can't be read as a variant")
    is_null = pc.is_null(column)
    metadata = parts["metadata"]
    if "typed_value" not in parts:
        columns = [metadata.cast(pa.binary()), parts["value"].cast(pa.binary())]
        return pa.StructArray.from_arrays(columns, fields=list(target), mask=is_null)
    names = [None if encoded is None else Dictionary(encoded) for encoded in metadata.to_pylist()]
    values = [
        None if own is None else variant_encoding.NULL if built is None else built
        for own, built in zip(names, _built(parts, names), strict=True)
    ]
    grown = [None if name is None else name.encode() for name in names]
    columns = [pa.array(grown, pa.binary()), pa.array(values, pa.binary())]
    return pa.StructArray.from_arrays(columns, fields=list(target), mask=is_null)


def _parts(group: Any) -> Mapping[str, Any]:
    if not pa.types.is_struct(group.type):
        raise ValueError(f"{group.type} holds no variant: a struct does")
    return dict(zip([field.name for field in group.type], group.flatten(), strict=True))


def _built(parts: Mapping[str, Any], names: Sequence[Dictionary | None]) -> _Built:
    """Return the variant of each row of a group; None if neither part holds one."""
    count = len(names)
    left = parts["value"].to_pylist() if "value" in parts else [None] * count
    typed = parts.get("typed_value")
    if typed is None:
        return left
    if pa.types.is_struct(typed.type):
        return _objects(typed, left, names)
    shredded = _arrays(typed, names) if _is_list(typed.type) else _primitives(typed)
    return [own if built is None else built for own, built in zip(left, shredded, strict=True)]


def _objects(typed: Any, left: _Built, names: Sequence[Dictionary | None]) -> _Built:
    fields = {name: _built(_parts(group), names) for name, group in _parts(typed).items()}
    built: list[bytes | None] = []
    for row, (own, is_valid) in enumerate(zip(left, typed.is_valid().to_pylist(), strict=True)):
        dictionary = names[row]
        if not is_valid or dictionary is None:
            built.append(own)
            continue
        rest = {} if own is None else variant_encoding.fields_of(own, dictionary)
        shredded = {name: items[row] for name, items in fields.items()}
        present = {name: item for name, item in shredded.items() if item is not None}
        built.append(variant_encoding.object_({**rest, **present}, dictionary))
    return built


def _arrays(typed: Any, names: Sequence[Dictionary | None]) -> _Built:
    lengths = pc.list_value_length(typed).to_pylist()
    of_items = [
        dictionary
        for dictionary, size in zip(names, lengths, strict=True)
        for _ in range(size or 0)
    ]
    items = _built(_parts(pc.list_flatten(typed)), of_items)
    built: list[bytes | None] = []
    start = 0
    for size in lengths:
        end = start + (size or 0)
        own = [variant_encoding.NULL if item is None else item for item in items[start:end]]
        built.append(None if size is None else variant_encoding.array(own))
        start = end
    return built


def _primitives(typed: Any) -> _Built:
    plain, encode = _plain(typed)
    return [None if value is None else encode(value) for value in plain.to_pylist()]


def _plain(typed: Any) -> tuple[Any, _Encode]:
    """Return a column as integers, texts or bytes, and the function that encodes a value."""
    kind, types = typed.type, pa.types
    if isinstance(kind, pa.UuidType):
        return typed.storage, variant_encoding.uuid
    if types.is_boolean(kind):
        return typed, variant_encoding.boolean
    if types.is_signed_integer(kind):
        return typed, lambda value: variant_encoding.integer(value, kind.bit_width)
    if types.is_float32(kind):
        return typed, variant_encoding.single
    if types.is_float64(kind):
        return typed, variant_encoding.double
    if types.is_decimal(kind):
        return typed, lambda value: variant_encoding.decimal(value, kind.precision, kind.scale)
    if types.is_date32(kind):
        return typed.cast(pa.int32()), variant_encoding.date
    if types.is_timestamp(kind) or types.is_time64(kind):
        return _moments(typed)
    if types.is_fixed_size_binary(kind) and kind.byte_width == _UUID_BYTES:
        return typed, variant_encoding.uuid
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind):
        return typed, variant_encoding.binary
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return typed, variant_encoding.string
    raise ValueError(f"no variant is stored in a column of type {kind}")


def _moments(typed: Any) -> tuple[Any, _Encode]:
    kind = typed.type
    if pa.types.is_time64(kind):
        return typed.cast(pa.time64("us")).cast(pa.int64()), _moment_of("time")
    of_zone = "timestamp" if kind.tz else "ntz"
    unit = _NS if kind.unit == _NS else "us"
    counts = typed.cast(pa.timestamp(unit, tz=kind.tz)).cast(pa.int64())
    return counts, _moment_of(f"{of_zone}_{unit}")


def _moment_of(kind: str) -> _Encode:
    return lambda count: variant_encoding.moment(count, kind)


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))
