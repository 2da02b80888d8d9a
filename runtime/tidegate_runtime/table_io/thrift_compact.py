"""Thrift's compact protocol, in which the footer of a Parquet file is written.

Only structs are read and written, and values are mostly passed on as they are encoded. Nothing that
is read is trusted: depths and lengths are bounded.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

_DEPTH_MAX: Final = 32
_TRUE, _FALSE, _BYTE, _DOUBLE, BINARY = 1, 2, 3, 7, 8
INT64: Final = 6
INTEGERS: Final = frozenset({4, 5, INT64})
LIST, _SET, _MAP, STRUCT = 9, 10, 11, 12

Field = tuple[int, int, bytes]
"""The number of a field, its kind, and its encoded value."""


class CompactReader:
    """Reads encoded bytes from their start on.

    Raises: ValueError, IndexError for what ends in the middle or can't be read.
    """

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._position = 0

    def fields(self) -> Iterator[tuple[int, int]]:
        """Yield the number and kind of each field of a struct; the caller takes its value."""
        number = 0
        while head := self._content[self._position]:
            self._position += 1
            number = number + (head >> 4) if head >> 4 else self.integer()
            yield number, head & 15
        self._position += 1

    def encoded_fields(self) -> list[Field]:
        """Return the fields of a struct, each with its value as it is encoded."""
        return [(number, kind, self.encoded(kind)) for number, kind in self.fields()]

    def encoded_structs(self) -> list[bytes]:
        """Return the structs of a list as they are encoded."""
        return [self.encoded(STRUCT) for _ in range(self.structs())]

    def encoded(self, kind: int) -> bytes:
        """Return a value as it is encoded."""
        start = self._position
        self.skip(kind)
        return self._content[start : self._position]

    def structs(self) -> int:
        """Return the length of a list of structs; the caller takes these."""
        count, kind = self._list()
        if kind != STRUCT:
            raise ValueError("its footer holds a list of something else")
        return count

    def texts(self) -> list[str]:
        """Return a list of texts."""
        count, kind = self._list()
        if kind != BINARY:
            raise ValueError("its footer holds a path that is no text")
        return [self._take(self._varint()).decode() for _ in range(count)]

    def _list(self) -> tuple[int, int]:
        head = self._byte()
        count = head >> 4
        count = self._varint() if count == 15 else count
        if count > len(self._content) - self._position:
            raise ValueError("its footer holds a list longer than itself")
        return count, head & 15

    def skip(self, kind: int, left: int = _DEPTH_MAX) -> None:
        """Pass over a value, which may hold others to a depth of `left`."""
        if kind in INTEGERS:
            position = self._position
            while self._content[position] > 127:
                position += 1
            self._position = position + 1
        elif kind == BINARY:
            size = self._varint()
            self._position += size
        elif kind in (LIST, _SET) and left:
            count, inner = self._list()
            for _ in range(count):
                self.skip(_BYTE if inner in (_TRUE, _FALSE) else inner, left - 1)
        elif kind == STRUCT and left:
            for _, inner in self.fields():
                self.skip(inner, left - 1)
        elif kind == _MAP and left:
            self._skip_map(left)
        elif kind in (_BYTE, _DOUBLE):
            self._take(1 if kind == _BYTE else 8)
        elif kind not in (_TRUE, _FALSE):
            raise ValueError("its footer can't be read")

    def _skip_map(self, left: int) -> None:
        count = self._varint()
        kinds = self._byte() if count else 0
        if 2 * count > len(self._content) - self._position:
            raise ValueError("its footer holds a map longer than itself")
        for _ in range(count):
            self.skip(kinds >> 4, left - 1)
            self.skip(kinds & 15, left - 1)

    def integer(self) -> int:
        """Return an integer."""
        encoded = self._varint()
        return (encoded >> 1) ^ -(encoded & 1)

    def _varint(self) -> int:
        value = shift = 0
        while (byte := self._byte()) > 127:
            value |= (byte & 127) << shift
            shift += 7
            if shift > 63:
                raise ValueError("its footer holds a number that is too long")
        return value | byte << shift

    def _byte(self) -> int:
        self._position += 1
        return self._content[self._position - 1]

    def _take(self, size: int) -> bytes:
        if size > len(self._content) - self._position:
            raise ValueError("its footer ends in the middle")
        self._position += size
        return self._content[self._position - size : self._position]


def encode_integer(value: int) -> bytes:
    """Return an integer of any size, encoded."""
    return _encode_varint(value << 1 if value >= 0 else (-value << 1) - 1)


def encode_structs(structs: Sequence[bytes]) -> bytes:
    """Return a list of encoded structs."""
    count = len(structs)
    head = bytes([count << 4 | STRUCT]) if count < 15 else b"\xfc" + _encode_varint(count)
    return head + b"".join(structs)


def encode_struct(fields: Iterable[Field]) -> bytes:
    """Return a struct of fields in the order of their numbers."""
    parts, before = [], 0
    for number, kind, value in fields:
        step = number - before
        is_near = 0 < step < 16
        parts.append(bytes([step << 4 | kind]) if is_near else bytes([kind]))
        if not is_near:
            parts.append(encode_integer(number))
        parts.append(value)
        before = number
    return b"".join((*parts, b"\0"))


def _encode_varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
