"""Bounds of a column's values in a file, from statistics or partition values.

Statistics come from many writers, so a bound is used only if it can't mislead: one that is
missing, of another type or possibly rounded is widened or dropped.

Spec: "Per-file Statistics"
"""

import json
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from math import isfinite
from typing import Any, Final, NamedTuple

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from tidegate_delta.data_skipping.predicate_tree import as_single
from tidegate_delta.schema import partition_values
from tidegate_delta.schema.partition_values import lenient_cast
from tidegate_delta.schema.types import FLOAT, STRING, DataType, DecimalType, PrimitiveType
from tidegate_delta.value_limits import LONG_MAX, is_long, is_text

PREFIX_UNITS: Final = 32
"""The length, in UTF-16 units, from which a string bound may have been truncated."""

UNICODE_MAX: Final = "\U0010ffff"
_REPLACEMENT: Final = "\ufffd"
_MILLISECOND: Final = timedelta(milliseconds=1)
_ZONES_AWAY: Final = timedelta(hours=18)
"""The greatest offset of a time zone from UTC."""
_EXACT: Final = json.JSONDecoder(parse_float=Decimal, parse_constant=lambda _: None)
_WHOLE_MINUTES: Final = datetime(1973, 1, 1, tzinfo=UTC)
"""Until this time some zones had offsets from UTC with seconds, which timestamps in the log lack.
"""
_DIGITS_MAX: Final = 76
"""With more digits than this before or after the point, a number fits no decimal type."""
_DECIMAL_SLACK: Final = Decimal("1e-15")
"""The relative error of a decimal that its writer converted through a double."""


class Bounds(NamedTuple):
    """The bounds of one column in one file.

    `lower` and `upper` are None where the bound is unknown. `may_be_null` and `may_hold_value` are
    true unless the file is known to have no null, or only nulls.
    """

    lower: Any
    upper: Any
    may_be_null: bool
    may_hold_value: bool


def partition_texts(files: pa.Table, name: str) -> pa.DictionaryArray:
    """Return the value of a partition column in each file, as text of the log; no value is null.

    Spec: "Partition Value Serialization"
    """
    texts = pc.map_lookup(files.column("partitionValues"), pa.scalar(name), "last")
    return texts.combine_chunks().dictionary_encode(null_encoding="encode")


def of_partition_text(text: str | None, kind: DataType) -> Bounds:
    """Return the bounds of a partition column in a file: one value, null, or possibly either.

    A timestamp that does not state its time zone gets bounds that cover every zone, a text that no
    engine reads as a value of the type none.
    Spec: "Partition Value Serialization"
    """
    if text == "" and kind == STRING:
        return _EMPTY
    if not text:
        return _NULL
    try:
        value = lenient_cast(text, kind)
    except ValueError:
        return UNREADABLE
    lower = upper = as_single(value) if kind == FLOAT else value
    if partition_values.lacks_zone(text, kind):
        lower, upper = _moved(value, -_ZONES_AWAY), _moved(value, _ZONES_AWAY)
    return Bounds(lower, upper, may_be_null=False, may_hold_value=True)


def parsed(text: str | None, *, exact_numbers: bool) -> Mapping[str, Any]:
    """Return the statistics of a file as plain JSON, empty where they are missing or invalid.

    With `exact_numbers`, numbers with a point become decimals.
    """
    if not text:
        return {}
    try:
        statistics = _EXACT.decode(text) if exact_numbers else orjson.loads(text)
    except (ValueError, ArithmeticError, RecursionError):
        return {}
    return statistics if isinstance(statistics, dict) else {}


def of_column(statistics: Mapping[str, Any], path: tuple[str, ...], kind: DataType) -> Bounds:
    """Return a column's bounds from the statistics of a file."""
    nulls = whole(value_at(statistics.get("nullCount"), path))
    return Bounds(
        _lower(value_at(statistics.get("minValues"), path), kind),
        _upper(value_at(statistics.get("maxValues"), path), kind),
        # A struct may be null where its field has no null.
        len(path) > 1 or nulls != 0,
        nulls is None or nulls != whole(statistics.get("numRecords")),
    )


def of_single(bounds: Bounds) -> Bounds:
    """Return bounds of a double column that also hold for a file in which it was a float.

    Such a file's bounds are the shortest texts of single-precision numbers, not the doubles to
    which these widen.
    Spec: "Reader Requirements for Type Widening"
    """
    lower, upper = bounds.lower, bounds.upper
    return bounds._replace(
        lower=None if lower is None else min(lower, as_single(lower)),
        upper=None if upper is None else max(upper, as_single(upper)),
    )


