"""The desks of a topic partition: which tables there are, by the registry, and who is answered.

A table has a desk once it is registered, or while it is settled whether it will be.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from tidegate.committer.doors import Doors, reach
from tidegate.committer.group_commit.rebase import Origin
from tidegate.committer.judging.verdicts import Verdict
from tidegate.committer.loop import registration
from tidegate.committer.loop.desk import Desk
from tidegate.committer.loop.registration import Known
from tidegate.committer.loop.telling import Telling
from tidegate.delta.errors import Misconfigured, TidegateError
from tidegate.pipeline.published import TableRecord
from tidegate.runtime.bus import TopicPartition
from tidegate.runtime.registry import read_registry
from tidegate.runtime.stores.log_store import LogStore
from tidegate.runtime.stores.paths import canonical_root
from tidegate.runtime.stores.unopened_store import UnopenedStore

STALE_S: Final = 1.0
"""How old the registry may be that says that a table is unknown, or may not be."""

CREATION_S: Final = 600.0
"""How long at most a table that is to be created waits for a store that is away."""


@dataclass
class ServedTables:
    """The desks, and the deliveries without an answer: offset -> size.

    A table that was `dropped` has no desk, and keeps its id and its root. `known` is the registry
    as it was read last.
    """

    at: TopicPartition
    doors: Doors
    telling: Telling
    origin: Origin
    desks: dict[UUID, Desk] = field(default_factory=dict)
    unsettled: dict[int, int] = field(default_factory=dict)
    dropped: dict[UUID, TableRecord] = field(default_factory=dict)
    opened_s: float = 0.0
    known: Known = field(default_factory=lambda: Known({}, ()))

    def open(self) -> Known:
        """Read the registry, and give each of its tables a desk."""
        return self.serve_all(read_registry(self.doors.bus, self.doors.topics))

    def serve_all(self, registry: Mapping[UUID, TableRecord]) -> Known:
        """Give each table of this topic partition a desk, by the registry as it was just read."""
        here, tables = (self.at.topic, self.at.partition), dict(registry)
        self.opened_s = self.doors.clock.boot_s()
        for record in tables.values():
            at = (record.proposals_topic, record.topic_partition)
            if at == here and record.status == "dropped":
                self.dropped[record.table] = record
            elif at == here and record.status != "staged" and record.table not in self.desks:
                self._serve(record)
                self.telling.tables.add(record.table)
        self.known = Known(dict(tables), self.doors.settings.roots)
        tables |= {table: desk.record for table, desk in self.desks.items()}
        return Known(tables, self.doors.settings.roots)

    def answer(self, verdict: Verdict, record: TableRecord) -> None:
        """Answer without a desk."""
        self.telling.verdict(verdict, record, None)
        del self.unsettled[verdict.candidate.offset]

    def send_away(self, desk: Desk, error: TidegateError) -> None:
        """Answer who would have a table where there can be none."""
        del self.desks[desk.record.table]
        for one in desk.line.everybody():
            self.answer(registration.unfit(one.candidate, error), desk.record)

    def gives_up(self, desk: Desk, error: TidegateError) -> bool:
        """Send away who would create a table, once his time is over and its store is still away.

        Nobody could halt or drop a table that is not registered, and without his answer the offset
        would stay where he stands. Who has a PUT in doubt waits for the store to tell.
        """
        if desk.is_registered or desk.has_sent or not desk.line:
            return False
        first, clock = desk.line[0], self.doors.clock
        deadline_ms = first.candidate.proposal.deadline_ms if first.candidate.proposal else None
        is_over = deadline_ms is not None and clock.now_ms() > deadline_ms
        if not is_over and clock.boot_s() - first.since_s <= CREATION_S:
            return False
        desk.forget()
        self.send_away(desk, error)
        return True

    def _other_life(self, desk: Desk) -> TableRecord | None:
        """Return who else registered the root of a desk while its log was read, or written.

        On another topic partition it is another committer that does so, and none hears of it but by
        the registry.
        """
        root, own = desk.record.table_root, desk.record.table
        others = (one for one in self.open().tables.values() if one.table_root == root)
        closed = ("staged", "dropped")
        return next((one for one in others if one.table != own and one.status not in closed), None)

    def _registered(self, desk: Desk) -> None:
        assert desk.state is not None, "what is registered was loaded"
        desk.is_registered = True
        table_id = desk.state.basis.metadata.id
        desk.record = desk.record.model_copy(update={"table_id": table_id})
        self.telling.registered(desk.record)
        reach("after_register")

    def _serve(self, record: TableRecord) -> Desk:
        desk = Desk(record, self._store_of(record.table_root), self.doors, self.origin)
        self.desks[record.table] = desk
        return desk

    def _store_of(self, root: str) -> LogStore:
        """Return the store of a registered table.

        A root that only another release can spell halts its own table. What the settings get wrong
        ends the process: whoever was about to replace it serves on.
        """
        try:
            canonical_root(root)
        except Misconfigured as error:
            return UnopenedStore(root, error)
        return self.doors.open_store(root)

    def _is_under_way(self, root: str) -> bool:
        """Whether a table is being created there: nobody knows yet what will come of it."""
        desks = self.desks.values()
        return any(not desk.is_registered and desk.record.table_root == root for desk in desks)

    def _is_stale(self) -> bool:
        """Whether another committer may have registered tables that we have not heard of."""
        return self.doors.clock.boot_s() - self.opened_s > STALE_S
