"""Row deletes by deletion vectors: what may be deleted, and when two deletes conflict.

If a winner's new vector of a file holds all rows of the old one, the file has lost rows and gained
none. A proposal that deletes other rows of it, and tolerates lost rows, may be committed before or
after: docs/adr/0014 has the proof. A compaction that says where it moved the rows does not conflict
either: docs/adr/0022.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from tidegate_committer.intake.candidate import Candidate
from tidegate_committer.intake.refusals import TOO_LARGE, flaw
from tidegate_committer.intake.row_intents import (
    ROWS_MAX,
    MovedRows,
    Relocation,
    RowDelete,
)
from tidegate_committer.policy import Level, Policy
from tidegate_committer.state.fetched_inputs import (
    FetchedInputs,
    key_of,
    new_vectors,
    size_of,
    unique_id,
)
from tidegate_committer.state.log_entry import Entry
from tidegate_committer.state.table_definition import TableDefinition
from tidegate_delta.deletion_vectors.descriptors import inline_rows, is_inline
from tidegate_delta.deletion_vectors.roaring_bitmap import Bitmap, last
from tidegate_delta.features import row_tracking
from tidegate_delta.log.actions import Add, DeletionVector
from tidegate_delta.properties.table_properties import append_only, deletion_vectors_enabled
from tidegate_messages.outcome import Rejection

_REREAD: Final = "read the table and propose again"
_NO_VECTORS_WITH: Final = ("delta.enableIcebergCompatV1", "delta.enableIcebergCompatV2")


def no_table() -> Rejection:
    """Return the refusal of row deletes in the proposal that creates the table."""
    problem = "rows are deleted from a table that is not there yet"
    return flaw("file_not_live", "dv_intents", problem, "create the table first")


def too_heavy(policy: Policy) -> Rejection:
    """Return the refusal of a proposal that needs more bytes of vectors than are read for one."""
    problem = f"more than {policy.vector_bytes_max} bytes of deletion vectors have to be compared"
    remedy = "read the table again, and propose it in several steps"
    return flaw(TOO_LARGE, "dv_intents", problem, remedy, advice="rerun")


def unreadable(vectors: Mapping[str, DeletionVector], known: FetchedInputs) -> Rejection | None:
    """Return the refusal for a vector that a decision needs and that can't be read, or None."""
    for key in sorted(vectors):
        rows = known.rows[key]
        if isinstance(rows, str):
            remedy = "write or restore its file, whole, and propose again"
            return flaw("vector_unreadable", "dv_intents", rows, remedy, advice="rerun")
    return None


def row_intent_problem(candidate: Candidate, known: FetchedInputs) -> Rejection | None:
    """Return the refusal of row intents that name rows beyond the end of their file, or None."""
    for index, intent in enumerate(candidate.intents):
        location = f"dv_intents[{index}].rows"
        rows = known.meant_by(intent)
        if last(rows) >= intent.num_records:
            problem = (
                f"hold row {last(rows)} of {intent.path[:128]!r}, which has {intent.num_records}"
            )
            remedy = "count the rows of the file from 0"
            return flaw("rows_out_of_range", location, problem, remedy, path=intent.path)
    return None


def new_vector_problem(
    candidate: Candidate, live: Mapping[str, str | None], known: FetchedInputs, policy: Policy
) -> Rejection | None:
    """Refuse a file's new vector that is unreadable or names rows beyond the file's end.

    It is for vectors that writers bring in add actions and have written themselves.
    """
    content = candidate.content
    if not content.vectors:
        return None
    if size_of(from_proposal := new_vectors(candidate, live)) > policy.vector_bytes_max:
        return too_heavy(policy)
    for add in content.adds:
        vector, location = add.deletion_vector, "actions.add.deletionVector"
        if vector is None:
            continue
        rows = inline_rows(vector) if is_inline(vector) else known.rows.get(key_of(vector))
        if isinstance(rows, str) and key_of(vector) in from_proposal:
            remedy = "write its file first, whole, and propose again"
            return flaw("vector_unreadable", location, rows, remedy, advice="rerun", path=add.path)
        count = row_tracking.physical_records(add.stats)
        if isinstance(rows, Bitmap) and count is not None and last(rows) >= count:
            problem = f"holds row {last(rows)} of {add.path[:128]!r}, which has {count}"
            remedy = "count the rows of the file from 0"
            return flaw("rows_out_of_range", location, problem, remedy, path=add.path)
    return None


