"""Partition values: text in the log <-> typed values, and the partition folders in file paths.

`lenient_cast` parses values that no writer should write but that engines read nevertheless. Spark
casts the text to the column's type, and a cast accepts more than the protocol defines: `yes`, a
month without a day, a decimal with too many digits. They are parsed here as that cast does, to
return what the engine would have read.

`partition_of` is the partition of a file as a value, since engines spell a value in several ways.

Spec: "Partition Value Serialization"
"""

import re
import struct
from collections.abc import Hashable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from functools import lru_cache
from math import isnan
from typing import Any, Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from tidegate_delta.log.actions import Metadata
from tidegate_delta.schema.arrow_types import arrow_type
from tidegate_delta.schema.column_mapping import physical_partition_columns
from tidegate_delta.schema.types import (
    DATE,
    DECIMAL_PRECISION_MAX,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DataType,
    DecimalType,
    PrimitiveType,
    parse_schema,
)

REACHED: Final = (DATE, TIMESTAMP, TIMESTAMP_NTZ)
"""The types whose values are computed as numbers here, beyond the years of Python's dates."""

_TEXT: Final = re.compile(r"([+-]?\d{4,7})-(\d{1,2}-\d{1,2})(.*)", re.DOTALL)
_CYCLE_YEARS: Final = 400
_CYCLE_DAYS: Final = 146_097
"""The calendar repeats after so many days."""
_SAME_CALENDAR: Final = 2_000
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_DAY_US: Final = 24 * 60 * 60 * 1_000_000
_MICROSECOND: Final = timedelta(microseconds=1)


def near(text: str) -> tuple[str, int]:
    """Return the same day in a year that Python supports, and the days between the two.

    Raises: ValueError for a text that begins with no date.
    """
    match = _TEXT.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} begins with no date")
    cycles, year = divmod(int(match[1]) - _SAME_CALENDAR, _CYCLE_YEARS)
    return f"{year + _SAME_CALENDAR}-{match[2]}{match[3]}", cycles * _CYCLE_DAYS


def number(value: date, days: int, kind: DataType) -> int:
    """Return a date or timestamp plus some days as the integer of its type: days or microseconds.

    A timestamp is in UTC or has no zone.
    Raises: ValueError for one past the range of its type.
    """
    count = value.toordinal() - _EPOCH_DAY + days
    if isinstance(value, datetime):
        past = value - value.replace(hour=0, minute=0, second=0, microsecond=0)
        count = count * _DAY_US + past // _MICROSECOND
    bits = 31 if kind == DATE else 63
    if not -(1 << bits) <= count < 1 << bits:
        raise ValueError(f"it lies past the range of {kind}")
    return count


T = TypeVar("T")

NULL_FOLDER: Final = "__HIVE_DEFAULT_PARTITION__"

_ESCAPED: Final = re.compile(r"[\x00-\x1f\x7f\"#%'*/:=?\\{\[\]^]")
_TIMESTAMP: Final = re.compile(
    r"^(\d{4})-(\d{1,2})-(\d{1,2})(?:[ T](\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,9}))?)?)?"
    r"(Z| ?UTC|[+-]\d{2}(?::?\d{2})?)?$"
)
_DATE: Final = re.compile(r"^(\d{4})-(\d{1,2})-(\d{1,2})$")
_WHOLE: Final = re.compile(r"^[+-]?[0-9]+$")
_BITS: Final = {"byte": 8, "short": 16, "integer": 32, "long": 64}
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - it is added to times without a zone
_NANOS: Final = 10**9
_CONTEXT: Final = Context(prec=DECIMAL_PRECISION_MAX * 2)
_SINGLE: Final = struct.Struct("<f")
_SINGLE_DIGITS_MAX: Final = 9
_SINGLE_MAX: Final = float.fromhex("0x1.fffffep+127")
_NAMED_FLOATS: Final = {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}


def serialize(value: object, kind: DataType) -> str | None:
    """Return the text of a partition value; None for null and for the empty string.

    Law: parse(serialize(v, kind), kind) == v, but for empty values, which become null
    Raises: ValueError for a value or type that has no text.
    """
    if value is None or value in ("", b""):
        return None
    try:
        return _text(value, kind)
    except (TypeError, ArithmeticError, AttributeError, UnicodeDecodeError, struct.error) as error:
        raise ValueError(f"{value!r} can't be a partition value of type {kind}") from error


