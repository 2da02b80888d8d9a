"""Encode variants from parts that were stored in shredded columns.

The encoding is Parquet's: a value refers to its fields by numbers, which a dictionary (the
variant's metadata) maps to names.

Spec: "Variant data in Parquet"
"""

import struct
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Final

NULL: Final = b"\x00"
"""The variant null. A row without a variant is SQL NULL and has no bytes at all."""

_VERSION: Final = 1
_BASIC_OBJECT: Final = 2
_BASIC_ARRAY: Final = 3
_COUNT_MAX: Final = 0xFF
_SHORT_STRING_MAX: Final = 63
_TRUE: Final = 1
_FALSE: Final = 2
_DOUBLE: Final = 7
_SINGLE: Final = 14
_INTEGERS: Final = {8: 3, 16: 4, 32: 5, 64: 6}
_DECIMALS: Final = ((9, 8, 4), (18, 9, 8), (38, 10, 16))
_STRING: Final = 16
_BINARY: Final = 15
_MOMENTS: Final = {"time": 17, "timestamp_us": 12, "ntz_us": 13, "timestamp_ns": 18, "ntz_ns": 19}
_DATE: Final = 11
_UUID: Final = 20


class Dictionary:
    """The field names of a variant; a look-up of a missing name adds it."""

    def __init__(self, metadata: bytes) -> None:
        """Read a variant's metadata. Raises: ValueError if it is malformed."""
        self._metadata = metadata
        self._names = _names(metadata)
        self._numbers = {name: number for number, name in reversed(list(enumerate(self._names)))}
        self._is_grown = False

    def name(self, number: int) -> str:
        """Return a field's name. Raises: ValueError for a number without one."""
        if not 0 <= number < len(self._names):
            raise ValueError(f"a variant names its field {number}, its dictionary has less")
        return self._names[number]

    def number(self, name: str) -> int:
        """Return a field's number."""
        if name not in self._numbers:
            self._numbers[name] = len(self._names)
            self._names.append(name)
            self._is_grown = True
        return self._numbers[name]

    def encode(self) -> bytes:
        """Return the dictionary as bytes: the original ones, unless names were added."""
        if not self._is_grown:
            return self._metadata
        texts = [name.encode() for name in self._names]
        width = _width(max(sum(map(len, texts)), len(texts)))
        header = _VERSION | (width - 1) << 6
        return bytes([header]) + _uint(len(texts), width) + _joined(texts, width)


def boolean(value: object) -> bytes:
    """Return a Boolean as a variant."""
    return _primitive(_TRUE if value else _FALSE)


