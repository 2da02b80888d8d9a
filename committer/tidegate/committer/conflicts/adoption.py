"""Adoption: how following a winner changes a proposal that does not conflict with it.

Afterwards the proposal is as if its writer had read the table after the winner. For each winner
against which no conflict rule fires, `ADOPTIONS` are applied in order. What depends on the version
that the proposal gets in the end, such as new row ids, is assigned in `group_commit.late`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from tidegate.committer.admission.feature_admission import CLUSTERING
from tidegate.committer.conflicts.standing import Standing
from tidegate.committer.proposals.candidate import REPLACES_TABLE, Candidate
from tidegate.committer.proposals.content import canonical
from tidegate.committer.proposals.rows import domain_line
from tidegate.committer.row_level.moving import bearing, following
from tidegate.committer.tables.entries import Entry
from tidegate.committer.tables.state import TableState
from tidegate.delta.actions import Add
from tidegate.delta.features import row_tracking

NOT_PRESERVED: Final = {"delta.rowTracking.preserved": "false"}

Adoption = Callable[[Standing, Entry], Standing]
"""Returns the standing with one consequence of a winner applied."""


def rows_lose_their_ids(standing: Standing, winner: Entry) -> Standing:
    """The winner enabled row tracking: the commit is tagged as not preserving row ids."""
    if winner.metadata is None or row_tracking.is_enabled(standing.now.metadata):
        return standing
    if not row_tracking.is_enabled(winner.metadata):
        return standing
    tags = {**(standing.candidate.tags or {}), **NOT_PRESERVED}
    return replace(standing, candidate=replace(standing.candidate, tags=tags))


def row_ids_begin(standing: Standing, winner: Entry) -> Standing:
    """The winner made the table track rows: row ids that the proposal brings are dropped."""
    if winner.protocol is None or not standing.candidate.content.has_row_ids:
        return standing
    if standing.now.tracks_rows or not standing.after(winner).tracks_rows:
        return standing
    return _with_adds(standing, lambda add, path: add.with_(base_row_id=None))


def table_as_it_is(standing: Standing, winner: Entry) -> Standing:
    """The winner's metadata and protocol become those of the table."""
    if not winner.changes_table:
        return standing
    return replace(standing, now=standing.after(winner))


def commit_version_follows(standing: Standing, winner: Entry) -> Standing:
    """A default row commit version that is the winner's becomes the proposal's own, when known."""
    if not (standing.candidate.content.has_row_ids and standing.now.tracks_rows):
        return standing
    taken = winner.version
    return _with_adds(
        standing,
        lambda add, path: (
            add.with_(default_row_commit_version=None)
            if add.default_row_commit_version == taken
            else add
        ),
    )


def backfilled_files_left_out(standing: Standing, winner: Entry) -> Standing:
    """A backfill leaves out files that the winner removed or added: those need no ids from it."""
    if not standing.candidate.is_backfill or not row_tracking.supports(standing.now.protocol):
        return standing
    touched = winner.removed.union(path for path, _ in winner.added)
    return _with_adds(standing, lambda add, path: None if path in touched else add)


def backfilled_ids_taken(standing: Standing, winner: Entry) -> Standing:
    """Where the proposal names files to which a winning backfill gave ids, it takes these over."""
    if not winner.is_backfill or not row_tracking.supports(standing.now.protocol):
        return standing
    if not names_files_of(standing.candidate, winner):
        return standing
    given = {canonical(add.path): add for add in _adds_of(winner)}

    def with_given(add: Add, path: str) -> Add:
        return add.with_(**_ids(given[path])) if path in given else add

    standing = _with_adds(standing, with_given)
    content = standing.candidate.content.with_removes(
        {path: _ids(add) for path, add in given.items()}
    )
    return replace(standing, candidate=replace(standing.candidate, content=content))


def ids_taken_off(standing: Standing, winner: Entry) -> Standing:
    """An unbackfill strips the ids of the files that the winner added, too."""
    if not standing.takes_ids_off(winner):
        return standing
    touched = winner.removed.union(path for path, _ in winner.added)
    standing = _with_adds(standing, lambda add, path: None if path in touched else add)
    bare = [
        add.with_(data_change=False, base_row_id=None, default_row_commit_version=None)
        for add in with_ids(winner)
    ]
    content = standing.candidate.content.with_more(bare)
    return replace(standing, candidate=replace(standing.candidate, content=content))


