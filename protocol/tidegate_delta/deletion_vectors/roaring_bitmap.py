"""Sets of row positions as roaring bitmaps: the portable 64-bit format after Delta's magic number.

The bytes written are those that delta-spark writes for the same rows; the older "native" format of
its first releases can be read too. All numbers are little-endian.
"""

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tidegate_delta.deletion_vectors import roaring_containers
from tidegate_delta.deletion_vectors.roaring_containers import (
    BLOCK,
    NO_BITS,
    Container,
    ContainerKind,
)

MAGIC: Final = 1681511377
"""The portable format: what the protocol describes, and what is written."""

NATIVE_MAGIC: Final = 1681511376
"""The older format: each bucket with its size, without its key."""

SIZE_MAX: Final = 2**31 - 1
"""The greatest size of a vector in bytes, by its descriptor and by the size field in its file."""

_COOKIE: Final = 12346
_COOKIE_WITH_RUNS: Final = 12347
_OFFSETS_FROM: Final = 4
"""From this number of containers, a bucket with runs states the offset of each."""

_BLOCKS_A_BUCKET: Final = 1 << 16
_BUCKETS_MAX: Final = 1 << 16
"""The most buckets that are written: no file has rows past 2^48, and empty buckets cost bytes too.
"""
_KEY_MAX: Final = 2**31 - 1

BLOCKS_MAX: Final = 1 << 18
"""The most blocks that are read: no file has that many rows, and a few bytes can claim a block."""