def parse(text: str | None, kind: DataType) -> Any:
    """Return the Python value of a text; None for null and empty text.

    A timestamp without a zone is taken as UTC; one in nanoseconds is their number since 1970.
    Raises: ValueError, which names the text.
    """
    if text is None or text == "":
        return None
    return _parsed(text, kind)


def names_zone(text: str) -> bool:
    """Return whether the text of a timestamp states its time zone."""
    match = _TIMESTAMP.match(text.strip())
    return match is not None and match[8] is not None


def lacks_zone(text: str | None, kind: DataType) -> bool:
    """Return whether a text is a timestamp of a zoned type that does not state its time zone.

    Each engine reads it in the time zone of its own session.
    """
    if not text or kind != TIMESTAMP:
        return False
    match = _TIMESTAMP.match(text.strip())
    return match is not None and match[8] is None


@lru_cache(maxsize=4096)
def _parsed(text: str, kind: DataType) -> Any:
    """Return the value of a text; cached, because the texts repeat in every file of a partition."""
    try:
        return _value(text, kind)
    except (ValueError, InvalidOperation, OverflowError) as error:
        raise ValueError(f"the partition value {text!r} is no {kind}") from error


def column(texts: pa.Array | Sequence[str | None], kind: DataType) -> pa.Array:
    """Return many partition values at once; each distinct text is parsed once.

    Law: years beyond the range of Python's dates work too
    Raises: ValueError, which names the text.
    """
    encoded = _array(texts).dictionary_encode()
    distinct = encoded.dictionary.to_pylist()
    try:
        values = pa.array([parse(text, kind) for text in distinct], arrow_type(kind))
    except ValueError:
        if kind not in REACHED:
            raise
        counts = pa.array([_in_any_year(text, kind) for text in distinct], pa.int64())
        number = pa.int32() if kind == DATE else pa.int64()
        values = counts.cast(number).cast(arrow_type(kind))
    return values.take(encoded.indices)


def folder(values: Mapping[str, str | None], columns: Sequence[str]) -> str:
    """Return the folder of partition values as an object key: `a=1/b=x%2Fy`.

    Spec: "Data Files"
    """
    return "/".join(f"{_escape(name)}={_escape(values.get(name))}" for name in columns)


def _array(texts: pa.Array | Sequence[str | None]) -> pa.Array:
    if isinstance(texts, pa.ChunkedArray):
        return pc.cast(texts.combine_chunks(), pa.string())
    if isinstance(texts, pa.Array):
        return texts
    return pa.array(texts, pa.string())


def _escape(text: str | None) -> str:
    if text is None or text == "":
        return NULL_FOLDER
    return _ESCAPED.sub(lambda match: f"%{ord(match[0]):02X}", text)


def _text(value: Any, kind: DataType) -> str:
    if isinstance(kind, DecimalType):
        return _decimal_text(Decimal(value), kind)
    match kind:
        case PrimitiveType("string"):
            return _checked(value, str)
        case PrimitiveType("byte" | "short" | "integer" | "long"):
            return str(_in_range(_checked(value, int), kind.name))
        case PrimitiveType("double"):
            return _float_text(repr(float(value)))
        case PrimitiveType("float"):
            return _float_text(_shortest_single(float(value)))
        case PrimitiveType("boolean"):
            return "true" if _checked(value, bool) else "false"
        case PrimitiveType("date"):
            return _checked(value, date).isoformat()
        case PrimitiveType("timestamp"):
            return _instant(_checked(value, datetime))
        case PrimitiveType("timestamp_ntz"):
            return _checked(value, datetime).replace(tzinfo=None).isoformat(sep=" ")
        case PrimitiveType("timestamp_nanos" | "timestamp_nanos_ntz"):
            return _nanos_text(_in_range(_checked(value, int), "long"), kind.name)
        case PrimitiveType("binary"):
            return bytes(value).decode("utf-8")
    raise TypeError(f"{kind} can't partition a table")


def _checked(value: Any, expected: type[T]) -> T:
    if (isinstance(value, bool) and expected is not bool) or not isinstance(value, expected):
        raise TypeError(f"{value!r} is no {expected.__name__}")
    return value


def _instant(value: datetime) -> str:
    utc = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    return utc.replace(tzinfo=None).isoformat(sep="T", timespec="microseconds") + "Z"


def _decimal_text(value: Decimal, kind: DecimalType) -> str:
    return f"{fitted(value, kind):f}"


