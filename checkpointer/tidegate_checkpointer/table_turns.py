"""Which tables have work left for turns of their own, how urgent it is, and how long they may take.

Work that is short is done with the notification that brings it. What takes longer waits, and the
table goes first whose readers have lost the most by waiting. So a large table never holds a small
one. A table whose turns are long rests between them as long as they took.

`settle` says which tables keep their state in memory, within a limit for all of them together.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Final
from uuid import UUID

from tidegate_checkpointer.table_view import TableView
from tidegate_runtime.clock import Clock

SHORT_S: Final = 0.2
"""Seconds for work that is done at once, with a notification or after the first work of a turn."""

PASS_S: Final = 2.0
"""Seconds for the short work of all tables in one pass."""

DEADLINE_S: Final = 60.0
"""A table that has waited this long goes before all that have not."""


@dataclass
class _Waiting:
    """Units: `since_s` by `Clock.boot_s`; `cost_s`, what a reader pays to open the table."""

    since_s: float
    cost_s: float


@dataclass
class TableTurns:
    """The tables with work left. Called from several threads, for one table never twice at once.

    `readers` has the number of known readers of each table (followers and leases). One more is
    always counted, for those who read it without a lease.
    """

    clock: Clock
    readers: Mapping[UUID, int] = field(default_factory=dict)
    _waiting: dict[UUID, _Waiting] = field(default_factory=dict)
    _rest_until_s: dict[UUID, float] = field(default_factory=dict)

    def unfinished(self) -> list[UUID]:
        """Return the tables that wait for a turn and do not rest."""
        now_s = self.clock.boot_s()
        return [table for table in list(self._waiting) if not self._rests(table, now_s)]

    def wait(self, table: UUID, cost_s: float) -> None:
        """Note that work of a table is left, and what its readers pay meanwhile."""
        known = self._waiting.get(table)
        since_s = known.since_s if known else self.clock.boot_s()
        self._waiting[table] = _Waiting(since_s, cost_s)

    def finish(self, table: UUID) -> None:
        """Note that no work of a table is left."""
        self._waiting.pop(table, None)

    def took(self, table: UUID, seconds: float) -> None:
        """Note how long a turn took; a long one is followed by a rest of the same length."""
        if seconds > SHORT_S:
            self._rest_until_s[table] = self.clock.boot_s() + seconds
        else:
            self._rest_until_s.pop(table, None)

    def forget(self, table: UUID) -> None:
        """Forget a table that is set aside."""
        self.finish(table)
        self._rest_until_s.pop(table, None)

    def urgency(self, table: UUID) -> float:
        """Return what the readers of a table have lost by waiting; infinite past the deadline.

        Law: more cost, more readers or a longer wait make it no less
        """
        waiting = self._waiting.get(table)
        if waiting is None:
            return 0.0
        age_s = self.clock.boot_s() - waiting.since_s
        if age_s >= DEADLINE_S:
            return inf
        return waiting.cost_s * age_s * (1 + self.readers.get(table, 0))

    def _rests(self, table: UUID, now_s: float) -> bool:
        return now_s < self._rest_until_s.get(table, -inf)


def settle(views: Sequence[TableView], bytes_max: int) -> None:
    """Drop the states of some tables, so that those of the others fit into a limit.

    Those go first whose memory spares the least time: what it takes to read them again, over how
    long they have not been used.
    """
    now_s = time.monotonic()
    warm_views = [(view, state.size_bytes) for view in views if (state := view.warm) is not None]
    total = sum(size for _, size in warm_views)
    if total <= bytes_max:
        return
    for view, size in sorted(warm_views, key=lambda pair: _spared(pair[0], pair[1], now_s)):
        view.warm = None
        total -= size
        if total <= bytes_max:
            return


def _spared(view: TableView, size_bytes: int, now_s: float) -> float:
    """Return how much time a byte of a table's state spares."""
    return view.load_s / max(now_s - view.used_s, 1.0) / max(size_bytes, 1)
