"""A write summary: the effects of one or more winners with which proposals can conflict."""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field

from tidegate_committer.intake.proposal_actions import PartitionKey, PartitionValues


@dataclass
class WriteSummary:
    """The joint effects of winners; `version` is that of the last one.

    `is_blind_append` says that all of them are blind appends; `is_plain` that they only add and
    remove files (compactions included), write txn actions and set domains.
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
        """Add new files."""
        self._values += [values for _, values in files]

    @property
    def count(self) -> int:
        """The number of new files."""
        return len(self._values)

    @property
    def added(self) -> Mapping[PartitionKey, Sequence[int]]:
        """The indexes of the new files, by partition values; computed on first use."""
        for index in range(self._placed, len(self._values)):
            key = frozenset(self._values[index].items())
            self._places.setdefault(key, []).append(index)
        self._placed = len(self._values)
        return self._places
