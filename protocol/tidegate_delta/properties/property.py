"""A table property: its key, default and parser; parsers of Booleans, integers, words and lists.

Spec: "Table Properties"
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import orjson

from tidegate_delta.errors import InvalidRequest
from tidegate_delta.log.actions import Metadata

T = TypeVar("T")


@dataclass(frozen=True)
class Property(Generic[T]):
    """A property of a table.

    `older` keys are read where the key is absent. A property that is not `settable` is written by
    engines only, never on a user's request. The feature that a property turns on names it
    (`features.supported_features`).
    Units: `unit` is what the value counts.
    """

    key: str
    default: T
    read: Callable[[str], T]
    expected: str
    unit: str = ""
    older: tuple[str, ...] = ()
    settable: bool = True

    def __call__(self, metadata: Metadata) -> T:
        """Return the property's value. Raises: InvalidRequest for an invalid text."""
        return self.of(metadata.configuration)

    def of(self, configuration: Mapping[str, str]) -> T:
        """Return the property's value. Raises: InvalidRequest for an invalid text."""
        for key in (self.key, *self.older):
            if key in configuration:
                return self._read(key, configuration[key])
        return self.default

    def is_on(self, metadata: Metadata) -> bool:
        """Return whether its text is `true`: by any other one, valid or not, no feature is used."""
        for key in (self.key, *self.older):
            if key in metadata.configuration:
                return metadata.configuration[key].strip().lower() == "true"
        return False

    def _read(self, key: str, text: str) -> T:
        try:
            return self.read(text)
        except ValueError as error:
            raise InvalidRequest(
                f"table property {key!r} is {text!r}; expected {self.expected}: set it again",
                error_class="InvalidTableProperty",
            ) from error


_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,20}")
_PAGE_VERSION: Final = re.compile(r"1\.0\.0|2\.[0-9]+\.[0-9]+")
_NAME: Final = re.compile(r"`((?:[^`]|``)+)`|([^.,`\s]+)")

INT_BITS: Final = 32
LONG_BITS: Final = 64

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


def boolean(text: str) -> bool:
    """Return the Boolean of a text, without regard to case.

    Raises: ValueError for what is neither true nor false; surrounding blanks are not allowed.
    """
    if text.lower() not in ("true", "false"):
        raise ValueError(f"{text!r} is neither true nor false")
    return text.lower() == "true"


def whole(least: int, bits: int = INT_BITS) -> Callable[[str], int]:
    """Return a parser of integers that are at least `least` and fit in `bits`."""

    def read(text: str) -> int:
        if not _INTEGER.fullmatch(text):
            raise ValueError(f"{text!r} is no whole number")
        number = int(text)
        if not max(least, -(2 ** (bits - 1))) <= number < 2 ** (bits - 1):
            raise ValueError(f"{number} is less than {least} or too large")
        return number

    return read


def word(words: Iterable[str]) -> Callable[[str], str]:
    """Return a parser that accepts the given words, exactly as written."""
    known = frozenset(words)

    def read(text: str) -> str:
        if text not in known:
            raise ValueError(f"{text!r} is none of {sorted(known)}")
        return text

    return read


def any_case(words: Iterable[str]) -> Callable[[str], str]:
    """Return a parser that accepts the given words in any case, and returns them as given."""
    known = {accepted.lower(): accepted for accepted in words}

    def read(text: str) -> str:
        if text.lower() not in known:
            raise ValueError(f"{text!r} is none of {sorted(known.values())}")
        return known[text.lower()]

    return read


def page_format(text: str) -> str:
    """Return the version of a Parquet page format.

    Raises: ValueError for what is neither 1.0.0 nor 2.MINOR.PATCH.
    """
    if not _PAGE_VERSION.fullmatch(text):
        raise ValueError(f"{text!r} is no page format version")
    return text


def formats(text: str) -> tuple[str, ...]:
    """Return the other formats in which a table is to be readable, each once.

    Raises: ValueError for an unknown format, or one named twice.
    Spec: "Iceberg Compatibility V1"
    """
    named = tuple(text.split(",")) if text else ()
    if len(set(named)) < len(named) or not set(named) <= {"iceberg", "hudi"}:
        raise ValueError(f"{text!r} is no list of formats")
    return named


def string_map(text: str) -> Mapping[str, str]:
    """Return a JSON object of strings.

    Raises: ValueError for any other text.
    """
    plain = orjson.loads(text or "{}")
    if not isinstance(plain, dict) or not all(isinstance(value, str) for value in plain.values()):
        raise ValueError(f"{text!r} is no JSON object of strings")
    return plain


def column_list(text: str) -> tuple[tuple[str, ...], ...]:
    """Return the column paths of a list such as ``a, b.c, `d.e` ``.

    Raises: ValueError for what is no list of columns.
    """
    columns: list[tuple[str, ...]] = []
    position = 0
    while position <= len(text) and text.strip():
        path, position = _column(text, position)
        columns.append(path)
    return tuple(columns)


def _column(text: str, start: int) -> tuple[tuple[str, ...], int]:
    path: list[str] = []
    position = start
    while True:
        position += len(text[position:]) - len(text[position:].lstrip())
        match = _NAME.match(text, position)
        if match is None:
            raise ValueError(f"{text!r} is no list of columns")
        path.append(match[1].replace("``", "`") if match[1] else match[2])
        rest = text[match.end() :].lstrip()
        position = len(text) - len(rest)
        if not rest or rest[0] == ",":
            return tuple(path), position + 1
        if rest[0] != ".":
            raise ValueError(f"{text!r} is no list of columns")
        position += 1


def interval_ms(text: str) -> int:
    """Return the length of an interval such as `interval 1 week` in ms, by Spark's grammar.

    The word `interval` may be left out, case is ignored, each number has a unit and may have a
    sign, and seconds may have a fraction. Months and years must add up to zero, and the rest must
    not be negative; fractions of a millisecond are cut off.
    Raises: ValueError for months, years, negative intervals and a text that is no interval.
    """
    rest = text.strip(_BLANKS).lower().removeprefix("interval ")
    months, days, microseconds, end = 0, 0, 0, 0
    while end < len(rest):
        term = _TERM.match(rest, end)
        if term is None:
            raise _no_interval(text)
        number, unit, end = term["signed"] or term["plain"], term["unit"], term.end()
        integer_part, point, fraction = number.partition(".")
        count = -int(integer_part or "0") if term["sign"] == "-" else int(integer_part or "0")
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
