"""The tables that a topic partition serves, by the registry, each with its desk.

A table has a desk once it is registered, or while the proposal that creates it is being settled.
"""

import logging
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final
from uuid import UUID

from tidegate.committer.doors import Doors, reach
from tidegate.committer.group_commit.rebase import Origin
from tidegate.committer.judging.verdicts import Verdict, denied
from tidegate.committer.loop import registration
from tidegate.committer.loop.agenda import Agenda
from tidegate.committer.loop.desk import Desk
from tidegate.committer.loop.registration import Registry
from tidegate.committer.loop.telling import Telling
from tidegate.committer.loop.unsettled import Unsettled
from tidegate.committer.proposals.candidate import Candidate
from tidegate.committer.proposals.flaws import FAULT
from tidegate.committer.tables.entries import Entry
from tidegate.delta.errors import Misconfigured, TidegateError
from tidegate.pipeline.homes import Home, home_of, recorded_home
from tidegate.pipeline.published import TableRecord
from tidegate.runtime.bus import TopicPartition
from tidegate.runtime.containment import attempted, contained, reason_of
from tidegate.runtime.logs import log_event
from tidegate.runtime.registry import RegistryReader
from tidegate.runtime.stores.log_store import LogStore
from tidegate.runtime.stores.paths import canonical_root
from tidegate.runtime.stores.unopened_store import UnopenedStore

_log = logging.getLogger(__name__)

STALE_S: Final = 1.0
"""How old our copy of the registry may be when a table is denied by it."""

CREATION_S: Final = 600.0
"""How long a proposal that creates a table waits for a store that does not answer."""


