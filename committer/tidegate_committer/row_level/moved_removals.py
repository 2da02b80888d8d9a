"""Removes of whole files whose rows a compaction moved, as changes of the files that hold them.

A proposal that rewrites or deletes a file F, which a compaction has packed into H meanwhile,
removes the rows of F from H: all of H where nothing else is in it, else by a deletion vector. Where
the table takes none, the compaction gives way: H is removed, and the other files that it had
replaced are added again as they were. docs/adr/0060 has the proof.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tidegate_committer.intake.candidate import Candidate
from tidegate_committer.intake.proposal_actions import canonical
from tidegate_committer.intake.refusals import DUPLICATE, flaw
from tidegate_committer.intake.row_intents import MovedRows, RowDelete
from tidegate_committer.policy import Policy
from tidegate_committer.row_level.merged_row_deletes import removal_of
from tidegate_committer.row_level.row_deletes import may_not_delete
from tidegate_committer.state.fetched_inputs import FetchedInputs, ReplacedFile, unique_id
from tidegate_committer.state.log_entry import Entry
from tidegate_committer.state.table_definition import TableDefinition
from tidegate_delta.deletion_vectors.descriptors import inline
from tidegate_delta.deletion_vectors.roaring_bitmap import NO_ROWS, Bitmap
from tidegate_delta.log.actions import Add
from tidegate_delta.properties.table_properties import tombstone_retention_ms
from tidegate_messages.outcome import Rejection

_REREAD: Final = "read the table and propose again"

Range = tuple[int, int]
"""Rows of a file: the first, and the one after the last."""


@dataclass(frozen=True)
class HeadOfTable:
    """What removes of moved files depend on: the table, the versions after the read version, the
    operator's policy, and the time.

    Units: `now_ms` since the Unix epoch.
    """

    table_definition: TableDefinition
    winners: Sequence[Entry]
    policy: Policy
    now_ms: int


def files_that_lose_rows(candidate: Candidate) -> frozenset[str]:
    """Return the files that stay, or may stay, and lose rows through a proposal."""
    return candidate.intended.union(removal.rows.path for removal in candidate.leaving)


def files_to_return(
    candidate: Candidate, table_definition: TableDefinition, winners: Sequence[Entry]
) -> frozenset[ReplacedFile]:
    """Return the files that a proposal may have to add again, which must be read for that."""
    files: set[ReplacedFile] = set()
    for path, ranges in _by_path(candidate).items():
        if _size(ranges) < ranges[0].total and _takes_no_vectors(candidate, path, table_definition):
            files.update(_other_sources(path, _spans(ranges), winners) or ())
    return frozenset(files)


def at_head(candidate: Candidate, head: HeadOfTable, known: FetchedInputs) -> Candidate | Rejection:
    """Return the candidate with its moved removes as changes of live files, or a refusal."""
    for path, ranges in sorted(_by_path(candidate).items()):
        if _is_named(candidate, path):
            problem = f"{path[:128]!r} is named, and rows of removed files were moved there"
            return flaw(DUPLICATE, "actions", problem, _REREAD, path=path)
        changed = _without_rows(candidate, ranges, head, known)
        if changed is None:
            origin = ranges[0].origin.path
            problem = f"{origin[:128]!r} is removed, a compaction moved its rows into "
            problem += f"{path[:128]!r}, and what else is there can't be kept"
            return flaw("removed_file_not_live", "actions", problem, _REREAD, advice="rerun")
        candidate = changed
    return candidate


def _by_path(candidate: Candidate) -> Mapping[str, list[MovedRows]]:
    by_path: dict[str, list[MovedRows]] = {}
    for removal in candidate.leaving:
        by_path.setdefault(removal.rows.path, []).append(removal.rows)
    return by_path


def _size(ranges: Iterable[MovedRows]) -> int:
    return sum(rows.stop - rows.start for rows in ranges)


def _spans(ranges: Iterable[MovedRows]) -> list[Range]:
    return [(rows.start, rows.stop) for rows in ranges]


def _is_named(candidate: Candidate, path: str) -> bool:
    content = candidate.content
    if path in content.removed or any(path == added for added, _ in content.added):
        return True
    return any(intent.path == path and not intent.has_moved for intent in candidate.intents)


def _takes_no_vectors(
    candidate: Candidate, path: str, table_definition: TableDefinition
) -> Rejection | None:
    return may_not_delete(replace(candidate, intents=(_intent(path, NO_ROWS),)), table_definition)


def _intent(path: str, rows: Bitmap, total: int = 0, base: str | None = None) -> RowDelete:
    return RowDelete(path, base, inline(rows), rows, total, is_update=False, has_moved=True)


def _without_rows(
    candidate: Candidate, ranges: Sequence[MovedRows], head: HeadOfTable, known: FetchedInputs
) -> Candidate | None:
    """Return the candidate with ranges of rows of one file removed, or None if it can't be."""
    path, total = ranges[0].path, ranges[0].total
    assert path in known.files, "a winner that removed a file with these rows is a conflict"
    file = known.files[path]
    others = tuple(intent for intent in candidate.intents if intent.path != path)
    rows = Bitmap().union(*[moved.rows for moved in ranges])
    for intent in candidate.intents:
        rows |= known.meant_by(intent) if intent.path == path else NO_ROWS
    if not rows:
        return candidate
    if len(rows) == total:
        content = candidate.content.with_other_removes((), [removal_of(file)])
        return replace(candidate, intents=others, content=content)
    if _takes_no_vectors(candidate, path, head.table_definition) is None:
        intent = _intent(path, rows, total, unique_id(file.deletion_vector))
        return replace(candidate, intents=(*others, intent))
    if len(others) < len(candidate.intents) or file.deletion_vector is not None:
        return None
    return _with_files_returned(candidate, ranges, head, known)


