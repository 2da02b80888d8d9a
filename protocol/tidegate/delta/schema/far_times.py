"""Days and moments in years that Python's dates do not reach: before 1 and past 9999.

Delta's types reach further, and so do the texts by which partition values spell them.
"""

import re
from datetime import date, datetime, timedelta
from typing import Final

from tidegate.delta.schema.types import DATE, TIMESTAMP, TIMESTAMP_NTZ, DataType

REACHED: Final = (DATE, TIMESTAMP, TIMESTAMP_NTZ)
"""The types whose values are told as numbers here."""

_TEXT: Final = re.compile(r"([+-]?\d{4,7})-(\d{1,2}-\d{1,2})(.*)", re.DOTALL)
_CYCLE_YEARS: Final = 400
_CYCLE_DAYS: Final = 146_097
"""The calendar repeats itself after so many days."""
_SAME_CALENDAR: Final = 2_000
_EPOCH: Final = date(1970, 1, 1).toordinal()
_DAY_US: Final = 24 * 60 * 60 * 1_000_000
_MICROSECOND: Final = timedelta(microseconds=1)


def near(text: str) -> tuple[str, int]:
    """Return the text in a year that Python knows, and by how many days it lies before it.

    Raises: ValueError for what begins with no date.
    Spec: "Partition Value Serialization"
    """
    match = _TEXT.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} begins with no date")
    cycles, year = divmod(int(match[1]) - _SAME_CALENDAR, _CYCLE_YEARS)
    return f"{year + _SAME_CALENDAR}-{match[2]}{match[3]}", cycles * _CYCLE_DAYS


def number(value: date, days: int, kind: DataType) -> int:
    """Return a date or a moment some days later as its type counts it: in days or microseconds.

    A moment is in UTC or has no zone.
    Raises: ValueError for one past the range of its type.
    Spec: "Partition Value Serialization"
    """
    count = value.toordinal() - _EPOCH + days
    if isinstance(value, datetime):
        past = value - value.replace(hour=0, minute=0, second=0, microsecond=0)
        count = count * _DAY_US + past // _MICROSECOND
    bits = 31 if kind == DATE else 63
    if not -(1 << bits) <= count < 1 << bits:
        raise ValueError(f"it lies past the range of {kind}")
    return count