def fitted(value: Decimal, kind: DecimalType) -> Decimal:
    """Return a number in the scale of a type.

    Raises: ValueError for a number that the type does not hold exactly; InvalidOperation for one
    beyond every decimal type.
    Spec: "Primitive Types"
    """
    exact = value.quantize(Decimal(1).scaleb(-kind.scale), context=_CONTEXT)
    if exact != value or (exact and exact.adjusted() >= kind.precision - kind.scale):
        raise ValueError(f"{value} does not fit {kind}")
    return exact


def _in_range(value: int, name: str) -> int:
    limit = 1 << (_BITS[name] - 1)
    if not -limit <= value < limit:
        raise ValueError(f"{value} is out of the range of {name}")
    return value


def _float_text(text: str) -> str:
    return _NAMED_FLOATS.get(text) or text.replace("e", "E")


def _shortest_single(value: float) -> str:
    if value != value or value in (float("inf"), float("-inf")):
        return repr(value)
    exact = _SINGLE.pack(value)
    for digits in range(1, _SINGLE_DIGITS_MAX + 1):
        short = float(f"{value:.{digits}g}")
        # Fewer digits may round the largest singles up, past the range of a single.
        if abs(short) <= _SINGLE_MAX and _SINGLE.pack(short) == exact:
            return repr(short)
    return repr(value)


def _value(text: str, kind: DataType) -> Any:
    if isinstance(kind, DecimalType):
        return fitted(Decimal(_plain(text).strip()), kind)
    match kind:
        case PrimitiveType("string"):
            return text
        case PrimitiveType("byte" | "short" | "integer" | "long"):
            return _in_range(_digits(text), kind.name)
        case PrimitiveType("double"):
            return _floating(text)
        case PrimitiveType("float"):
            return _nearest_single(_floating(text))
        case PrimitiveType("boolean"):
            return _truth(text.strip().lower())
        case PrimitiveType("date"):
            return _date(text.strip())
        case PrimitiveType("timestamp"):
            return _moment(text.strip())
        case PrimitiveType("timestamp_ntz"):
            return _moment(text.strip()).replace(tzinfo=None)
        case PrimitiveType("timestamp_nanos" | "timestamp_nanos_ntz"):
            return _in_range(_nanos(text.strip()), "long")
        case PrimitiveType("binary"):
            return text.encode("utf-8")
    raise ValueError(f"{kind} can't partition a table")


def _in_any_year(text: str, kind: DataType) -> int | None:
    """Return a date or timestamp in any year, in days or microseconds since the Unix epoch."""
    if text == "":
        return None
    try:
        near_text, days = near(text)
        return number(_value(near_text, kind), days, kind)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"the partition value {text!r} is no {kind}") from error


def _floating(text: str) -> float:
    return float(_plain(text))


def _plain(text: str) -> str:
    if "_" in text:
        raise ValueError(f"{text!r} is a number of Python alone")
    return text


def _nearest_single(value: float) -> float:
    try:
        return float(_SINGLE.unpack(_SINGLE.pack(value))[0])
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def _truth(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(f"{text!r} is neither true nor false")
    return text == "true"


def _digits(text: str) -> int:
    if not _WHOLE.match(text.strip()):
        raise ValueError(f"{text!r} is no whole number")
    return int(text)


def _date(text: str) -> date:
    match = _DATE.match(text)
    if match is None:
        return _moment(text).date()
    return date(int(match[1]), int(match[2]), int(match[3]))


def _nanos_text(value: int, name: str) -> str:
    seconds, nanos = divmod(value, _NANOS)
    text = f"{_EPOCH + timedelta(seconds=seconds):%Y-%m-%d %H:%M:%S}.{nanos:09d}"
    return text if name.endswith("ntz") else text.replace(" ", "T") + "Z"


def _nanos(text: str) -> int:
    match = _TIMESTAMP.match(text)
    digits = ((match and match[7]) or "").ljust(9, "0")
    seconds = (_moment(text).replace(microsecond=0, tzinfo=None) - _EPOCH) // timedelta(seconds=1)
    return seconds * _NANOS + int(digits)


def _moment(text: str) -> datetime:
    match = _TIMESTAMP.match(text)
    if match is None:
        raise ValueError(f"{text!r} is no timestamp")
    year, month, day, hour, minute, second = (int(part or "0") for part in match.groups()[:6])
    micros = int((match[7] or "").ljust(6, "0")[:6])
    zone = match[8]
    is_offset = zone is not None and zone[0] in "+-"
    tz = datetime.fromisoformat(f"2000-01-01T00:00:00{zone}").tzinfo if is_offset else UTC
    return datetime(year, month, day, hour, minute, second, micros, tz).astimezone(UTC)


_TRUTHS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("t", "true", "y", "yes", "1"), "true"),
    **dict.fromkeys(("f", "false", "n", "no", "0"), "false"),
}
_SUFFIXED: Final = re.compile(r"^([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)[dDfF]$", re.ASCII)
_DAY: Final = re.compile(r"^\+?(\d{4})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T].*)?)?)?$", re.ASCII)
_ZONED: Final = re.compile(
    r"^(.*:\d{1,2}(?:\.\d*)?) ?(?:(?:UTC|GMT)?([+-])(\d{1,2})(?::(\d{1,2}))?)$"
)
_WIDE: Final = Context(prec=DECIMAL_PRECISION_MAX * 2, rounding=ROUND_HALF_UP)


