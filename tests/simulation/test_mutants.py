"""Each rule of the protocol earns its place: without it the simulation finds a broken promise."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from unittest import mock

import pytest

from tests.simulation.world import Broken, World
from tidegate.committer import conflicts, machine, recovery, steps
from tidegate.committer.candidate import Candidate
from tidegate.committer.desk import Desk
from tidegate.committer.entries import Entry
from tidegate.committer.entry_put import EntryPut
from tidegate.committer.known import Known
from tidegate.committer.lane import Lane
from tidegate.committer.machine import Landed
from tidegate.committer.merging import Tally
from tidegate.committer.shelf import Shelf
from tidegate.committer.standing import Found, Standing
from tidegate.committer.state import TableState
from tidegate.committer.verdicts import Consider, Verdict, View
from tidegate.delta.files.bitmap import Bitmap
from tidegate.pipeline.outcome import Rejection
from tidegate.runtime.bus import Offset
from tidegate.runtime.clock import Clock
from tidegate.runtime.log_store import LogStore, Put

SEEDS_MAX = 200
Mutant = Callable[[], AbstractContextManager[object]]


def without_looking_for_the_id() -> AbstractContextManager[object]:
    kept = tuple(step for step in steps.STEPS if step is not steps.told_before)
    return mock.patch.object(machine, "STEPS", kept)


def with_the_id_after_the_conflict() -> AbstractContextManager[object]:
    kept = tuple(step for step in steps.STEPS if step is not steps.told_before)
    return mock.patch.object(machine, "STEPS", (*kept, steps.told_before))


def without_comparing_on_doubt() -> AbstractContextManager[object]:
    def believe(put: EntryPut, path: str, content: bytes) -> Put:
        return Put.UNKNOWN if put.store.read(path) is None else Put.WON

    return mock.patch.object(EntryPut, "_resolve", believe)


def without_reading_on_doubt() -> AbstractContextManager[object]:
    return mock.patch.object(EntryPut, "_resolve", return_value=Put.WON)


@contextmanager
def without_writing_refusals() -> Iterator[None]:
    written = steps._negative

    def tell_at_once(
        view: View, command: Consider, rejection: Rejection, *, is_log_fact: bool
    ) -> Verdict:
        verdict = written(view, command, rejection, is_log_fact=is_log_fact)
        return replace(verdict, needs="nothing")

    with mock.patch.object(steps, "_negative", tell_at_once):
        yield


def without_rebase() -> AbstractContextManager[object]:
    def forge_ahead(store: LogStore, state: TableState) -> tuple[TableState, tuple[Entry, ...]]:
        news: list[Entry] = []
        while (entry := recovery.read_entry(store, state.version + 1)) is not None:
            news.append(entry)
            state = machine.evolve(state, Landed(Entry(entry.version, timestamp=entry.timestamp)))
        return state, tuple(news)

    return mock.patch.object(recovery, "refresh", forge_ahead)


@contextmanager
def without_waiting_for_the_answers() -> Iterator[None]:
    durable = Lane.make_durable

    def hurry(lane: Lane) -> Offset | None:
        durable(lane)
        return None if lane.position == lane.committed else lane.position

    with mock.patch.object(Lane, "make_durable", hurry):
        yield


def without_checking_against_the_group() -> AbstractContextManager[object]:
    def alone(view: View, command: Consider) -> Verdict | Consider | None:
        with mock.patch.object(view.group, "rivals", return_value=[]):
            return steps.conflicting(view, command)

    changed = tuple(alone if step is steps.conflicting else step for step in steps.STEPS)
    return mock.patch.object(machine, "STEPS", changed)


@contextmanager
def without_telling_what_others_wrote() -> Iterator[None]:
    tell = Lane._tell_news

    def only_ours(lane: Lane, desk: Desk) -> None:
        desk.news = [entry for entry in desk.news if entry.provenance is not None]
        tell(lane, desk)

    with mock.patch.object(Lane, "_tell_news", only_ours):
        yield


def without_comparing_rows() -> AbstractContextManager[object]:
    def overlook(standing: Standing, winner: Entry) -> Found | None:
        return None

    kept = tuple(one for one in conflicts.RULES if one is not conflicts.concurrent_row_delete)
    return mock.patch.object(conflicts, "RULES", (*kept, overlook))


def without_asking_who_minds_lost_rows() -> AbstractContextManager[object]:
    return mock.patch.object(Candidate, "settles_for_less", True)


def without_asking_whether_rows_came_back() -> AbstractContextManager[object]:
    return mock.patch.object(Shelf, "_grew", return_value=True)


def without_the_rows_of_the_vector_before() -> AbstractContextManager[object]:
    return mock.patch.object(Known, "rows_of", return_value=Bitmap())


def without_the_rows_of_other_members() -> AbstractContextManager[object]:
    def take(tally: Tally, rows: Bitmap) -> int:
        tally._touched.clear()
        return kept(tally, rows)

    kept = Tally.take
    return mock.patch.object(Tally, "take", take)


def without_writing_the_vectors() -> AbstractContextManager[object]:
    def put_the_entry(put: EntryPut, path: str, content: bytes, clock: Clock, ends_s: float) -> Put:
        return kept(put, path, content, clock, ends_s) if path.endswith(".json") else Put.WON

    kept = EntryPut._put
    return mock.patch.object(EntryPut, "_put", put_the_entry)


@pytest.mark.parametrize(
    ("mutant", "broken"),
    [
        (without_looking_for_the_id, {"exactly_once", "outcome_agreement"}),
        (with_the_id_after_the_conflict, {"outcome_agreement", "exactly_once"}),
        (without_comparing_on_doubt, {"outcome_agreement", "dense_events"}),
        (without_reading_on_doubt, {"outcome_agreement", "dense_events", "no_gap"}),
        (without_writing_refusals, {"outcome_agreement"}),
        (
            without_rebase,
            {
                *("exactly_once", "consistent_read", "no_conflict", "outcome_agreement"),
                "vectors_are_unions",
            },
        ),
        (without_waiting_for_the_answers, {"offset_safe", "everybody_is_answered"}),
        (
            without_checking_against_the_group,
            {"no_conflict", "consistent_read", "lost_rows_are_minded", "rows_are_updated_once"},
        ),
        (without_telling_what_others_wrote, {"dense_events", "everybody_is_answered"}),
        (without_comparing_rows, {"rows_are_updated_once", "vectors_are_unions"}),
        (without_asking_who_minds_lost_rows, {"no_conflict", "lost_rows_are_minded"}),
        (without_asking_whether_rows_came_back, {"no_conflict", "vectors_are_unions"}),
        (without_the_rows_of_the_vector_before, {"vectors_are_unions"}),
        (without_the_rows_of_other_members, {"vectors_are_unions"}),
        (without_writing_the_vectors, {"every_vector_is_there"}),
    ],
)
def test_a_missing_rule_is_noticed(mutant: Mutant, broken: set[str]) -> None:
    found = next(filter(None, (notice(mutant, seed) for seed in range(SEEDS_MAX))), None)
    assert found is not None, f"{SEEDS_MAX} seeds did not notice what is missing"
    assert any(f" broke {name} " in found for name in broken), found


def notice(mutant: Mutant, seed: int) -> str | None:
    """Return what a seed finds when a rule is missing, or None."""
    with mutant():
        try:
            World(seed).run()
        except Broken as error:
            return str(error)
    return None
