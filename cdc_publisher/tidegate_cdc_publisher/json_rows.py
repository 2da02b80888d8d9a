"""Rows as JSON text, built a column at a time: published to subscribers and used to compare rows.

Decimals, binaries (base64), dates and timestamps are JSON strings; NaN and the infinities are the
strings "NaN", "Infinity" and "-Infinity"; a map is an object; null is null. Bytes of a string that
are not valid UTF-8, which JSON can't hold, become the replacement character.
"""

from base64 import b64encode
from collections.abc import Callable, Iterable, Sequence
from datetime import date, timedelta
from itertools import pairwise
from json import JSONEncoder
from typing import Any, Final, NamedTuple, assert_never

import pyarrow as pa
import pyarrow.compute as pc

from tidegate_cdc_publisher.record_form import ISO, ValueTypes
from tidegate_delta.errors import UnsupportedFeature

TEXT: Final = pa.large_string()
"""The type of every text; its 64-bit offsets keep a chunk of large rows from overflowing."""

_ROWS_AT_ONCE: Final = 32_768
_NULL: Final = pa.scalar(None, TEXT)
_COMMA: Final = pa.scalar(",", TEXT)
_JSON: Final = JSONEncoder(ensure_ascii=False)
_UNQUOTABLE: Final = r'["\\\x00-\x1f]'
_EPOCH: Final = date(1970, 1, 1).toordinal()
_FIRST_DAY: Final = date(1, 1, 1).toordinal() - _EPOCH
_LAST_DAY: Final = date(9999, 12, 31).toordinal() - _EPOCH
"""The days, counted from the Unix epoch, that Arrow formats as ISO 8601. Past year 32767 it errs.
"""
_DAY_US: Final = 24 * 60 * 60 * 1_000_000
_CYCLE_YEARS: Final = 400
_CYCLE_DAYS: Final = 146_097
"""The number of days after which the Gregorian calendar repeats."""
_DECIMAL_BYTES: Final = 16


class _Column(NamedTuple):
    """The column that values belong to, and how they are written."""

    name: str
    types: ValueTypes


def row_texts(
    rows: pa.Table | pa.RecordBatch,
    columns: Sequence[str] | None = None,
    types: ValueTypes = ISO,
) -> pa.Array:
    """Return each row as a JSON object, with the given columns or all of them.

    Law: in ISO types two rows of one schema have the same text iff they are equal. NaN equals NaN,
    -0.0 differs from 0.0, and invalid UTF-8 is compared as its replacement characters.
    Raises: UnsupportedFeature, for a column type without a JSON form.
    """
    names = list(rows.schema.names if columns is None else columns)
    chosen = (
        pa.table(rows.select(names)) if isinstance(rows, pa.RecordBatch) else rows.select(names)
    )
    texts = [
        _object(names, list(batch.columns), batch.num_rows, types)
        for batch in chosen.to_batches(max_chunksize=_ROWS_AT_ONCE)
    ]
    return pa.concat_arrays(texts) if texts else pa.array([], TEXT)


def join(parts: Iterable[pa.Array | str]) -> pa.Array:
    """Return arrays and constants concatenated row by row; no value may be null."""
    scalars = (pa.scalar(part, TEXT) if isinstance(part, str) else part for part in parts)
    return pc.binary_join_element_wise(*scalars, pa.scalar("", TEXT))


def instant_text(at_ms: int) -> str:
    """Return an instant as the text of a timestamp, in UTC. Units: ms since the Unix epoch."""
    return f"{_moment_or_none(at_ms * 1000)}Z"


def in_utf8(texts: pa.Array) -> list[bytes]:
    """Return each text as UTF-8 bytes; none may be null.

    All are cut from one copy of the buffer, in a fraction of the time of converting one by one.
    """
    if not len(texts):
        return []
    _, offsets, text = texts.buffers()
    ends = memoryview(offsets).cast("q")[texts.offset : texts.offset + len(texts) + 1].tolist()
    first = ends[0]
    together = text.slice(first, ends[-1] - first).to_pybytes()
    return [together[start - first : end - first] for start, end in pairwise(ends)]


