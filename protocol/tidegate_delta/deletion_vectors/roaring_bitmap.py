"""Sets of row positions as roaring bitmaps: the portable 64-bit format after Delta's magic number.

The bytes written are those that delta-spark writes for the same rows; the older "native" format of
its first releases can be read too. All numbers are little-endian.

A block of 65,536 positions is a container: the smallest of an array, a bitmap and runs. A container
holds its serialized bytes. Set operations work on plain bits, a block at a time.

Spec: "Deletion Vector Format"
"""

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from itertools import chain, groupby
from operator import add, eq, le
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

BLOCK: Final = 1 << 16
"""Positions in a block."""

BITS_BYTES: Final = BLOCK // 8
ARRAY_MAX: Final = 4_096
"""Above this number of positions a bitmap is smaller than an array."""

NO_BITS: Final = bytes(BITS_BYTES)
_NEXT: Final = (1).__add__
_WORD: Final = struct.Struct("<H")
_FEW: Final = 64
"""Up to this number of positions, single look-ups are faster than comparing whole blocks."""


class ContainerKind(Enum):
    """The encoding of a container's positions."""

    ARRAY = "array"
    BITMAP = "bitmap"
    RUNS = "runs"


@dataclass(frozen=True)
class Container:
    """The positions of one block that are in a set: at least one.

    `content` is its serialized form, without the number of runs.
    Law: equal sets are equal containers, however they were made
    """

    kind: ContainerKind
    cardinality: int
    content: bytes

    @property
    def bits(self) -> bytes:
        """The block as 8,192 bytes with a bit for each position, the lowest first."""
        if self.kind is ContainerKind.BITMAP:
            return self.content
        if self.kind is ContainerKind.RUNS:
            return _of_runs(_words(self.content))
        return bytes(_with_bits(_words(self.content)))

    def __iter__(self) -> Iterator[int]:
        """Return the positions, ascending."""
        if self.kind is ContainerKind.BITMAP:
            return iter(_positions(self.content))
        words = _words(self.content)
        if self.kind is ContainerKind.ARRAY:
            return iter(words)
        pairs = zip(words[::2], words[1::2], strict=True)
        return chain.from_iterable(
            range(start, start + length_less_one + 1) for start, length_less_one in pairs
        )

    def __contains__(self, position: int) -> bool:
        if self.kind is ContainerKind.BITMAP:
            return bool(self.content[position >> 3] >> (position & 7) & 1)
        if self.kind is ContainerKind.ARRAY:
            index = bisect_left(range(self.cardinality), position, key=self._word)
            return index < self.cardinality and self._word(index) == position
        index = bisect_right(range(len(self.content) // 4), position, key=self._start) - 1
        return index >= 0 and position <= self._start(index) + self._word(2 * index + 1)

    @property
    def last(self) -> int:
        """The highest position."""
        if self.kind is ContainerKind.ARRAY:
            return self._word(self.cardinality - 1)
        if self.kind is ContainerKind.RUNS:
            return sum(_words(self.content[-4:]))
        return int.from_bytes(self.content, "little").bit_length() - 1

    def is_apart_from(self, other: "Container") -> bool:
        """Return whether the containers are disjoint."""
        smaller, larger = sorted((self, other), key=lambda container: container.cardinality)
        if smaller.kind is ContainerKind.ARRAY and smaller.cardinality <= _FEW:
            return not any(position in larger for position in _words(smaller.content))
        return not int.from_bytes(smaller.bits, "little") & int.from_bytes(larger.bits, "little")

    def _word(self, index: int) -> int:
        word: int = _WORD.unpack_from(self.content, 2 * index)[0]
        return word

    def _start(self, run: int) -> int:
        return self._word(2 * run)


def least_kind(cardinality: int, runs: int) -> ContainerKind:
    """Return the smallest encoding for this many positions and runs, as Java's library
    chooses it.
    """
    kind, size = ContainerKind.ARRAY, 2 * cardinality
    if cardinality > ARRAY_MAX:
        kind, size = ContainerKind.BITMAP, BITS_BYTES
    return ContainerKind.RUNS if 2 + 4 * runs < size else kind


def container_of_bits(bits: bytes) -> Container | None:
    """Return the container of a block's bits, or None where no bit is set."""
    number = int.from_bytes(bits, "little")
    cardinality = number.bit_count()
    if not cardinality:
        return None
    begins = number & ~(number << 1)
    kind = least_kind(cardinality, begins.bit_count())
    if kind is ContainerKind.BITMAP:
        return Container(kind, cardinality, bits)
    if kind is ContainerKind.ARRAY:
        return Container(kind, cardinality, _packed(_positions(bits)))
    starts = _positions(begins.to_bytes(BITS_BYTES, "little"))
    ends = _positions((number & ~(number >> 1)).to_bytes(BITS_BYTES, "little"))
    pairs = zip(starts, ends, strict=True)
    return Container(
        kind, cardinality, _packed([word for start, end in pairs for word in (start, end - start)])
    )


def container_of_positions(positions: list[int]) -> Container:
    """Return the container of ascending positions; there must be at least one."""
    following = sum(map(eq, positions[1:], map(_NEXT, positions)))
    if least_kind(len(positions), len(positions) - following) is ContainerKind.ARRAY:
        return Container(ContainerKind.ARRAY, len(positions), _packed(positions))
    container = container_of_bits(bytes(_with_bits(positions)))
    assert container is not None, "there is a position"
    return container


def read_container(kind: ContainerKind, cardinality: int, content: bytes) -> Container:
    """Return a container read from a file, converted to the smallest encoding.

    Raises: ValueError where its content contradicts itself or the cardinality.
    """
    if kind is ContainerKind.ARRAY:
        positions = list(_words(content))
        if any(map(le, positions[1:], positions)):
            raise ValueError("an array of positions is not in ascending order")
        return container_of_positions(positions)
    if kind is ContainerKind.RUNS:
        runs = _checked_runs(content)
        held = sum(runs[1::2]) + len(runs) // 2
        apart = not any(map(eq, runs[2::2], map(_NEXT, _ends(runs))))
        if held == cardinality and apart and least_kind(held, len(runs) // 2) is ContainerKind.RUNS:
            return Container(kind, held, content)
        content = _of_runs(runs)
    container = container_of_bits(content)
    if container is None or container.cardinality != cardinality:
        count = container.cardinality if container else 0
        raise ValueError(f"a container of {cardinality} positions holds {count}")
    return container


def _checked_runs(content: bytes) -> tuple[int, ...]:
    words = _words(content)
    last = sum(words[-2:])
    if last >= BLOCK or any(map(le, words[2::2], _ends(words))):
        raise ValueError("runs overlap, are not in ascending order or leave their block")
    return words


def _ends(runs: tuple[int, ...]) -> Iterator[int]:
    """Yield the last position of each run."""
    return map(add, runs[::2], runs[1::2])


def _of_runs(words: tuple[int, ...]) -> bytes:
    starts = _with_bits(words[::2])
    behind = _with_bits(map(_NEXT, _ends(words)), BITS_BYTES + 1)
    # The bits of a run are the difference of two powers of two: that behind it, and its first.
    number = int.from_bytes(behind, "little") - int.from_bytes(starts, "little")
    return number.to_bytes(BITS_BYTES, "little")


def _with_bits(positions: Iterable[int], size: int = BITS_BYTES) -> bytearray:
    bits = bytearray(size)
    for position in positions:
        bits[position >> 3] |= 1 << (position & 7)
    return bits


def _positions(bits: bytes) -> list[int]:
    mask = pa.Array.from_buffers(pa.bool_(), BLOCK, [None, pa.py_buffer(bits)])
    positions: list[int] = pc.indices_nonzero(mask).to_pylist()
    return positions


def _words(content: bytes) -> tuple[int, ...]:
    return struct.unpack(f"<{len(content) // 2}H", content)


def _packed(words: list[int]) -> bytes:
    return struct.pack(f"<{len(words)}H", *words)


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
        """Return a block as 8,192 bytes with a bit for each row, the lowest first."""
        container = self.blocks.get(block)
        return NO_BITS if container is None else container.bits


def of_rows(rows: Iterable[int]) -> Bitmap:
    """Return the set of the given rows, which may be in any order.

    Raises: ValueError, for a number that is no row position.
    """
    ascending = sorted(set(rows))
    if ascending and (ascending[0] < 0 or ascending[-1] >> 63):
        raise ValueError(f"rows {ascending[0]} to {ascending[-1]} are no row positions")
    blocks = groupby(ascending, lambda row: row // BLOCK)
    return Bitmap(
        {
            block: container_of_positions([row % BLOCK for row in block_rows])
            for block, block_rows in blocks
        }
    )


def of_mask(mask: pa.BooleanArray) -> Bitmap:
    """Return the set of the rows at which a mask is true; null counts as false."""
    # Values under nulls are arbitrary, and a slice may begin within a byte.
    filled = pc.fill_null(mask, False)
    size = BLOCK * -(-len(filled) // BLOCK)
    padded = pa.concat_arrays([filled, pa.array([False] * (size - len(filled)), pa.bool_())])
    bits = memoryview(padded.buffers()[1] or b"")
    step = len(NO_BITS)
    containers = (
        container_of_bits(bytes(bits[start : start + step])) for start in range(0, size // 8, step)
    )
    return Bitmap(
        {block: container for block, container in enumerate(containers) if container is not None}
    )


def encode(bitmap: Bitmap) -> bytes:
    """Return the bytes of a set: the magic number and a portable roaring bitmap.

    Empty buckets below the last one are written, as delta-spark does.
    Law: decode(encode(b)) == b
    Raises: ValueError, for more bytes than a descriptor can state, or rows past 2^48.
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
        return read_container(ContainerKind.RUNS, cardinality, content)
    if cardinality > ARRAY_MAX:
        content = reader.take(BITS_BYTES)
        return read_container(ContainerKind.BITMAP, cardinality, content)
    return read_container(ContainerKind.ARRAY, cardinality, reader.take(2 * cardinality))


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
        container = container_of_bits(bits.to_bytes(len(NO_BITS), "little"))
        if container is not None:
            blocks[block] = container
    return Bitmap(dict(sorted(blocks.items())))


def _in_block(bitmap: Bitmap, block: int) -> Bitmap:
    return Bitmap({block: bitmap.blocks[block]})


def _number(bitmap: Bitmap, block: int) -> int:
    return int.from_bytes(bitmap.bits(block), "little")
