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

from tidegate_runtime.table_io.thrift_compact import INTEGERS, LIST, STRUCT, CompactReader

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
