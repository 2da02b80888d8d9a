"""Blocks of 65,536 positions as roaring containers: the smallest of an array, a bitmap and runs.

A container holds its serialized bytes. Set operations work on plain bits, a block at a time.
"""

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import chain
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
    """The encoding of a container's positions.

    Spec: "Deletion Vector Format"
    """

    ARRAY = "array"
    BITMAP = "bitmap"
    RUNS = "runs"


@dataclass(frozen=True)
class Container:
    """The positions of one block that are in a set: at least one.

    `content` is its serialized form, without the number of runs.
    Law: equal sets are equal containers, however they were made
    Spec: "Deletion Vector Format"
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
    """Return the smallest encoding for this many positions and runs, as Java's library chooses it.

    Spec: "Deletion Vector Format"
    """
    kind, size = ContainerKind.ARRAY, 2 * cardinality
    if cardinality > ARRAY_MAX:
        kind, size = ContainerKind.BITMAP, BITS_BYTES
    return ContainerKind.RUNS if 2 + 4 * runs < size else kind


def of_bits(bits: bytes) -> Container | None:
    """Return the container of a block's bits, or None where no bit is set.

    Spec: "Deletion Vector Format"
    """
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


def of_positions(positions: list[int]) -> Container:
    """Return the container of ascending positions; there must be at least one.

    Spec: "Deletion Vector Format"
    """
    following = sum(map(eq, positions[1:], map(_NEXT, positions)))
    if least_kind(len(positions), len(positions) - following) is ContainerKind.ARRAY:
        return Container(ContainerKind.ARRAY, len(positions), _packed(positions))
    container = of_bits(bytes(_with_bits(positions)))
    assert container is not None, "there is a position"
    return container


def read(kind: ContainerKind, cardinality: int, content: bytes) -> Container:
    """Return a container read from a file, converted to the smallest encoding.

    Raises: ValueError where its content contradicts itself or the cardinality.
    Spec: "Deletion Vector Format"
    """
    if kind is ContainerKind.ARRAY:
        positions = list(_words(content))
        if any(map(le, positions[1:], positions)):
            raise ValueError("an array of positions is not in ascending order")
        return of_positions(positions)
    if kind is ContainerKind.RUNS:
        runs = _checked_runs(content)
        held = sum(runs[1::2]) + len(runs) // 2
        apart = not any(map(eq, runs[2::2], map(_NEXT, _ends(runs))))
        if held == cardinality and apart and least_kind(held, len(runs) // 2) is ContainerKind.RUNS:
            return Container(kind, held, content)
        content = _of_runs(runs)
    container = of_bits(content)
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
