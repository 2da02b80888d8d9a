"""Deletion vector descriptors: the location of a vector, its frame in a file, and its rows.

Malformed bytes raise a ValueError that describes the fault; the caller adds the table and the file.

Inline vectors are in Z85, which encodes four bytes as five characters, none of which JSON has to
escape.

Spec: "Deletion Vector Descriptor Schema"
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID
from zlib import crc32

from tidegate_delta.deletion_vectors import roaring_bitmap
from tidegate_delta.deletion_vectors.roaring_bitmap import Bitmap
from tidegate_delta.log.actions import DeletionVector
from tidegate_delta.log.file_paths import decode_path, encode_path, is_absolute

ALPHABET: Final = (
    "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
)
"""The digits from 0 to 84; Python's own base 85 has others."""

_NO_DIGIT: Final = 255
_DIGITS: Final = bytes(
    ALPHABET.index(character) if character in ALPHABET else _NO_DIGIT
    for character in map(chr, range(256))
)
_POWERS: Final = (85**4, 85**3, 85**2, 85, 1)


def z85_encode(content: bytes) -> str:
    """Return bytes as text; zeros are appended to fill the last word of four bytes.

    Law: decode(encode(b))[: len(b)] == b
    """
    padded = content + bytes(-len(content) % 4)
    words = struct.unpack(f">{len(padded) // 4}I", padded)
    return "".join(ALPHABET[word // power % 85] for word in words for power in _POWERS)


def z85_decode(text: str) -> bytes:
    """Return the bytes of a text, padding included.

    Raises: ValueError, for another length or character, or a word past 32 bits.
    """
    if len(text) % 5:
        raise ValueError(f"{len(text)} characters are not whole words of five")
    digits = text.encode("ascii", "replace").translate(_DIGITS)
    if _NO_DIGIT in digits or not text.isascii():
        strange = next(character for character in text if character not in ALPHABET)
        raise ValueError(f"{strange!r} is no character of Z85")
    fives = zip(*(digits[index::5] for index in range(5)), strict=True)
    values = [(((a * 85 + b) * 85 + c) * 85 + d) * 85 + e for a, b, c, d, e in fives]
    try:
        return struct.pack(f">{len(values)}I", *values)
    except struct.error as error:
        raise ValueError(f"five characters spell more than 32 bits ({error})") from error


INLINE: Final = "i"
RELATIVE: Final = "u"
ABSOLUTE: Final = "p"

FILE_VERSION: Final = b"\x01"
"""The first byte of a file of deletion vectors."""

_SIZE: Final = struct.Struct(">I")
_FRAME_BYTES: Final = 2 * _SIZE.size
_UUID_CHARS: Final = 20


@dataclass(frozen=True)
class RowChoice:
    """A choice of rows of a data file: those in `only` (None: all) that are not in `without`.

    The rows of a live file are all rows without those of its vector. The rows that a commit deleted
    from a file with a vector are those of the new vector without those of the old one.
    Spec: "Deletion Vectors"
    """

    without: DeletionVector | None = None
    only: DeletionVector | None = None


EVERY_ROW: Final = RowChoice()


def is_inline(vector: DeletionVector) -> bool:
    """Return whether a vector's rows are in the descriptor itself."""
    return vector.storage_type == INLINE or vector.cardinality == 0


def inline_rows(vector: DeletionVector) -> Bitmap:
    """Return the rows of an inline vector, or of any vector that deletes none.

    Raises: ValueError.
    """
    if vector.cardinality == 0:
        return roaring_bitmap.NO_ROWS
    content = z85_decode(vector.path_or_inline_dv)
    if not 0 <= vector.size_in_bytes <= len(content):
        raise ValueError(f"{len(content)} bytes are there, {vector.size_in_bytes} are stated")
    return _rows(vector, content[: vector.size_in_bytes])


def path_of(vector: DeletionVector) -> str:
    """Return the path of the file that holds a vector, as the log would write it.

    Raises: ValueError, for a descriptor that names no file.
    Spec: "Derived Fields"
    """
    path = vector.path_or_inline_dv
    if vector.storage_type == RELATIVE:
        return encode_path(_relative_path(path))
    if vector.storage_type != ABSOLUTE:
        raise ValueError(f"no file holds vectors of the storage type {vector.storage_type!r}")
    if not is_absolute(path):
        raise ValueError(f"{path!r} is no absolute path")
    return path


def frame_of(vector: DeletionVector) -> range:
    """Return the byte range of a vector in its file, including its size and checksum.

    Raises: ValueError, for an impossible offset or size.
    Spec: "Deletion Vector File Storage Format"
    """
    offset = vector.offset or 0
    if offset < 0 or not 0 <= vector.size_in_bytes <= roaring_bitmap.SIZE_MAX:
        raise ValueError(f"{vector.size_in_bytes} bytes at {offset} are in no file")
    return range(offset, offset + vector.size_in_bytes + _FRAME_BYTES)


def framed_rows(vector: DeletionVector, frame: bytes) -> Bitmap:
    """Return the rows in the bytes of a vector's frame.

    Raises: ValueError, where size, checksum or cardinality are not as stated.
    Spec: "Deletion Vector File Storage Format"
    """
    if len(frame) != len(frame_of(vector)):
        raise ValueError(f"its file ends {len(frame_of(vector)) - len(frame)} bytes too early")
    content = frame[_SIZE.size : -_SIZE.size]
    size, checksum = frame[: _SIZE.size], frame[-_SIZE.size :]
    if size != _SIZE.pack(len(content)):
        stated_size = _SIZE.unpack(size)[0]
        raise ValueError(f"its file says {stated_size} bytes, the log {len(content)}")
    if checksum != _SIZE.pack(crc32(content)):
        raise ValueError("its checksum does not hold")
    return _rows(vector, content)


def inline(rows: Bitmap) -> DeletionVector:
    """Return an inline descriptor of a set of rows.

    Law: inline_rows(inline(rows)) == rows
    """
    content = roaring_bitmap.encode(rows)
    return DeletionVector(
        storage_type=INLINE,
        path_or_inline_dv=z85_encode(content),
        size_in_bytes=len(content),
        cardinality=len(rows),
    )


def in_file(
    sets: Sequence[Bitmap], file: UUID, prefix: str = ""
) -> tuple[bytes, tuple[DeletionVector, ...]]:
    """Return the bytes of a file that holds several sets of rows, and the descriptor of each.

    `file` is a new UUID that names the file; `prefix` is the folder below the table root.
    Raises: ValueError, where they exceed the size of one file.
    Spec: "Deletion Vector File Storage Format"
    """
    parts = [FILE_VERSION]
    vectors = []
    offset = len(FILE_VERSION)
    for rows in sets:
        content = roaring_bitmap.encode(rows)
        if offset > roaring_bitmap.SIZE_MAX:
            raise ValueError("a file of deletion vectors would pass 2 GiB: begin another")
        vectors.append(
            DeletionVector(
                storage_type=RELATIVE,
                path_or_inline_dv=prefix + z85_encode(file.bytes),
                offset=offset,
                size_in_bytes=len(content),
                cardinality=len(rows),
            )
        )
        parts += [_SIZE.pack(len(content)), content, _SIZE.pack(crc32(content))]
        offset += len(content) + _FRAME_BYTES
    return b"".join(parts), tuple(vectors)


def placed(
    sets: Sequence[Bitmap], file: UUID, inline_bytes_max: int
) -> tuple[list[DeletionVector], tuple[str, bytes] | None]:
    """Return the descriptor of each set of rows, and the file to write first, if any needs one.

    Sets of up to `inline_bytes_max` bytes become inline descriptors; the others go into one file,
    returned as its path below the table root and its bytes. `file` is a new UUID that names it.
    Raises: as `in_file`.
    """
    is_small = [len(roaring_bitmap.encode(rows)) <= inline_bytes_max for rows in sets]
    large = [rows for rows, small in zip(sets, is_small, strict=True) if not small]
    content, stored = in_file(large, file) if large else (b"", ())
    in_the_file = iter(stored)
    vectors = [
        inline(rows) if small else next(in_the_file)
        for rows, small in zip(sets, is_small, strict=True)
    ]
    return vectors, (decode_path(path_of(stored[0])), content) if stored else None


def _rows(vector: DeletionVector, content: bytes) -> Bitmap:
    rows = roaring_bitmap.decode(content)
    if len(rows) != vector.cardinality:
        raise ValueError(f"it deletes {len(rows)} rows, the log says {vector.cardinality}")
    return rows


def _relative_path(encoded: str) -> str:
    folder, name = encoded[:-_UUID_CHARS], encoded[-_UUID_CHARS:]
    if len(name) < _UUID_CHARS:
        raise ValueError(f"{encoded!r} is too short to name a file")
    file = f"deletion_vector_{UUID(bytes=z85_decode(name))}.bin"
    if not folder:
        return file
    if any(part in ("", ".", "..") for part in folder.split("/")):
        raise ValueError(f"{folder!r} is no folder of the table")
    return f"{folder}/{file}"
