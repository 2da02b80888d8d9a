"""Rebase: how a winner changes a proposal that does not conflict with it.

Afterwards the proposal is as if its writer had read the table after the winner. For each winner
against which no conflict rule fires, `REBASE_STEPS` are applied in order. What depends on the
version that the proposal gets in the end, such as new row ids, is assigned in
`group_commit.version_dependent_fields`.

`RebaseState` is a proposal while it is compared with one winner after the other.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tidegate_committer.admission.feature_checks import CLUSTERING
from tidegate_committer.cached_property import CachedProperty
from tidegate_committer.conflicts.concurrent_appends import file_test_of, meant_by, meant_by_reads
from tidegate_committer.conflicts.metadata_patches import touches
from tidegate_committer.intake.action_reader import domain_line
from tidegate_committer.intake.candidate import REPLACES_TABLE, Candidate
from tidegate_committer.intake.proposal_actions import canonical
from tidegate_committer.policy import Level
from tidegate_committer.row_level.row_relocation import bearing, following
from tidegate_committer.state.fetched_inputs import NOTHING, FetchedInputs
from tidegate_committer.state.log_entry import Entry
from tidegate_committer.state.metadata_diff import MetadataTouch
from tidegate_committer.state.table_definition import TableDefinition
from tidegate_committer.state.table_state import TableState
from tidegate_delta.data_skipping.file_predicates import FileTest
from tidegate_delta.data_skipping.partition_predicates import Predicate
from tidegate_delta.features import row_tracking
from tidegate_delta.log.actions import Add
from tidegate_messages.proposal import ReadSet


class PredicateScan:
    """A predicate of the read set as tests of partitions and files for rows that may match it.

    `place` is its index in `reads.predicates`.
    """

    def __init__(self, read: TableDefinition, predicate: Predicate, place: int) -> None:
        self.place = place
        self.partitions = read.partition_test(predicate)
        self._read, self._predicate = read, predicate

    @CachedProperty
    def anywhere(self) -> FileTest:
        """The test of a file by its partition and statistics: if it fails, no row matches."""
        return self._read.file_tests.of(self._predicate)

    @CachedProperty
    def beyond(self) -> FileTest:
        """The same test for a file whose partition is known to match."""
        return self._read.file_tests.beyond_partitions(self._predicate)


@dataclass(frozen=True)
class RebaseState:
    """The state of a proposal after some of its winners.

    `read` is the table definition at its read version. `now` is the same with the changes of the
    winners so far and of the proposal: it is checked against the table that it would leave. `known`
    is what was read of files and deletion vectors, `touches` what a metadata patch changes.
    """

    candidate: Candidate
    read: TableDefinition
    now: TableDefinition
    level: Level
    known: FetchedInputs = NOTHING
    touches: frozenset[MetadataTouch] = frozenset()

    @property
    def reads(self) -> ReadSet:
        """The read set of the proposal."""
        return self.candidate.reads

    @CachedProperty
    def meant(self) -> Sequence[Predicate]:
        """The read predicates, each in every reading that its column names allow."""
        return meant_by_reads(self.reads, self.read.metadata)

    @CachedProperty
    def scans(self) -> Sequence[PredicateScan]:
        """The same as `PredicateScan`s."""
        return [
            PredicateScan(self.read, reading, place)
            for place, predicate in enumerate(self.reads.predicates)
            for reading in meant_by(predicate, self.read.metadata)
        ]

    @CachedProperty
    def partitions_weight(self) -> int:
        """The cost of testing one partition against all scans."""
        return sum(scan.partitions.weight for scan in self.scans)

    @CachedProperty
    def file_test(self) -> FileTest:
        """The test whether a new file may hold a row that was read, by the schema that was read."""
        return file_test_of(self.meant, self.read.file_tests)

    def file_tests(self) -> Sequence[FileTest]:
        """Return that test, and one by the current schema if it differs."""
        now = self.now
        if now.metadata is self.read.metadata:
            return [self.file_test]
        predicates = meant_by_reads(self.reads, now.metadata)
        return [self.file_test, file_test_of(predicates, now.file_tests)]

    def after(self, winner: Entry) -> TableDefinition:
        """Return the definition `now` with a winner's changes."""
        return self.now.after(winner.metadata, winner.protocol)

    def takes_ids_off(self, winner: Entry) -> bool:
        """Whether the proposal adds the winner's files again without row ids (an unbackfill)."""
        if row_tracking.FEATURE in self.read.features - self.now.features:
            return True
        return self.candidate.is_unbackfill and row_tracking.supports(self.after(winner).protocol)


