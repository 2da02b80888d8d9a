"""The statistics of a data file, computed from its rows: bounds that hold for every row.

Values that JSON can't represent (NaN, infinities, years past 9999) give no bound rather than a
wrong one.

Spec: "Per-file Statistics"
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from tidegate_delta.schema.field_paths import FieldPath
from tidegate_delta.schema.types import (
    DATE,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DataType,
    DecimalType,
    PrimitiveType,
    StructType,
    leaves,
)

COLUMNS_MAX: Final = 32
"""The default number of leaf columns with statistics."""

PREFIX_UNITS: Final = 32
"""The default length of string bounds in UTF-16 units."""

_ASCII_MAX: Final = "\x7f"
_UNICODE_MAX: Final = "\U0010ffff"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_INTEGERS: Final = frozenset({"byte", "short", "integer", "long"})
_FLOATING: Final = frozenset({"float", "double"})


def compute(
    rows: pa.Table,
    schema: StructType,
    columns_max: int = COLUMNS_MAX,
    named: Iterable[FieldPath] | None = None,
    prefix_units: int = PREFIX_UNITS,
) -> str:
    """Return the JSON statistics of a data file that holds exactly these rows.

    `rows` lacks the partition columns; columns of the schema that it lacks are not counted. The
    first `columns_max` leaf columns get statistics (all, where it is negative), or else those at
    or below the paths `named`. String bounds have at most `prefix_units` UTF-16 units.
    Law: every value of a column lies between its minValues and its maxValues.
    """
    present = StructType(tuple(field for field in schema.fields if field.name in rows.schema.names))
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    nulls: dict[str, Any] = {}
    for path in chosen(present, columns_max, named):
        column = _column(rows, path)
        _put(nulls, path, column.null_count)
        lower, upper = _bounds(column, _kind(present, path), prefix_units)
        if lower is not None:
            _put(low, path, lower)
        if upper is not None:
            _put(high, path, upper)
    return orjson.dumps(
        {
            "numRecords": rows.num_rows,
            "minValues": low,
            "maxValues": high,
            "nullCount": nulls,
        }
    ).decode()


def truncated_minimum(text: str, prefix_units: int = PREFIX_UNITS) -> str | None:
    """Return the prefix of a string as its lower bound, or None where the prefix is empty."""
    return text[: _prefix_length(text, prefix_units)] if prefix_units > 0 else None


def truncated_maximum(text: str, prefix_units: int = PREFIX_UNITS) -> str | None:
    """Return a short string that is not less than this one, or None where there is none.

    Law: truncated_maximum(t) is None or truncated_maximum(t) >= t
    """
    if prefix_units <= 0:
        return None
    length = _prefix_length(text, prefix_units)
    while _units(text[:length]) <= 2 * prefix_units:
        if length == len(text):
            return text
        if text[length] < _ASCII_MAX:
            return text[:length] + _ASCII_MAX
        if text[length] < _UNICODE_MAX:
            return text[:length] + _UNICODE_MAX
        length += 1
    return None


def chosen(
    schema: StructType, columns_max: int, named: Iterable[FieldPath] | None
) -> Sequence[FieldPath]:
    """Return the paths of the leaf columns that get statistics; the schema has data columns
    only.
    """
    paths = list(leaves(schema))
    if named is not None:
        named_paths = set(named)
        return [
            path
            for path in paths
            if any(path[:end] in named_paths for end in range(1, len(path) + 1))
        ]
    return paths if columns_max < 0 else paths[:columns_max]


def _kind(schema: StructType, path: FieldPath) -> DataType:
    kind: DataType = schema
    for name in path:
        field = kind.get(name) if isinstance(kind, StructType) else None
        assert field is not None, f"{path} comes from the schema itself"
        kind = field.kind
    return kind


def _column(rows: pa.Table, path: FieldPath) -> Any:
    column = rows.column(path[0])
    for name in path[1:]:
        column = pc.struct_field(column, name)
    if pa.types.is_dictionary(column.type):
        return pc.cast(column, column.type.value_type)
    return column


def _put(tree: dict[str, Any], path: FieldPath, value: Any) -> None:
    for name in path[:-1]:
        tree = tree.setdefault(name, {})
    tree[path[-1]] = value


def _bounds(column: Any, kind: DataType, prefix_units: int) -> tuple[Any, Any]:
    if column.null_count == len(column):
        return None, None
    if isinstance(kind, DecimalType):
        return _decimal_bounds(column)
    if not isinstance(kind, PrimitiveType):
        return None, None
    if kind.name in _INTEGERS:
        return _extremes(column)
    if kind.name in _FLOATING:
        return _float_bounds(column)
    if kind == STRING:
        return _text_bounds(column, prefix_units)
    if kind == DATE:
        return _date_bounds(column)
    if kind in (TIMESTAMP, TIMESTAMP_NTZ):
        return _moment_bounds(column, "Z" if kind == TIMESTAMP else "")
    return None, None


def _extremes(column: Any) -> tuple[Any, Any]:
    extremes = pc.min_max(column)
    return extremes["min"].as_py(), extremes["max"].as_py()


def _text_bounds(column: Any, prefix_units: int) -> tuple[str | None, str | None]:
    """Return bounds of a string column; bytes that are not UTF-8, which Spark writes, are none."""
    extremes = pc.min_max(column)
    low, high = _decoded(extremes["min"]), _decoded(extremes["max"])
    return (
        None if low is None else truncated_minimum(low, prefix_units),
        None if high is None else truncated_maximum(high, prefix_units),
    )


def _decoded(text: pa.StringScalar) -> str | None:
    try:
        return str(text.as_py())
    except UnicodeDecodeError:
        return None


def _float_bounds(column: Any) -> tuple[float | None, float | None]:
    """Return bounds of a float column; with a NaN, which is greatest, there is no upper one."""
    low, high = _extremes(column)
    has_nan = bool(pc.any(pc.is_nan(column)).as_py())
    lower = _finite(-0.0 if low == 0 else low)
    return lower, None if has_nan else _finite(0.0 if high == 0 else high)


def _finite(value: float) -> float | None:
    return value if value - value == 0 else None


def _decimal_bounds(column: Any) -> tuple[orjson.Fragment, orjson.Fragment]:
    low, high = _extremes(column)
    return _number(low), _number(high)


def _number(value: Decimal) -> orjson.Fragment:
    return orjson.Fragment(f"{value:f}")


def _date_bounds(column: Any) -> tuple[str | None, str | None]:
    days = _extremes(pc.cast(pc.cast(column, pa.date32()), pa.int32()))
    low, high = (_datetime_since_epoch(timedelta(days=day)) for day in days)
    return _day_text(low), _day_text(high)


def _day_text(day: datetime | None) -> str | None:
    return None if day is None else day.date().isoformat()


def _moment_bounds(column: Any, zone: str) -> tuple[str | None, str | None]:
    unit = pa.timestamp("us", tz=column.type.tz)
    micros = _extremes(pc.cast(pc.cast(column, unit, safe=False), pa.int64()))
    low, high = (_datetime_since_epoch(timedelta(milliseconds=micro // 1000)) for micro in micros)
    return _moment_text(low, zone), _moment_text(high, zone)


def _moment_text(moment: datetime | None, zone: str) -> str | None:
    if moment is None:
        return None
    return moment.replace(tzinfo=None).isoformat(timespec="milliseconds") + zone


def _datetime_since_epoch(since_epoch: timedelta) -> datetime | None:
    try:
        return _EPOCH + since_epoch
    except OverflowError:
        return None


def _prefix_length(text: str, prefix_units: int) -> int:
    """Return the length of the prefix in characters: a surrogate pair is not split."""
    units = 0
    for length, character in enumerate(text):
        if units >= prefix_units:
            return length
        units += _units(character)
    return len(text)


def _units(text: str) -> int:
    return len(text) + sum(character > "\uffff" for character in text)
