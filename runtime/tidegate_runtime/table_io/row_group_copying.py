"""Copy row groups of a Parquet file into another one, byte for byte.

To decode and encode the rows of a large checkpoint takes seconds, to copy them a tenth. Only the
footer says where a row group lies, so only the footer is written anew. It is not trusted: a row
group whose entry contradicts itself is not copied. pyarrow checks the pages when they are read.
"""

import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import BinaryIO, Final

from tidegate_runtime.table_io.parquet_footers import (
    INT64,
    INTEGERS,
    LIST,
    MAGIC,
    STRUCT,
    CompactReader,
    Field,
    encode_integer,
    encode_struct,
    encode_structs,
    read_footer_bytes,
    with_length,
)

# The numbers of fields in FileMetaData, RowGroup, ColumnChunk and ColumnMetaData.
_FILE_ROWS, _FILE_GROUPS, _FILE_NOTES, _FILE_WRITER = 3, 4, 5, 6
_CHUNKS, _ROWS, _GROUP_START, _ORDINAL = 1, 3, 5, 7
_OTHER_FILE, _CHUNK_START, _METADATA, _CIPHER = 1, 2, 3, 8
_CHUNK_BYTES, _DATA, _INDEX, _DICTIONARY, _BLOOM, _BLOOM_BYTES = 7, 9, 10, 11, 14, 15

_OF_ROWS: Final = frozenset({_FILE_ROWS, _FILE_GROUPS, _FILE_NOTES, _FILE_WRITER})
_OFFSETS: Final = frozenset({_DATA, _INDEX, _DICTIONARY})
_ELSEWHERE: Final = frozenset({_BLOOM, _BLOOM_BYTES})
_PIECE_BYTES: Final = 8 << 20


@dataclass(frozen=True)
class RowGroup:
    """A row group, whose bytes are those from `start` to before `end` of its file.

    `fields` are those of its entry in the footer, `chunks` the ColumnMetaData of each column.
    """

    rows: int
    start: int
    end: int
    fields: Sequence[Field]
    chunks: Sequence[Sequence[Field]]

    def moved(self, by: int, ordinal: int) -> bytes:
        """Return its entry in the footer of a file where it lies `by` bytes further on."""
        chunks = encode_structs([_moved_chunk(chunk, by) for chunk in self.chunks])
        values = {
            _CHUNKS: chunks,
            _GROUP_START: encode_integer(self.start + by),
            _ORDINAL: encode_integer(ordinal),
        }
        return _with_values(self.fields, values)


@dataclass(frozen=True)
class RowGroups:
    """The row groups of a file; None stands for one that may not be copied.

    They mean the same in any file of the same `shape`.
    """

    shape: bytes
    groups: tuple[RowGroup | None, ...]


def read_row_groups(file: BinaryIO) -> RowGroups:
    """Return the row groups of a Parquet file.

    Raises: ValueError, OSError for any other file.
    """
    try:
        reader = CompactReader(read_footer_bytes(file))
        shape, groups = [], []
        for number, kind in reader.fields():
            if (number, kind) == (_FILE_GROUPS, LIST):
                groups = [_row_group(reader) for _ in range(reader.structs())]
            elif number in _OF_ROWS:
                reader.skip(kind)
            else:
                shape.append((number, kind, reader.encoded(kind)))
    except IndexError as error:
        raise ValueError("its footer ends in the middle") from error
    except KeyError as error:
        raise ValueError(f"its footer lacks field {error}") from error
    return RowGroups(encode_struct(shape), tuple(groups))


def append_row_groups(target: io.BytesIO, source: BinaryIO, groups: Sequence[RowGroup]) -> None:
    """Append row groups of `source` to a whole Parquet file of the same shape.

    Raises: ValueError, OSError, if the source is shorter by now.
    """
    content = read_footer_bytes(target)
    footer = _fields(content)
    entries, rows = _structs(footer, _FILE_GROUPS), _integers(footer)[_FILE_ROWS]
    target.seek(-len(with_length(content)), io.SEEK_END)
    target.truncate()
    for run in _runs(groups):
        by = target.tell() - run[0].start
        entries += [group.moved(by, number) for number, group in enumerate(run, len(entries))]
        _copy(source, run[0].start, run[-1].end, target)
    values = {
        _FILE_ROWS: encode_integer(rows + sum(group.rows for group in groups)),
        _FILE_GROUPS: encode_structs(entries),
    }
    target.write(with_length(_with_values(footer, values)))


