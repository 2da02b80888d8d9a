"""Mutants that lack a rule of stopping, of pausing partitions, or of late responses."""

from contextlib import AbstractContextManager
from typing import Final
from unittest import mock

from tests.fakes.memory_bus import MemoryConsumer
from tests.simulation.mutants import Mutant, mutant
from tidegate_committer.admission import post_rebase_checks
from tidegate_committer.loop import operator_requests, outcome_publisher
from tidegate_committer.loop.poison_records import SuspectNote
from tidegate_committer.loop.service import CommitterLoop
from tidegate_committer.loop.table_committer import TableCommitter
from tidegate_committer.state.log_entry import Entry
from tidegate_committer.state.table_state import TableState
from tidegate_committer.store_reads import recovery
from tidegate_committer.store_reads.table_loading import LoadedTable
from tidegate_messages.codec import encode
from tidegate_messages.published_records import Ruling, TableRecord
from tidegate_runtime.kafka.client_protocols import TopicPartition
from tidegate_runtime.storage.log_store import LogStore


def without_signing_off() -> AbstractContextManager[object]:
    return mock.patch.object(CommitterLoop, "_note_clean_stop")


def with_a_stop_that_passes_what_waits() -> AbstractContextManager[object]:
    def pass_on(loop: CommitterLoop) -> None:
        for worker in loop.workers.values():
            worker.suspects.note = SuspectNote()
            worker.suspects.recorded = worker.position or worker.suspects.recorded
        if loop.workers:
            loop._record({at: worker.suspects.recorded for at, worker in loop.workers.items()})

    return mock.patch.object(CommitterLoop, "_note_clean_stop", pass_on)


def with_what_was_paused_staying_paused() -> AbstractContextManager[object]:
    def drop(member: MemoryConsumer) -> tuple[TopicPartition, ...]:
        paused = set(member._paused)
        held = dropped(member)
        member._paused |= paused
        return held

    dropped = MemoryConsumer._drop
    return mock.patch.object(MemoryConsumer, "_drop", drop)


def without_reading_on_again() -> AbstractContextManager[object]:
    def press(loop: CommitterLoop) -> None:
        with mock.patch.object(loop.consumer, "resume"):
            pressed(loop)

    pressed = CommitterLoop._pause_or_resume
    return mock.patch.object(CommitterLoop, "_pause_or_resume", press)


def without_backpressure() -> AbstractContextManager[object]:
    return mock.patch.object(CommitterLoop, "_pause_or_resume")


def with_listings_taken_for_the_log() -> AbstractContextManager[object]:
    def load(table_committer: TableCommitter) -> LoadedTable:
        with mock.patch.object(recovery, "refresh", unmoved):
            return loaded(table_committer)

    def unmoved(store: LogStore, state: TableState) -> tuple[TableState, tuple[Entry, ...]]:
        return state, ()

    loaded = TableCommitter._read
    return mock.patch.object(TableCommitter, "_read", load)


def without_comparing_dead_letters() -> AbstractContextManager[object]:
    return mock.patch.object(post_rebase_checks, "path_spelling_problem", return_value=None)


def without_requiring_the_vector() -> AbstractContextManager[object]:
    return mock.patch.object(post_rebase_checks, "removed_file_problem", return_value=None)


def without_cutting_outcomes() -> AbstractContextManager[object]:
    return mock.patch.object(outcome_publisher, "outcome_value", encode)


def without_remembering_a_drop() -> AbstractContextManager[object]:
    def as_it_was(record: TableRecord, ruling: Ruling) -> TableRecord:
        return record

    return mock.patch.object(operator_requests, "dropped", as_it_was)


STOP_MUTANTS: Final[dict[str, Mutant]] = {
    "without_signing_off": mutant(
        "who stops of his own will has killed nobody", without_signing_off, "signed_off"
    ),
    "with_a_stop_that_passes_what_waits": mutant(
        "F14: a stop records what was answered, and not what waits",
        with_a_stop_that_passes_what_waits,
        *("offset_safe", "progress"),
    ),
    "with_what_was_paused_staying_paused": mutant(
        "I7: a partition that comes back is read, whatever pressed it back before",
        with_what_was_paused_staying_paused,
        "progress",
    ),
    "without_reading_on_again": mutant(
        "I7: what was pressed back is read on once there is room",
        without_reading_on_again,
        "progress",
    ),
    "without_backpressure": mutant(
        "no more is read than a committer may have in hand", without_backpressure, "hands_not_full"
    ),
    "with_listings_taken_for_the_log": mutant(
        "a log ends where no next name is, not where a listing does",
        with_listings_taken_for_the_log,
        "logs_not_missed",
    ),
    "without_comparing_dead_letters": mutant(
        "I4: a file is removed as it is spelt, letter by letter",
        without_comparing_dead_letters,
        *("consistent_read", "exactly_once", "linearizable"),
    ),
    "without_requiring_the_vector": mutant(
        "I4: a file is removed with the vector that it has",
        without_requiring_the_vector,
        *("consistent_read", "exactly_once", "linearizable", "vectors_are_unions"),
    ),
    "without_cutting_outcomes": mutant(
        "I7: what is told fits into its topic", without_cutting_outcomes, "progress"
    ),
    "without_remembering_a_drop": mutant(
        "a table that was dropped is served no more",
        without_remembering_a_drop,
        *("halted_by_hand", "progress"),
    ),
}
