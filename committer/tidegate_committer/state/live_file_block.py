"""Live files in columns, sorted by the hashes of their paths, for lookups of single files.

A file costs its path, four bytes of offset and four of hash. A block's content never changes: a
change returns a new block. A block is sorted at its first lookup.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, pairwise
from typing import Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

TEXT_MAX: Final = 1 << 30
"""Bytes of paths that are split into blocks at once. Arrow's offsets allow twice as many."""

WINDOWS: Final = 16
"""Steps in which paths are split into blocks, so that a step's paths fit a processor's cache."""

HASH_BITS: Final = 32
"""Bits that are kept of a path's hash. Paths with equal bits are compared in full."""

_ONES: Final = (1 << HASH_BITS) - 1

SLICE: Final = 65_536
"""Paths that are Python strings at the same time."""

ArrowColumn: TypeAlias = pa.ChunkedArray
"""A column of strings."""


class FileBlock:
    """Files, each with its deletion vector as a text, or None.

    Law: dict(FileBlock.of(paths, vectors).items()) == {p: vectors.get(p) for p in paths}
    Spec: "Action Reconciliation"
    """

    __slots__ = ("_ends", "_hashes", "_in_order", "_paths", "_text", "_vectors")

    def __init__(
        self, hashes: pa.UInt32Array, paths: pa.StringArray, vectors: pa.StringArray | None
    ) -> None:
        self._hashes = hashes
        self._paths = paths
        self._vectors = vectors
        # Set when the block is sorted.
        self._in_order: memoryview | None = None
        self._ends, self._text = memoryview(b""), b""

    @classmethod
    def of(cls, paths: Iterable[str], vectors: Mapping[str, str]) -> "FileBlock":
        """Return a block of some files.

        Spec: "Action Reconciliation"
        """
        [block] = blocks_of(pa.chunked_array([pa.array(paths, pa.string())]), vectors, 0)
        return block

    @classmethod
    def empty(cls) -> "FileBlock":
        """Return an empty block. Built from a Python list, Arrow would look for pandas.

        Spec: "Action Reconciliation"
        """
        return cls(pa.nulls(0, pa.uint32()), pa.nulls(0, pa.string()), None)

    def __len__(self) -> int:
        return len(self._hashes)

    def place(self, path: str) -> int | None:
        """Return the index of a file, or None if it is not here.

        Spec: "Action Reconciliation"
        """
        hash_bits, hashes = hash(path) & _ONES, self._sorted()
        index = bisect_left(hashes, hash_bits)
        while index < len(hashes) and hashes[index] == hash_bits:
            start, end = self._ends[index], self._ends[index + 1]
            if self._text[start:end] == path.encode("utf-8", "surrogatepass"):
                return index
            index += 1
        return None

    def vector(self, index: int) -> str | None:
        """Return the deletion vector of the file at an index.

        Spec: "Action Reconciliation"
        """
        if self._vectors is None:
            return None
        vector: str | None = self._vectors[index].as_py()
        return vector

    def items(self) -> Iterator[tuple[str, str | None]]:
        """Yield each path with its vector.

        Spec: "Action Reconciliation"
        """
        # Both are taken at once: a lookup between two yields may sort the block.
        every, held = self._paths, self._vectors
        for start in range(0, len(every), SLICE):
            paths = every[start : start + SLICE].to_pylist()
            none = [None] * len(paths)
            yield from zip(
                paths,
                none if held is None else held[start : start + SLICE].to_pylist(),
                strict=True,
            )

    @property
    def with_vector(self) -> int:
        """The number of files that have a vector.

        Spec: "Action Reconciliation"
        """
        return 0 if self._vectors is None else len(self._vectors) - self._vectors.null_count

    def changed(self, put: Mapping[str, str | None], drop: Iterable[str]) -> "FileBlock":
        """Return a block without the files of `drop`, and then with those of `put`.

        Spec: "Action Reconciliation"
        """
        marks = bytearray(b"\x01" * len(self))
        for path in chain(drop, put):
            index = self.place(path)
            if index is not None:
                marks[index] = 0
        kept = pa.Array.from_buffers(pa.uint8(), len(marks), [None, pa.py_buffer(marks)])
        kept = kept.cast(pa.bool_())
        new = FileBlock.of(put, {path: text for path, text in put.items() if text is not None})
        vectors = None
        if self._vectors is not None or new._vectors is not None:
            vectors = pa.concat_arrays([self._texts().filter(kept), new._texts()])
        return FileBlock(
            pa.concat_arrays([self._hashes.filter(kept), new._hashes]),
            pa.concat_arrays([self._paths.filter(kept), new._paths]),
            vectors,
        )

    def halves(self, middle: int) -> tuple["FileBlock", "FileBlock"]:
        """Return the files whose hashes are below a number, and the others.

        Spec: "Action Reconciliation"
        """
        index = bisect_left(self._sorted(), middle)
        return self._piece(0, index), self._piece(index, len(self))

    def _piece(self, start: int, end: int) -> "FileBlock":
        # Copied, because a slice would keep the whole columns in memory.
        rows = pa.arange(start, end)
        vectors = None if self._vectors is None else self._vectors.take(rows)
        if vectors is not None and vectors.null_count == len(vectors):
            vectors = None
        return FileBlock(self._hashes.take(rows), self._paths.take(rows), vectors)

    def _sorted(self) -> memoryview:
        """Sort the columns if needed, and return the sorted hashes."""
        if self._in_order is None:
            order = pc.sort_indices(self._hashes)
            self._hashes, paths = self._hashes.take(order), self._paths.take(order)
            # The column's own bytes: reading one path through Arrow takes eight times as long.
            self._paths, self._ends, self._text = _opened(paths)
            self._vectors = None if self._vectors is None else self._vectors.take(order)
            self._in_order = _numbers(self._hashes)
        return self._in_order

    def _texts(self) -> pa.StringArray:
        return pa.nulls(len(self), pa.string()) if self._vectors is None else self._vectors


