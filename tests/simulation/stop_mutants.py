"""The rules of stopping, of not reading on, and of answers that are late: each taken away."""

from contextlib import AbstractContextManager
from typing import Final
from unittest import mock

from tests.simulation.mutants import Mutant, mutant
from tidegate.committer.admission import head_checks
from tidegate.committer.loop import requests, telling
from tidegate.committer.loop.desk import Desk
from tidegate.committer.loop.service import CommitterLoop
from tidegate.committer.loop.trials import Note
from tidegate.committer.reading import recovery
from tidegate.committer.reading.loading import Loaded
from tidegate.committer.tables.entries import Entry
from tidegate.committer.tables.state import TableState
from tidegate.pipeline.codec import encode
from tidegate.pipeline.published import Ruling, TableRecord
from tidegate.runtime.bus import TopicPartition
from tidegate.runtime.memory_bus import MemoryConsumer
from tidegate.runtime.stores.log_store import LogStore


def without_signing_off() -> AbstractContextManager[object]:
    return mock.patch.object(CommitterLoop, "_note_clean_stop")


def with_a_stop_that_passes_what_waits() -> AbstractContextManager[object]:
    def pass_on(loop: CommitterLoop) -> None:
        for lane in loop.lanes.values():
            lane.trials.note = Note()
            lane.trials.recorded = lane.position or lane.trials.recorded
        if loop.lanes:
            loop._record({at: lane.trials.recorded for at, lane in loop.lanes.items()})

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


def without_pressing_back() -> AbstractContextManager[object]:
    return mock.patch.object(CommitterLoop, "_pause_or_resume")


def with_listings_taken_for_the_log() -> AbstractContextManager[object]:
    def load(desk: Desk) -> Loaded:
        with mock.patch.object(recovery, "refresh", unmoved):
            return loaded(desk)

    def unmoved(store: LogStore, state: TableState) -> tuple[TableState, tuple[Entry, ...]]:
        return state, ()

    loaded = Desk._read
    return mock.patch.object(Desk, "_read", load)


def without_comparing_letters() -> AbstractContextManager[object]:
    return mock.patch.object(head_checks, "misspelt", return_value=None)


def without_asking_for_the_vector() -> AbstractContextManager[object]:
    return mock.patch.object(head_checks, "dead_file", return_value=None)


def without_cutting_outcomes() -> AbstractContextManager[object]:
    return mock.patch.object(telling, "outcome_value", encode)


def without_remembering_a_drop() -> AbstractContextManager[object]:
    def as_it_was(record: TableRecord, ruling: Ruling) -> TableRecord:
        return record

    return mock.patch.object(requests, "dropped", as_it_was)


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
    "without_pressing_back": mutant(
        "no more is read than a committer may have in hand",
        without_pressing_back,
        "hands_not_full",
    ),
    "with_listings_taken_for_the_log": mutant(
        "a log ends where no next name is, not where a listing does",
        with_listings_taken_for_the_log,
        "logs_not_missed",
    ),
    "without_comparing_letters": mutant(
        "I4: a file is removed as it is spelt, letter by letter",
        without_comparing_letters,
        *("consistent_read", "exactly_once", "linearizable"),
    ),
    "without_asking_for_the_vector": mutant(
        "I4: a file is removed with the vector that it has",
        without_asking_for_the_vector,
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