def integer(value: int, bits: int) -> bytes:
    """Return an integer of 8, 16, 32 or 64 bits as a variant."""
    return _primitive(_INTEGERS[bits], value.to_bytes(bits // 8, "little", signed=True))


def single(value: float) -> bytes:
    """Return a number of single precision as a variant."""
    return _primitive(_SINGLE, struct.pack("<f", value))


def double(value: float) -> bytes:
    """Return a number of double precision as a variant."""
    return _primitive(_DOUBLE, struct.pack("<d", value))


def decimal(value: Decimal, precision: int, scale: int) -> bytes:
    """Return a decimal number as a variant.

    Raises: ValueError for a precision that variants lack.
    """
    unscaled = int(value.scaleb(scale))
    for digits, kind, size in _DECIMALS:
        if precision <= digits:
            body = unscaled.to_bytes(size, "little", signed=True)
            return _primitive(kind, bytes([scale]) + body)
    raise ValueError(f"a variant can't hold decimals of {precision} digits")


def date(days: int) -> bytes:
    """Return a date, in days since the Unix epoch, as a variant."""
    return _primitive(_DATE, days.to_bytes(4, "little", signed=True))


def moment(count: int, kind: str) -> bytes:
    """Return a timestamp or time as a variant; `kind` is `timestamp_us`, `ntz_us`, `time` etc.

    Units: `count` in the units of the kind, since the Unix epoch or midnight.
    """
    return _primitive(_MOMENTS[kind], count.to_bytes(8, "little", signed=True))


def binary(value: bytes) -> bytes:
    """Return bytes as a variant."""
    return _primitive(_BINARY, _uint(len(value), 4) + value)


def uuid(value: bytes) -> bytes:
    """Return the 16 bytes of a UUID as a variant."""
    return _primitive(_UUID, value)


def string(value: str) -> bytes:
    """Return a string as a variant."""
    text = value.encode()
    if len(text) <= _SHORT_STRING_MAX:
        return bytes([len(text) << 2 | 1]) + text
    return _primitive(_STRING, _uint(len(text), 4) + text)


def array(items: Sequence[bytes]) -> bytes:
    """Return an array variant of the given variants."""
    width = _width(sum(map(len, items)))
    is_large = len(items) > _COUNT_MAX
    header = _BASIC_ARRAY | (width - 1) << 2 | is_large << 4
    return bytes([header]) + _uint(len(items), 4 if is_large else 1) + _joined(items, width)


def object_(fields: Mapping[str, bytes], dictionary: Dictionary) -> bytes:
    """Return an object variant of the given named variants."""
    named = sorted(fields.items(), key=lambda item: item[0].encode())
    numbers = [dictionary.number(name) for name, _ in named]
    items = [item for _, item in named]
    width, id_width = _width(sum(map(len, items))), _width(max(numbers, default=0))
    is_large = len(items) > _COUNT_MAX
    header = _BASIC_OBJECT | (width - 1) << 2 | (id_width - 1) << 4 | is_large << 6
    count = _uint(len(items), 4 if is_large else 1)
    ids = b"".join(_uint(number, id_width) for number in numbers)
    return bytes([header]) + count + ids + _joined(items, width)


def fields_of(value: bytes, dictionary: Dictionary) -> Mapping[str, bytes]:
    """Return the fields of an object variant.

    Raises: ValueError for a variant that is no object, or for inconsistent bytes.
    Spec: "Shredded Variant data in Parquet"
    """
    if not value or value[0] & 3 != _BASIC_OBJECT:
        raise ValueError("a variant has fields in columns of their own, and is no object itself")
    header = value[0] >> 2
    width, id_width = (header & 3) + 1, (header >> 2 & 3) + 1
    count_width = 4 if header >> 4 & 1 else 1
    count = _read(value, 1, count_width)
    ids = 1 + count_width
    offsets = ids + count * id_width
    start = offsets + (count + 1) * width
    starts = [_read(value, offsets + index * width, width) for index in range(count + 1)]
    if start + starts[-1] > len(value) or any(start >= starts[-1] for start in starts[:-1]):
        raise ValueError("a variant object ends before its fields do")
    edges = sorted(starts)
    names = (
        dictionary.name(_read(value, ids + index * id_width, id_width)) for index in range(count)
    )
    return {
        name: value[start + first : start + edges[bisect_right(edges, first)]]
        for name, first in zip(names, starts[:-1], strict=True)
    }


def _primitive(kind: int, body: bytes = b"") -> bytes:
    return bytes([kind << 2]) + body


def _names(metadata: bytes) -> list[str]:
    if not metadata or metadata[0] & 0xF != _VERSION:
        raise ValueError("a variant's dictionary is of no version that this release knows")
    width = (metadata[0] >> 6) + 1
    count = _read(metadata, 1, width)
    first = 1 + width
    start = first + (count + 1) * width
    if start > len(metadata):
        raise ValueError("a variant's dictionary ends before its names do")
    edges = [_read(metadata, first + index * width, width) for index in range(count + 1)]
    if edges != sorted(edges) or start + edges[-1] > len(metadata):
        raise ValueError("a variant's dictionary has names that overlap or lie outside of it")
    return [
        metadata[start + edges[index] : start + edges[index + 1]].decode() for index in range(count)
    ]


def _joined(items: Iterable[bytes], width: int) -> bytes:
    """Return the offsets of the items, followed by the items."""
    items = list(items)
    ends, total = [_uint(0, width)], 0
    for item in items:
        total += len(item)
        ends.append(_uint(total, width))
    return b"".join([*ends, *items])


def _width(number: int) -> int:
    """Return how many bytes a number needs: at least one."""
    return max(1, (number.bit_length() + 7) // 8)


def _uint(number: int, width: int) -> bytes:
    return number.to_bytes(width, "little")


def _read(source: bytes, start: int, width: int) -> int:
    if start + width > len(source):
        raise ValueError("a variant ends before what it says of itself does")
    return int.from_bytes(source[start : start + width], "little")