def _object(
    names: Sequence[str], columns: Sequence[pa.Array], rows: int, types: ValueTypes
) -> pa.Array:
    if not names:
        return pa.repeat(pa.scalar("{}", TEXT), rows)
    parts: list[pa.Array | str] = []
    for name, column in zip(names, columns, strict=True):
        opening = "," if parts else "{"
        parts += [f"{opening}{_quoted(name)}:", _texts(column, _Column(name, types))]
    return join([*parts, "}"])


def _texts(column: pa.Array, of: _Column) -> pa.Array:
    """Return the JSON text of each value of a column; null values become `null`."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _texts(column.cast(kind.value_type), of)
    for is_kind, text_of in _DEBEZIUM_KINDS if of.types.types == "debezium" else _KINDS:
        if is_kind(kind):
            return pc.fill_null(text_of(column, of), "null")
    raise UnsupportedFeature(
        f"column {of.name!r} has the type {kind}, which has no JSON form in the change stream; "
        "leave the table out of `cdc.tables`"
    )


def _plain(column: pa.Array, _of: _Column) -> pa.Array:
    return pc.cast(column, TEXT)


def _float(column: pa.Array, of: _Column) -> pa.Array:
    """Return the shortest text that reads back as the same number and is not an integer."""
    text = pc.cast(column, TEXT)
    text = pc.replace_substring_regex(text, r"^(-?\d+)$", r"\1.0")
    if not pc.any(pc.invert(pc.is_finite(column))).as_py():
        return text
    if of.types.non_finite == "null":
        return pc.if_else(pc.is_finite(column), text, _NULL)
    text = pc.replace_substring_regex(text, r"^-?nan$", '"NaN"')
    return pc.replace_substring_regex(text, r"^(-?)inf$", r'"\1Infinity"')


def _decimal(column: pa.Array, _of: _Column) -> pa.Array:
    text = pc.cast(column, TEXT)
    if pc.any(pc.match_substring(text, "E")).as_py():
        plain = [None if value is None else format(value, "f") for value in column.to_pylist()]
        text = pa.array(plain, TEXT)
    return _in_quotes(text)


def _timestamp(column: pa.Array, _of: _Column) -> pa.Array:
    zone = "UTC" if column.type.tz else None
    unit = "ns" if column.type.unit == "ns" else "us"
    counts = column.cast(pa.timestamp(unit, zone)).cast(pa.int64())
    ending = 'Z"' if zone else '"'
    if unit == "us" and _reaches_past(counts, pa.int64(), _DAY_US):
        far = pa.array([_moment_or_none(count) for count in counts.to_pylist()], TEXT)
        return join(['"', far, ending])
    # Cast without a zone: with one, Arrow takes eight times as long.
    text = pc.cast(counts.cast(pa.timestamp(unit)), TEXT)
    return join(['"', pc.replace_substring(text, " ", "T", max_replacements=1), ending])


def _date(column: pa.Array, _of: _Column) -> pa.Array:
    if _reaches_past(column, pa.int32(), 1):
        days = column.cast(pa.int32()).to_pylist()
        return _in_quotes(pa.array([None if day is None else _day(day) for day in days], TEXT))
    return _in_quotes(pc.cast(column, TEXT))


def _decimal_by_mode(column: pa.Array, of: _Column) -> pa.Array:
    match of.types.decimals:
        case "precise":
            return _unscaled(column)
        case "string":
            return _decimal(column, of)
        case "double":
            # By way of the text: Arrow's own conversion does not always give the nearest double.
            return _float(pc.cast(pc.cast(column, TEXT), pa.float64()), of)
        case _:
            assert_never(of.types.decimals)


def _unscaled(column: pa.Array) -> pa.Array:
    """Return each unscaled number as big-endian bytes of the least length, in base64."""
    stored = column.cast(pa.decimal128(column.type.precision, column.type.scale))
    text = stored.buffers()[1]
    first = stored.offset * _DECIMAL_BYTES
    cells = b"" if text is None else text.to_pybytes()[first:]
    starts = range(0, len(stored) * _DECIMAL_BYTES, _DECIMAL_BYTES)
    numbers = [
        int.from_bytes(cells[start : start + _DECIMAL_BYTES], "little", signed=True)
        for start in starts
    ]
    coded = [b64encode(_shortest(number)).decode() for number in numbers]
    return pc.if_else(column.is_valid(), _in_quotes(pa.array(coded, TEXT)), _NULL)


def _shortest(number: int) -> bytes:
    bits = (number if number >= 0 else ~number).bit_length()
    return number.to_bytes(bits // 8 + 1, "big", signed=True)


def _days(column: pa.Array, _of: _Column) -> pa.Array:
    return pc.cast(column.cast(pa.int32()), TEXT)


def _timestamp_by_zone(column: pa.Array, of: _Column) -> pa.Array:
    """Return a text where the type has a zone, else the count of its unit since the epoch."""
    if column.type.tz:
        return _timestamp(column, of)
    unit = "ns" if column.type.unit == "ns" else "us"
    return pc.cast(column.cast(pa.timestamp(unit)).cast(pa.int64()), TEXT)


def _nested(column: pa.Array, of: _Column) -> pa.Array:
    """Return a nested value, as JSON in a text where the types say so."""
    text_of = next(text_of for is_kind, text_of in _NESTED_KINDS if is_kind(column.type))
    if of.types.structs == "struct" or not becomes_json_text(column.type):
        return text_of(column, of)
    return _string(text_of(column, of._replace(types=ISO)), of)


def becomes_json_text(kind: pa.DataType) -> bool:
    """Return whether a value becomes JSON in a text, where structs do.

    An array of simple values remains an array.
    """
    if _is_list(kind):
        return any(is_kind(kind.value_type) for is_kind, _ in _NESTED_KINDS)
    return bool(pa.types.is_struct(kind) or pa.types.is_map(kind))


def _reaches_past(column: pa.Array, counted: pa.DataType, of_a_day: int) -> bool:
    """Return whether a column has a value before year 1 or after year 9999."""
    ends = pc.min_max(column.cast(counted))
    first, last = ends["min"].as_py(), ends["max"].as_py()
    if first is None:
        return False
    return bool(first < _FIRST_DAY * of_a_day or last >= (_LAST_DAY + 1) * of_a_day)


def _moment_or_none(count: int | None) -> str | None:
    if count is None:
        return None
    days, past = divmod(count, _DAY_US)
    seconds, micros = divmod(past, 1_000_000)
    time = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{micros:06}"
    return f"{_day(days)}T{time}"


def _day(count: int) -> str:
    """Return a day of any year in ISO 8601; years above 9999 and below 0 have a sign."""
    cycles, rest = divmod(count - _FIRST_DAY, _CYCLE_DAYS)
    near = date.min + timedelta(days=rest)
    year = near.year + cycles * _CYCLE_YEARS
    spelled = f"{year:04}" if 0 <= year <= 9999 else f"{year:+05}"
    return f"{spelled}-{near.month:02}-{near.day:02}"


def _string(column: pa.Array, _of: _Column) -> pa.Array:
    text = _in_utf8(pc.cast(column, TEXT))
    if pc.any(pc.match_substring_regex(text, _UNQUOTABLE)).as_py():
        return pa.array([_quoted_or_none(value) for value in text.to_pylist()], TEXT)
    return _in_quotes(text)


def _in_utf8(text: pa.Array) -> pa.Array:
    """Replace invalid UTF-8, which Parquet writers may write and Arrow doesn't detect."""
    stored = text.cast(pa.large_binary())
    try:
        return stored.cast(TEXT)
    except pa.ArrowInvalid:
        texts = [
            None if value is None else value.decode(errors="replace")
            for value in stored.to_pylist()
        ]
        return pa.array(texts, TEXT)


