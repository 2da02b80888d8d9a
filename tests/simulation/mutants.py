"""Mutants: each lacks one rule of the protocol; the named predicates must then be violated.

A mutant is a context in which the committer, or the store under it, lacks one rule. The letters are
those of docs/proof.md.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock
from uuid import UUID

from tests.fakes.memory_store import MemoryStore
from tests.simulation import run_state
from tidegate_committer.admission import admission_rules as admission
from tidegate_committer.admission import identity_allocation
from tidegate_committer.admission.identity_allocation import IdentityCounters
from tidegate_committer.decision import machine, steps
from tidegate_committer.decision.decision_types import Consider, DecisionInput, Verdict
from tidegate_committer.decision.machine import VersionLanded
from tidegate_committer.decision.steps import Step
from tidegate_committer.group_commit import grouping
from tidegate_committer.group_commit.entry_encoding import (
    Attempt,
    EncodedEntry,
    EntryWriter,
    encode,
)
from tidegate_committer.group_commit.grouping import Group
from tidegate_committer.intake.identity_leases import IdentityEffects, LeasedBlocks
from tidegate_committer.loop import (
    operator_requests,
    pending_commits,
    poison_records,
    table_committer,
)
from tidegate_committer.loop.entry_put import EntryPut
from tidegate_committer.loop.partition_worker import PartitionWorker
from tidegate_committer.loop.poison_records import SuspectNote
from tidegate_committer.loop.registrar import Registrar
from tidegate_committer.loop.registration_rules import RegisteredTables
from tidegate_committer.loop.served_tables import ServedTables
from tidegate_committer.loop.table_committer import TableCommitter
from tidegate_committer.loop.table_router import TableRouter
from tidegate_committer.state.log_entry import Entry
from tidegate_committer.state.table_state import DecidedProposal, TableState
from tidegate_committer.store_reads import recovery
from tidegate_committer.store_reads.decision_reads import DecisionRead
from tidegate_delta.errors import Unavailable
from tidegate_messages.outcome import Rejection
from tidegate_messages.proposal import IdentityUsage
from tidegate_messages.published_records import Ruling, TableRecord
from tidegate_runtime.kafka.client_protocols import Offset
from tidegate_runtime.storage.log_store import LogStore, Put, Turn, at_once

Patch = Callable[[], AbstractContextManager[object]]


@dataclass(frozen=True)
class Mutant:
    """A missing rule, and the predicates of which at least one must be violated."""

    rule: str
    patch: Patch
    broken: frozenset[str]


def without_step(step: Step) -> AbstractContextManager[object]:
    return mock.patch.object(
        machine, "STEPS", tuple(item for item in steps.STEPS if item is not step)
    )


def instead_of(step: Step, other: Step) -> AbstractContextManager[object]:
    changed = tuple(other if item is step else item for item in steps.STEPS)
    return mock.patch.object(machine, "STEPS", changed)


def without_sharing(rule: grouping.Sharing) -> AbstractContextManager[object]:
    kept = tuple(item for item in grouping.SHARING if item is not rule)
    return mock.patch.object(grouping, "SHARING", kept)


def without_admission(check: admission.AdmissionCheck) -> AbstractContextManager[object]:
    kept = tuple(item for item in admission.ADMISSION if item is not check)
    return mock.patch.object(admission, "ADMISSION", kept)


def with_settings(**changed: Any) -> AbstractContextManager[object]:
    return mock.patch.object(run_state, "SECTION", run_state.SECTION.model_copy(update=changed))


def with_the_id_after_the_conflict() -> AbstractContextManager[object]:
    kept = tuple(step for step in steps.STEPS if step is not steps.answered_before)
    return mock.patch.object(machine, "STEPS", (*kept, steps.answered_before))


def with_other_bytes_taken_for_other_work() -> AbstractContextManager[object]:
    def known(view: DecisionInput, command: Consider) -> Verdict | None:
        verdict = steps.answered_before(view, command)
        is_reused = verdict and verdict.rejection and verdict.rejection.rule == "id_reused"
        return None if is_reused else verdict

    return instead_of(steps.answered_before, known)


def with_ids_that_only_memory_knows() -> AbstractContextManager[object]:
    def forgotten(entry: Entry, known: object = None) -> dict[UUID, DecidedProposal]:
        return {}

    return mock.patch.object(recovery, "decisions_of", forgotten)


def with_too_old_taken_for_rejected() -> AbstractContextManager[object]:
    def reject(view: DecisionInput, command: Consider) -> Verdict | None:
        verdict = steps.below_the_log(view, command)
        result = Rejection(rule="too_old", reason="it is too old", winner_version=0)
        return verdict._replace(status="rejected", rejection=result) if verdict else None

    return instead_of(steps.below_the_log, reject)


def without_reading_again_before_denying() -> AbstractContextManager[object]:
    return mock.patch.object(DecisionRead, "_is_ahead", return_value=False)


def without_comparing_on_doubt() -> AbstractContextManager[object]:
    def believe(put: EntryPut, path: str, content: bytes) -> Put:
        return Put.UNKNOWN if put.store.read(path) is None else Put.WON

    return mock.patch.object(EntryPut, "_resolve", believe)


def without_reading_on_doubt() -> AbstractContextManager[object]:
    return mock.patch.object(EntryPut, "_resolve", return_value=Put.WON)


def without_put_if_absent() -> AbstractContextManager[object]:
    def overwrite(
        store: MemoryStore, path: str, content: bytes, deadline_s: float, turn: Turn = at_once
    ) -> Put:
        if not turn():
            return Put.WITHHELD
        store.put(path, content)
        return Put.WON

    return mock.patch.object(MemoryStore, "put_if_absent", overwrite)


def without_later_times() -> AbstractContextManager[object]:
    def believe(
        state: TableState, group: Group, origin: EntryWriter, attempt: Attempt
    ) -> EncodedEntry:
        return encode(replace(state, timestamp=0), group, origin, attempt)

    return mock.patch.object(pending_commits, "encode", believe)


@contextmanager
def without_writing_refusals() -> Iterator[None]:
    written = steps._negative

    def tell_at_once(
        view: DecisionInput, command: Consider, rejection: Rejection, *, is_implied: bool
    ) -> Verdict:
        verdict = written(view, command, rejection, is_implied=is_implied)
        return verdict._replace(needs="nothing")

    with mock.patch.object(steps, "_negative", tell_at_once):
        yield


def without_rebase() -> AbstractContextManager[object]:
    def forge_ahead(store: LogStore, state: TableState) -> tuple[TableState, tuple[Entry, ...]]:
        news: list[Entry] = []
        while (entry := recovery.read_entry(store, state.version + 1)) is not None:
            news.append(entry)
            bare = Entry(entry.version, sha256=entry.sha256, timestamp=entry.timestamp)
            state = machine.evolve(state, VersionLanded(bare))
        return state, tuple(news)

    return mock.patch.object(recovery, "refresh", forge_ahead)


@contextmanager
def without_waiting_for_the_answers() -> Iterator[None]:
    durable = PartitionWorker.make_durable

    def hurry(worker: PartitionWorker) -> Offset | None:
        durable(worker)
        return None if worker.position == worker.committed else worker.position

    with mock.patch.object(PartitionWorker, "make_durable", hurry):
        yield


def without_checking_against_the_group() -> AbstractContextManager[object]:
    def alone(view: DecisionInput, command: Consider) -> Verdict | Consider | None:
        with mock.patch.object(view.group, "rivals", return_value=[]):
            return steps.conflicting(view, command)

    return instead_of(steps.conflicting, alone)


@contextmanager
def without_publishing_external_versions() -> Iterator[None]:
    tell = PartitionWorker._publish_versions

    def only_ours(worker: PartitionWorker, committer: TableCommitter) -> None:
        committer.cache.unpublished = [
            entry for entry in committer.cache.unpublished if entry.provenance is not None
        ]
        tell(worker, committer)

    with mock.patch.object(PartitionWorker, "_publish_versions", only_ours):
        yield


@contextmanager
def with_versions_published_in_any_order() -> Iterator[None]:
    tell = PartitionWorker._publish_versions

    def backwards(worker: PartitionWorker, committer: TableCommitter) -> None:
        committer.cache.unpublished.reverse()
        tell(worker, committer)

    with mock.patch.object(PartitionWorker, "_publish_versions", backwards):
        yield


@contextmanager
def with_the_registry_before_the_versions() -> Iterator[None]:
    tell = PartitionWorker._publish_versions

    def ahead(worker: PartitionWorker, committer: TableCommitter) -> None:
        if committer.is_registered and committer.cache.unpublished:
            last = committer.cache.unpublished[-1]
            update = {"published_through": last.version, "sha256": last.sha256}
            worker.publisher.table(committer.record.model_copy(update=update))
        tell(worker, committer)

    with mock.patch.object(PartitionWorker, "_publish_versions", ahead):
        yield


@contextmanager
def without_checking_the_home() -> Iterator[None]:
    with (
        mock.patch.object(ServedTables, "is_home", return_value=True),
        mock.patch.object(ServedTables, "_leave", return_value=None),
        mock.patch.object(Registrar, "_rival", return_value=None),
    ):
        yield


@contextmanager
def with_every_lane_serving_every_table() -> Iterator[None]:
    opened = ServedTables.open

    def greedy(tables: ServedTables) -> RegisteredTables:
        known = opened(tables)
        for record in known.tables.values():
            if record.table not in tables.committers:
                tables.serve(record)
        return known

    with mock.patch.object(ServedTables, "open", greedy):
        yield


@contextmanager
def with_a_lost_bus_taken_for_a_resting_table() -> Iterator[None]:
    publish = TableRouter.publish_verdict

    def swallow(router: TableRouter, at: TableCommitter, verdict: Verdict) -> None:
        try:
            publish(router, at, verdict)
        except Unavailable:
            router.publisher.read_ahead.discard(verdict.candidate.offset)
            at.rest(router.tables.dependencies.clock.boot_s())

    with mock.patch.object(TableRouter, "publish_verdict", swallow):
        yield


def without_checking_the_owner_of_values() -> AbstractContextManager[object]:
    def anybodys(
        usage: IdentityUsage, where: str, found: IdentityEffects, book: IdentityCounters
    ) -> IdentityEffects:
        return replace(found, marks={**found.marks, usage.column: usage.high})

    return mock.patch.object(identity_allocation, "_claimed", anybodys)


def without_the_leases_of_before() -> AbstractContextManager[object]:
    def unused(leased: LeasedBlocks, usage: IdentityUsage) -> LeasedBlocks:
        return leased

    return mock.patch.object(LeasedBlocks, "after", unused)


def mutant(rule: str, patch: Patch, *broken: str) -> Mutant:
    return Mutant(rule, patch, frozenset(broken))


ASSERTED = "an_assertion"
"""An assertion of the committer itself, in place of a predicate."""

OF_ROWS = ("lost_rows_conflict", "rows_are_updated_once")
AT_ONCE = ("outcome_agreement", "linearizable")
HOMES = ("one_home", "halted_by_hand", "dense_events", "progress")
ENTRY = ("legal_entry", "consistent_read", "exactly_once", "applications_advance", "linearizable")


def without_remembering_a_halt() -> AbstractContextManager[object]:
    def as_it_was(record: TableRecord, why: str, ruling: Ruling) -> TableRecord:
        return record

    return mock.patch.object(operator_requests, "halted", as_it_was)


MUTANTS: dict[str, Mutant] = {
    "without_remembering_a_halt": mutant(
        "a halt by hand holds until somebody reopens the table",
        without_remembering_a_halt,
        "halted_by_hand",
    ),
    "without_checking_the_owner_of_values": mutant(
        "an identity value is given out once", without_checking_the_owner_of_values, "values_apart"
    ),
    "without_the_leases_of_before": mutant(
        "what was used of a lease is in the log", without_the_leases_of_before, "values_apart"
    ),
    "with_change_files_for_some": mutant(
        "one change file hides the other files of a version",
        lambda: without_sharing(grouping.change_files_for_all_or_none),
        *ENTRY,
    ),
    "without_change_files": mutant(
        "who rewrites rows says which have changed",
        lambda: without_admission(admission.change_data_complete),
        "changes_are_declared",
    ),
    "without_searching_for_the_id": mutant(
        "F7: the id is looked for in every version after the read one",
        lambda: without_step(steps.answered_before),
        *("exactly_once", *AT_ONCE),
    ),
    "with_ids_that_only_memory_knows": mutant(
        "F7: what was accepted is in the log, not in a memory",
        with_ids_that_only_memory_knows,
        *("exactly_once", "consistent_read", *AT_ONCE),
    ),
    "with_the_id_after_the_conflict": mutant(
        "F6: the id comes before the conflict",
        with_the_id_after_the_conflict,
        *("exactly_once", *AT_ONCE),
    ),
    "with_other_bytes_taken_for_other_work": mutant(
        "F8: an id is bound to its bytes",
        with_other_bytes_taken_for_other_work,
        *("exactly_once", "consistent_read", *AT_ONCE),
    ),
    "without_writing_refusals": mutant(
        "F1, F2: a refusal stands in the log before it is told", without_writing_refusals, *AT_ONCE
    ),
    "with_too_old_taken_for_rejected": mutant(
        "F10: too old to decide is no rejection", with_too_old_taken_for_rejected, *AT_ONCE
    ),
    "without_reading_again_before_denying": mutant(
        "a version that was read is looked for before it is denied",
        without_reading_again_before_denying,
        "linearizable",
    ),
    "without_comparing_on_doubt": mutant(
        "F9: a PUT in doubt is compared with what is there",
        without_comparing_on_doubt,
        *("dense_events", *AT_ONCE),
    ),
    "without_reading_on_doubt": mutant(
        "F5: no version is tried before the one before it is known",
        without_reading_on_doubt,
        *("dense_events", "no_gap", *AT_ONCE),
    ),
    "without_put_if_absent": mutant(
        "F4, F12: the store puts if absent, for everybody",
        without_put_if_absent,
        *("no_overwrite", "dense_events", "outcome_agreement", "vectors_are_unions"),
    ),
    "with_views_of_any_age": mutant(
        "F11: no view is older than half of what the log is kept",
        lambda: with_settings(view_age_max_s=1e9),
        *("no_overwrite", "no_gap", "dense_events", *AT_ONCE),
    ),
    "with_puts_of_any_age": mutant(
        "F11: no PUT is sent when its deadline has passed",
        lambda: with_settings(put_deadline_s=1e9),
        *("no_overwrite", "no_gap", "dense_events", *AT_ONCE),
    ),
    "without_waiting_for_its_turn": mutant(
        "F5: the entry behind leaves when the one before it has won, and not else",
        lambda: mock.patch.object(table_committer, "turn_behind", return_value=at_once),
        *("no_conflict", "consistent_read", "exactly_once", "no_gap", "monotone_time"),
        *(ASSERTED, *AT_ONCE),
    ),
    "without_rebase": mutant(
        "a lost race is read before anything is decided",
        without_rebase,
        *("exactly_once", "consistent_read", "no_conflict", ASSERTED, *AT_ONCE),
        *("vectors_are_unions", "moved_rows_stay"),
    ),
    "without_conflicts": mutant(
        "what was read is not changed before the proposal's turn",
        lambda: without_step(steps.conflicting),
        *("no_conflict", "consistent_read", "exactly_once", *OF_ROWS),
    ),
    "without_checking_against_the_group": mutant(
        "F13: members are checked against one another",
        without_checking_against_the_group,
        *("no_conflict", "consistent_read", *OF_ROWS),
    ),
    "without_the_table_alone": mutant(
        "F13: a change of the table is alone in its entry",
        lambda: without_sharing(grouping.the_table_changes_alone),
        *ENTRY,
        "patches_are_complete",
    ),
    "without_like_with_like": mutant(
        "F13: appends go with appends", lambda: without_sharing(grouping.like_with_like), *ENTRY
    ),
    "without_one_version_per_application": mutant(
        "F13: an entry moves an application once",
        lambda: without_step(steps.behind_its_application),
        *ENTRY,
    ),
    "without_applications": mutant(
        "an application's version is committed once",
        lambda: without_step(steps.app_txn_seen),
        "applications_advance",
    ),
    "without_comparing_positions": mutant(
        "a position is moved from where its writer expects it",
        lambda: without_step(steps.app_txn_unexpected),
        *("positions_are_compared", "applications_advance"),
    ),
    "without_admission": mutant(
        "I12: a table's files lie in the table",
        lambda: without_step(steps.inadmissible),
        *("tables_apart", "consistent_read", "referential", "legal_entry", "linearizable"),
        "changes_are_declared",
    ),
    "without_the_age_of_files": mutant(
        "I11: files that vacuum may delete are not committed",
        lambda: without_admission(admission.in_time),
        *("referential", "linearizable"),
    ),
    "without_checking_live_files": mutant(
        "I4: only what is live is removed, only what is not is added",
        lambda: without_step(steps.reject_at_head),
        *("consistent_read", "exactly_once", "linearizable"),
    ),
    "without_later_times": mutant(
        "I9: each version is later than the one before it", without_later_times, "monotone_time"
    ),
    "without_waiting_for_the_answers": mutant(
        "F14, F15: the offset passes what was answered, durably",
        without_waiting_for_the_answers,
        *("offset_safe", "progress"),
    ),
    "with_a_lost_bus_taken_for_a_resting_table": mutant(
        "F14: what a failed flush lost is told again",
        with_a_lost_bus_taken_for_a_resting_table,
        *("offset_safe", "progress"),
    ),
    "with_versions_published_in_any_order": mutant(
        "F15, I10: versions are told in order", with_versions_published_in_any_order, "dense_events"
    ),
    "with_the_registry_before_the_versions": mutant(
        "F15: the registry says what is durable",
        with_the_registry_before_the_versions,
        *("dense_events", "progress"),
    ),
    "without_publishing_external_versions": mutant(
        "I10: versions of others are told, too",
        without_publishing_external_versions,
        *("dense_events", "progress"),
    ),
    "with_every_lane_serving_every_table": mutant(
        "F16: a table has one topic partition",
        with_every_lane_serving_every_table,
        *("published_at_home", "dense_events", "progress"),
    ),
    "without_checking_the_home": mutant(
        "F16: a table is registered on its own topic partition, and on no other",
        without_checking_the_home,
        *HOMES,
    ),
    "without_blaming_who_kills": mutant(
        "I7: the record over which three died is judged no more",
        lambda: mock.patch.object(poison_records, "DEATHS_MAX", 10**9),
        "progress",
    ),
    "with_deaths_that_the_living_forget": mutant(
        "I7: who goes alive takes no death off the count",
        lambda: mock.patch.object(
            SuspectNote, "clean", lambda note: SuspectNote(guilty=note.guilty)
        ),
        "progress",
    ),
}
"""F3 is a rejected design; only the models have it.

The conflict rules imply `no_path_twice` as long as writers choose unique file names, and no writer
here writes domain metadata or change files. Unit tests cover these three rules of sharing an entry.
"""