def may_not_delete(candidate: Candidate, table_definition: TableDefinition) -> Rejection | None:
    """Return why no row of the table may be deleted by a deletion vector, or None.

    If the proposal changes the table, vectors must be allowed both before and after.
    """
    if not candidate.intents:
        return None
    if append_only(table_definition.metadata):
        problem = "rows are deleted from a table that only takes appends"
        return flaw("append_only", "dv_intents", problem, "unset delta.appendOnly first")
    after = table_definition.after(candidate.content.metadata, candidate.content.protocol)
    return _takes_no_vectors(table_definition) or (
        None if after is table_definition else _takes_no_vectors(after)
    )


def _takes_no_vectors(table_definition: TableDefinition) -> Rejection | None:
    metadata = table_definition.metadata
    set_properties = {name for name in _NO_VECTORS_WITH if _is_true(metadata.configuration, name)}
    if set_properties:
        problem = f"the table has {min(set_properties)}, with which files have no deletion vectors"
        return flaw("deletion_vectors_off", "dv_intents", problem, "rewrite the files instead")
    listed = "deletionVectors" in table_definition.features
    if listed and deletion_vectors_enabled(metadata):
        return None
    problem = "the table takes no new deletion vectors"
    remedy = "rewrite the files instead, or set delta.enableDeletionVectors"
    return flaw("deletion_vectors_off", "dv_intents", problem, remedy)


def deleted_files_problem(
    candidate: Candidate,
    live: Mapping[str, str | None],
    since: Iterable[Entry],
    known: FetchedInputs,
) -> Rejection | None:
    """Return why the files that lose rows are not as the proposal says, or None.

    `since` are the versions after the read version. The conflict rules come before this check.
    """
    winners = list(since) if candidate.intents else []
    for index, intent in enumerate(candidate.intents):
        location, path = f"dv_intents[{index}]", intent.path
        if path not in live:
            problem = f"{path[:128]!r} is no file of the table"
            return flaw("file_not_live", f"{location}.path", problem, _REREAD, path=path)
        file = known.files[path]
        assert live[path] == (key_of(file.deletion_vector) or None), "what was read is the head's"
        before = None if intent.has_moved else _vector_read(intent, file, winners)
        if unique_id(before) != intent.base and not intent.has_moved:
            problem = f"{path[:128]!r} had another deletion vector at read_version"
            return flaw("other_vector", f"{location}.base", problem, _REREAD, path=path)
        count = row_tracking.physical_records(file.stats)
        if count is None:
            problem = f"{path[:128]!r} has no numRecords, without which rows can't be deleted"
            return flaw("no_row_count", f"{location}.path", problem, "rewrite the file", path=path)
        if count != intent.num_records:
            problem = f"is {intent.num_records}, {path[:128]!r} has {count} rows"
            return flaw("rows_out_of_range", f"{location}.num_records", problem, _REREAD, path=path)
        rejection = _deleted_before(intent, location, known, before)
        if rejection is not None:
            return rejection
    return None


def _vector_read(intent: RowDelete, file: Add, winners: Iterable[Entry]) -> DeletionVector | None:
    """Return the vector that a file had at the proposal's read version."""
    for winner in winners:
        if intent.path in winner.revised:
            return winner.revised[intent.path].before
    return file.deletion_vector


def _deleted_before(
    intent: RowDelete, location: str, known: FetchedInputs, before: DeletionVector | None
) -> Rejection | None:
    if before is None:
        return None
    if known.meant_by(intent).isdisjoint(known.rows_of(before)):
        return None
    problem = f"name rows of {intent.path[:128]!r} that were deleted when the table was read"
    return flaw("rows_deleted_before", f"{location}.rows", problem, _REREAD, path=intent.path)


def _is_true(configuration: Mapping[str, str], name: str) -> bool:
    return configuration.get(name, "").lower() == "true"


