"""A footprint: what a winner did, or several at once, as far as others can meet it."""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field

from tidegate.committer.proposals.content import PartitionKey, PartitionValues


@dataclass
class Footprint:
    """What a winner did, or several of them one after the other; `version` is the last one's.

    `is_blind_append` tells whether no winner looked at a row; `is_plain` whether they did nothing
    but write and remove files, be it that rows moved, move applications and set domains.
    """

    version: int
    removed: Set[str] = frozenset()
    app_ids: Set[str] = frozenset()
    domains: Set[str] = frozenset()
    is_blind_append: bool = True
    is_plain: bool = True
    _values: list[PartitionValues] = field(default_factory=list)
    _places: dict[PartitionKey, list[int]] = field(default_factory=dict)
    _placed: int = 0

    def add(self, files: Iterable[tuple[str, PartitionValues]]) -> None:
        """Note new files."""
        self._values += [values for _, values in files]

    @property
    def count(self) -> int:
        """How many new files there are."""
        return len(self._values)

    @property
    def added(self) -> Mapping[PartitionKey, Sequence[int]]:
        """The places of the new files by their partition values: found when somebody asks."""
        for place in range(self._placed, len(self._values)):
            key = frozenset(self._values[place].items())
            self._places.setdefault(key, []).append(place)
        self._placed = len(self._values)
        return self._places
