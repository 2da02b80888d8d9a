"""Live files in columns, to be asked for one at a time: paths in the order of their hashes.

A file costs its path, four bytes of offset and eight of hash. A block never changes; what comes of
it is a new one.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, pairwise
from typing import Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

TEXT_MAX: Final = 1 << 30
"""Bytes of paths past which Arrow needs wider offsets to hold them in one piece."""

HASH_BITS: Final = 64
_ONES: Final = (1 << HASH_BITS) - 1

SLICE: Final = 65_536
"""Paths that are Python's strings at once."""

Column: TypeAlias = pa.ChunkedArray
"""A column of texts."""


class FileBlock:
    """Files, each with its deletion vector as a text, or None.

    Law: dict(FileBlock.of(paths, vectors).items()) == {p: vectors.get(p) for p in paths}
    Spec: "Action Reconciliation"
    """

    __slots__ = ("_ends", "_hashes", "_paths", "_sorted", "_text", "_vectors")

    def __init__(
        self, hashes: pa.UInt64Array, paths: pa.StringArray, vectors: pa.StringArray | None
    ) -> None:
        self._hashes = hashes
        self._sorted = _numbers(hashes)
        # The bytes of the column itself: to ask Arrow for one path takes eight times as long.
        self._paths, self._ends, self._text = _opened(paths)
        self._vectors = vectors

    @classmethod
    def of(cls, paths: Iterable[str], vectors: Mapping[str, str]) -> "FileBlock":
        """Return a block of some files.

        Spec: "Action Reconciliation"
        """
        [block] = blocks_of(pa.chunked_array([pa.array(paths, pa.string())]), vectors, 0)
        return block

    @classmethod
    def empty(cls) -> "FileBlock":
        """Return a block of no files: made of no Python list, for which Arrow would look at pandas.

        Spec: "Action Reconciliation"
        """
        return cls(pa.nulls(0, pa.uint64()), pa.nulls(0, pa.string()), None)

    def __len__(self) -> int:
        return len(self._sorted)

    def place(self, path: str) -> int | None:
        """Return where a file stands, or None where it does not.

        Spec: "Action Reconciliation"
        """
        wanted, hashes = hash(path) & _ONES, self._sorted
        at = bisect_left(hashes, wanted)
        while at < len(hashes) and hashes[at] == wanted:
            start, end = self._ends[at], self._ends[at + 1]
            if self._text[start:end] == path.encode("utf-8", "surrogatepass"):
                return at
            at += 1
        return None

    def vector(self, place: int) -> str | None:
        """Return the deletion vector of the file at a place.

        Spec: "Action Reconciliation"
        """
        if self._vectors is None:
            return None
        found: str | None = self._vectors[place].as_py()
        return found

    def items(self) -> Iterator[tuple[str, str | None]]:
        """Yield each path with its vector.

        Spec: "Action Reconciliation"
        """
        for start in range(0, len(self), SLICE):
            paths = self._paths[start : start + SLICE].to_pylist()
            none = [None] * len(paths)
            held = self._vectors
            yield from zip(
                paths,
                none if held is None else held[start : start + SLICE].to_pylist(),
                strict=True,
            )

    @property
    def with_vector(self) -> int:
        """How many files have a vector.

        Spec: "Action Reconciliation"
        """
        return 0 if self._vectors is None else len(self._vectors) - self._vectors.null_count

    def changed(self, put: Mapping[str, str | None], drop: Iterable[str]) -> "FileBlock":
        """Return a block without the files of `drop`, and then with those of `put`.

        Spec: "Action Reconciliation"
        """
        marks = bytearray(b"\x01" * len(self))
        for path in chain(drop, put):
            at = self.place(path)
            if at is not None:
                marks[at] = 0
        kept = pa.Array.from_buffers(pa.uint8(), len(marks), [None, pa.py_buffer(marks)])
        kept = kept.cast(pa.bool_())
        new = FileBlock.of(put, {path: text for path, text in put.items() if text is not None})
        hashes = pa.concat_arrays([self._hashes.filter(kept), new._hashes])
        paths = pa.concat_arrays([self._paths.filter(kept), new._paths])
        order = pc.sort_indices(hashes)
        vectors = None
        if self._vectors is not None or new._vectors is not None:
            joined = [one._texts() for one in (self, new)]
            vectors = pa.concat_arrays([joined[0].filter(kept), joined[1]]).take(order)
        return FileBlock(hashes.take(order), paths.take(order), vectors)

    def halves(self, middle: int) -> tuple["FileBlock", "FileBlock"]:
        """Return the files whose hashes are below a number, and the others.

        Spec: "Action Reconciliation"
        """
        at = bisect_left(self._sorted, middle)
        return self._piece(0, at), self._piece(at, len(self))

    def _piece(self, start: int, end: int) -> "FileBlock":
        # Copied, or each would keep all of the columns.
        rows = _places(start, end)
        vectors = None if self._vectors is None else self._vectors.take(rows)
        if vectors is not None and vectors.null_count == len(vectors):
            vectors = None
        return FileBlock(self._hashes.take(rows), self._paths.take(rows), vectors)

    def _texts(self) -> pa.StringArray:
        return pa.nulls(len(self), pa.string()) if self._vectors is None else self._vectors