def blocks_of(paths: ArrowColumn, vectors: Mapping[str, str], bits: int) -> list[FileBlock]:
    """Return files in 2^bits blocks, by the first bits of their hashes.

    Spec: "Action Reconciliation"
    """
    shares: list[_Share] = [([], []) for _ in range(1 << bits)]
    edges = [slot << (HASH_BITS - bits) for slot in range(1, 1 << bits)]
    for texts in _windows(paths, max(SLICE, len(paths) // WINDOWS)):
        hashes, ends = _hashes(texts), [len(texts)]
        if bits:
            # Arrow sorts few distinct values by counting. The order within a slot comes later.
            order = pc.sort_indices(pc.shift_right(hashes, _number(HASH_BITS - bits)))
            hashes, texts = hashes.take(order), texts.take(order)
            numbers = _numbers(hashes)
            ends = [*(bisect_left(numbers, edge) for edge in edges), len(texts)]
        for (own, named), (start, end) in zip(shares, pairwise([0, *ends]), strict=True):
            own.append(hashes[start:end])
            named.append(texts[start:end])
    return [_block(own, named, vectors) for own, named in shares]


_Share = tuple[list[pa.UInt32Array], list[pa.StringArray]]
"""The hashes and paths of one block, in pieces."""


def hash_of(path: str) -> int:
    """Return the hash of a path, as an unsigned number of 32 bits.

    Spec: "Action Reconciliation"
    """
    return hash(path) & _ONES


def _block(
    hashes: list[pa.UInt32Array], paths: list[pa.StringArray], vectors: Mapping[str, str]
) -> FileBlock:
    if not paths:
        return FileBlock.empty()
    texts = pa.concat_arrays(paths)
    return FileBlock(pa.concat_arrays(hashes), texts, _vectors(texts, vectors))


def _windows(paths: ArrowColumn, rows: int) -> Iterator[pa.StringArray]:
    """Yield all paths as arrays of limited size."""
    held: list[pa.StringArray] = []
    count = size = 0
    for chunk in paths.chunks:
        for start in range(0, len(chunk), rows):
            piece = chunk[start : start + rows]
            if held and (count + len(piece) > rows or size + piece.nbytes > TEXT_MAX):
                yield _concatenated(held)
                held, count, size = [], 0, 0
            held.append(piece)
            count, size = count + len(piece), size + piece.nbytes
    if held:
        yield _concatenated(held)


def _concatenated(pieces: list[pa.StringArray]) -> pa.StringArray:
    return pieces[0] if len(pieces) == 1 else pa.concat_arrays(pieces)


def _vectors(paths: pa.StringArray, vectors: Mapping[str, str]) -> pa.StringArray | None:
    if not vectors:
        return None
    texts = [vectors.get(path) for path in paths.to_pylist()]
    return pa.array(texts, pa.string()) if any(texts) else None


def _hashes(paths: pa.StringArray) -> pa.UInt32Array:
    hashes = array("q")
    for start in range(0, len(paths), SLICE):
        hashes += array("q", list(map(hash, paths[start : start + SLICE].to_pylist())))
    unsigned = pa.Array.from_buffers(pa.uint64(), len(hashes), [None, pa.py_buffer(hashes)])
    return pc.bit_wise_and(unsigned, pa.scalar(_ONES, pa.uint64())).cast(pa.uint32())


def _number(value: int) -> pa.UInt32Scalar:
    return pa.scalar(value, pa.uint32())


def _opened(texts: pa.StringArray) -> tuple[pa.StringArray, memoryview, bytes]:
    """Return the column with its text in Python bytes, the texts' offsets, and these bytes."""
    _, ends, text = texts.buffers()
    data = b"" if text is None else text.to_pybytes()
    if ends is None or not len(texts):
        return texts, memoryview(b""), data
    column = pa.StringArray.from_buffers(
        len(texts), ends, pa.py_buffer(data), None, 0, texts.offset
    )
    offsets = memoryview(ends).cast("B").cast("i")
    return column, offsets[texts.offset : texts.offset + len(texts) + 1], data


def _numbers(values: pa.UInt32Array) -> memoryview:
    """Return the numbers as a memoryview, from which Python reads one at a time."""
    _, buffer = values.buffers()
    data = memoryview(b"" if buffer is None else buffer).cast("B")
    return data[values.offset * 4 : (values.offset + len(values)) * 4].cast("I")
