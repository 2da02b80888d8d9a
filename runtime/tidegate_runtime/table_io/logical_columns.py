"""Convert physical columns to logical ones: a data file's values in the types of the schema.

Read variants of data files: plain structs of bytes as they are, shredded ones reassembled.

Shredding stores parts of a variant in columns of their own (`typed_value`) beside the rest of it
(`value`). A group of both is a variant again, nested to any depth.

Rebase dates and timestamps of files written in the hybrid calendar: Julian before 1582.

Spark 2 wrote such files, later versions do if configured to, and the footer says so. Such a file's
15 March 1500 is a count of days which in Delta's calendar, Gregorian throughout, means another
date. The rebase keeps the written date and changes the count.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidegate_delta.schema import variant_encoding
from tidegate_delta.schema.arrow_types import arrow_type, is_nanos
from tidegate_delta.schema.column_mapping import ColumnMappingMode, field_id, physical_name
from tidegate_delta.schema.types import (
    DATE,
    TIMESTAMP,
    VARIANT,
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    holds,
)
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
    plain, encode = _plain_variant(typed)
    return [None if value is None else encode(value) for value in plain.to_pylist()]


def _plain_variant(typed: Any) -> tuple[Any, _Encode]:
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


_VERSION: Final = b"org.apache.spark.version"
_ZONE: Final = b"org.apache.spark.timeZone"
_OF_DATES: Final = (b"org.apache.spark.legacyDateTime", "3.0.0")
_OF_INT96: Final = (b"org.apache.spark.legacyINT96", "3.1.0")
"""The key that marks a file in the old calendar, and the first Spark version that writes the key.
"""

_UTC: Final = frozenset({"", "UTC", "GMT", "Z", "Etc/UTC", "+00:00"})
_GREGORIAN_FROM: Final = -141_427
"""15 October 1582, in days since the Unix epoch."""
_EVEN_ZONES_FROM: Final = datetime(1900, 1, 1)  # noqa: DTZ001 - of any zone
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - it is added to times without a zone
_DAY_US: Final = 24 * 60 * 60 * 1_000_000
_EVEN_ZONES_FROM_US: Final = (_EVEN_ZONES_FROM - _EPOCH) // timedelta(microseconds=1) + _DAY_US


@dataclass(frozen=True)
class OldCalendar:
    """What of a file is in the old calendar: dates, timestamps; and the writer's time zone."""

    dates: bool
    moments: bool
    zone: str

    def is_about(self, kind: DataType) -> bool:
        """Return whether a column of a type holds any value to rebase."""
        return holds(kind, lambda part: self._is_counted(part))

    def recounted(self, array: Any, kind: DataType) -> Any:
        """Return logical values of a type, rebased to Delta's calendar. Raises: ValueError."""
        if not self.is_about(kind):
            return array
        match kind:
            case StructType():
                parts = [
                    self.recounted(part, field.kind)
                    for part, field in zip(array.flatten(), kind.fields, strict=True)
                ]
                fields = list(array.type)
                return pa.StructArray.from_arrays(parts, fields=fields, mask=pc.is_null(array))
            case ArrayType():
                compact = pa.concat_arrays([array, array.slice(0, 0)])
                values = self.recounted(compact.values, kind.element)
                mask = pc.is_null(compact)
                return pa.ListArray.from_arrays(compact.offsets, values, type=array.type, mask=mask)
            case MapType():
                compact = pa.concat_arrays([array, array.slice(0, 0)])
                keys = self.recounted(compact.keys, kind.key)
                items = self.recounted(compact.items, kind.value)
                mask = pc.is_null(compact)
                return pa.MapArray.from_arrays(
                    compact.offsets, keys, items, type=array.type, mask=mask
                )
        return _days(array) if kind == DATE else self._moments(array)

    def _is_counted(self, kind: DataType) -> bool:
        return (self.dates and kind == DATE) or (self.moments and kind == TIMESTAMP)

    def _moments(self, array: Any) -> Any:
        counts = array.cast(pa.int64())
        oldest = pc.min(counts).as_py()
        if oldest is None or oldest >= _EVEN_ZONES_FROM_US:
            return array
        if self.zone in _UTC:
            moved = [_in_utc(count) for count in counts.to_pylist()]
        else:
            zone = _zone(self.zone)
            moved = [_in_zone(count, zone) for count in counts.to_pylist()]
        return pa.array(moved, pa.int64()).cast(array.type)


def calendar_of(parquet: pq.ParquetFile) -> OldCalendar | None:
    """Return what of a file is in the old calendar, or None if nothing is."""
    metadata: Mapping[bytes, bytes] = parquet.metadata.metadata or {}
    if _VERSION not in metadata:
        return None
    dates, int96 = (_is_marked(metadata, *mark) for mark in (_OF_DATES, _OF_INT96))
    if not (dates or int96):
        return None
    stored = parquet.schema
    has_int96 = any(
        stored.column(index).physical_type == "INT96" for index in range(len(stored.names))
    )
    return OldCalendar(dates, int96 if has_int96 else dates, metadata.get(_ZONE, b"").decode())


def _is_marked(metadata: Mapping[bytes, bytes], key: bytes, since: str) -> bool:
    return key in metadata or metadata[_VERSION].decode() < since


def _days(array: Any) -> Any:
    counts = array.cast(pa.int32())
    oldest = pc.min(counts).as_py()
    if oldest is None or oldest >= _GREGORIAN_FROM:
        return array
    moved = [None if count is None else _day(count) for count in counts.to_pylist()]
    return pa.array(moved, pa.int32()).cast(array.type)


def _day(count: int) -> int:
    """Return the Gregorian day with the same date as a day of the old calendar."""
    if count >= _GREGORIAN_FROM:
        return count
    # First the Julian day number, then its date in the Julian calendar.
    shifted = count + 2_440_588 + 32_082
    year = (4 * shifted + 3) // 1_461
    in_year = shifted - 1_461 * year // 4
    month = (5 * in_year + 2) // 153
    day = in_year - (153 * month + 2) // 5
    # Years begin in March here, so that leap days come last. Day numbers begin 4800 years earlier.
    gregorian = 365 * year + year // 4 - year // 100 + year // 400
    return gregorian + (153 * month + 2) // 5 + day - 32_044 - 2_440_588


def _in_utc(count: int | None) -> int | None:
    if count is None:
        return None
    days, rest = divmod(count, _DAY_US)
    return _day(days) * _DAY_US + rest


def _in_zone(count: int | None, zone: tzinfo) -> int | None:
    """Rebase a timestamp of a writer that uses the zone's offset of 1900 for all earlier times.

    Local mean times are not applied.
    """
    if count is None or count >= _EVEN_ZONES_FROM_US:
        return count
    offset = zone.utcoffset(_EVEN_ZONES_FROM) or timedelta()
    days, rest = divmod(count + offset // timedelta(microseconds=1), _DAY_US)
    local = _EPOCH + timedelta(days=_day(days), microseconds=rest)
    first, second = (zone.utcoffset(local.replace(fold=fold)) or timedelta() for fold in (0, 1))
    # Of a local time that occurs twice, take the one with the writer's offset.
    chosen = second if second < first != offset else first
    return (local - chosen - _EPOCH) // timedelta(microseconds=1)


def _zone(name: str) -> tzinfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise ValueError(f"its moments are of the zone {name!r}, which is not known") from error
