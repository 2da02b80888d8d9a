"""Which tables of a partition worker are due, and when.

There may be a hundred thousand tables, most of them idle, so a step must cost as much as there is
to do, not as many tables as there are. Tables with new work are due now. Tables without work are
due again at a set time. Tables that are not loaded yet wait for their turn to read their store.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from uuid import UUID

from tidegate_committer.loop.table_committer import TableCommitter
from tidegate_committer.store_executor import store_of


@dataclass
class TableScheduler:
    """Tables that are due now, due later, and not loaded yet, the latter by store.

    `put_off` holds the tables of `later`, each with its earliest time. Times are by `Clock.boot_s`.
    """

    due: dict[UUID, None] = field(default_factory=dict)
    later: list[tuple[float, UUID]] = field(default_factory=list)
    put_off: dict[UUID, float] = field(default_factory=dict)
    unread: dict[str, OrderedDict[UUID, None]] = field(default_factory=dict)

    def wake(self, table: UUID) -> None:
        """Make a table due in the next step."""
        self.due[table] = None

    def clear_due(self, table: UUID) -> None:
        """Make a table no longer due, until it gets new work."""
        self.due.pop(table, None)

    def postpone(self, table: UUID, until_s: float) -> None:
        """Make a table due at `until_s`, or earlier if it gets new work."""
        self.due.pop(table, None)
        if until_s < self.put_off.get(table, float("inf")):
            self.put_off[table] = until_s
            heappush(self.later, (until_s, table))

    def read_in_turn(self, table_committer: TableCommitter) -> None:
        """Queue a table to be loaded, behind others in its store."""
        self.due.pop(table_committer.record.table, None)
        waiting = self.unread.setdefault(store_of(table_committer.store.root), OrderedDict())
        waiting[table_committer.record.table] = None

    def now(self, now_s: float) -> list[UUID]:
        """Return the tables that are due."""
        while self.later and self.later[0][0] <= now_s:
            due_s, table = heappop(self.later)
            # Only the earliest time counts: work on the table sets its next time.
            if self.put_off.get(table) == due_s:
                del self.put_off[table]
                self.due[table] = None
        return list(self.due)

    def next_to_read(
        self, table_committers: Mapping[UUID, TableCommitter], is_free: Callable[[str], bool]
    ) -> TableCommitter | None:
        """Return the first table to be loaded whose store has no other read running; make it
        due.
        """
        for store, tables in list(self.unread.items()):
            table_committer = None
            while tables and not is_unread(
                table_committer := table_committers.get(next(iter(tables)))
            ):
                tables.popitem(last=False)
            if not tables or table_committer is None:
                del self.unread[store]
            elif is_free(table_committer.store.root):
                self.due[tables.popitem(last=False)[0]] = None
                if not tables:
                    del self.unread[store]
                return table_committer
        return None


def is_unread(table_committer: TableCommitter | None) -> bool:
    """Return whether a table is to be loaded, and no proposal waits for that."""
    if (
        table_committer is None
        or table_committer.cache.state is not None
        or table_committer.record.halted_by_hand is not None
    ):
        return False
    return not table_committer.cache.waits_for and not table_committer.queue
