"""How much history the tables of a process keep: versions that have left a table's window.

They were read for a proposal that read a version of long ago, and others like it may come.
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
"""What an entry takes in memory: so much, and so many times the size of its commit file."""

VERSIONS_MAX: Final = BYTES_MAX // ENTRY_BYTES
"""Versions that these may be at most; whether so many are too large, shows when they are read."""


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
        """Drop it, as soon as nothing is decided on it."""


@dataclass
class HistoryBudget:
    """The tables of the process that keep history."""

    keepers: list["weakref.ref[HistoryKeeper]"] = field(default_factory=list)

    def keep(self, keeper: HistoryKeeper) -> None:
        """Let a table keep its history; those that used theirs longest ago drop them for it, past
        `BYTES_MAX` together.
        """
        living = [one for known in self.keepers if (one := known()) and one.history_bytes]
        if not any(one is keeper for one in living):
            living.append(keeper)
        living.sort(key=lambda one: (one is keeper, one.history_used_s))
        total = sum(one.history_bytes for one in living)
        while living and total > BYTES_MAX:
            oldest = living.pop(0)
            total -= oldest.history_bytes
            oldest.drop_history()
        self.keepers = [weakref.ref(one) for one in living]