def _binary(column: pa.Array, _of: _Column) -> pa.Array:
    coded = [None if value is None else b64encode(value).decode() for value in column.to_pylist()]
    return _in_quotes(pa.array(coded, TEXT))


def _struct(column: pa.Array, of: _Column) -> pa.Array:
    names = [column.type.field(i).name for i in range(column.type.num_fields)]
    text = _object(names, column.flatten(), len(column), of.types)
    return pc.if_else(column.is_valid(), text, _NULL)


def _list(column: pa.Array, of: _Column) -> pa.Array:
    return join(["[", _joined(column, _texts(pc.list_flatten(column), of)), "]"])


def _map(column: pa.Array, of: _Column) -> pa.Array:
    offsets, keys, values = map_parts(column)
    # Keys are never null, so NaN stays a text in them.
    key_texts = _texts(keys, of._replace(types=ISO))
    bare = pc.invert(pc.starts_with(key_texts, '"'))
    # The text of a struct or an array contains quotes, so it must be encoded as a string.
    quoted = pc.if_else(bare, _string(key_texts, of), key_texts)
    entries = join([quoted, ":", _texts(values, of)])
    together = pc.binary_join(
        pa.LargeListArray.from_arrays(offsets.cast(pa.int64()), entries), _COMMA
    )
    return join(["{", pc.if_else(column.is_valid(), together, _NULL), "}"])


