"""The live files of a table as an immutable map: columns, and the changes since they were built.

    path ─hash─▶ part: changes since its columns were built ─▶ its columns ─▶ vector or absent

A part is found by the first bits of a path's hash, so each part can be rebuilt alone. A change
costs its own size and now and then the rebuild of one part, so no pause grows with the table.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from tidegate_committer.persistent_map import PersistentMap
from tidegate_committer.state.live_file_block import (
    HASH_BITS,
    ArrowColumn,
    FileBlock,
    blocks_of,
    hash_of,
)

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
