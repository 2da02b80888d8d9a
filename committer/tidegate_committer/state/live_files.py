"""The live files of a table as an immutable map: columns, and the changes since they were built.

    path ─hash─▶ part: changes since its columns were built ─▶ its columns ─▶ vector or absent

A part is found by the first bits of a path's hash, so each part can be rebuilt alone. A change
costs its own size and now and then the rebuild of one part, so no pause grows with the table.

A block holds live files in columns, sorted by the hashes of their paths, for lookups of single
files. A file costs its path, four bytes of offset and four of hash. A block's content never
changes: a change returns a new block. A block is sorted at its first lookup.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, pairwise
from typing import Any, Final, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from tidegate_committer.persistent_map import PersistentMap

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


PART_FILES: Final = 8_192
"""Files of a part at the start. A part with more than twice as many is split."""

CHANGES_MIN: Final = 512
CHANGES_SHARE: Final = 8
"""A part is rebuilt when its changes exceed both this minimum and 1/CHANGES_SHARE of its files."""

GONE: Final = "\x00"
"""The value in place of the vector of a removed file. No real vector has this text."""

_UNCHANGED: Final = "\x01"

Vector = str | None


class Part(NamedTuple):
    """Files whose hashes begin alike: their columns, and the changes since these were built."""

    block: FileBlock
    changes: PersistentMap[str, Vector]

    def vector(self, path: str) -> Vector:
        """Return the vector of a file, or GONE if it is not live."""
        vector = self.changes.get(path, _UNCHANGED)
        if vector != _UNCHANGED:
            return vector
        index = self.block.place(path)
        return GONE if index is None else self.block.vector(index)

    @property
    def is_due(self) -> bool:
        """Whether there are so many changes that the columns should be rebuilt."""
        return len(self.changes) > max(CHANGES_MIN, len(self.block) // CHANGES_SHARE)


class LiveFiles(Mapping[str, Vector]):
    """The canonical path of each live file, and its deletion vector as `vector_text` writes it.

    Law: m.changed(put, drop) == {**{k: v for k, v in m.items() if k not in drop}, **put}
    Law: m is the same before and after m.changed(...)
    """

    __slots__ = ("_parts", "_shift")

    def __init__(self, parts: Sequence[Part] = ()) -> None:
        self._parts = tuple(parts) or (Part(FileBlock.empty(), PersistentMap()),)
        self._shift = HASH_BITS - (len(self._parts).bit_length() - 1)

    @classmethod
    def of(cls, paths: ArrowColumn, vectors: Mapping[str, str]) -> "LiveFiles":
        """Return the files of a column of canonical paths; `vectors` are those of some of them."""
        bits = (len(paths) // PART_FILES).bit_length()
        blocks = blocks_of(paths, vectors, bits)
        return cls([Part(block, PersistentMap()) for block in blocks])

    def changed(self, put: Mapping[str, Vector], drop: Iterable[str] = ()) -> "LiveFiles":
        """Return a copy without the files of `drop`, and then with those of `put`.

        At most one part is rebuilt. Others that are due wait for their next change.
        """
        changes_by_slot: dict[int, dict[str, Vector]] = {}
        changes = {**dict.fromkeys(drop, GONE), **put}
        for path, vector in changes.items():
            slot = hash_of(path) >> self._shift
            if slot in changes_by_slot:
                changes_by_slot[slot][path] = vector
            else:
                changes_by_slot[slot] = {path: vector}
        if not changes_by_slot:
            return self
        parts = list(self._parts)
        for slot, slot_changes in changes_by_slot.items():
            part = parts[slot]
            new = Part(part.block, part.changes.changed(slot_changes))
            for index in _span(parts, slot):
                parts[index] = new
        due = next((slot for slot in changes_by_slot if parts[slot].is_due), None)
        return LiveFiles(parts if due is None else _with_part_rebuilt(parts, due))

    def vectors_of(self, paths: Iterable[str]) -> list[Vector]:
        """Return the vector of each path, or GONE if it is not live.

        A faster `get` for many paths: it saves two calls a file.
        """
        parts, shift, vectors = self._parts, self._shift, list[Vector]()
        for path in paths:
            block, changes = parts[hash_of(path) >> shift]
            vector = changes.now.get(path, _UNCHANGED)
            if vector == _UNCHANGED:
                index = block.place(path)
                vector = GONE if index is None else block.vector(index)
            vectors.append(vector)
        return vectors

    @property
    def with_vector(self) -> int:
        """The number of files that have a deletion vector."""
        count = 0
        for part in self._different():
            before = [part.block.place(path) for path in part.changes]
            count += part.block.with_vector
            count -= sum(
                part.block.vector(index) is not None for index in before if index is not None
            )
            count += sum(change not in (None, GONE) for change in part.changes.values())
        return count

    def get(self, path: str, default: Any = None, /) -> Any:
        """Return the vector of a file, or `default` if it is not live."""
        vector = self._parts[hash_of(path) >> self._shift].vector(path)
        return default if vector == GONE else vector

    def __getitem__(self, path: str) -> Vector:
        vector = self._parts[hash_of(path) >> self._shift].vector(path)
        if vector == GONE:
            raise KeyError(path)
        return vector

    def __contains__(self, path: object) -> bool:
        return isinstance(path, str) and self.get(path, GONE) != GONE

    def __iter__(self) -> Iterator[str]:
        for part in self._different():
            yield from (path for path, _ in part.block.items() if path not in part.changes)
            yield from (path for path, vector in part.changes.items() if vector != GONE)

    def __len__(self) -> int:
        count = 0
        for part in self._different():
            changes = part.changes
            count += len(part.block) + sum(vector != GONE for vector in changes.values())
            count -= sum(part.block.place(path) is not None for path in changes)
        return count

    def _different(self) -> Iterator[Part]:
        slots = range(len(self._parts))
        return (
            self._parts[index]
            for index in slots
            if not index or self._parts[index] is not self._parts[index - 1]
        )


def _span(parts: Sequence[Part], slot: int) -> range:
    """Return the slots of the part at a slot."""
    part, start, end = parts[slot], slot, slot + 1
    while start and parts[start - 1] is part:
        start -= 1
    while end < len(parts) and parts[end] is part:
        end += 1
    return range(start, end)


def _with_part_rebuilt(parts: list[Part], slot: int) -> list[Part]:
    """Return the parts with one of them rebuilt, and split if it is too large."""
    span, block = _span(parts, slot), _rebuilt(parts[slot])
    while len(span) * 2 * PART_FILES < len(block):
        parts = [part for part in parts for _ in range(2)]
        span = range(2 * span.start, 2 * span.stop)
    _fill_slots(parts, span, block)
    return parts


def _rebuilt(part: Part) -> FileBlock:
    changes = part.changes.now
    put = {path: vector for path, vector in changes.items() if vector != GONE}
    drop = [path for path, vector in changes.items() if vector == GONE]
    return part.block.changed(put, drop)


def _fill_slots(parts: list[Part], span: range, block: FileBlock) -> None:
    """Put a block into some slots, split in halves recursively while it is too large."""
    if len(span) == 1 or len(block) <= 2 * PART_FILES:
        part = Part(block, PersistentMap())
        for slot in span:
            parts[slot] = part
        return
    middle = span.start + len(span) // 2
    halves = block.halves(middle * ((1 << HASH_BITS) // len(parts)))
    for piece, half in zip(
        (range(span.start, middle), range(middle, span.stop)), halves, strict=True
    ):
        _fill_slots(parts, piece, half)