def map_parts(column: pa.MapArray) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Return the offsets of maps, and all their keys and values.

    Arrow's cast to a list of pairs fails for a null value whose type has a field that is not null.
    """
    first, last = (column.offsets[place].as_py() for place in (0, -1))
    parts = (part.slice(first, last - first) for part in (column.keys, column.items))
    return pc.subtract(column.offsets, first), *parts


def _joined(lists: pa.Array, texts: pa.Array) -> pa.Array:
    """Return the texts of each list's elements joined with commas; null for a null list."""
    lengths = pc.fill_null(pc.list_value_length(lists), 0).cast(pa.int64())
    ends = pc.cumulative_sum(lengths)
    starts = pa.concat_arrays([pa.array([0], pa.int64()), ends])
    together = pc.binary_join(pa.LargeListArray.from_arrays(starts, texts), _COMMA)
    return pc.if_else(lists.is_valid(), together, _NULL)


def _in_quotes(text: pa.Array) -> pa.Array:
    return join(['"', text, '"'])


def _quoted(text: str) -> str:
    return _JSON.encode(text)


def _quoted_or_none(text: str | None) -> str | None:
    return None if text is None else _quoted(text)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    fixed = pa.types.is_fixed_size_binary(kind)
    return bool(fixed or pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _is_plain(kind: pa.DataType) -> bool:
    is_whole = pa.types.is_integer(kind) or pa.types.is_boolean(kind)
    return bool(is_whole or pa.types.is_null(kind))


_Text = Callable[[pa.Array, _Column], pa.Array]
_Kinds = tuple[tuple[Callable[[Any], bool], _Text], ...]
_NESTED_KINDS: Final[_Kinds] = (
    (pa.types.is_struct, _struct),
    (_is_list, _list),
    (pa.types.is_map, _map),
)
_KINDS: Final[_Kinds] = (
    (_is_plain, _plain),
    (_is_text, _string),
    (pa.types.is_floating, _float),
    (pa.types.is_timestamp, _timestamp),
    (pa.types.is_date, _date),
    (pa.types.is_decimal, _decimal),
    (_is_bytes, _binary),
    *_NESTED_KINDS,
)
_DEBEZIUM_KINDS: Final[_Kinds] = (
    (_is_plain, _plain),
    (_is_text, _string),
    (pa.types.is_floating, _float),
    (pa.types.is_timestamp, _timestamp_by_zone),
    (pa.types.is_date, _days),
    (pa.types.is_decimal, _decimal_by_mode),
    (_is_bytes, _binary),
    *((fits, _nested) for fits, _ in _NESTED_KINDS),
)