def _with_files_returned(
    candidate: Candidate, ranges: Sequence[MovedRows], head: HeadOfTable, known: FetchedInputs
) -> Candidate | None:
    """Return the candidate with a compaction undone: it removes the new file and adds those again
    that the compaction had replaced and whose rows stay. None if these may be gone.
    """
    sources = _other_sources(ranges[0].path, _spans(ranges), head.winners)
    if sources is None or any(_is_old(version, head) for _, version in sources):
        return None
    content = candidate.content
    adds: list[Add] = []
    for source in sorted(sources):
        add = known.replaced.get(source)
        if add is None:
            return None
        # Readers of a change feed without change files take the new file's rows as deleted.
        feeds = head.table_definition.after(content.metadata, content.protocol).feeds_changes
        adds.append(add.with_(data_change=feeds and not content.changes))
    content = content.with_other_removes((), [removal_of(known.files[ranges[0].path])])
    returned = candidate.returned.union(canonical(add.path) for add in adds)
    return replace(candidate, content=content.with_more(adds), returned=returned)


def _is_old(version: int, head: HeadOfTable) -> bool:
    """Return whether a vacuum may have deleted the files that a version removed."""
    [winner] = [winner for winner in head.winners if winner.version == version]
    if winner.timestamp is None:
        return True
    retention_ms = tombstone_retention_ms(head.table_definition.metadata)
    age_max_ms = min(retention_ms // 2, head.policy.files_age_max_ms)
    return head.now_ms - winner.timestamp > age_max_ms


def _other_sources(
    path: str, spans: Sequence[Range], winners: Sequence[Entry]
) -> frozenset[ReplacedFile] | None:
    """Return the files that compactions packed into a file, except those whose rows lie in `spans`.

    If only a part of a file lies there, it was packed as well, and is taken apart, too. None if
    rows were deleted in between.
    """
    sources: set[ReplacedFile] = set()
    for winner in winners:
        for source, move in winner.moved.items():
            if move.target != path:
                continue
            start, stop = move.offset, move.offset + move.rows
            within = [(max(a, start) - start, min(b, stop) - start) for a, b in spans]
            within = [span for span in within if span[0] < span[1]]
            size = sum(b - a for a, b in within)
            if size == 0:
                sources.add((source, winner.version))
            elif size < move.rows:
                deeper = _other_sources(source, within, winners)
                if deeper is None or move.base is not None:
                    return None
                sources |= deeper
    return frozenset(sources)
