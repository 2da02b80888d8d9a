"""Where a proposal stands on its way past the winners, and what a rule may find on it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tidegate.committer.conflicts.appended import file_test_of, meant_by, meant_by_reads
from tidegate.committer.conflicts.patches import touches
from tidegate.committer.proposals.basis import Basis
from tidegate.committer.proposals.candidate import Candidate
from tidegate.committer.proposals.known import NOTHING, Known
from tidegate.committer.proposals.once import Once
from tidegate.committer.proposals.policy import Level
from tidegate.committer.tables.entries import Entry
from tidegate.committer.tables.touched import Touch
from tidegate.delta.features import row_tracking
from tidegate.delta.files.file_tests import FileTest
from tidegate.delta.files.predicate import Predicate
from tidegate.pipeline.read_set import ReadSet


class Scan:
    """A predicate by which rows were read, by the columns' logical names: where they may lie.

    `place` is where the read set has it.
    """

    def __init__(self, read: Basis, predicate: Predicate, place: int) -> None:
        self.place = place
        self.partitions = read.partition_test(predicate)
        self._read, self._predicate = read, predicate

    @Once
    def anywhere(self) -> FileTest:
        """The test of a file: who does not pass it holds no such row."""
        return self._read.file_tests.of(self._predicate)

    @Once
    def beyond(self) -> FileTest:
        """The same for files in these partitions, of which nothing is asked again."""
        return self._read.file_tests.beyond_partitions(self._predicate)


@dataclass(frozen=True)
class Standing:
    """A proposal on its way past the winners: what it read, and the table as adopted so far.

    What a proposal writes of the table itself is part of `now`: it is judged by the table that it
    leaves. `known` is what was read besides of files and vectors, `touches` what a patch is about.
    """

    candidate: Candidate
    read: Basis
    now: Basis
    level: Level
    known: Known = NOTHING
    touches: frozenset[Touch] = frozenset()

    @property
    def reads(self) -> ReadSet:
        """What the writer looked at."""
        return self.candidate.reads

    @Once
    def meant(self) -> Sequence[Predicate]:
        """What was read, predicate by predicate, by whichever columns each may mean."""
        return meant_by_reads(self.reads, self.read.metadata)

    @Once
    def scans(self) -> Sequence[Scan]:
        """The same, to be asked of files."""
        return [
            Scan(self.read, one, place)
            for place, predicate in enumerate(self.reads.predicates)
            for one in meant_by(predicate, self.read.metadata)
        ]

    @Once
    def partitions_weight(self) -> int:
        """How much is to be looked at to know of one partition whether it was read."""
        return sum(scan.partitions.weight for scan in self.scans)

    @Once
    def file_test(self) -> FileTest:
        """Tests whether a new file may hold a row that was read, as the table was then."""
        return file_test_of(self.meant, self.read.file_tests)

    def file_tests(self) -> Sequence[FileTest]:
        """Return the same as the table was then, and as it is now where that is another one."""
        now = self.now
        if now.metadata is self.read.metadata:
            return [self.file_test]
        meant = meant_by_reads(self.reads, now.metadata)
        return [self.file_test, file_test_of(meant, now.file_tests)]

    def after(self, winner: Entry) -> Basis:
        """Return the table as it is after a winner, as far as the proposal is concerned."""
        return self.now.after(winner.metadata, winner.protocol)

    def takes_ids_off(self, winner: Entry) -> bool:
        """Whether the proposal adds the winner's files again, without the row ids they have."""
        if row_tracking.FEATURE in self.read.features - self.now.features:
            return True
        return self.candidate.is_unbackfill and row_tracking.supports(self.after(winner).protocol)


@dataclass(frozen=True)
class Found:
    """What a rule found: in words, and the file, domain or application where it is about one.

    `predicate` is the place of the one that was read by, where it is about what that may match.
    `error_class` and `exception` are delta-spark's, where they are not those of the rule.
    """

    detail: str
    path: str | None = None
    error_class: str | None = None
    exception: str | None = None
    predicate: int | None = None
    domain: str | None = None
    app_id: str | None = None


Rule = Callable[[Standing, Entry], Found | None]
"""Says why the winner rules the proposal out, or None. A rule's name is the conflict's name."""


def begin(candidate: Candidate, read: Basis, level: Level, known: Known = NOTHING) -> Standing:
    """Return the standing of a proposal before it meets its first winner."""
    now = read.after(candidate.content.metadata, candidate.content.protocol)
    if candidate.patch is None:
        return Standing(candidate, read, now, level, known)
    own = touches(candidate.patch, read.definition)
    return Standing(candidate, read, now, level, known, own)