def blocks_of(paths: Column, vectors: Mapping[str, str], bits: int) -> list[FileBlock]:
    """Return files in 2^bits blocks, by the first bits of their hashes.

    Spec: "Action Reconciliation"
    """
    hashes = _hashes(paths)
    order = pc.sort_indices(hashes)
    hashes = hashes.take(order)
    wide = paths.nbytes > TEXT_MAX
    whole = (paths.cast(pa.large_string()) if wide else paths).combine_chunks()
    whole = whole.chunk(0) if isinstance(whole, pa.ChunkedArray) else whole
    numbers = _numbers(hashes)
    starts = [bisect_left(numbers, slot << (HASH_BITS - bits)) for slot in range(1 << bits)]
    found: list[FileBlock] = []
    for start, end in pairwise([*starts, len(numbers)]):
        texts = whole.take(order[start:end]).cast(pa.string())
        own = hashes.take(_places(start, end))
        found.append(FileBlock(own, texts, _vectors(texts, vectors)))
    return found


def hash_of(path: str) -> int:
    """Return the hash of a path, as an unsigned number of 64 bits.

    Spec: "Action Reconciliation"
    """
    return hash(path) & _ONES


def _vectors(paths: pa.StringArray, vectors: Mapping[str, str]) -> pa.StringArray | None:
    if not vectors:
        return None
    texts = [vectors.get(path) for path in paths.to_pylist()]
    return pa.array(texts, pa.string()) if any(texts) else None


def _hashes(paths: pa.ChunkedArray) -> pa.UInt64Array:
    pieces = [
        pa.array(map(hash, chunk[start : start + SLICE].to_pylist()), pa.int64())
        for chunk in paths.chunks
        for start in range(0, len(chunk), SLICE)
    ]
    return pa.concat_arrays([pa.array([], pa.int64()), *pieces]).view(pa.uint64())


def _places(start: int, end: int) -> pa.Int64Array:
    return pa.array(range(start, end), pa.int64())


def _opened(texts: pa.StringArray) -> tuple[pa.StringArray, memoryview, bytes]:
    """Return a column that lies in Python's bytes, where each text begins and ends, and these."""
    _, ends, text = texts.buffers()
    held = b"" if text is None else text.to_pybytes()
    if ends is None or not len(texts):
        return texts, memoryview(b""), held
    same = pa.StringArray.from_buffers(len(texts), ends, pa.py_buffer(held), None, 0, texts.offset)
    offsets = memoryview(ends).cast("B").cast("i")
    return same, offsets[texts.offset : texts.offset + len(texts) + 1], held


def _numbers(values: pa.UInt64Array) -> memoryview:
    """Return the bytes of numbers, from which Python reads one at a time."""
    _, buffer = values.buffers()
    whole = memoryview(b"" if buffer is None else buffer).cast("B")
    return whole[values.offset * 8 : (values.offset + len(values)) * 8].cast("Q")
