"""A footprint: what a winner did, or several at once, as far as others can meet it."""

from collections.abc import Iterable, Set
from dataclasses import dataclass, field

from tidegate.committer.content import PartitionKey, PartitionValues


@dataclass
class Footprint:
    """What a winner did, or several of them one after the other; `version` is the last one's.

    `added` holds the places of the new files by their partition values, `count` is how many there
    are; `is_blind_append` whether no winner looked at a row; `is_plain` whether they did nothing
    but write and remove files, move applications and set domains.
    """

    version: int
    added: dict[PartitionKey, list[int]] = field(default_factory=dict)
    count: int = 0
    removed: Set[str] = frozenset()
    app_ids: Set[str] = frozenset()
    domains: Set[str] = frozenset()
    is_blind_append: bool = True
    is_plain: bool = True

    def add(self, files: Iterable[tuple[str, PartitionValues]]) -> None:
        """Note new files."""
        for _, values in files:
            self.added.setdefault(frozenset(values.items()), []).append(self.count)
            self.count += 1