@dataclass(frozen=True)
class ConflictFinding:
    """What a rule found, in words, and the file, domain or application that it is about, if any.

    `predicate` is the index of the read predicate that an added file may match. `error_class` and
    `exception` are delta-spark's, if they differ from those of the rule (`DELTA_NAMES`).
    """

    detail: str
    path: str | None = None
    error_class: str | None = None
    exception: str | None = None
    predicate: int | None = None
    domain: str | None = None
    app_id: str | None = None


ConflictRule = Callable[[RebaseState, Entry], ConflictFinding | None]
"""Returns why the proposal conflicts with the winner, or None. The function's name is the rule's.
"""


def begin(
    candidate: Candidate, read: TableDefinition, level: Level, known: FetchedInputs = NOTHING
) -> RebaseState:
    """Return the rebase state of a proposal before its first winner."""
    now = read.after(candidate.content.metadata, candidate.content.protocol)
    if candidate.patch is None:
        return RebaseState(candidate, read, now, level, known)
    own = touches(candidate.patch, read.definition)
    return RebaseState(candidate, read, now, level, known, own)


NOT_PRESERVED: Final = {"delta.rowTracking.preserved": "false"}

RebaseStep = Callable[[RebaseState, Entry], RebaseState]
"""Returns the rebase state with one consequence of a winner applied."""


def rows_lose_their_ids(rebase_state: RebaseState, winner: Entry) -> RebaseState:
    """The winner enabled row tracking: the commit is tagged as not preserving row ids."""
    if winner.metadata is None or row_tracking.is_enabled(rebase_state.now.metadata):
        return rebase_state
    if not row_tracking.is_enabled(winner.metadata):
        return rebase_state
    tags = {**(rebase_state.candidate.tags or {}), **NOT_PRESERVED}
    return replace(rebase_state, candidate=replace(rebase_state.candidate, tags=tags))


def row_ids_begin(rebase_state: RebaseState, winner: Entry) -> RebaseState:
    """The winner started row tracking: row ids that the proposal brings are dropped."""
    if winner.protocol is None or not rebase_state.candidate.content.has_row_ids:
        return rebase_state
    if rebase_state.now.tracks_rows or not rebase_state.after(winner).tracks_rows:
        return rebase_state
    return _with_adds(rebase_state, lambda add, path: add.with_(base_row_id=None))


def table_as_it_is(rebase_state: RebaseState, winner: Entry) -> RebaseState:
    """The winner's metadata and protocol become those of the table."""
    if not winner.changes_table:
        return rebase_state
    return replace(rebase_state, now=rebase_state.after(winner))


def commit_version_follows(rebase_state: RebaseState, winner: Entry) -> RebaseState:
    """A default row commit version that equals the winner's is cleared and assigned again."""
    if not (rebase_state.candidate.content.has_row_ids and rebase_state.now.tracks_rows):
        return rebase_state
    taken = winner.version
    return _with_adds(
        rebase_state,
        lambda add, path: (
            add.with_(default_row_commit_version=None)
            if add.default_row_commit_version == taken
            else add
        ),
    )


def backfilled_files_left_out(rebase_state: RebaseState, winner: Entry) -> RebaseState:
    """A backfill leaves out files that the winner removed or added: they need no ids from it."""
    if not rebase_state.candidate.is_backfill or not row_tracking.supports(
        rebase_state.now.protocol
    ):
        return rebase_state
    touched = winner.removed.union(path for path, _ in winner.added)
    return _with_adds(rebase_state, lambda add, path: None if path in touched else add)


def backfilled_ids_taken(rebase_state: RebaseState, winner: Entry) -> RebaseState:
    """The winner is a backfill: the proposal takes over the row ids of the files that it names."""
    if not winner.is_backfill or not row_tracking.supports(rebase_state.now.protocol):
        return rebase_state
    if not names_files_of(rebase_state.candidate, winner):
        return rebase_state
    adds = {canonical(add.path): add for add in _adds_of(winner)}

    def with_given(add: Add, path: str) -> Add:
        return add.with_(**_ids(adds[path])) if path in adds else add

    rebase_state = _with_adds(rebase_state, with_given)
    content = rebase_state.candidate.content.with_removes(
        {path: _ids(add) for path, add in adds.items()}
    )
    return replace(rebase_state, candidate=replace(rebase_state.candidate, content=content))