def lenient_cast(text: str, kind: DataType) -> Any:
    """Return the value to which an engine casts a text; equal to `parse` where that accepts it.

    Times of day without a date, zone names and years that Python lacks are not supported.
    Law: cast(t, kind) == parse(t, kind) wherever parse does not raise
    Raises: ValueError, which names the text.
    """
    return _cast(text, kind)


@lru_cache(maxsize=4096)
def _cast(text: str, kind: DataType) -> Any:
    try:
        return parse(text, kind)
    except ValueError as error:
        normalised = _canonical_text(text.strip(), kind)
        if normalised is None:
            raise
        try:
            return parse(normalised, kind)
        except ValueError:
            raise error from None


def _canonical_text(text: str, kind: DataType) -> str | None:
    """Return a text in the form that the protocol defines, or None."""
    if isinstance(kind, DecimalType):
        return _rounded(text, kind)
    match kind:
        case PrimitiveType("boolean"):
            return _TRUTHS.get(text.lower())
        case PrimitiveType("double" | "float"):
            return _number(text)
        case PrimitiveType("date"):
            return _lenient_day(text)
        case PrimitiveType("timestamp" | "timestamp_ntz"):
            return _lenient_moment(text)
    return None


def _rounded(text: str, kind: DecimalType) -> str | None:
    if "_" in text or not text.isascii():
        return None
    try:
        value = Decimal(text).quantize(Decimal(1).scaleb(-kind.scale), context=_WIDE)
    except InvalidOperation:
        return None
    return f"{value:f}"


def _number(text: str) -> str | None:
    match = _SUFFIXED.match(text)
    return match[1] if match else None


def _lenient_day(text: str) -> str | None:
    match = _DAY.match(text)
    return f"{match[1]}-{match[2] or 1}-{match[3] or 1}" if match else None


def _lenient_moment(text: str) -> str | None:
    day = _DAY.match(text)
    if day is not None and day[3] is None:
        return _lenient_day(text)
    match = _ZONED.match(text)
    zone = ""
    if match is not None:
        text = match[1]
        zone = f"{match[2]}{int(match[3]):02}:{int(match[4] or 0):02}"
    return text.rstrip(".") + zone


Partition = tuple[Hashable, ...]
"""The values of the partition columns, in their order; two spellings of a value are equal."""


def partition_kinds(metadata: Metadata) -> Mapping[str, DataType]:
    """Return the type of each partition column by the key of its value in `partitionValues`."""
    keys = physical_partition_columns(metadata)
    schema = parse_schema(metadata.schema_string) if keys else ()
    kinds = {field.name: field.kind for field in schema}
    return {key: kinds.get(name, STRING) for name, key in keys.items()}


def partition_of(
    values: Mapping[str, str | None] | None, kinds: Mapping[str, DataType]
) -> Partition:
    """Return the partition of a file with these `partitionValues`.

    A timestamp that does not state its time zone is taken as UTC, as it is read. What no reader can
    parse is a value of its own.
    Law: partition_of({k: serialize(v, kinds[k])}, kinds) is the same for equal v
    """
    return tuple(_identity((values or {}).get(key), kind) for key, kind in kinds.items())


@lru_cache(maxsize=4096)
def _identity(text: str | None, kind: DataType) -> Hashable:
    if not text:
        return None
    try:
        value: Hashable = lenient_cast(text, kind)
    except ValueError:
        return _beyond_python(text, kind)
    # NaN is no number that equals itself; to Delta it is one value.
    return "NaN" if isinstance(value, float) and isnan(value) else value


def _beyond_python(text: str, kind: DataType) -> Hashable:
    """Return a date or time in a year that Python lacks as a number; another text as it is."""
    try:
        [value] = column([text], kind)
    except ValueError:
        return text
    number: int = value.cast("int32" if kind == DATE else "int64").as_py()
    return number
