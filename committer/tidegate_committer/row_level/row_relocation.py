"""Rebase row deletes over a compaction, or a compaction over row deletes."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from pydantic import JsonValue

from tidegate_committer.intake.candidate import Candidate
from tidegate_committer.intake.proposal_actions import CheckedActions, canonical, vectors_of
from tidegate_committer.intake.refusals import DUPLICATE, flaw
from tidegate_committer.intake.row_intents import (
    ROWS_MAX,
    MovedRemoval,
    MovedRows,
    Relocation,
    RowDelete,
    leaving_with,
    moved_file,
    moved_range,
    moved_rows,
)
from tidegate_committer.row_level.merged_row_deletes import with_wide_bounds
from tidegate_committer.row_level.row_deletes import is_followed, only_lost_rows, returned_rows
from tidegate_committer.state.fetched_inputs import FetchedInputs, key_of, unique_id
from tidegate_committer.state.log_entry import Entry
from tidegate_committer.state.table_definition import TableDefinition
from tidegate_delta.deletion_vectors.descriptors import inline, inline_rows, is_inline
from tidegate_delta.deletion_vectors.roaring_bitmap import NO_ROWS, Bitmap
from tidegate_delta.features import row_tracking
from tidegate_delta.log.actions import Add, DeletionVector
from tidegate_messages.outcome import Rejection

BIRTH_BYTES_MAX: Final = 16 * 1024
"""Most bytes of inline deletion vectors for a compaction's new files. A compaction that conflicts
with more deletes is better run again.
"""


def depends_on_rows(candidate: Candidate, winners: Iterable[Entry]) -> bool:
    """Return whether rows of deletion vectors decide on a candidate.

    They do if it deletes rows, tolerates that others do, or names files whose rows winners moved.
    """
    if candidate.intents or candidate.tolerates_row_deletes:
        return True
    read, removed = candidate.files_read, candidate.content.removed
    if not (read or removed):
        return False
    moves = [winner.moved for winner in winners if winner.moved]
    return any(not (read.isdisjoint(moved) and removed.isdisjoint(moved)) for moved in moves)


def passed(candidate: Candidate, winners: Iterable[Entry]) -> Iterator[tuple[Entry, Candidate]]:
    """Yield each winner with the candidate before it, whose files are renamed to where rows moved.

    The rows themselves are not mapped, because they would have to be read. This serves to find out
    what to read.
    """
    for winner in winners:
        yield winner, candidate
        if winner.moved or winner.returned:
            candidate = _renamed(candidate, winner)


def at_head(candidate: Candidate, winners: Iterable[Entry]) -> Candidate:
    """Return the candidate with its files renamed to those that hold their rows at the head."""
    for winner in winners:
        if winner.moved or winner.returned:
            candidate = _renamed(candidate, winner)
    return candidate


def following(candidate: Candidate, winner: Entry, known: FetchedInputs) -> Candidate:
    """Return the candidate with its rows and files followed to where a winner moved the rows."""
    candidate = _with_intents(candidate, vectors_that_follow(candidate, winner, known))
    followed = _with_files_followed(candidate, winner, known.rows_of)
    if candidate.intended.isdisjoint(winner.moved):
        return followed
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
        followed,
        intents=(*unmoved, *moved_intents.values()),
        moved_away=(*candidate.moved_away, *first_moved),
    )


def _renamed(candidate: Candidate, winner: Entry) -> Candidate:
    names = _files_with_own_vectors(candidate, winner)
    candidate = _with_intents(candidate, {path: _unread(path) for path in names})
    followed = _with_files_followed(candidate, winner, lambda _: NO_ROWS)
    if candidate.intended.isdisjoint(winner.moved):
        return followed
    intents = tuple(
        replace(intent, path=winner.moved[intent.path].target)
        if intent.path in winner.moved
        else intent
        for intent in candidate.intents
    )
    return replace(followed, intents=intents)


def _files_with_own_vectors(candidate: Candidate, winner: Entry) -> frozenset[str]:
    """Return the files whose rows a winner moved and to which the proposal gives another vector."""
    removed = candidate.content.removed.intersection(winner.moved)
    if not removed or candidate.moves:
        return frozenset()
    return removed.intersection(path for path, _ in candidate.content.added)


def vectors_that_follow(
    candidate: Candidate, winner: Entry, known: FetchedInputs
) -> dict[str, RowDelete]:
    """Return row intents for files to which a proposal gives a deletion vector of its own, by path.

    Only for files whose rows a winner moved, if the new vector deletes more rows and no fewer.
    """
    intents: dict[str, RowDelete] = {}
    names, content = _files_with_own_vectors(candidate, winner), candidate.content
    for add, (path, _) in zip(content.adds, content.added, strict=True):
        if path not in names or add.deletion_vector is None or not add.data_change:
            continue
        move, vector = winner.moved[path], add.deletion_vector
        before = known.rows.get(key_of(move.gone), NO_ROWS)
        after = inline_rows(vector) if is_inline(vector) else known.rows.get(key_of(vector))
        if not (isinstance(before, Bitmap) and isinstance(after, Bitmap)) or not before <= after:
            continue
        intent = replace(
            _unread(path),
            base=unique_id(move.gone),
            inline=after - before,
            num_records=row_tracking.physical_records(add.stats) or 0,
        )
        is_as_read = content.removed_vectors.get(path, "") == key_of(move.gone)
        if is_as_read and is_followed(intent, move, known):
            intents[path] = intent
    return intents


def _unread(path: str) -> RowDelete:
    return RowDelete(path, None, inline(NO_ROWS), NO_ROWS, 0, is_update=False)


def _with_intents(candidate: Candidate, intents: Mapping[str, RowDelete]) -> Candidate:
    """Return the candidate with row intents in place of its own deletion vectors of some files."""
    if not intents:
        return candidate
    content = candidate.content.with_other_removes(intents)
    content = content.with_adds(lambda add, path: None if path in intents else add)
    return replace(candidate, content=content, intents=(*candidate.intents, *intents.values()))


def _with_files_followed(
    candidate: Candidate, winner: Entry, rows_of: Callable[[DeletionVector | None], Bitmap]
) -> Candidate:
    """Return the candidate with the files that it read or removes followed to where rows moved."""
    moved = winner.moved
    if moved and candidate.may_meet_packed_rows:
        candidate = replace(candidate, packed=candidate.packed | winner.moved_to)

    def on(rows: MovedRows) -> MovedRows:
        move = moved.get(rows.path)
        if move is not None:
            return moved_range(rows, move, rows_of(move.base))
        return returned_rows(rows, winner) or rows

    read = candidate.files_read.intersection(moved) - {rows.path for rows in candidate.came}
    removed = removals_that_follow(candidate, winner)
    if not (read or removed) and candidate.followed.isdisjoint(winner.removed):
        return candidate
    removes = {canonical(remove.path): remove for remove in candidate.content.removes}
    came = [*map(on, candidate.came), *(moved_file(path, moved[path]) for path in sorted(read))]
    leaving = [replace(removal, rows=on(removal.rows)) for removal in candidate.leaving]
    leaving += [
        MovedRemoval(removes[path], moved_file(path, moved[path])) for path in sorted(removed)
    ]
    back = [removal.remove for removal in leaving if removal.rows.before is None]
    leaving = [removal for removal in leaving if removal.rows.before is not None]
    is_same = not (removed or back)
    content = candidate.content
    content = content if is_same else content.with_other_removes(removed, back)
    return replace(candidate, content=content, came=tuple(came), leaving=tuple(leaving))


def removals_that_follow(candidate: Candidate, winner: Entry) -> frozenset[str]:
    """Return the files that a proposal removes and whose rows it removes where a winner moved them.

    A proposal that changes no data does not follow: it is run again. Nor does one that had read
    another deletion vector, or that adds the file again.
    """
    content = candidate.content
    shared = content.removed.intersection(winner.moved)
    if not shared or candidate.moves:
        return frozenset()
    changing = {canonical(remove.path) for remove in content.removes if remove.data_change}
    shared = shared.intersection(changing).difference(path for path, _ in content.added)
    return frozenset(
        path
        for path in shared
        if content.removed_vectors.get(path, "") == key_of(winner.moved[path].gone)
    )


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
    """Return what `Outcome.assigned` says of compactions: `moved`, the files with row intents and
    those to remove that were compacted, or the vectors that a compaction's new files got.
    """
    if candidate.moved_away or candidate.leaving:
        away = [intent.path for intent in candidate.moved_away]
        return {"moved": [*away, *(removal.rows.origin.path for removal in candidate.leaving)]}
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


def _followed_by_rows(candidate: Candidate, winner: Entry) -> frozenset[str]:
    return candidate.intended | candidate.followed | _files_with_own_vectors(candidate, winner)


def vectors_of_moves(candidate: Candidate, winners: Iterable[Entry]) -> Iterator[DeletionVector]:
    """Yield the deletion vectors that are needed to map rows that moved."""
    for winner, after in passed(candidate, winners):
        moves: list[Relocation] = [
            winner.moved[path]
            for path in sorted(_followed_by_rows(after, winner) & winner.moved.keys())
        ]
        moves += [
            candidate.moves[path] for path in sorted(candidate.moves.keys() & winner.revised.keys())
        ]
        for move in moves:
            yield from (vector for vector in (move.base, move.gone) if vector is not None)
