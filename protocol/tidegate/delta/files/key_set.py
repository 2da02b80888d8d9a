"""A set of very many texts that is asked for one at a time: which paths are live.

The texts stay in Arrow. Beside them lie their hashes in order, and which text each is of: twelve
bytes a text. Two texts may have one hash, so a hit is looked up in the texts themselves.
"""

from bisect import bisect_left
from collections.abc import Iterator, Set
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc


class KeySet(Set[str]):
    """The texts of a column, each of which is there once.

    Law: set(KeySet(column)) == set(column.to_pylist())
    Spec: "Action Reconciliation"
    """

    __slots__ = ("_hashes", "_rows", "_texts")

    def __init__(self, texts: pa.ChunkedArray) -> None:
        hashes = pa.chunked_array(
            [pa.array(map(hash, chunk.to_pylist()), pa.int64()) for chunk in texts.chunks],
            pa.int64(),
        )
        order = pc.sort_indices(hashes).cast(pa.uint32())
        self._texts = texts
        self._rows = _bytes(order).cast("I")
        self._hashes = _bytes(hashes.take(order).combine_chunks()).cast("q")

    def row(self, text: object) -> int | None:
        """Return where in the column a text stands, or None where it does not."""
        wanted = hash(text)
        at = bisect_left(self._hashes, wanted)
        while at < len(self._hashes) and self._hashes[at] == wanted:
            if self._texts[self._rows[at]].as_py() == text:
                return self._rows[at]
            at += 1
        return None

    def __contains__(self, text: object) -> bool:
        return self.row(text) is not None

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(chunk.to_pylist() for chunk in self._texts.chunks)

    def __len__(self) -> int:
        return len(self._texts)


def _bytes(values: pa.Array) -> memoryview:
    """Return the bytes of numbers of a fixed width, from which Python reads one at a time."""
    _, buffer = values.buffers()
    width = values.type.bit_width // 8
    whole = memoryview(b"" if buffer is None else buffer).cast("B")
    return whole[values.offset * width : (values.offset + len(values)) * width]