def clustering_buried(standing: Standing, winner: Entry) -> Standing:
    """A REPLACE TABLE removes the clustering domain that a winner set meanwhile."""
    candidate = standing.candidate
    if not winner.domains or candidate.operation not in REPLACES_TABLE:
        return standing
    own = {domain.domain for domain in candidate.content.domains}
    found = [one for one in winner.domains if one.domain == CLUSTERING and CLUSTERING not in own]
    if not found or "domainMetadata" not in standing.now.features:
        return standing
    tombstone = found[0].with_(removed=True)
    content = replace(
        candidate.content,
        lines=(*candidate.content.lines, domain_line(tombstone)),
        domains=(*candidate.content.domains, tombstone),
    )
    buried = candidate.buried | {tombstone.domain}
    return replace(standing, candidate=replace(candidate, content=content, buried=buried))


def rows_are_where_they_moved(standing: Standing, winner: Entry) -> Standing:
    """The winner compacted files that the proposal read or deletes rows of: it follows the rows."""
    if not winner.moved:
        return standing
    return replace(standing, candidate=following(standing.candidate, winner, standing.known))


def rows_gone_meanwhile_stay_gone(standing: Standing, winner: Entry) -> Standing:
    """The winner deleted rows that the proposal's compaction moves: its new files delete them."""
    if not (standing.candidate.moves and winner.revised):
        return standing
    return replace(standing, candidate=bearing(standing.candidate, winner, standing.known))


ADOPTIONS: Final[tuple[Adoption, ...]] = (
    rows_lose_their_ids,
    row_ids_begin,
    table_as_it_is,
    clustering_buried,
    backfilled_files_left_out,
    commit_version_follows,
    backfilled_ids_taken,
    ids_taken_off,
    rows_are_where_they_moved,
    rows_gone_meanwhile_stay_gone,
)
"""All adoptions, in their order: first the table's definition, then the proposal's own actions."""


def adopt(standing: Standing, winner: Entry) -> Standing:
    """Return the standing after a winner that does not conflict; most winners change nothing."""
    speaks = winner.changes_table or winner.domains or winner.only_moves_row_ids
    moves = winner.moved or standing.candidate.moves
    if not (speaks or moves or standing.candidate.minds_every_file):
        return standing
    for adoption in ADOPTIONS:
        standing = adoption(standing, winner)
    return standing


def with_own_ids_only(candidate: Candidate, state: TableState) -> Candidate | None:
    """Return a proposal without base row ids past the high-water mark at its read version.

    Ids up to the mark belong to rows that it moves; those past it are guesses. None where the log
    no longer tells the mark: then the two can't be told apart.
    """
    if not candidate.content.has_row_ids:
        return candidate
    read = state.basis_at(candidate.read_version)
    if not read.after(candidate.content.metadata, candidate.content.protocol).tracks_rows:
        return candidate
    known = state.row_mark_at(candidate.read_version)
    if known is None and state.basis.tracks_rows:
        return None
    mark = row_tracking.NO_MARK if known is None else known

    def own(add: Add, path: str) -> Add:
        is_guess = add.base_row_id is not None and add.base_row_id > mark
        return add.with_(base_row_id=None) if is_guess else add

    content = candidate.content.with_adds(own)
    return candidate if content is candidate.content else replace(candidate, content=content)


def names_files_of(candidate: Candidate, winner: Entry) -> bool:
    """Return whether a proposal removes a file that a winner added, or adds it again."""
    content = candidate.content
    own = content.removed.union(path for path, _ in content.added)
    return not own.isdisjoint(path for path, _ in winner.added)


def _adds_of(winner: Entry) -> Sequence[Add]:
    """Return the full add actions of a winner."""
    assert winner.adds is not None or not winner.added, "the commit has been read again"
    return winner.adds or ()


def with_ids(winner: Entry) -> Iterable[Add]:
    """Return a winner's new files that have a base row id or a default row commit version."""
    return (
        add
        for add in _adds_of(winner)
        if add.base_row_id is not None or add.default_row_commit_version is not None
    )


def wanted_in_full(candidate: Candidate, winners: Sequence[Entry]) -> list[int]:
    """Return the versions whose add actions must be read before a proposal can adopt them."""
    protocol = candidate.content.protocol
    drops = protocol is not None and not row_tracking.supports(protocol)
    if not (drops or candidate.is_unbackfill):
        winners = [one for one in winners if one.is_backfill and names_files_of(candidate, one)]
    since = candidate.read_version
    unread = (one for one in winners if one.added and one.adds is None)
    return [one.version for one in unread if one.version > since]


def _with_adds(standing: Standing, change: Callable[[Add, str], Add | None]) -> Standing:
    """Return the standing with each own new file changed, or left out where that gives None."""
    content = standing.candidate.content.with_adds(change)
    if content is standing.candidate.content:
        return standing
    return replace(standing, candidate=replace(standing.candidate, content=content))


def _ids(add: Add) -> Mapping[str, int | None]:
    return {
        "base_row_id": add.base_row_id,
        "default_row_commit_version": add.default_row_commit_version,
    }
