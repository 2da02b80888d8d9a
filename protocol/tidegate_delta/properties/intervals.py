"""Parse intervals such as `interval 2 weeks 3 hours`, by Spark's grammar as Delta uses it."""

import re
from typing import Final

MICROSECONDS: Final = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
}
DAYS: Final = {"day": 1, "week": 7}
MONTHS: Final = {"month": 1, "year": 12}

_DAY_US: Final = 86_400_000_000
_BLANKS: Final = "".join(chr(code) for code in range(0x21))
_INT_MAX: Final = 2**31 - 1
_LONG_MAX: Final = 2**63 - 1
_TERM: Final = re.compile(
    r"[\s\x1c-\x1f]*"
    r"(?:(?P<sign>[+-])[\s\x1c-\x1f]*(?P<signed>[0-9]+(?:\.[0-9]{0,9})?|\.[0-9]{0,9})"
    r"|(?P<plain>[0-9]+(?:\.[0-9]{0,9})?|\.[0-9]{1,9}))"
    r"[\s\x1c-\x1f]+(?P<unit>[a-z]+?)s?(?:[\s\x1c-\x1f]+|$)",
    re.ASCII,
)


def interval_ms(text: str) -> int:
    """Return the length of an interval such as `interval 1 week` in ms.

    The word `interval` may be left out, case is ignored, each number has a unit and may have a
    sign, and seconds may have a fraction. Months and years must add up to zero, and the rest must
    not be negative; fractions of a millisecond are cut off.
    Raises: ValueError for months, years, negative intervals and a text that is no interval.
    Spec: "Table Properties"
    """
    rest = text.strip(_BLANKS).lower().removeprefix("interval ")
    months, days, microseconds, end = 0, 0, 0, 0
    while end < len(rest):
        term = _TERM.match(rest, end)
        if term is None:
            raise _no_interval(text)
        number, unit, end = term["signed"] or term["plain"], term["unit"], term.end()
        whole, point, fraction = number.partition(".")
        count = -int(whole or "0") if term["sign"] == "-" else int(whole or "0")
        if point and unit != "second":
            raise _no_interval(text)
        if unit in MONTHS:
            months += count * MONTHS[unit]
        elif unit in DAYS:
            days += count * DAYS[unit]
        elif unit in MICROSECONDS:
            part = int(fraction.ljust(9, "0")[:6] or "0")
            microseconds += count * MICROSECONDS[unit] + (-part if term["sign"] == "-" else part)
        else:
            raise _no_interval(text)
    total = days * _DAY_US + microseconds
    if not rest or months or not total >= 0 or abs(days) > _INT_MAX or total > _LONG_MAX:
        raise _no_interval(text)
    return total // 1_000


def _no_interval(text: str) -> ValueError:
    return ValueError(f"{text!r} is no interval of days or shorter units")
