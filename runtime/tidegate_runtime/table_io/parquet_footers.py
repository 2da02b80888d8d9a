"""Read the row groups in the footer of a Parquet file, without trusting the footer.

pyarrow crashes the process when it is asked for the statistics of a column chunk whose entry in the
footer contradicts the schema. So the null counts of chunks are read here, from Thrift's compact
protocol. pyarrow reads the rest of the footer, and refuses what it can't read.

Thrift's compact protocol, in which the footer of a Parquet file is written.

Only structs are read and written, and values are mostly passed on as they are encoded. Nothing that
is read is trusted: depths and lengths are bounded.
"""

import io
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Final

import pyarrow.parquet as pq

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


MAGIC: Final = b"PAR1"
TAIL_BYTES: Final = 1 << 16
"""Bytes from the end of a file that are read first: most footers are shorter."""

_LENGTH: Final = struct.Struct("<I")


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
    content = read_footer_bytes(file)
    metadata = _metadata(content)
    try:
        return Footer(metadata, tuple(_row_groups(CompactReader(content))))
    except IndexError as error:
        raise ValueError("its footer ends in the middle") from error


def read_row_count(file: BinaryIO) -> int:
    """Return the number of rows of a Parquet file. Raises: as `read_footer`."""
    return int(_metadata(read_footer_bytes(file)).num_rows)


def read_footer_bytes(file: BinaryIO) -> bytes:
    """Return the bytes of a footer, of which nothing is checked but the length.

    Raises: ValueError, OSError for what is no Parquet file.
    """
    size = file.seek(0, io.SEEK_END)
    tail = _tail(file, size, TAIL_BYTES)
    if len(tail) < _LENGTH.size + len(MAGIC) or not tail.endswith(MAGIC):
        raise ValueError("it does not end as a Parquet file does")
    length = _LENGTH.unpack(tail[-8:-4])[0]
    if length + 12 > size:
        raise ValueError(f"its footer is said to have {length} bytes, the file has {size}")
    if length + 8 > len(tail):
        tail = _tail(file, size, length + 8)
    return tail[-8 - length : -8]


def with_length(footer: bytes) -> bytes:
    """Return a footer as it ends a file: with its length, and the magic number."""
    return b"".join((footer, _LENGTH.pack(len(footer)), MAGIC))


def _metadata(footer: bytes) -> pq.FileMetaData:
    return pq.read_metadata(io.BytesIO(MAGIC + with_length(footer)))


def _tail(file: BinaryIO, size: int, length: int) -> bytes:
    file.seek(max(0, size - length))
    return file.read(length)


def _row_groups(reader: CompactReader) -> Iterator[RowGroup]:
    """Yield the row groups of a FileMetaData. Raises: ValueError, IndexError."""
    for number, kind in reader.fields():
        if (number, kind) == (4, LIST):
            yield from [_row_group(reader) for _ in range(reader.structs())]
        else:
            reader.skip(kind)


def _row_group(reader: CompactReader) -> RowGroup:
    rows, nulls = 0, {}
    for number, kind in reader.fields():
        if (number, kind) == (1, LIST):
            chunks = [_chunk(reader) for _ in range(reader.structs())]
            nulls = {path: count for path, count in chunks if count is not None}
        elif number == 3 and kind in INTEGERS:
            rows = reader.integer()
        else:
            reader.skip(kind)
    return RowGroup(rows, nulls)


def _chunk(reader: CompactReader) -> tuple[str, int | None]:
    path, nulls = "", None
    for number, kind in reader.fields():
        if (number, kind) != (3, STRUCT):
            reader.skip(kind)
            continue
        for inner, inner_kind in reader.fields():
            if (inner, inner_kind) == (3, LIST):
                path = ".".join(reader.texts())
            elif (inner, inner_kind) == (12, STRUCT):
                nulls = _nulls(reader)
            else:
                reader.skip(inner_kind)
    return path, nulls


def _nulls(reader: CompactReader) -> int | None:
    count = None
    for number, kind in reader.fields():
        if number == 3 and kind in INTEGERS:
            count = reader.integer()
        else:
            reader.skip(kind)
    return count
