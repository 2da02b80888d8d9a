"""An immutable map. Making a changed copy costs as much as its changes, not as the map's size.

All copies share one ordinary dict. The newest owns it; an older copy keeps the changes to undo, and
a pointer to the next newer one. Reading an older copy makes it the owner, so every copy stays
valid; but only one thread at a time may use any of them.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Generic, TypeVar, overload

K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")


class _Absent:
    """Marks a key that the map did not have."""


_ABSENT: Final = _Absent()


class PersistentMap(Mapping[K, V], Generic[K, V]):
    """An immutable map.

    Law: m.changed(put, drop) == {**{k: v for k, v in m.items() if k not in drop}, **put}
    Law: m is the same before and after m.changed(...)
    """

    __slots__ = ("_next", "_own", "_undo")

    def __init__(self, items: Mapping[K, V] | Iterable[tuple[K, V]] = ()) -> None:
        self._own: dict[K, V] | None = dict(items)
        self._undo: dict[K, V | _Absent] = {}
        self._next: PersistentMap[K, V] | None = None

    def changed(self, put: Mapping[K, V], drop: Iterable[K] = ()) -> "PersistentMap[K, V]":
        """Return a copy without the keys of `drop`, and then with the items of `put`."""
        own = self.now
        undo: dict[K, V | _Absent] = {key: own.pop(key) for key in drop if key in own}
        for key in put:
            if key not in undo:
                undo[key] = own.get(key, _ABSENT)
        if not undo:
            return self
        own.update(put)
        copy: PersistentMap[K, V] = PersistentMap()
        copy._own = own
        self._own, self._undo, self._next = None, undo, copy
        return copy

    @property
    def now(self) -> dict[K, V]:
        """The dict behind this copy, for fast reads. Never keep it: it soon holds another copy."""
        return self._own if self._own is not None else self._rooted()

    def __getitem__(self, key: K) -> V:
        return (self._own if self._own is not None else self._rooted())[key]

    @overload
    def get(self, key: K, default: None = None, /) -> V | None: ...

    @overload
    def get(self, key: K, default: V | D, /) -> V | D: ...

    def get(self, key: K, default: V | D | None = None, /) -> V | D | None:
        """Return the value of a key, or `default` if the map lacks it."""
        return (self._own if self._own is not None else self._rooted()).get(key, default)

    def __contains__(self, key: object) -> bool:
        return key in (self._own if self._own is not None else self._rooted())

    def __iter__(self) -> Iterator[K]:
        return iter(self._rooted())

    def __len__(self) -> int:
        return len(self._rooted())

    def __repr__(self) -> str:
        return f"PersistentMap({dict(self._rooted())!r})"

    def _rooted(self) -> dict[K, V]:
        """Make this copy the owner of the dict; copies up to the old owner then point to it."""
        chain = [self]
        while (following := chain[-1]._next) is not None:
            chain.append(following)
        own = chain[-1]._own
        assert own is not None, "the last copy of a chain owns the dict"
        for newer, older in zip(reversed(chain), reversed(chain[:-1]), strict=False):
            redo: dict[K, V | _Absent] = {}
            for key, value in older._undo.items():
                redo[key] = own.get(key, _ABSENT)
                if isinstance(value, _Absent):
                    del own[key]
                else:
                    own[key] = value
            newer._own, newer._undo, newer._next = None, redo, older
            older._own, older._undo, older._next = own, {}, None
        return own