@dataclass
class ServedTables:
    """The desks of a topic partition.

    `unsettled` are the records without an outcome.
    `dropped` are the records of dropped tables: they have no desk, but keep their ids and roots.
    `registry` is the registry as it was last read, at `opened_s` by `Clock.boot_s`; `partitions` is
    how many the topic of proposals had then.
    """

    at: TopicPartition
    doors: Doors
    telling: Telling
    origin: Origin
    registry_reader: RegistryReader
    desks: dict[UUID, Desk] = field(default_factory=dict)
    unsettled: Unsettled = field(default_factory=Unsettled)
    dropped: dict[UUID, TableRecord] = field(default_factory=dict)
    agenda: Agenda = field(default_factory=Agenda)
    seats_given: int = 0
    opened_s: float = 0.0
    registry: Registry = field(default_factory=lambda: Registry({}, ()))
    partitions: int = 1

    @property
    def here(self) -> Home:
        """The home of the tables that are served here."""
        return Home(self.at.topic, self.at.partition)

    def open(self) -> Registry:
        """Read on in the registry, give each of its tables a desk, and close the desks of those
        that are registered elsewhere, or were dropped.
        """
        partitions = self.doors.bus.partitions(self.at.topic)
        return self.serve_all(self.registry_reader.read(), partitions)

    def serve_all(self, records: Mapping[UUID, TableRecord], partitions: int) -> Registry:
        """As `open`, by the registry as it was just read."""
        tables, self.partitions = dict(records), partitions
        self.opened_s = self.doors.clock.boot_s()
        self.registry = Registry(dict(tables), self.doors.settings.roots)
        for record in records.values():
            is_here, desk = recorded_home(record) == self.here, self.desks.get(record.table)
            if desk is not None and desk.is_registered:
                if record.status == "dropped" or not (is_here or record.status == "staged"):
                    self._leave(desk, record)
            elif desk is None and is_here and record.status not in ("dropped", "staged"):
                self._serve(record)
                self.telling.tables.add(record.table)
            if is_here and record.status == "dropped":
                self.dropped[record.table] = record
        tables |= {table: desk.record for table, desk in self.desks.items()}
        return Registry(tables, self.doors.settings.roots)

    def home_of(self, table: UUID) -> Home:
        """Return the home of a table, by the registry as it was last read."""
        return home_of(table, self.registry.tables, self.at.topic, self.partitions)

    def is_home(self, table: UUID) -> bool:
        """Return whether this is the home of a table."""
        return self.home_of(table) == self.here

    def answer(self, verdict: Verdict, record: TableRecord) -> None:
        """Publish a verdict that no desk has settled."""
        self.tell(verdict, record, None)

    def tell(self, verdict: Verdict, record: TableRecord, entry: Entry | None) -> None:
        """Publish a verdict; where that fails, which is its proposal's fault and not its table's,
        a denial: it promises nothing, and what stands in the log stands.

        Raises: the errors of the bus.
        """

        def deny(error: Exception) -> None:
            told = {"table": record.name, "proposal": candidate.id, "why": reason_of(error)}
            log_event(_log, "answer_fault", level=logging.ERROR, fault=error, **told)
            reason = f"(record): its answer could not be published: {reason_of(error)}"
            plain = replace(candidate, trace=())
            with contained(lambda _: None, passing=TidegateError):
                self.telling.verdict(denied(plain, FAULT, reason), record, None)

        candidate = verdict.candidate
        with contained(deny, passing=TidegateError):
            self.telling.verdict(verdict, record, entry)
        self.unsettled.discard(candidate.offset)

    def send_away(self, desk: Desk, waiting: Iterable[Candidate], error: Exception) -> None:
        """Deny everything that waits for a table that cannot be created, and remove its desk."""
        self.desks.pop(desk.record.table, None)
        for one in waiting:
            self.answer(registration.unfit(one, error), desk.record)

    def gives_up(self, desk: Desk, error: TidegateError) -> bool:
        """Deny a proposal that creates a table whose store does not answer, past its deadline or
        `CREATION_S`; return whether so.

        A table that is not registered can't be halted or dropped, and without an answer the offset
        could not move on. While a PUT is in doubt only the store knows the answer: that is awaited.
        """
        if desk.is_registered or desk.has_sent or not desk.line:
            return False
        first, clock = desk.line[0], self.doors.clock
        deadline_ms = first.candidate.proposal.deadline_ms if first.candidate.proposal else None
        is_over = deadline_ms is not None and clock.now_ms() > deadline_ms
        if not is_over and clock.boot_s() - first.since_s <= CREATION_S:
            return False
        desk.forget()
        self.send_away(desk, [one.candidate for one in desk.line.everybody()], error)
        return True

    def _other_life(self, desk: Desk) -> TableRecord | None:
        """Return another table that was registered at a desk's root meanwhile, or None.

        It may be on another topic partition, with another committer: only the registry tells.
        """
        root, own = desk.record.table_root, desk.record.table
        others = (one for one in self.open().tables.values() if one.table_root == root)
        closed = ("staged", "dropped")
        return next((one for one in others if one.table != own and one.status not in closed), None)

    def withdraw_claims(self) -> None:
        """Take back what earlier owners of this topic partition have claimed and not registered:
        what asked for it is delivered again.
        """
        for record in self.registry_reader.written_by(self.here):
            if registration.is_claim(record):
                self.telling.withdrawn(record)

    def _claim(self, desk: Desk) -> TableRecord | None:
        """Claim a table that is about to be registered; return None once nobody else may.

        Else return what another topic partition has registered of this table or root, or claims.
        Two may claim one table where they count the topic partitions differently. Each writes its
        claim before it looks for others', so at most one sees none.
        """
        other = self._rival(desk.record)
        if other is not None:
            return other
        self.telling.claimed(registration.claim_to(desk.record))
        reach("after_claim")
        self.open()
        # Our own claim stands in what was read: it says nothing to who asks next.
        self.opened_s = -math.inf
        other = self._rival(desk.record)
        if other is not None:
            self.telling.withdrawn(desk.record)
        return other

    def _rival(self, record: TableRecord) -> TableRecord | None:
        other = self.registry_reader.elsewhere(record.table, self.here)
        if other is not None:
            return other
        for one in self.registry.tables.values():
            is_other = one.table != record.table and recorded_home(one) != self.here
            if is_other and one.table_root == record.table_root and one.status != "dropped":
                return one
        return None

    def _leave(self, desk: Desk, record: TableRecord) -> None:
        """Close the desk of a table that has another home, or was dropped, by its record: nothing
        more is written of it. What waits is answered with a denial.

        Should the PUT in flight land, it is found in the log: no writer was told that it failed.
        """
        table = desk.record.table
        del self.desks[table]
        self.telling.tables.discard(table)
        desk.forget()
        desk.flying = None
        desk.news.clear()
        log_event(
            _log, "left", level=logging.WARNING, table=record.name, home=recorded_home(record)
        )
        for one in desk.line.everybody():
            self.answer(registration.elsewhere(one.candidate, record, self.here), record)

    def _registered(self, desk: Desk) -> None:
        assert desk.state is not None, "what is registered was loaded"
        desk.is_registered = True
        table_id = desk.state.basis.metadata.id
        desk.record = desk.record.model_copy(update={"table_id": table_id})
        self.telling.registered(desk.record)
        reach("after_register")

    def _serve(self, record: TableRecord) -> Desk:
        desk = Desk(record, self._store_of(record.table_root), self.doors, self.origin)
        desk.seat = self.seats_given
        self.seats_given += 1
        self.desks[record.table] = desk
        self.agenda.wake(record.table)
        return desk

    def _close(self, desk: Desk) -> list[Candidate]:
        """Remove the desk of a table that was not created; return what waits to be routed anew."""
        del self.desks[desk.record.table]
        desk.news.clear()
        return [one.candidate for one in desk.line.everybody()]

    def _store_of(self, root: str) -> LogStore:
        """Return the store of a registered table.

        A root that this release can't parse, or over which it fails, halts its own table alone. A
        mistake in our settings (`Misconfigured` from `open_store`) ends the process instead.
        """
        try:
            canonical_root(root)
        except Misconfigured as error:
            return UnopenedStore(root, error)
        unopened = partial(UnopenedStore, root)
        return attempted(lambda: self.doors.open_store(root), unopened, passing=TidegateError)

    def _is_under_way(self, root: str) -> bool:
        """Whether a table is being created or registered at a root, and not settled yet."""
        desks = self.desks.values()
        return any(not desk.is_registered and desk.record.table_root == root for desk in desks)

    def _is_stale(self) -> bool:
        """Whether other committers may have registered tables since the registry was read."""
        return self.doors.clock.boot_s() - self.opened_s > STALE_S