_NULL: Final = Bounds(None, None, may_be_null=True, may_hold_value=False)
UNREADABLE: Final = Bounds(None, None, may_be_null=True, may_hold_value=True)
"""The bounds of a partition value that no engine reads as one of its column's type.

Spec: "Partition Value Serialization"
"""

_EMPTY: Final = Bounds("", "", may_be_null=True, may_hold_value=True)
"""An empty string is null by the protocol, but a string to delta-spark."""


def value_at(tree: Any, path: tuple[str, ...]) -> Any:
    """Return the value at a path in nested JSON objects, or None."""
    for name in path:
        if not isinstance(tree, dict):
            return None
        tree = tree.get(name)
    return tree


def whole(value: Any) -> int | None:
    """Return a count, or None for any other value, including one past a long."""
    return value if type(value) is int and 0 <= value <= LONG_MAX else None


def count_problem(statistics: Mapping[str, Any]) -> str | None:
    """Return the name of a count in a file's statistics that no reader can hold, or None."""
    if not is_long(statistics.get("numRecords")):
        return "have a numRecords past 2^63 - 1"
    waiting: list[tuple[tuple[str, ...], Any]] = [((), statistics.get("nullCount"))]
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, dict):
            waiting += [((*path, name), below) for name, below in value.items()]
        elif not is_long(value):
            return f"have a nullCount of column {'.'.join(path)[:64]!r} past 2^63 - 1"
    return None


def _lower(value: Any, kind: DataType) -> Any:
    bound = typed(value, kind)
    if isinstance(bound, datetime):
        return _moved(bound, -_MILLISECOND)
    if isinstance(bound, Decimal):
        return bound - abs(bound) * _DECIMAL_SLACK
    return bound


def _upper(value: Any, kind: DataType) -> Any:
    bound = typed(value, kind)
    if isinstance(bound, str):
        return _upper_string(bound)
    if isinstance(bound, datetime):
        return _moved(bound, _MILLISECOND)
    if isinstance(bound, Decimal):
        return bound + abs(bound) * _DECIMAL_SLACK
    return bound


def _upper_string(text: str) -> str:
    """Return a string that no value exceeds, even if the writer only truncated its maximum."""
    units = len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2
    if units >= PREFIX_UNITS:
        kept_chars = PREFIX_UNITS - 1 if text.isascii() else PREFIX_UNITS // 2 - 1
        return max(text, text[:kept_chars] + UNICODE_MAX * 2)
    if text.endswith(_REPLACEMENT):
        return text[:-1] + UNICODE_MAX * 2
    return text


def typed(value: Any, kind: DataType) -> Any:
    """Return a bound as a Python value, or None where it is not of its column's type."""
    if kind == STRING:
        return value if isinstance(value, str) and is_text(value) else None
    if isinstance(kind, DecimalType):
        return _decimal(value) if _is_number(value) else None
    if not isinstance(kind, PrimitiveType):
        return None
    match kind.name:
        case "byte" | "short" | "integer" | "long":
            return value if isinstance(value, int) and not isinstance(value, bool) else None
        case "float":
            return _finite(value, as_single) if _is_number(value) else None
        case "double":
            return _finite(value, float) if _is_number(value) else None
        case "date":
            return _date(value)
        case "timestamp":
            return _instant(value)
        case "timestamp_ntz":
            moment = _moment(value)
            return moment and moment.replace(tzinfo=None)
    return None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def _decimal(value: Any) -> Decimal | None:
    number = Decimal(value)
    return number if number.is_finite() and abs(number.adjusted()) <= _DIGITS_MAX else None


def _finite(value: Any, convert: Callable[[float], float]) -> float | None:
    """Return a number as a double or a single, or None for one past the range."""
    try:
        number = convert(float(value))
    except OverflowError:
        return None
    return number if isfinite(number) else None


def _date(value: Any) -> date | None:
    try:
        return date.fromisoformat(value)
    except (TypeError, ValueError):
        return None


def _moment(value: Any) -> datetime | None:
    try:
        moment = datetime.fromisoformat(value)
        return moment.astimezone(UTC) if moment.tzinfo else moment
    except (TypeError, ValueError, OverflowError):
        return None


def _instant(value: Any) -> datetime | None:
    """Return a timestamp in UTC, or None where its offset may lack seconds."""
    moment = _moment(value)
    if moment is None or moment.tzinfo is None:
        return None
    return moment if value.endswith(("Z", "+00:00")) or moment >= _WHOLE_MINUTES else None


def _moved(moment: datetime, distance: timedelta) -> datetime | None:
    try:
        return moment + distance
    except OverflowError:
        return None
