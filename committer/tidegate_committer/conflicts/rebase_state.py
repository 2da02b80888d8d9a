"""The state of a proposal while it is compared with one winner after the other."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tidegate_committer.cached_property import CachedProperty
from tidegate_committer.conflicts.concurrent_appends import file_test_of, meant_by, meant_by_reads
from tidegate_committer.conflicts.patch_touches import touches
from tidegate_committer.intake.candidate import Candidate
from tidegate_committer.policy import Level
from tidegate_committer.state.fetched_inputs import NOTHING, FetchedInputs
from tidegate_committer.state.log_entry import Entry
from tidegate_committer.state.metadata_diff import MetadataTouch
from tidegate_committer.state.table_definition import TableDefinition
from tidegate_delta.data_skipping.file_predicates import FileTest
from tidegate_delta.data_skipping.partition_predicates import Predicate
from tidegate_delta.features import row_tracking
from tidegate_messages.read_set import ReadSet


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
class Finding:
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


ConflictRule = Callable[[RebaseState, Entry], Finding | None]
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
