"""Read the row groups in the footer of a Parquet file, without trusting the footer.

pyarrow crashes the process when it is asked for the statistics of a column chunk whose entry in the
footer contradicts the schema. So the null counts of chunks are read here, from Thrift's compact
protocol. pyarrow reads the rest of the footer, and refuses what it can't read.
"""

import io
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import BinaryIO, Final

import pyarrow.parquet as pq

MAGIC: Final = b"PAR1"
TAIL_BYTES: Final = 1 << 16
"""Bytes from the end of a file that are read first: most footers are shorter."""

_LENGTH: Final = struct.Struct("<I")
_DEPTH_MAX: Final = 32

_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY = 1, 2, 3, 7, 8
_INTEGERS: Final = frozenset({4, 5, 6})
_LIST, _SET, _MAP, _STRUCT = 9, 10, 11, 12


@dataclass(frozen=True)
class RowGroup:
    """The number of rows of a row group, and of nulls in each leaf column that states it."""

    rows: int
    nulls: Mapping[str, int]


@dataclass(frozen=True)
class Footer:
    """The footer of a file: pyarrow's metadata, and the row groups as read here."""

    metadata: pq.FileMetaData
    groups: tuple[RowGroup, ...]


def read_footer(file: BinaryIO) -> Footer:
    """Return the footer of a Parquet file.

    Raises: ValueError, OSError or ArrowException for any other file.
    """
    content, metadata = _read(file)
    try:
        return Footer(metadata, tuple(_Compact(content).row_groups()))
    except IndexError as error:
        raise ValueError("its footer ends in the middle") from error


def read_row_count(file: BinaryIO) -> int:
    """Return the number of rows of a Parquet file. Raises: as `read_footer`."""
    return int(_read(file)[1].num_rows)


def _read(file: BinaryIO) -> tuple[bytes, pq.FileMetaData]:
    """Return the bytes of a footer, and what pyarrow reads of them."""
    size = file.seek(0, io.SEEK_END)
    tail = _tail(file, size, TAIL_BYTES)
    if len(tail) < _LENGTH.size + len(MAGIC) or not tail.endswith(MAGIC):
        raise ValueError("it does not end as a Parquet file does")
    length = _LENGTH.unpack(tail[-8:-4])[0]
    if length + 12 > size:
        raise ValueError(f"its footer is said to have {length} bytes, the file has {size}")
    if length + 8 > len(tail):
        tail = _tail(file, size, length + 8)
    content = tail[-8 - length : -8]
    return content, pq.read_metadata(io.BytesIO(b"".join((MAGIC, content, tail[-8:]))))


def _tail(file: BinaryIO, size: int, length: int) -> bytes:
    file.seek(max(0, size - length))
    return file.read(length)


class _Compact:
    """A reader of Thrift's compact protocol, as far as a footer needs it."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._position = 0

    def row_groups(self) -> Iterator[RowGroup]:
        """Yield the row groups of a FileMetaData. Raises: ValueError, IndexError."""
        for number, kind in self._fields():
            if (number, kind) == (4, _LIST):
                yield from [self._row_group() for _ in range(self._structs())]
            else:
                self._skip(kind)

    def _row_group(self) -> RowGroup:
        rows, nulls = 0, {}
        for number, kind in self._fields():
            if (number, kind) == (1, _LIST):
                chunks = [self._chunk() for _ in range(self._structs())]
                nulls = {path: count for path, count in chunks if count is not None}
            elif number == 3 and kind in _INTEGERS:
                rows = self._integer()
            else:
                self._skip(kind)
        return RowGroup(rows, nulls)

    def _chunk(self) -> tuple[str, int | None]:
        path, nulls = "", None
        for number, kind in self._fields():
            if (number, kind) != (3, _STRUCT):
                self._skip(kind)
                continue
            for inner, inner_kind in self._fields():
                if (inner, inner_kind) == (3, _LIST):
                    path = ".".join(self._texts())
                elif (inner, inner_kind) == (12, _STRUCT):
                    nulls = self._nulls()
                else:
                    self._skip(inner_kind)
        return path, nulls

    def _nulls(self) -> int | None:
        count = None
        for number, kind in self._fields():
            if number == 3 and kind in _INTEGERS:
                count = self._integer()
            else:
                self._skip(kind)
        return count

    def _fields(self) -> Iterator[tuple[int, int]]:
        """Yield the number and kind of each field of a struct; the caller takes its value."""
        number = 0
        while head := self._content[self._position]:
            self._position += 1
            number = number + (head >> 4) if head >> 4 else self._integer()
            yield number, head & 15
        self._position += 1

    def _structs(self) -> int:
        count, kind = self._list()
        if kind != _STRUCT:
            raise ValueError("its footer holds a list of something else")
        return count

    def _texts(self) -> list[str]:
        count, kind = self._list()
        if kind != _BINARY:
            raise ValueError("its footer holds a path that is no text")
        return [self._take(self._varint()).decode() for _ in range(count)]

    def _list(self) -> tuple[int, int]:
        head = self._byte()
        count = head >> 4
        count = self._varint() if count == 15 else count
        if count > len(self._content) - self._position:
            raise ValueError("its footer holds a list longer than itself")
        return count, head & 15

    def _skip(self, kind: int, left: int = _DEPTH_MAX) -> None:
        if kind in _INTEGERS:
            position = self._position
            while self._content[position] > 127:
                position += 1
            self._position = position + 1
        elif kind == _BINARY:
            size = self._varint()
            self._position += size
        elif kind in (_LIST, _SET) and left:
            count, inner = self._list()
            for _ in range(count):
                self._skip(_BYTE if inner in (_TRUE, _FALSE) else inner, left - 1)
        elif kind == _STRUCT and left:
            for _, inner in self._fields():
                self._skip(inner, left - 1)
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
            self._skip(kinds >> 4, left - 1)
            self._skip(kinds & 15, left - 1)

    def _integer(self) -> int:
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