def ids_taken_off(rebase_state: RebaseState, winner: Entry) -> RebaseState:
    """An unbackfill also removes the ids of the files that the winner added."""
    if not rebase_state.takes_ids_off(winner):
        return rebase_state
    touched = winner.removed.union(path for path, _ in winner.added)
    rebase_state = _with_adds(rebase_state, lambda add, path: None if path in touched else add)
    without_ids = [
        add.with_(data_change=False, base_row_id=None, default_row_commit_version=None)
        for add in with_ids(winner)
    ]
    content = rebase_state.candidate.content.with_more(without_ids)
    return replace(rebase_state, candidate=replace(rebase_state.candidate, content=content))


def clustering_buried(rebase_state: RebaseState, winner: Entry) -> RebaseState:
    """A REPLACE TABLE removes the clustering domain that a winner set meanwhile."""
    candidate = rebase_state.candidate
    if not winner.domains or candidate.operation not in REPLACES_TABLE:
        return rebase_state
    own_names = {domain.domain for domain in candidate.content.domains}
    clustering = [
        domain
        for domain in winner.domains
        if domain.domain == CLUSTERING and CLUSTERING not in own_names
    ]
    if not clustering or "domainMetadata" not in rebase_state.now.features:
        return rebase_state
    tombstone = clustering[0].with_(removed=True)
    content = replace(
        candidate.content,
        lines=(*candidate.content.lines, domain_line(tombstone)),
        domains=(*candidate.content.domains, tombstone),
    )
    removed_domains = candidate.removed_domains | {tombstone.domain}
    return replace(
        rebase_state, candidate=replace(candidate, content=content, removed_domains=removed_domains)
    )


def rows_are_where_they_moved(rebase_state: RebaseState, winner: Entry) -> RebaseState:
    """The winner compacted files that the proposal read or deletes from, or added such files again:
    its rows are mapped.
    """
    if not (winner.moved or winner.returned):
        return rebase_state
    return replace(
        rebase_state, candidate=following(rebase_state.candidate, winner, rebase_state.known)
    )


def rows_gone_meanwhile_stay_gone(rebase_state: RebaseState, winner: Entry) -> RebaseState:
    """The winner deleted rows that the proposal's compaction moves: its new files delete them."""
    if not (rebase_state.candidate.moves and winner.revised):
        return rebase_state
    return replace(
        rebase_state, candidate=bearing(rebase_state.candidate, winner, rebase_state.known)
    )


REBASE_STEPS: Final[tuple[RebaseStep, ...]] = (
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
"""All rebase steps, in order: first the table's definition, then the proposal's own actions."""


def adopt(rebase_state: RebaseState, winner: Entry) -> RebaseState:
    """Return the rebase state after a winner without a conflict. Most winners change nothing."""
    speaks = winner.changes_table or winner.domains or winner.only_moves_row_ids
    moves = winner.moved or winner.returned or rebase_state.candidate.moves
    if not (speaks or moves or rebase_state.candidate.depends_on_added_files):
        return rebase_state
    for rebase_step in REBASE_STEPS:
        rebase_state = rebase_step(rebase_state, winner)
    return rebase_state


def with_own_ids_only(candidate: Candidate, state: TableState) -> Candidate | None:
    """Return a proposal without base row ids past the high-water mark at its read version.

    Ids up to the mark belong to rows that it moves; those past it are guesses. None if the log no
    longer has the mark, because the two can't be told apart then.
    """
    if not candidate.content.has_row_ids:
        return candidate
    read = state.table_definition_at(candidate.read_version)
    if not read.after(candidate.content.metadata, candidate.content.protocol).tracks_rows:
        return candidate
    known = state.row_mark_at(candidate.read_version)
    if known is None and state.table_definition.tracks_rows:
        return None
    mark = row_tracking.NO_HIGH_WATER_MARK if known is None else known

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
    """Return the versions whose adds must be read before a proposal can be rebased over them."""
    protocol = candidate.content.protocol
    drops = protocol is not None and not row_tracking.supports(protocol)
    if not (drops or candidate.is_unbackfill):
        winners = [
            winner for winner in winners if winner.is_backfill and names_files_of(candidate, winner)
        ]
    since = candidate.read_version
    unread = (winner for winner in winners if winner.added and winner.adds is None)
    return [winner.version for winner in unread if winner.version > since]


def _with_adds(rebase_state: RebaseState, change: Callable[[Add, str], Add | None]) -> RebaseState:
    """Return the rebase state with each own new file replaced, or left out if `change` returns
    None.
    """
    content = rebase_state.candidate.content.with_adds(change)
    if content is rebase_state.candidate.content:
        return rebase_state
    return replace(rebase_state, candidate=replace(rebase_state.candidate, content=content))


def _ids(add: Add) -> Mapping[str, int | None]:
    return {
        "base_row_id": add.base_row_id,
        "default_row_commit_version": add.default_row_commit_version,
    }
