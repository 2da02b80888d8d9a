"""How healthy a table is: what it costs to open and scan, and what to do next. Pure.

The score is 100 less a penalty for each thing that costs readers: damage, commits above the last
checkpoint, files smaller than they need be, deleted rows that are still stored, orphans.

Spec: "Per-file Statistics"
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final

MIB: Final = 1024 * 1024
EDGES: Final = (MIB, 16 * MIB, 64 * MIB, 256 * MIB, 1024 * MIB)
"""The sizes, in bytes, that separate the bins of the histogram."""

TARGET_BYTES: Final = 128 * MIB
"""The size of file below which merging files spares readers requests."""

DELETED_LOW: Final = 0.05
"""The share of deleted rows from which on it is worth writing anew what holds them; delta-spark's
default.
"""

DELETED_HIGH: Final = 0.3
"""The share of deleted rows at which the penalty for them is greatest."""


@dataclass(frozen=True)
class TableFacts:
    """What was read of a table.

    `tail` is the number of commits that a reader reads above the newest checkpoint, `log_requests`
    and `log_bytes` all that it reads to open the table. `rows` and `deleted_rows` are None where
    some file does not state them. `orphans` is None if the root was not listed. `doubt` says what
    is wrong with checkpoint or checksum, or is empty. `uncounted` files lack statistics.
    `unsorted_bytes` is the size of the files of a clustered table that are not clustered yet.
    """

    version: int
    checkpoint: int
    interval: int
    tail: int
    log_requests: int
    log_bytes: int
    files: int
    size_bytes: int
    histogram: tuple[int, ...]
    rows: int | None
    deleted_rows: int
    vectors: int
    orphans: int | None = None
    orphan_bytes: int = 0
    doubt: str = ""
    uncounted: int = 0
    unsorted_bytes: int = 0

    @property
    def deleted_share(self) -> float:
        """The share of the stored rows that deletion vectors delete, 0 to 1."""
        return self.deleted_rows / self.rows if self.rows else 0.0

    @property
    def files_needed(self) -> int:
        """How many files of the target size would hold the table."""
        return files_needed(self.files, self.size_bytes)


@dataclass(frozen=True)
class Advice:
    """Something to do, why, the command if there is one, and the points that it costs now."""

    name: str
    why: str
    command: str
    penalty: int


@dataclass(frozen=True)
class TableHealth:
    """A score of 0 to 100, and the tasks that would raise it, the most useful first."""

    score: int
    tasks: tuple[Advice, ...]


def files_needed(files: int, size_bytes: int) -> int:
    """Return how many files of the target size would hold what some files hold."""
    return max(1, ceil(size_bytes / TARGET_BYTES)) if files else 0


def merging_points(files: int, size_bytes: int, interval: int) -> float:
    """Return the points that a table loses by files beyond those that would hold it.

    A table of a few files is read in one go, however small these are.
    """
    spared = files - files_needed(files, size_bytes)
    return 30 * spared / files if spared > interval else 0.0


def purging_points(deleted_share: float) -> float:
    """Return the points that a table loses by deleted rows that are still stored."""
    return 20 * min(1.0, deleted_share / DELETED_HIGH) if deleted_share >= DELETED_LOW else 0.0


def counting_points(uncounted: int, files: int) -> float:
    """Return the points that a table loses by files without statistics, which no reader skips."""
    return 10 * uncounted / files if uncounted else 0.0


def sorting_points(unsorted_bytes: int, size_bytes: int) -> float:
    """Return the points that a clustered table loses by files that are not clustered yet."""
    return 10 * unsorted_bytes / size_bytes if unsorted_bytes else 0.0


def vacuuming_points(files: int, gone_bytes: int, size_bytes: int) -> int:
    """Return the points that a table loses by files that no version needs, `gone_bytes` large."""
    share = gone_bytes / size_bytes if size_bytes else float(files)
    return min(10, ceil(10 * share)) if files else 0


def assess(facts: TableFacts) -> TableHealth:
    """Return a table's health.

    Law: the score falls with each penalty, and a table without any has 100 and no task.
    """
    tasks = [task for task in _tasks(facts) if task.penalty > 0]
    tasks.sort(key=lambda task: -task.penalty)
    return TableHealth(max(0, 100 - sum(task.penalty for task in tasks)), tuple(tasks))


def histogram(sizes: Sequence[int]) -> tuple[int, ...]:
    """Return how many of some sizes lie in each bin: below each edge, and above the last."""
    bins = [0] * (len(EDGES) + 1)
    for size in sizes:
        bins[sum(size >= edge for edge in EDGES)] += 1
    return tuple(bins)


def _tasks(facts: TableFacts) -> list[Advice]:
    return [
        Advice("check the table", facts.doubt, "tidegate table fsck", 50 if facts.doubt else 0),
        _checkpointing(facts),
        _merging(facts),
        _purging(facts),
        _counting(facts),
        _sorting(facts),
        _vacuuming(facts),
    ]


def _checkpointing(facts: TableFacts) -> Advice:
    intervals = facts.tail / facts.interval
    reason = (
        f"{facts.tail} commits are read above the checkpoint of {facts.checkpoint}; the table asks "
        f"for one every {facts.interval}"
        if facts.checkpoint >= 0
        else f"{facts.tail} commits are read, and there is no checkpoint"
    )
    penalty = min(20, round(5 * (intervals - 1))) if intervals > 1 else 0
    return Advice("write a checkpoint", reason, "tidegate table checkpoint", penalty)


def _merging(facts: TableFacts) -> Advice:
    spared = facts.files - facts.files_needed
    reason = (
        f"{facts.files} files hold {facts.size_bytes} bytes, which {facts.files_needed} of "
        f"{TARGET_BYTES // MIB} MiB would hold: a scan sends {spared} requests too many"
    )
    penalty = round(merging_points(facts.files, facts.size_bytes, facts.interval))
    return Advice("merge data files", reason, "tidegate table optimize", penalty)


def _purging(facts: TableFacts) -> Advice:
    share = facts.deleted_share
    reason = f"{share:.0%} of the rows stored are deleted, and each scan reads and drops them"
    penalty = round(purging_points(share))
    return Advice("purge deleted rows", reason, "tidegate table optimize", penalty)


def _counting(facts: TableFacts) -> Advice:
    reason = f"{facts.uncounted} files lack statistics, and each scan reads them"
    penalty = round(counting_points(facts.uncounted, facts.files))
    return Advice("compute statistics", reason, "tidegate maintain", penalty)


def _sorting(facts: TableFacts) -> Advice:
    reason = f"files of {facts.unsorted_bytes} bytes do not have the order of the clustered table"
    penalty = round(sorting_points(facts.unsorted_bytes, facts.size_bytes))
    return Advice("cluster data files", reason, "tidegate maintain", penalty)


def _vacuuming(facts: TableFacts) -> Advice:
    reason = f"{facts.orphans} files of {facts.orphan_bytes} bytes are named by no version"
    penalty = vacuuming_points(facts.orphans or 0, facts.orphan_bytes, facts.size_bytes)
    return Advice("delete orphans", reason, "tidegate table vacuum", penalty)
