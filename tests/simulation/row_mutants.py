"""The rules about rows of files that stay, each taken away."""

from contextlib import AbstractContextManager
from typing import Final
from unittest import mock

from tests.simulation.mutants import AT_ONCE, Mutant, mutant
from tidegate.committer import conflicts
from tidegate.committer.candidate import Candidate
from tidegate.committer.entries import Entry
from tidegate.committer.entry_put import EntryPut
from tidegate.committer.known import Known
from tidegate.committer.merging import Tally
from tidegate.committer.shelf import Shelf
from tidegate.committer.standing import Found, Standing
from tidegate.delta.files.bitmap import Bitmap
from tidegate.runtime.clock import Clock
from tidegate.runtime.log_store import Put


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


ROW_MUTANTS: Final[dict[str, Mutant]] = {
    "without_comparing_rows": mutant(
        "rows that both writers change are a conflict",
        without_comparing_rows,
        *("rows_are_updated_once", "vectors_are_unions", *AT_ONCE),
    ),
    "without_asking_who_minds_lost_rows": mutant(
        "who minds that rows leave a file he read is told so",
        without_asking_who_minds_lost_rows,
        *("no_conflict", "lost_rows_are_minded", *AT_ONCE),
    ),
    "without_asking_whether_rows_came_back": mutant(
        "a vector that shrank is no deletion",
        without_asking_whether_rows_came_back,
        *("no_conflict", "vectors_are_unions", *AT_ONCE),
    ),
    "without_the_rows_of_the_vector_before": mutant(
        "a new vector holds the rows of the one before it",
        without_the_rows_of_the_vector_before,
        *("vectors_are_unions", *AT_ONCE),
    ),
    "without_the_rows_of_other_members": mutant(
        "a new vector holds the rows of every member",
        without_the_rows_of_other_members,
        *("vectors_are_unions", *AT_ONCE),
    ),
    "without_writing_the_vectors": mutant(
        "a vector is there before the entry that names it",
        without_writing_the_vectors,
        "every_vector_is_there",
    ),
}
