"""The agenda of a lane: which tables have to be looked at, and when.

Most tables are idle at any time, and there may be a hundred thousand: a step must cost what there
is to do, not what there is. Who is brought something is due; who has nothing to do is looked at
again at his time; who was not read yet waits for his store's turn.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from uuid import UUID

from tidegate_committer.background_reads import store_of
from tidegate_committer.loop.table_committer import TableCommitter


@dataclass
class TableScheduler:
    """Tables that are due, put off, and not read yet, these by their stores.

    `put_off` are those in `later`, each with its earliest time; times are by `Clock.boot_s`.
    """

    due: dict[UUID, None] = field(default_factory=dict)
    later: list[tuple[float, UUID]] = field(default_factory=list)
    put_off: dict[UUID, float] = field(default_factory=dict)
    unread: dict[str, OrderedDict[UUID, None]] = field(default_factory=dict)

    def wake(self, table: UUID) -> None:
        """Have a table looked at in the next step."""
        self.due[table] = None

    def look_no_more(self, table: UUID) -> None:
        """Look at a table no more, unless it is brought something."""
        self.due.pop(table, None)

    def look_later(self, table: UUID, until_s: float) -> None:
        """Look at a table at a time, unless it is brought something before."""
        self.due.pop(table, None)
        if until_s < self.put_off.get(table, float("inf")):
            self.put_off[table] = until_s
            heappush(self.later, (until_s, table))

    def read_in_turn(self, table_committer: TableCommitter) -> None:
        """Have a table read when it is its turn in its store."""
        self.due.pop(table_committer.record.table, None)
        waiting = self.unread.setdefault(store_of(table_committer.store.root), OrderedDict())
        waiting[table_committer.record.table] = None

    def now(self, now_s: float) -> list[UUID]:
        """Return the tables that are due."""
        while self.later and self.later[0][0] <= now_s:
            at_s, table = heappop(self.later)
            # Of several times the first counts: whoever looks says when to look again.
            if self.put_off.get(table) == at_s:
                del self.put_off[table]
                self.due[table] = None
        return list(self.due)

    def next_to_read(
        self, table_committers: Mapping[UUID, TableCommitter], is_free: Callable[[str], bool]
    ) -> TableCommitter | None:
        """Return the first table that was not read yet whose store has nothing else to read; it is
        due from now on.
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
    """Whether a table is to be read, and nobody waits for that."""
    if (
        table_committer is None
        or table_committer.state is not None
        or table_committer.record.halted_by_hand is not None
    ):
        return False
    return not table_committer.waits_for and not table_committer.line