@dataclass(frozen=True)
class Bitmap:
    """A set of row positions, from 0 to 2^63 - 1.

    Law: bitmaps are equal if and only if they hold the same rows
    Shape: `blocks` maps the number of a block of 65,536 positions to its positions in the set, in
    ascending order; a block without any is absent.
    Spec: "Deletion Vector Format"
    """

    blocks: Mapping[int, Container] = field(default_factory=dict)

    def __len__(self) -> int:
        """Return how many rows are in the set."""
        return sum(block.cardinality for block in self.blocks.values())

    def __contains__(self, row: int) -> bool:
        container = self.blocks.get(row // BLOCK)
        return container is not None and row % BLOCK in container

    def __iter__(self) -> Iterator[int]:
        """Return the rows, ascending."""
        for block, container in self.blocks.items():
            first = block * BLOCK
            yield from (first + position for position in container)

    def __or__(self, other: "Bitmap") -> "Bitmap":
        return _combined(self, other, int.__or__, {**self.blocks, **other.blocks})

    def __and__(self, other: "Bitmap") -> "Bitmap":
        return _combined(self, other, int.__and__, {})

    def __sub__(self, other: "Bitmap") -> "Bitmap":
        return _combined(self, other, lambda bits, removed: bits & ~removed, self.blocks)

    def __le__(self, other: "Bitmap") -> bool:
        """Return whether every row is in the other set, too."""
        return all(
            block in other.blocks
            and (container == other.blocks[block] or not (_in_block(self, block) - other).blocks)
            for block, container in self.blocks.items()
        )

    @property
    def last(self) -> int:
        """The highest row, or -1 where there is none."""
        block = max(self.blocks, default=None)
        return -1 if block is None else block * BLOCK + self.blocks[block].last

    def is_apart_from(self, other: "Bitmap") -> bool:
        """Return whether the sets are disjoint."""
        shared = self.blocks.keys() & other.blocks.keys()
        return all(self.blocks[block].is_apart_from(other.blocks[block]) for block in shared)

    def bits(self, block: int) -> bytes:
        """Return a block as 8,192 bytes with a bit for each row, the lowest first.

        Spec: "Deletion Vector Format"
        """
        container = self.blocks.get(block)
        return NO_BITS if container is None else container.bits


def of_rows(rows: Iterable[int]) -> Bitmap:
    """Return the set of the given rows, which may be in any order.

    Raises: ValueError, for a number that is no row position.
    Spec: "Deletion Vector Format"
    """
    ascending = sorted(set(rows))
    if ascending and (ascending[0] < 0 or ascending[-1] >> 63):
        raise ValueError(f"rows {ascending[0]} to {ascending[-1]} are no row positions")
    blocks = groupby(ascending, lambda row: row // BLOCK)
    return Bitmap(
        {
            block: roaring_containers.of_positions([row % BLOCK for row in block_rows])
            for block, block_rows in blocks
        }
    )


def of_mask(mask: pa.BooleanArray) -> Bitmap:
    """Return the set of the rows at which a mask is true; null counts as false.

    Spec: "Deletion Vector Format"
    """
    # Values under nulls are arbitrary, and a slice may begin within a byte.
    filled = pc.fill_null(mask, False)
    size = BLOCK * -(-len(filled) // BLOCK)
    padded = pa.concat_arrays([filled, pa.array([False] * (size - len(filled)), pa.bool_())])
    bits = memoryview(padded.buffers()[1] or b"")
    step = len(NO_BITS)
    containers = (
        roaring_containers.of_bits(bytes(bits[start : start + step]))
        for start in range(0, size // 8, step)
    )
    return Bitmap(
        {block: container for block, container in enumerate(containers) if container is not None}
    )


def encode(bitmap: Bitmap) -> bytes:
    """Return the bytes of a set: the magic number and a portable roaring bitmap.

    Empty buckets below the last one are written, as delta-spark does.
    Law: decode(encode(b)) == b
    Raises: ValueError, for more bytes than a descriptor can state, or rows past 2^48.
    Spec: "Deletion Vector Format"
    """
    buckets: dict[int, dict[int, Container]] = {}
    for block, container in bitmap.blocks.items():
        key, low = divmod(block, _BLOCKS_A_BUCKET)
        buckets.setdefault(key, {})[low] = container
    count = max(buckets, default=-1) + 1
    if count > _BUCKETS_MAX:
        raise ValueError(f"a deletion vector of {count} buckets can't be written")
    least = 12 + 12 * count + sum(len(block.content) for block in bitmap.blocks.values())
    if least > SIZE_MAX:
        raise ValueError(f"a deletion vector of {least} bytes can't be written")
    parts = [struct.pack("<IQ", MAGIC, count)]
    for key in range(count):
        parts += [struct.pack("<I", key), *_bucket(buckets.get(key, {}))]
    return b"".join(parts)


def decode(content: bytes) -> Bitmap:
    """Return the set in a deletion vector's bytes; bytes after it are ignored.

    Raises: ValueError for another magic number, torn or inconsistent bytes, or too many blocks.
    Spec: "Deletion Vector Format"
    """
    reader = _Reader(content)
    magic = reader.number("<I")
    if magic == MAGIC:
        buckets = _portable(reader)
    elif magic == NATIVE_MAGIC:
        buckets = _native(reader)
    else:
        raise ValueError(f"it begins with {magic}, not with {MAGIC}")
    return Bitmap(
        {
            key * _BLOCKS_A_BUCKET + low: container
            for key, containers in buckets
            for low, container in containers.items()
        }
    )


class _Reader:
    """Bytes with a read position."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._position = 0
        self._blocks = 0

    def take(self, size: int) -> bytes:
        if size > len(self._content) - self._position:
            raise ValueError(f"it ends after {len(self._content)} bytes, in the middle")
        self._position += size
        return self._content[self._position - size : self._position]

    def number(self, layout: str) -> int:
        value: int = struct.unpack(layout, self.take(struct.calcsize(layout)))[0]
        return value

    def rest(self) -> int:
        return len(self._content) - self._position

    def count_blocks(self, count: int) -> None:
        self._blocks += count
        if self._blocks > BLOCKS_MAX:
            raise ValueError(f"it has more than {BLOCKS_MAX} containers")


def _portable(reader: _Reader) -> Iterator[tuple[int, dict[int, Container]]]:
    last = -1
    for _ in range(_checked_count(reader.number("<Q"), reader)):
        key = reader.number("<I")
        if not last < key <= _KEY_MAX:
            raise ValueError(f"bucket {key} follows bucket {last}")
        last = key
        yield key, _read_bucket(reader)


def _native(reader: _Reader) -> Iterator[tuple[int, dict[int, Container]]]:
    for key in range(_checked_count(reader.number("<I"), reader)):
        size = reader.number("<I")
        before = reader.rest()
        yield key, _read_bucket(reader)
        if before - reader.rest() != size:
            raise ValueError(f"bucket {key} is said to have {size} bytes, and has others")


def _checked_count(count: int, reader: _Reader) -> int:
    if 12 * count > reader.rest():
        raise ValueError(f"{count} buckets don't fit into what is there")
    return count


def _bucket(containers: Mapping[int, Container]) -> list[bytes]:
    """Return the 32-bit bitmap of a bucket's containers, which are in ascending order."""
    kinds = [container.kind is ContainerKind.RUNS for container in containers.values()]
    if any(kinds):
        flags = sum(1 << index for index, is_runs in enumerate(kinds) if is_runs)
        parts = [
            struct.pack("<I", _COOKIE_WITH_RUNS | len(containers) - 1 << 16),
            flags.to_bytes((len(containers) + 7) // 8, "little"),
        ]
    else:
        parts = [struct.pack("<II", _COOKIE, len(containers))]
    parts += [
        struct.pack("<HH", low, container.cardinality - 1) for low, container in containers.items()
    ]
    bodies = [_body(container) for container in containers.values()]
    if not any(kinds) or len(containers) >= _OFFSETS_FROM:
        offset = sum(map(len, parts)) + 4 * len(bodies)
        for body in bodies:
            parts.append(struct.pack("<I", offset))
            offset += len(body)
    return parts + bodies


def _body(container: Container) -> bytes:
    if container.kind is not ContainerKind.RUNS:
        return container.content
    return struct.pack("<H", len(container.content) // 4) + container.content


def _read_bucket(reader: _Reader) -> dict[int, Container]:
    cookie = reader.number("<I")
    flags = 0
    if cookie & 0xFFFF == _COOKIE_WITH_RUNS:
        count = (cookie >> 16) + 1
        flags = int.from_bytes(reader.take((count + 7) // 8), "little")
    elif cookie == _COOKIE:
        count = reader.number("<I")
        if count > _BLOCKS_A_BUCKET:
            raise ValueError(f"a bucket of {count} containers")
    else:
        raise ValueError(f"a bucket begins with {cookie}")
    reader.count_blocks(count)
    heads = struct.unpack(f"<{2 * count}H", reader.take(4 * count))
    if cookie == _COOKIE or count >= _OFFSETS_FROM:
        reader.take(4 * count)  # offsets of the containers, which follow one another
    containers: dict[int, Container] = {}
    last = -1
    for index, (low, cardinality_less_one) in enumerate(zip(heads[::2], heads[1::2], strict=True)):
        if low <= last:
            raise ValueError(f"container {low} follows container {last}")
        last = low
        containers[low] = _read_container(
            reader, cardinality_less_one + 1, is_runs=bool(flags >> index & 1)
        )
    return containers


def _read_container(reader: _Reader, cardinality: int, *, is_runs: bool) -> Container:
    if is_runs:
        content = reader.take(4 * reader.number("<H"))
        return roaring_containers.read(ContainerKind.RUNS, cardinality, content)
    if cardinality > roaring_containers.ARRAY_MAX:
        content = reader.take(roaring_containers.BITS_BYTES)
        return roaring_containers.read(ContainerKind.BITMAP, cardinality, content)
    return roaring_containers.read(ContainerKind.ARRAY, cardinality, reader.take(2 * cardinality))


def _combined(
    first: Bitmap,
    second: Bitmap,
    operate: Callable[[int, int], int],
    alone: Mapping[int, Container],
) -> Bitmap:
    """Return the blocks of `alone`, and for blocks in both sets the result of `operate`."""
    shared = first.blocks.keys() & second.blocks.keys()
    blocks = {block: container for block, container in alone.items() if block not in shared}
    for block in shared:
        bits = operate(_number(first, block), _number(second, block))
        container = roaring_containers.of_bits(bits.to_bytes(len(NO_BITS), "little"))
        if container is not None:
            blocks[block] = container
    return Bitmap(dict(sorted(blocks.items())))


def _in_block(bitmap: Bitmap, block: int) -> Bitmap:
    return Bitmap({block: bitmap.blocks[block]})


def _number(bitmap: Bitmap, block: int) -> int:
    return int.from_bytes(bitmap.bits(block), "little")
