"""Parse partition values that no writer should write but that engines read nevertheless.

Spark casts the text to the column's type, and a cast accepts more than the protocol defines:
`yes`, a month without a day, a decimal with too many digits. They are parsed here as that cast
does, to return what the engine would have read.
"""

import re
from collections.abc import Mapping
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from functools import lru_cache
from typing import Any, Final

from tidegate_delta.schema.partition_values import parse
from tidegate_delta.schema.types import DECIMAL_PRECISION_MAX, DataType, DecimalType, PrimitiveType

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


def cast(text: str, kind: DataType) -> Any:
    """Return the value to which an engine casts a text; equal to `parse` where that accepts it.

    Times of day without a date, zone names and years that Python lacks are not supported.
    Law: cast(t, kind) == parse(t, kind) wherever parse does not raise
    Raises: ValueError, which names the text.
    Spec: "Partition Value Serialization"
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
            return _day(text)
        case PrimitiveType("timestamp" | "timestamp_ntz"):
            return _moment(text)
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


def _day(text: str) -> str | None:
    match = _DAY.match(text)
    return f"{match[1]}-{match[2] or 1}-{match[3] or 1}" if match else None


def _moment(text: str) -> str | None:
    day = _DAY.match(text)
    if day is not None and day[3] is None:
        return _day(text)
    match = _ZONED.match(text)
    zone = ""
    if match is not None:
        text = match[1]
        zone = f"{match[2]}{int(match[3]):02}:{int(match[4] or 0):02}"
    return text.rstrip(".") + zone