def concerned(candidate: Candidate, winner: Entry) -> frozenset[str]:
    """Return the files with a new vector for which it matters whether they only lost rows."""
    if not winner.revised:
        return frozenset()
    relevant = candidate.intended | candidate.followed
    if not candidate.tolerates_row_deletes:
        return relevant & winner.revised.keys()
    if candidate.reads.whole_table:
        return frozenset(winner.revised)
    relevant |= candidate.files_read | candidate.packed
    return (relevant | candidate.moves.keys()) & winner.revised.keys()


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
    """Return the files that a winner removed and whose removal matters to what a proposal read.

    Files whose rows it only moved do not, unless the proposal adds such a file again; nor files of
    which the proposal read other rows, where an earlier winner had moved them.
    """
    gone = winner.removed
    if winner.moved:
        content = candidate.content
        again = {path for path, _ in content.added if path not in content.removed}
        gone = gone - (winner.moved.keys() - again)
    if not gone:
        return gone
    if candidate.tolerates_row_deletes:
        gone = gone - _lost_rows(candidate, winner, known)
    if candidate.reads.whole_table or gone.isdisjoint(candidate.followed):
        return gone
    touched = {rows.path for rows in candidate.came if not are_untouched(rows, winner, known)}
    return gone - ({rows.path for rows in candidate.came} - touched)


def come_for(
    candidate: Candidate, winner: Entry, known: FetchedInputs
) -> tuple[tuple[str, Mapping[str, str | None]], ...]:
    """Return the files that a winner added and that matter to what a proposal read."""
    if not (winner.revised or winner.moved or winner.returned or winner.counted):
        return winner.added
    # A compaction's new files hold no new rows, and those that it had replaced and that came back
    # hold none either, nor those that got statistics. Revised files are compared as removed ones.
    ignored = winner.moved_to | winner.returned | winner.counted
    if candidate.tolerates_row_deletes:
        ignored |= _lost_rows(candidate, winner, known)
    elif not candidate.reads.whole_table:
        came = [rows for rows in candidate.came if rows.path in winner.revised]
        ignored |= {rows.path for rows in came if are_untouched(rows, winner, known)}
    return tuple(file for file in winner.added if file[0] not in ignored)


def are_untouched(rows: MovedRows, winner: Entry, known: FetchedInputs) -> bool:
    """Return whether a winner changed none of some rows that an earlier winner had moved."""
    path = rows.path
    if path not in winner.removed or path in winner.moved or returned_rows(rows, winner):
        return True
    if not only_lost_rows(path, winner, known):
        return False
    deleted = winner.deletes.get(path)
    if deleted is None:
        before, after = winner.revised[path]
        deleted = known.rows_of(after) - known.rows_of(before)
    return deleted.isdisjoint(rows.rows)


def returned_rows(rows: MovedRows, winner: Entry) -> MovedRows | None:
    """Return moved rows in the file that held them before and that a winner added again, or None.

    That is the same file with the same deletion vector, so it holds the rows as they were.
    """
    if not winner.returned or rows.path not in winner.removed:
        return None
    before = rows.before
    while before is not None:
        if before.path in winner.returned and winner.vectors.get(before.path) == before.vector:
            return replace(before, vector=None)
        before = before.before
    return None


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
        if not rows.isdisjoint(deleted):
            first = min(row for row in rows if row in deleted)
            return f"deleted row {first} of {path!r} too", path
    return None


def may_follow(intent: RowDelete, winner: Entry, known: FetchedInputs) -> bool:
    """Return whether the rows of an intent can be mapped to where a winner moved them."""
    move = winner.moved.get(intent.path)
    return move is not None and is_followed(intent, move, known)


def is_followed(intent: RowDelete, move: Relocation, known: FetchedInputs) -> bool:
    """Return whether the rows of an intent are mapped to where a compaction moved their file's."""
    if move.num_records != intent.num_records:
        return False
    base = known.rows_of(move.base)
    # If no row was deleted before, all rows are shifted at once.
    is_small = not base or len(known.meant_by(intent)) <= ROWS_MAX
    return is_small and len(base) <= ROWS_MAX


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
