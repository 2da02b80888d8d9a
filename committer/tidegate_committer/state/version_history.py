"""Limit the memory for versions that have left their table's window, over all tables of a process.

They were read for a proposal with an old read version, and others like it may come.
"""

import weakref
from dataclasses import dataclass, field
from typing import Final, Protocol

from tidegate_committer.state.log_entry import Entry
from tidegate_committer.state.table_state import TableState

BYTES_MAX: Final = 256 * 1024 * 1024
"""Bytes that the histories of all tables take in memory, about."""

ENTRY_BYTES: Final = 4 * 1024
FILE_BYTES_WEIGHT: Final = 2
"""An entry takes about ENTRY_BYTES plus FILE_BYTES_WEIGHT times its commit file's size in memory.
"""

VERSIONS_MAX: Final = BYTES_MAX // ENTRY_BYTES
"""Most versions in these histories. Whether their files are too large is seen when they are read.
"""


def weight(entry: Entry) -> int:
    """Return about how many bytes an entry takes in memory."""
    return ENTRY_BYTES + FILE_BYTES_WEIGHT * entry.size


def weight_of_past(state: TableState) -> int:
    """Return about how many bytes the entries before a state's window take."""
    past = range(state.window_start, state.version + 1 - state.window)
    return sum(weight(state.entries[version]) for version in past)


class HistoryKeeper(Protocol):
    """A table that keeps history. `history_used_s` is when it was last used, by `Clock.boot_s`."""

    history_bytes: int
    history_used_s: float

    def drop_history(self) -> None:
        """Drop the history as soon as no decision uses it."""


@dataclass
class HistoryBudget:
    """The tables of the process that keep history."""

    keepers: list["weakref.ref[HistoryKeeper]"] = field(default_factory=list)

    def keep(self, keeper: HistoryKeeper) -> None:
        """Let a table keep its history. If all histories exceed `BYTES_MAX`, the least recently
        used ones are dropped first.
        """
        living = [
            living_keeper
            for known in self.keepers
            if (living_keeper := known()) and living_keeper.history_bytes
        ]
        if not any(other is keeper for other in living):
            living.append(keeper)
        living.sort(key=lambda other: (other is keeper, other.history_used_s))
        total = sum(other.history_bytes for other in living)
        while living and total > BYTES_MAX:
            oldest = living.pop(0)
            total -= oldest.history_bytes
            oldest.drop_history()
        self.keepers = [weakref.ref(other) for other in living]
