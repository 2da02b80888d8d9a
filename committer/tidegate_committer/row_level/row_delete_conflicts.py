"""Row-level conflicts: deletes by deletion vectors against a winner's changes of the same files.

If a winner's new vector of a file holds all rows of the old one, the file has lost rows and gained
none. A proposal that deletes other rows of it, and tolerates lost rows, may be committed before or
after: docs/adr/0014 has the proof. A compaction that says where it moved the rows does not conflict
either: docs/adr/0022.
"""

from collections.abc import Mapping

from tidegate_committer.intake.candidate import Candidate
from tidegate_committer.intake.relocated_rows import ROWS_MAX
from tidegate_committer.intake.row_intents import RowDelete
from tidegate_committer.policy import Level
from tidegate_committer.state.fetched_inputs import FetchedInputs, key_of
from tidegate_committer.state.log_entry import Entry


def concerned(candidate: Candidate, winner: Entry) -> frozenset[str]:
    """Return the files with a new vector for which it matters whether they only lost rows."""
    if not winner.revised:
        return frozenset()
    if not candidate.tolerates_row_deletes:
        return candidate.intended & winner.revised.keys()
    if candidate.reads.whole_table:
        return frozenset(winner.revised)
    relevant = candidate.intended | candidate.files_read | candidate.moves.keys()
    return relevant & winner.revised.keys()


def only_lost_rows(path: str, winner: Entry, known: FetchedInputs) -> bool:
    """Return whether a winner only deleted more rows of a file.

    The file must be one that `concerned` returns, or one of which group members delete rows.
    """
    if path in winner.deletes:
        return True
    revision = winner.revised.get(path)
    if revision is None:
        return False
    return known.growths[key_of(revision.before), key_of(revision.after)]


def gone_for(candidate: Candidate, winner: Entry, known: FetchedInputs) -> frozenset[str]:
    """Return the files that a winner removed and whose removal matters to what a proposal read."""
    if not candidate.tolerates_row_deletes:
        return winner.removed
    return winner.removed - _lost_rows(candidate, winner, known) - winner.moved.keys()


def come_for(
    candidate: Candidate, winner: Entry, known: FetchedInputs
) -> tuple[tuple[str, Mapping[str, str | None]], ...]:
    """Return the files that a winner added and that matter to what a proposal read."""
    if not candidate.tolerates_row_deletes or not (winner.revised or winner.moved):
        return winner.added
    # A compaction's new files hold no new rows, and revised ones are compared as removed files.
    ignored = _lost_rows(candidate, winner, known) | winner.moved_to
    return tuple(file for file in winner.added if file[0] not in ignored)


def _lost_rows(candidate: Candidate, winner: Entry, known: FetchedInputs) -> frozenset[str]:
    """Return the files of which a winner only deleted more rows."""
    revised = concerned(candidate, winner)
    return frozenset(winner.deletes).union(
        path for path in revised if only_lost_rows(path, winner, known)
    )


def rows_in_the_way(
    candidate: Candidate, level: Level, winner: Entry, known: FetchedInputs
) -> tuple[str, str] | None:
    """Return how a winner conflicts with a proposal's row deletes, and on which file; or None."""
    if not candidate.intents or candidate.intended.isdisjoint(winner.removed):
        return None
    may_overlap = bears_overlap(candidate, level)
    for intent in candidate.intents:
        path = intent.path
        if path not in winner.removed or may_follow(intent, winner, known):
            continue
        if not only_lost_rows(path, winner, known):
            return f"removed {path!r}, of which the proposal deletes rows", path
        if may_overlap and not intent.is_update:
            continue
        deleted = winner.deletes.get(path)
        if deleted is None:
            deleted = known.rows_of(winner.revised[path].after)
        rows = known.meant_by(intent)
        if not rows.is_apart_from(deleted):
            first = min(row for row in rows if row in deleted)
            return f"deleted row {first} of {path!r} too", path
    return None


def may_follow(intent: RowDelete, winner: Entry, known: FetchedInputs) -> bool:
    """Return whether the rows of an intent can be mapped to where a winner moved them."""
    move = winner.moved.get(intent.path)
    if move is None or move.num_records != intent.num_records:
        return False
    is_small = len(known.meant_by(intent)) <= ROWS_MAX
    return is_small and len(known.rows_of(move.base)) <= ROWS_MAX


def bears_overlap(candidate: Candidate, level: Level) -> bool:
    """Return whether a proposal may delete rows that a winner has deleted already.

    A pure delete may. A proposal that also writes new images of the rows, or change files about
    them, would write these twice. Under SnapshotIsolation the images that the winner may have
    written are not checked, so there the first delete wins.
    """
    content = candidate.content
    return (
        candidate.tolerates_row_deletes
        and level != "SnapshotIsolation"
        and not (content.adds or content.changes)
    )
