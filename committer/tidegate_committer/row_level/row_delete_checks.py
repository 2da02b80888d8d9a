"""Check that the rows that a proposal deletes are in live files and may be deleted by vectors."""

from collections.abc import Iterable, Mapping
from typing import Final

from tidegate_committer.intake.candidate import Candidate
from tidegate_committer.intake.refusals import TOO_LARGE, flaw
from tidegate_committer.intake.row_intents import RowDelete
from tidegate_committer.policy import Policy
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
from tidegate_delta.deletion_vectors.roaring_bitmap import Bitmap
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


def wrong_rows(candidate: Candidate, known: FetchedInputs) -> Rejection | None:
    """Return the refusal of row intents that name rows beyond the end of their file, or None."""
    for index, intent in enumerate(candidate.intents):
        location = f"dv_intents[{index}].rows"
        rows = known.meant_by(intent)
        if rows.last >= intent.num_records:
            problem = (
                f"hold row {rows.last} of {intent.path[:128]!r}, which has {intent.num_records}"
            )
            remedy = "count the rows of the file from 0"
            return flaw("rows_out_of_range", location, problem, remedy, path=intent.path)
    return None


def wrong_vectors(
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
        if isinstance(rows, Bitmap) and count is not None and rows.last >= count:
            problem = f"holds row {rows.last} of {add.path[:128]!r}, which has {count}"
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


def wrong_files(
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
    if known.meant_by(intent).is_apart_from(known.rows_of(before)):
        return None
    problem = f"name rows of {intent.path[:128]!r} that were deleted when the table was read"
    return flaw("rows_deleted_before", f"{location}.rows", problem, _REREAD, path=intent.path)


def _is_true(configuration: Mapping[str, str], name: str) -> bool:
    return configuration.get(name, "").lower() == "true"
