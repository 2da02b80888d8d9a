"""Removes of whole files whose rows a compaction moved, as changes of the files that hold them.

A proposal that rewrites or deletes a file F, which a compaction has packed into H meanwhile,
removes the rows of F from H: all of H where nothing else is in it, else by a deletion vector.
docs/adr/0060 has the proof.
"""

from collections.abc import Sequence
from dataclasses import replace

from tidegate_committer.intake.candidate import Candidate
from tidegate_committer.intake.refusals import DUPLICATE, flaw
from tidegate_committer.intake.row_intents import MovedRows, RowDelete
from tidegate_committer.row_level.merged_row_deletes import removal_of
from tidegate_committer.row_level.row_deletes import may_not_delete
from tidegate_committer.state.fetched_inputs import FetchedInputs, unique_id
from tidegate_committer.state.table_definition import TableDefinition
from tidegate_delta.deletion_vectors.descriptors import inline
from tidegate_delta.deletion_vectors.roaring_bitmap import Bitmap
from tidegate_messages.outcome import Rejection

_REREAD = "read the table and propose again"


def files_that_lose_rows(candidate: Candidate) -> frozenset[str]:
    """Return the files that stay, or may stay, and lose rows through a proposal."""
    return candidate.intended.union(removal.rows.path for removal in candidate.leaving)


def at_head(
    candidate: Candidate, table_definition: TableDefinition, known: FetchedInputs
) -> Candidate | Rejection:
    """Return the candidate with its moved removes as changes of live files, or a refusal."""
    by_path: dict[str, list[MovedRows]] = {}
    for removal in candidate.leaving:
        by_path.setdefault(removal.rows.path, []).append(removal.rows)
    for path, ranges in sorted(by_path.items()):
        if _is_named(candidate, path):
            problem = (
                f"{path[:128]!r} is named, and rows of files that are removed were moved there"
            )
            return flaw(DUPLICATE, "actions", problem, _REREAD, path=path)
        changed = _without_rows(candidate, ranges, table_definition, known)
        if changed is None:
            problem = f"{ranges[0].origin.path[:128]!r} is removed, and a compaction moved its rows"
            remedy = f"into {path[:128]!r}, whose other rows have to stay; {_REREAD}"
            return flaw("removed_file_not_live", "actions", problem, remedy, advice="rerun")
        candidate = changed
    return candidate


def _is_named(candidate: Candidate, path: str) -> bool:
    content = candidate.content
    if path in content.removed or any(path == added for added, _ in content.added):
        return True
    return any(intent.path == path and not intent.has_moved for intent in candidate.intents)


def _without_rows(
    candidate: Candidate,
    ranges: Sequence[MovedRows],
    table_definition: TableDefinition,
    known: FetchedInputs,
) -> Candidate | None:
    """Return the candidate with ranges of rows of one file removed, or None if it can't be."""
    path, total = ranges[0].path, ranges[0].total
    others = tuple(intent for intent in candidate.intents if intent.path != path)
    rows = Bitmap().union(*[moved.rows for moved in ranges])
    for intent in candidate.intents:
        rows |= known.meant_by(intent) if intent.path == path else Bitmap()
    if len(rows) == total:
        removes = [removal_of(known.files[path])]
        content = candidate.content.with_other_removes((), removes)
        return replace(candidate, intents=others, content=content)
    if not rows:
        return candidate
    intent = RowDelete(
        path=path,
        base=unique_id(known.files[path].deletion_vector),
        vector=inline(rows),
        inline=rows,
        num_records=total,
        is_update=False,
        has_moved=True,
    )
    deleting = replace(candidate, intents=(*others, intent))
    return None if may_not_delete(deleting, table_definition) else deleting
