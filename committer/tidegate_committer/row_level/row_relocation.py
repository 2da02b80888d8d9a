"""Rebase row deletes over a compaction, or a compaction over row deletes."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from pydantic import JsonValue

from tidegate_committer.intake.candidate import Candidate
from tidegate_committer.intake.proposal_actions import CheckedActions, vectors_of
from tidegate_committer.intake.refusals import DUPLICATE, flaw
from tidegate_committer.intake.row_intents import (
    ROWS_MAX,
    Relocation,
    RowDelete,
    leaving_with,
    moved_rows,
)
from tidegate_committer.row_level.merged_row_deletes import with_wide_bounds
from tidegate_committer.row_level.row_deletes import only_lost_rows
from tidegate_committer.state.fetched_inputs import FetchedInputs, key_of, unique_id
from tidegate_committer.state.log_entry import Entry
from tidegate_committer.state.table_definition import TableDefinition
from tidegate_delta.deletion_vectors.descriptors import inline
from tidegate_delta.deletion_vectors.roaring_bitmap import Bitmap
from tidegate_delta.features import row_tracking
from tidegate_delta.log.actions import Add, DeletionVector
from tidegate_messages.outcome import Rejection

BIRTH_BYTES_MAX: Final = 16 * 1024
"""Most bytes of inline deletion vectors for a compaction's new files. A compaction that conflicts
with more deletes is better run again.
"""


def passed(candidate: Candidate, winners: Iterable[Entry]) -> Iterator[tuple[Entry, Candidate]]:
    """Yield each winner with the candidate before it, whose files are renamed to where rows moved.

    The rows themselves are not mapped, because they would have to be read. This serves to find out
    what to read.
    """
    for winner in winners:
        yield winner, candidate
        if winner.moved:
            candidate = _renamed(candidate, winner)


def at_head(candidate: Candidate, winners: Iterable[Entry]) -> Candidate:
    """Return the candidate with its files renamed to those that hold their rows at the head."""
    for winner in winners:
        if winner.moved:
            candidate = _renamed(candidate, winner)
    return candidate


def following(candidate: Candidate, winner: Entry, known: FetchedInputs) -> Candidate:
    """Return the candidate with its row deletes mapped to where a winner moved the rows."""
    if candidate.intended.isdisjoint(winner.moved):
        return _renamed(candidate, winner)
    unmoved = tuple(intent for intent in candidate.intents if intent.path not in winner.moved)
    moving = [intent for intent in candidate.intents if intent.path in winner.moved]
    moved_intents: dict[str, RowDelete] = {}
    for intent in moving:
        move = winner.moved[intent.path]
        rows = known.meant_by(intent) - known.rows_of(move.gone)
        moved = moved_rows(rows, move, known.rows_of(move.base))
        before = moved_intents.get(move.target)
        if before is not None and before.inline is not None:
            moved = moved | before.inline
        if moved:
            moved_intents[move.target] = replace(
                intent,
                path=move.target,
                inline=moved,
                num_records=move.total,
                is_update=intent.is_update or (before is not None and before.is_update),
                has_moved=True,
            )
    first_moved = tuple(intent for intent in moving if not intent.has_moved)
    return replace(
        _with_moved_reads(candidate, winner),
        intents=(*unmoved, *moved_intents.values()),
        moved_away=(*candidate.moved_away, *first_moved),
    )


def _renamed(candidate: Candidate, winner: Entry) -> Candidate:
    if candidate.intended.isdisjoint(winner.moved):
        return _with_moved_reads(candidate, winner)
    intents = tuple(
        replace(intent, path=winner.moved[intent.path].target)
        if intent.path in winner.moved
        else intent
        for intent in candidate.intents
    )
    return replace(_with_moved_reads(candidate, winner), intents=intents)


def _with_moved_reads(candidate: Candidate, winner: Entry) -> Candidate:
    """Return the candidate with the files into which rows that it read moved counted as read."""
    targets = {winner.moved[path].target for path in candidate.files_read & winner.moved.keys()}
    return replace(candidate, came=candidate.came | targets) if targets else candidate


def carried(candidate: Candidate, winner: Entry, known: FetchedInputs) -> frozenset[str]:
    """Return compacted files of which a winner deleted rows, if a rebase over that is possible.

    Empty if the deletes are too many or did more than delete rows.
    Law: what can't be rebased over a winner can't be after later winners either
    """
    shared = candidate.moves.keys() & winner.revised.keys()
    if not shared:
        return frozenset()
    for path in shared:
        if key_of(winner.revised[path].before) != key_of(candidate.moves[path].gone):
            return frozenset()
        if not only_lost_rows(path, winner, known):
            return frozenset()
    vectors = _vectors(_with_gone(candidate, winner), known)
    if vectors is None:
        return frozenset()
    return frozenset(shared)


def bearing(candidate: Candidate, winner: Entry, known: FetchedInputs) -> Candidate:
    """Return a compaction whose new files lack the rows that a winner deleted from the old ones."""
    shared = candidate.moves.keys() & winner.revised.keys()
    if not shared:
        return candidate
    after = _with_gone(candidate, winner)
    vectors = _vectors(after, known)
    assert vectors is not None, "what can't be taken over is a conflict"

    def reborn(add: Add, path: str) -> Add:
        vector = vectors.get(path)
        if vector is None:
            return add
        assert add.stats is not None, "a file whose rows were mapped has counted them"
        return add.with_(deletion_vector=vector, stats=with_wide_bounds(add.stats))

    fields = {path: {"deletion_vector": winner.revised[path].after} for path in shared}
    content: CheckedActions = after.content.with_removes(fields)
    content = replace(content, removed_vectors=vectors_of(content.removes)).with_adds(reborn)
    return replace(after, content=content)


def _with_gone(candidate: Candidate, winner: Entry) -> Candidate:
    vectors = {path: revision.after for path, revision in winner.revised.items()}
    return replace(candidate, moves=leaving_with(candidate.moves, vectors))


def _vectors(candidate: Candidate, known: FetchedInputs) -> dict[str, DeletionVector] | None:
    """Return the deletion vectors of a compaction's new files, for rows deleted in the old ones.

    None if they would be too large.
    """
    rows: dict[str, Bitmap] = {}
    for move in candidate.moves.values():
        if key_of(move.gone) == key_of(move.base):
            continue
        deleted, base = known.rows_of(move.gone), known.rows_of(move.base)
        if len(deleted) > ROWS_MAX:
            return None
        moved = moved_rows(deleted - base, move, base)
        rows[move.target] = rows.get(move.target, Bitmap()) | moved
    vectors = {path: inline(deleted_rows) for path, deleted_rows in rows.items() if deleted_rows}
    if sum(vector.size_in_bytes for vector in vectors.values()) > BIRTH_BYTES_MAX:
        return None
    return vectors


def relocation_problem(
    candidate: Candidate, winners: Sequence[Entry], known: FetchedInputs
) -> Rejection | None:
    """Return why row deletes that were mapped over a compaction are illegal, or None."""
    for intent in candidate.moved_away:
        before = _read_with(intent, winners)
        if unique_id(before) != intent.base:
            problem = f"{intent.path[:128]!r} had another deletion vector at read_version"
            remedy = "read the table and propose again"
            return flaw("other_vector", "dv_intents", problem, remedy, path=intent.path)
        if before is not None and not known.meant_by(intent).isdisjoint(known.rows_of(before)):
            problem = f"name rows of {intent.path[:128]!r} that were deleted when it was read"
            remedy = "read the table and propose again"
            return flaw("rows_deleted_before", "dv_intents", problem, remedy, path=intent.path)
    return _named_twice(candidate) if candidate.moved_away else None


def _named_twice(candidate: Candidate) -> Rejection | None:
    """Refuse a file that the actions name and into which deleted rows were moved, or None.

    The entry would name that file twice.
    """
    content = candidate.content
    named = set(content.removed.union(path for path, _ in content.added))
    for intent in candidate.intents:
        if intent.path in named:
            problem = (
                f"{intent.path[:128]!r} is named, and rows that are deleted were moved into it"
            )
            remedy = "read the table and propose again"
            return flaw(DUPLICATE, "dv_intents", problem, remedy, path=intent.path)
        named.add(intent.path)
    return None


def _read_with(intent: RowDelete, winners: Iterable[Entry]) -> DeletionVector | None:
    for winner in winners:
        if intent.path in winner.revised:
            return winner.revised[intent.path].before
        if intent.path in winner.moved:
            return winner.moved[intent.path].gone
    raise AssertionError("what moved away was moved by a winner")


def rebased(candidate: Candidate) -> dict[str, JsonValue]:
    """Return what `Outcome.assigned` says of compactions: `moved`, the files with row intents that
    were compacted, or the vectors that a compaction's new files got.
    """
    if candidate.moved_away:
        return {"moved": [intent.path for intent in candidate.moved_away]}
    if not candidate.moves:
        return {}
    return {
        "deletion_vectors": {
            path: add.deletion_vector.model_dump(by_alias=True, exclude_none=True)
            for (path, _), add in zip(candidate.content.added, candidate.content.adds, strict=True)
            if add.deletion_vector is not None
        }
    }


def ids_left_behind(candidate: Candidate, read: TableDefinition) -> Rejection | None:
    """Return why a compaction would lose row ids on a table with row tracking, or None."""
    if not candidate.moves or not row_tracking.is_enabled(read.metadata):
        return None
    row_mapping = candidate.proposal.row_mapping if candidate.proposal else ()
    for index, mapping in enumerate(row_mapping):
        if not mapping.keeps_row_ids:
            return flaw(
                "row_ids_not_kept",
                f"row_mapping[{index}].keeps_row_ids",
                f"is not said of {mapping.path[:128]!r}, and the table tracks rows",
                "write the ids of rows that move into the columns of row tracking, and say so",
                path=mapping.path,
            )
    return None


def vectors_of_moves(candidate: Candidate, winners: Iterable[Entry]) -> Iterator[DeletionVector]:
    """Yield the deletion vectors that are needed to map rows that moved."""
    for winner, after in passed(candidate, winners):
        moves: list[Relocation] = [
            winner.moved[path] for path in sorted(after.intended & winner.moved.keys())
        ]
        moves += [
            candidate.moves[path] for path in sorted(candidate.moves.keys() & winner.revised.keys())
        ]
        for move in moves:
            yield from (vector for vector in (move.base, move.gone) if vector is not None)
