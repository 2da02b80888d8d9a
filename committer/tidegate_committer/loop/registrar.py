"""Registers tables: claims them for this topic partition, and publishes their registrations.

A table is registered by the proposal that creates it, once version 0 is in its log, or by a request
of kind `register`, once the log that is there was read. `registration_rules` says what may be
registered.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tidegate_committer.decision.decision_types import Verdict, denied
from tidegate_committer.dependencies import reach
from tidegate_committer.intake.candidate import Candidate
from tidegate_committer.loop import registration_rules
from tidegate_committer.loop.operator_requests import read_for_request
from tidegate_committer.loop.registration_rules import RegisteredTables
from tidegate_committer.loop.served_tables import ServedTables
from tidegate_committer.loop.table_committer import TableCommitter
from tidegate_committer.state.table_state import ever_written_by_us
from tidegate_committer.store_reads.unique_root_check import is_overtaken
from tidegate_delta.errors import Misconfigured, TidegateError, Unavailable
from tidegate_messages.published_records import TableRecord
from tidegate_messages.table_home import recorded_home

CREATION_S: Final = 600.0
"""How long a proposal that creates a table waits for a store that does not answer."""


@dataclass
class Registrar:
    """Registers the tables of a topic partition, or answers why not."""

    tables: ServedTables

    def withdraw_claims(self) -> None:
        """Withdraw claims that earlier owners of this topic partition published and did not follow
        with a registration. The proposals behind them are delivered again.
        """
        for record in self.tables.registry_reader.written_by(self.tables.here):
            if registration_rules.is_claim(record):
                self.tables.publisher.withdrawn(record)

    def queues_or_answers(self, candidate: Candidate) -> bool:
        """Queue a candidate behind a registration of the same root that is in progress, or answer
        it if the registry as last read refuses or has answered it; return whether either was done.

        Reading the registry takes tens of milliseconds in which the loop stands still, so a flood
        of such candidates would stall it.
        """
        assert candidate.proposal is not None, "only a proposal creates or registers a table"
        unregistered = self.tables.unregistered_at(candidate.proposal.table_root)
        for table_committer in unregistered:
            if table_committer.reads_for_request:
                table_committer.requests.append(candidate)
                return True
        if self.tables.is_stale or unregistered:
            return False
        registry = self.tables.registry
        if candidate.proposal.kind == "register" and self._is_known(candidate, registry):
            return True
        wrong = registration_rules.objection(candidate, registry)
        if wrong is None:
            return False
        self.tables.publisher.answer(wrong, self._new_record(candidate, registry))
        return True

    def create(self, candidate: Candidate, registry: RegisteredTables) -> None:
        """Start the table committer of a table that a candidate creates, or answer why not."""
        if self._is_under_way(candidate):
            return
        record = self._new_record(candidate, registry)
        table_committer = self._objection(candidate, registry) or self._serve(candidate, record)
        if isinstance(table_committer, Verdict):
            self.tables.publisher.answer(table_committer, record)
        else:
            table_committer.queue.join(candidate, self.tables.dependencies.clock.boot_s())

    def register(self, candidate: Candidate, registry: RegisteredTables) -> TableCommitter | None:
        """Start the table committer of a table that a request registers, with that request; or
        answer why not, and return None.
        """
        if self._is_under_way(candidate) or self._is_known(candidate, registry):
            return None
        record = self._new_record(candidate, registry)
        wrong = self._objection(candidate, registry)
        serving = self.tables.committers.get(candidate.table)
        if serving is not None:
            reason = f"table: {candidate.table} is {serving.record.table_root}; take a new id"
            wrong = denied(candidate, "other_root", reason)
        table_committer = wrong or self._serve(candidate, record)
        if isinstance(table_committer, Verdict):
            self.tables.publisher.answer(table_committer, record)
            return None
        table_committer.others = tuple(registry.tables.values())
        table_committer.requests.append(candidate)
        return table_committer

    def created(self, table_committer: TableCommitter, verdict: Verdict) -> Verdict:
        """Register a table that its first verdict has created; return the verdict to publish.

        The table stays unregistered if it was not created, or is registered elsewhere meanwhile.
        """
        is_made = verdict.status == "committed" and not self._is_at_other_table(table_committer)
        if not is_made:
            return verdict
        state, record = table_committer.cache.state, table_committer.record
        assert state is not None, "what was created was loaded"
        table_id = state.table_definition.metadata.id
        dropped = self.tables.registry.dropped_from(record.table_root, table_id)
        if dropped is not None:
            return registration_rules.table_dropped(verdict.candidate, dropped)
        # The table exists by now, so if its name was taken meanwhile, it gets another name.
        table_committer.record = registration_rules.with_unique_name(
            table_committer.record, self.tables.registry
        )
        rival = self._claim(table_committer)
        if rival is not None:
            home = self.tables.here
            return registration_rules.claimed_elsewhere(verdict.candidate, rival, home)
        self._publish(table_committer)
        return verdict

    def remove(self, table_committer: TableCommitter) -> list[Candidate]:
        """Remove the table committer of a table that was not created; return the queued candidates,
        which are to be routed again.
        """
        del self.tables.committers[table_committer.record.table]
        table_committer.cache.unpublished.clear()
        return [queued.candidate for queued in table_committer.queue.everybody()]

    def take_over(self, candidate: Candidate, table_committer: TableCommitter) -> bool:
        """Register the table that a log holds, or answer why not; return False while reading the
        log.

        If another table was registered in this folder meanwhile, the request is to be routed again.
        """
        result = read_for_request(table_committer)
        if result is False:
            return False
        record, state = table_committer.record, table_committer.cache.state
        unpublished = table_committer.cache.unpublished
        if isinstance(result, Exception):
            self._refuse(table_committer, registration_rules.unfit(candidate, result))
            return True
        if state is None or state.version < 0:
            reason = f"table_root: {record.table_root} holds no Delta table; create it first"
            self._refuse(table_committer, denied(candidate, "NotADeltaTable", reason))
            return True
        table_id, registry = state.table_definition.metadata.id, self.tables.open()
        if is_overtaken(record, table_id, table_committer.others, registry.tables.values()):
            del self.tables.committers[record.table]
            table_committer.requests.insert(1, candidate)
            return True
        dropped = registry.dropped_from(record.table_root, table_id)
        if dropped is not None:
            self._refuse(table_committer, registration_rules.table_dropped(candidate, dropped))
            return True
        version, sha256 = state.version, None
        if ever_written_by_us(state) and unpublished:
            # A committer wrote this log under a registration that was lost: publish its last
            # versions.
            through = unpublished[0].version - 1
        else:
            head = state.entries.get(version)
            through, sha256 = version, head.sha256 if head else None
            unpublished.clear()
        table_committer.record = record.model_copy(
            update={"published_through": through, "sha256": sha256}
        )
        rival = self._claim(table_committer)
        if rival is not None:
            del self.tables.committers[record.table]
            wrong = registration_rules.claimed_elsewhere(candidate, rival, self.tables.here)
            self.tables.publisher.answer(wrong, record)
            return True
        self._publish(table_committer)
        verdict = Verdict(candidate, "committed", version=version)
        self.tables.publisher.answer(verdict, table_committer.record)
        return True

    def gives_up(self, table_committer: TableCommitter, error: TidegateError) -> bool:
        """Deny a proposal that creates a table if its store has not answered by the proposal's
        deadline or within `CREATION_S`. Return whether it was denied.

        An unregistered table cannot be halted or dropped, and without an outcome the offset could
        not advance. While a PUT is in doubt, only the store knows its result, so the proposal
        waits.
        """
        if table_committer.is_registered or table_committer.has_sent or not table_committer.queue:
            return False
        first, clock = table_committer.queue[0], self.tables.dependencies.clock
        deadline_ms = first.candidate.proposal.deadline_ms if first.candidate.proposal else None
        is_over = deadline_ms is not None and clock.now_ms() > deadline_ms
        if not is_over and clock.boot_s() - first.since_s <= CREATION_S:
            return False
        table_committer.forget()
        waiting = [queued.candidate for queued in table_committer.queue.everybody()]
        self.send_away(table_committer, waiting, error)
        return True

    def send_away(
        self, table_committer: TableCommitter, waiting: Iterable[Candidate], error: Exception
    ) -> None:
        """Deny all proposals for a table that cannot be created, and remove its table committer."""
        self.tables.committers.pop(table_committer.record.table, None)
        for candidate in waiting:
            wrong = registration_rules.unfit(candidate, error)
            self.tables.publisher.answer(wrong, table_committer.record)

    def _refuse(self, table_committer: TableCommitter, verdict: Verdict) -> None:
        del self.tables.committers[table_committer.record.table]
        self.tables.publisher.answer(verdict, table_committer.record)

    def _claim(self, table_committer: TableCommitter) -> TableRecord | None:
        """Claim a table before its registration; return None once no other partition may register
        it.

        Otherwise return the record by which another topic partition has registered or claimed this
        table or root. Two partitions may claim one table if their owners count the topic's
        partitions differently. Each publishes its claim before it looks for others, so at most one
        finds none.
        """
        other = self._rival(table_committer.record)
        if other is not None:
            return other
        self.tables.publisher.claimed(registration_rules.claim_to(table_committer.record))
        reach("after_claim")
        self.tables.open()
        # The registry that was just read holds our own claim, so it must be read again next time.
        self.tables.opened_s = -math.inf
        other = self._rival(table_committer.record)
        if other is not None:
            self.tables.publisher.withdrawn(table_committer.record)
        return other

    def _rival(self, record: TableRecord) -> TableRecord | None:
        own_home = self.tables.here
        rival = self.tables.registry_reader.elsewhere(record.table, own_home)
        if rival is not None:
            return rival
        for table in self.tables.registry.tables.values():
            is_other = table.table != record.table and recorded_home(table) != own_home
            if is_other and table.table_root == record.table_root and table.status != "dropped":
                return table
        return None

    def _publish(self, table_committer: TableCommitter) -> None:
        """Publish a new registration durably."""
        state = table_committer.cache.state
        assert state is not None, "what is registered was loaded"
        table_committer.is_registered = True
        table_id = state.table_definition.metadata.id
        table_committer.record = table_committer.record.model_copy(update={"table_id": table_id})
        self.tables.publisher.registered(table_committer.record)
        reach("after_register")

    def _is_at_other_table(self, table_committer: TableCommitter) -> bool:
        """Return whether another table was registered at the same root meanwhile.

        It may belong to another topic partition and committer: only the registry knows.
        """
        record = table_committer.record
        return any(
            other.table_root == record.table_root
            and other.table != record.table
            and other.status not in ("staged", "dropped")
            for other in self.tables.open().tables.values()
        )

    def _serve(self, candidate: Candidate, record: TableRecord) -> TableCommitter | Verdict:
        """Return a table committer for an unregistered table, or a denial if its store won't
        open.
        """
        try:
            table_committer = self.tables.serve(record)
        except (Misconfigured, Unavailable) as error:
            return registration_rules.unfit(candidate, error)
        table_committer.is_registered = False
        return table_committer

    def _new_record(self, candidate: Candidate, registry: RegisteredTables) -> TableRecord:
        topic_partition = self.tables.topic_partition
        return registration_rules.new_record(
            candidate, registry, topic_partition.topic, topic_partition.partition
        )

    def _objection(self, candidate: Candidate, registry: RegisteredTables) -> Verdict | None:
        """Return why a table may not be registered, or None."""
        wrong = registration_rules.objection(candidate, registry)
        names = {
            table_committer.record.name
            for table_committer in self.tables.committers.values()
            if not table_committer.is_registered
        }
        if registration_rules.is_named_so(wrong, names):
            # The table with that name may still fail to be created, so the writer may try again.
            return registration_rules.name_being_given(candidate)
        return wrong

    def _is_under_way(self, candidate: Candidate) -> bool:
        """Deny a candidate if a table at its root is being created; return whether one is."""
        assert candidate.proposal is not None, "only a proposal creates or registers a table"
        if not self.tables.unregistered_at(candidate.proposal.table_root):
            return False
        placeholder = registration_rules.unregistered(candidate)
        self.tables.publisher.answer(registration_rules.being_created(candidate), placeholder)
        return True

    def _is_known(self, candidate: Candidate, registry: RegisteredTables) -> bool:
        """Answer a registration of a root that is registered; return whether it is."""
        known = registry.under(candidate.proposal.table_root) if candidate.proposal else None
        if known is None or known.status in ("staged", "dropped"):
            return False
        if known.table in self.tables.committers:
            # Publish the record again: if the topic has lost it, ours may be the last copy.
            known = self.tables.committers[known.table].record
            self.tables.publisher.registered(known)
        self.tables.publisher.answer(registration_rules.registered_before(candidate, known), known)
        return True
