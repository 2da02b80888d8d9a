"""Mutants that lack a rule about rows of files that stay."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final
from unittest import mock

from tests.simulation import proposers
from tests.simulation.mutants import AT_ONCE, Mutant, mutant
from tidegate_committer.conflicts import conflict_rules as conflicts
from tidegate_committer.conflicts import metadata_patches
from tidegate_committer.conflicts.rebase import ConflictFinding, RebaseState
from tidegate_committer.intake import row_intents
from tidegate_committer.intake.candidate import Candidate
from tidegate_committer.intake.row_intents import Relocation
from tidegate_committer.loop.entry_put import EntryPut
from tidegate_committer.policy import Policy
from tidegate_committer.row_level import moved_removals, row_deletes, row_relocation
from tidegate_committer.row_level.merged_row_deletes import FileDeletes
from tidegate_committer.row_level.moved_removals import HeadOfTable
from tidegate_committer.state.fetched_inputs import FetchedInputs
from tidegate_committer.state.log_entry import Entry
from tidegate_committer.state.table_definition import TableDefinition
from tidegate_committer.state.table_state import TableState
from tidegate_committer.store_reads.read_cache import ReadCache
from tidegate_delta.deletion_vectors.roaring_bitmap import NO_ROWS, Bitmap
from tidegate_messages.outcome import Rejection
from tidegate_runtime.clock import Clock
from tidegate_runtime.storage.log_store import Put, Turn


def without_comparing_rows() -> AbstractContextManager[object]:
    def overlook(rebase_state: RebaseState, winner: Entry) -> ConflictFinding | None:
        return None

    kept = tuple(rule for rule in conflicts.RULES if rule is not conflicts.concurrent_row_delete)
    return mock.patch.object(conflicts, "RULES", (*kept, overlook))


def without_checking_who_needs_lost_rows() -> AbstractContextManager[object]:
    return mock.patch.object(Candidate, "tolerates_row_deletes", True)


def without_checking_for_restored_rows() -> AbstractContextManager[object]:
    return mock.patch.object(ReadCache, "_grew", return_value=True)


def without_the_rows_of_the_vector_before() -> AbstractContextManager[object]:
    return mock.patch.object(FetchedInputs, "rows_of", return_value=Bitmap())


def without_the_rows_of_other_members() -> AbstractContextManager[object]:
    def take(tally: FileDeletes, rows: Bitmap) -> int:
        tally._by_members = NO_ROWS
        return kept(tally, rows)

    kept = FileDeletes.take
    return mock.patch.object(FileDeletes, "take", take)


def without_writing_the_vectors() -> AbstractContextManager[object]:
    def put_the_entry(
        put: EntryPut, path: str, content: bytes, clock: Clock, ends_s: float, turn: Turn
    ) -> Put:
        return kept(put, path, content, clock, ends_s, turn) if path.endswith(".json") else Put.WON

    kept = EntryPut._put
    return mock.patch.object(EntryPut, "_put", put_the_entry)


def without_counting_out_rows_that_were_gone() -> AbstractContextManager[object]:
    def moved(rows: Bitmap, move: Relocation, base: Bitmap) -> Bitmap:
        return kept(rows, move, Bitmap())

    kept = row_intents.moved_rows
    return mock.patch.object(row_relocation, "moved_rows", moved)


def without_the_deletes_that_a_compaction_met() -> AbstractContextManager[object]:
    return mock.patch.object(row_relocation, "_vectors", return_value={})


def without_the_table_at_the_head() -> AbstractContextManager[object]:
    def as_it_was_read(
        candidate: Candidate, table_definition: TableDefinition, state: TableState, policy: Policy
    ) -> Candidate | Rejection:
        return kept(candidate, state.table_definition_at(candidate.read_version), state, policy)

    kept = metadata_patches.with_patch
    return mock.patch.object(metadata_patches, "with_patch", as_it_was_read)


@contextmanager
def maintained() -> Iterator[None]:
    """A world in which a maintainer packs files while writers change them."""
    with mock.patch.object(proposers, "KINDS", proposers.MAINTAINED):
        yield


@contextmanager
def without_vectors_for_moved_files() -> Iterator[None]:
    """Treat every table as one that takes no new deletion vectors, for files that were moved."""
    refusal = Rejection(rule="deletion_vectors_off", reason="", advice="fix")
    with mock.patch.object(moved_removals, "_takes_no_vectors", return_value=refusal):
        yield


@contextmanager
def without_removing_rows_that_moved() -> Iterator[None]:
    def as_it_is(candidate: Candidate, head: HeadOfTable, known: FetchedInputs) -> Candidate:
        return candidate

    with maintained(), mock.patch.object(moved_removals, "at_head", as_it_is):
        yield


@contextmanager
def without_comparing_rows_that_moved() -> Iterator[None]:
    with (
        maintained(),
        mock.patch.object(conflicts, "are_untouched", return_value=True),
        mock.patch.object(row_deletes, "are_untouched", return_value=True),
    ):
        yield


@contextmanager
def without_giving_files_back() -> Iterator[None]:
    with (
        maintained(),
        without_vectors_for_moved_files(),
        mock.patch.object(moved_removals, "_other_sources", return_value=frozenset()),
    ):
        yield


ROW_MUTANTS: Final[dict[str, Mutant]] = {
    "without_comparing_rows": mutant(
        "rows that both writers change are a conflict",
        without_comparing_rows,
        *("rows_are_updated_once", "vectors_are_unions", *AT_ONCE),
    ),
    "without_checking_who_needs_lost_rows": mutant(
        "who minds that rows leave a file he read is told so",
        without_checking_who_needs_lost_rows,
        *("no_conflict", "lost_rows_conflict", *AT_ONCE),
    ),
    "without_checking_for_restored_rows": mutant(
        "a vector that shrank is no deletion",
        without_checking_for_restored_rows,
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
    "without_counting_out_rows_that_were_gone": mutant(
        "a row moves by how many before it were gone",
        without_counting_out_rows_that_were_gone,
        *("vectors_are_unions", "moved_rows_stay", "rows_are_updated_once", *AT_ONCE),
    ),
    "without_the_deletes_that_a_compaction_met": mutant(
        "what was deleted of files that a compaction moves stays deleted",
        without_the_deletes_that_a_compaction_met,
        *("moved_rows_stay", *AT_ONCE),
    ),
    "without_removing_rows_that_moved": mutant(
        "who removes a file that was compacted removes its rows where they are",
        without_removing_rows_that_moved,
        *("vectors_are_unions", "linearizable", *AT_ONCE),
    ),
    "without_comparing_rows_that_moved": mutant(
        "who removes a file that was compacted conflicts with who deleted rows of it since",
        without_comparing_rows_that_moved,
        *("moved_files_leave_whole", *AT_ONCE),
    ),
    "without_giving_files_back": mutant(
        "a compaction that gives way gives all other files back",
        without_giving_files_back,
        *("vectors_are_unions", *AT_ONCE),
    ),
    "without_the_table_at_the_head": mutant(
        "a patch is applied to the table as it is when it is committed",
        without_the_table_at_the_head,
        *("patches_are_complete", "values_apart"),
    ),
    "without_writing_the_vectors": mutant(
        "a vector is there before the entry that names it",
        without_writing_the_vectors,
        "every_vector_is_there",
    ),
}