def _runs(groups: Iterable[RowGroup]) -> list[list[RowGroup]]:
    """Return row groups by runs that follow each other without a gap, which are read together."""
    runs: list[list[RowGroup]] = []
    for group in groups:
        if runs and runs[-1][-1].end == group.start:
            runs[-1].append(group)
        else:
            runs.append([group])
    return runs


def _copy(source: BinaryIO, start: int, end: int, target: io.BytesIO) -> None:
    source.seek(start)
    while start < end:
        piece = source.read(min(end - start, _PIECE_BYTES))
        if not piece:
            raise ValueError("it is shorter than its footer says")
        target.write(piece)
        start += len(piece)


def _row_group(reader: CompactReader) -> RowGroup | None:
    """Return a row group, or None if its columns are not all of its bytes, or lie elsewhere."""
    fields: list[Field] = []
    chunks: list[Sequence[Field]] = []
    for number, kind in reader.fields():
        if (number, kind) == (_CHUNKS, LIST):
            chunks = [_chunk(reader) for _ in range(reader.structs())]
            fields.append((number, kind, b""))
        else:
            fields.append((number, kind, reader.encoded(kind)))
    if not chunks or not all(chunks):
        return None
    spans = sorted(map(_span, chunks))
    if spans[0][0] < len(MAGIC) or any(end != start for (_, end), (start, _) in pairwise(spans)):
        return None
    return RowGroup(_integers(fields)[_ROWS], spans[0][0], spans[-1][1], fields, chunks)


def _chunk(reader: CompactReader) -> Sequence[Field]:
    """Return the ColumnMetaData of a column: nothing if it is encrypted or in another file."""
    metadata: Sequence[Field] = ()
    is_here = True
    for number, kind in reader.fields():
        if (number, kind) == (_METADATA, STRUCT):
            metadata = reader.encoded_fields()
        else:
            reader.skip(kind)
            is_here = is_here and number not in (_OTHER_FILE, _CIPHER)
    return metadata if is_here else ()


def _span(metadata: Sequence[Field]) -> tuple[int, int]:
    integers = _integers(metadata)
    start = min((integers[number] for number in _OFFSETS if integers.get(number)), default=0)
    return start, start + integers[_CHUNK_BYTES]


def _moved_chunk(metadata: Sequence[Field], by: int) -> bytes:
    """Return the ColumnChunk of a column that lies `by` bytes further on.

    Bloom filters and indexes of pages, which lie elsewhere in a file, are left out.
    """
    integers = _integers(metadata)
    offsets = {
        number: encode_integer(integers[number] + by) for number in _OFFSETS if integers.get(number)
    }
    kept = [field for field in metadata if field[0] not in _ELSEWHERE]
    return encode_struct(
        [
            (_CHUNK_START, INT64, encode_integer(0)),
            (_METADATA, STRUCT, _with_values(kept, offsets)),
        ]
    )


def _with_values(fields: Sequence[Field], values: Mapping[int, bytes]) -> bytes:
    return encode_struct(
        (number, kind, values.get(number, value)) for number, kind, value in fields
    )


def _fields(encoded: bytes) -> list[Field]:
    return CompactReader(encoded).encoded_fields()


def _structs(fields: Sequence[Field], number: int) -> list[bytes]:
    return [
        entry
        for own, kind, value in fields
        if (own, kind) == (number, LIST)
        for entry in CompactReader(value).encoded_structs()
    ]


def _integers(fields: Sequence[Field]) -> dict[int, int]:
    return {
        number: CompactReader(value).integer() for number, kind, value in fields if kind in INTEGERS
    }
