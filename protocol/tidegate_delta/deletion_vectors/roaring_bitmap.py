"""Sets of row positions as roaring bitmaps, and their bytes in a deletion vector.

Written is the portable 64-bit format after Delta's magic number; the older "native" format of its
first releases is read, too. All numbers are little-endian.

Spec: "Deletion Vector Format"
"""

import struct
from collections.abc import Iterable
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import FrozenBitMap64

Bitmap = FrozenBitMap64
"""A set of row positions, from 0 to 2^63 - 1. It is ordered, immutable, and true if it has rows."""

NO_ROWS: Final = Bitmap()

MAGIC: Final = 1681511377
"""The portable format: what the protocol describes, and what is written."""

NATIVE_MAGIC: Final = 1681511376
"""The older format: each bucket of 2^32 rows with its size, without its key."""

SIZE_MAX: Final = 2**31 - 1
"""The greatest size of a vector in bytes, by its descriptor and by the size field in its file."""

CONTAINERS_MAX: Final = 1 << 18
"""The most containers of 65,536 rows that are read: no file has that many rows, and a few bytes can
claim a container.
"""
_ROW_MAX: Final = 2**63 - 1
_WRITTEN_MAX: Final = 2**48 - 1
"""The highest row that is written: no file has so many, and delta-spark keeps a bitmap in memory
for each 2^32 rows below the last one.
"""
_CONTAINER_BYTES: Final = 256
"""What a container takes in memory besides its content, about."""


def of_rows(rows: Iterable[int]) -> Bitmap:
    """Return the set of the given rows, which may be in any order.

    Raises: ValueError, for a number that is no row position.
    """
    try:
        return _checked(Bitmap(list(rows)))
    except OverflowError as error:
        raise ValueError(f"rows that are no row positions: {error}") from error


def of_mask(mask: pa.BooleanArray) -> Bitmap:
    """Return the set of the rows at which a mask is true; null counts as false."""
    positions = pc.indices_nonzero(pc.fill_null(mask, False))
    if not len(positions):
        return NO_ROWS
    content = memoryview(positions.buffers()[1]).cast("B").cast("Q")
    return Bitmap(content[positions.offset : positions.offset + len(positions)])


def mask(rows: Bitmap, start: int, size: int) -> pa.BooleanArray | None:
    """Return which of `size` rows from `start` on are in a set; None if none of them is."""
    wanted = Bitmap(range(start, start + size))
    held = rows & wanted
    if not held:
        return None
    return pc.is_in(_positions(wanted), value_set=_positions(held))


def last(rows: Bitmap) -> int:
    """Return the highest row, or -1 where there is none."""
    return rows.max() if rows else -1


def memory_bytes(rows: Bitmap) -> int:
    """Return about how much memory a set takes."""
    sizes = rows.get_statistics()
    return (
        sizes["n_containers"] * _CONTAINER_BYTES
        + sizes["n_bytes_array_containers"]
        + sizes["n_bytes_run_containers"]
        + sizes["n_bytes_bitset_containers"]
    )


def encode(rows: Bitmap) -> bytes:
    """Return the bytes of a set: the magic number and a portable roaring bitmap.

    Law: decode(encode(rows)) == rows
    Raises: ValueError, for more bytes than a descriptor can state, or rows past 2^48.
    """
    if last(rows) > _WRITTEN_MAX:
        raise ValueError(f"a deletion vector with row {last(rows)} can't be written")
    least = rows.copy()
    least.run_optimize()
    content = struct.pack("<I", MAGIC) + least.serialize()
    if len(content) > SIZE_MAX:
        raise ValueError(f"a deletion vector of {len(content)} bytes can't be written")
    return content


def decode(content: bytes) -> Bitmap:
    """Return the set in a deletion vector's bytes; bytes after it are ignored.

    Raises: ValueError for another magic number, torn or inconsistent bytes, or too many containers.
    """
    if len(content) < struct.calcsize("<II"):
        raise ValueError(f"it ends after {len(content)} bytes")
    magic = struct.unpack_from("<I", content)[0]
    if magic not in (MAGIC, NATIVE_MAGIC):
        raise ValueError(f"it begins with {magic}, not with {MAGIC}")
    portable = content[4:] if magic == MAGIC else _portable(content[4:])
    try:
        return _checked(Bitmap.deserialize(portable))
    except ValueError as error:
        raise ValueError(f"its {len(content)} bytes are no set of rows: {error}") from error


def _portable(native: bytes) -> bytes:
    """Return the portable form of a set in the older format, both without the magic number."""
    count = struct.unpack_from("<I", native)[0]
    parts = [struct.pack("<Q", count)]
    at = 4
    for key in range(count):
        if at + 4 > len(native):
            raise ValueError(f"it ends before bucket {key}")
        size = struct.unpack_from("<I", native, at)[0]
        at += 4
        if not 0 < size <= len(native) - at:
            raise ValueError(f"bucket {key} of {size} bytes is longer than what follows")
        parts += [struct.pack("<I", key), native[at : at + size]]
        at += size
    return b"".join(parts)


def _checked(rows: Bitmap) -> Bitmap:
    if rows and rows.max() > _ROW_MAX:
        raise ValueError(f"rows up to {rows.max()} are no row positions")
    containers = rows.get_statistics()["n_containers"]
    if containers > CONTAINERS_MAX:
        raise ValueError(f"it has {containers} containers, more than {CONTAINERS_MAX}")
    return rows


def _positions(rows: Bitmap) -> pa.UInt64Array:
    return pa.Array.from_buffers(pa.uint64(), len(rows), [None, pa.py_buffer(rows.to_array())])
