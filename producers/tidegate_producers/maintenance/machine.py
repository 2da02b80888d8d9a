"""Decides which files of which tables are written anew, and where a vacuum is due. Pure.

Small files of a partition are packed twice: early, as soon as there are as many of about one size
as there are larger ones; then into a file of half the target size at least, which is never packed
again. So there are about twice the square root of what was written at any time, and what packing
costs is bounded by what writers wrote. A cold partition, to which no file comes, is packed whole.

Law: a task has a benefit and at most TASK_BYTES_MAX of cost, or is of one file that is larger;
equal facts give equal plans; once all tasks are done, and time has passed, there are none
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, chain
from typing import Final
from uuid import UUID, uuid5

from tidegate_delta.snapshots.file_packing import packed
from tidegate_delta.snapshots.table_health import (
    counting_points,
    files_needed,
    merging_points,
    purging_points,
    sorting_points,
    vacuuming_points,
)
from tidegate_messages.published_records import MaintenanceKind

HOUR_MS: Final = 60 * 60 * 1000
DAY_MS: Final = 24 * HOUR_MS

SPENT_MS: Final = 10 * 60 * 1000
"""How long a time a record has one entry for of what was spent."""

COLD_AFTER_MS: Final = HOUR_MS
"""How long no small file has come to a partition that is packed whole; and how long no file has
come to a table, or left it, in which a task has a quiet window. Files are left as they are for so
long after rows were changed by someone who would lose to a task.
"""

FAN: Final = 8
"""How many files are packed early at least; and how many times larger the files of one tier are
than those of the tier below.
"""

FAN_MAX: Final = 250
"""So many are packed early, however many larger ones there are."""

TIERS_MAX: Final = 6

AMPLIFICATION_MAX: Final = 2
"""Packing rewrites at most so many times the bytes that writers wrote."""

EARLY_MAX: Final = 1
"""How many times it rewrites them early, so that enough is left to fill files."""

TASK_BYTES_MAX: Final = 256 * 1024 * 1024
"""The most bytes of a task, whose rows this process has in memory a file at a time. A larger file
is written anew by Spark, where it is given.
"""

TASK_FILES_MAX: Final = 500
"""The most files of a task: their names fit into a record beside statistics of the new ones."""

SAMPLE_FILES: Final = 100
"""How many files of a table are checked at a time."""

CHECK_POINTS: Final = 1.0
"""What a check is worth, which gives no points itself: damage costs many times more."""

_BY_SPARK: Final = (
    "Spark writes these anew, if maintain.spark gives a session, or as "
    "Table.optimize().executeCompaction() of a job"
)
_ELSEWHERE: Final = (
    "an unmodified job, or a writer past the gate, changed rows within the last hour: one that "
    "does so again would lose to a rewrite of its files. delta.autoOptimize.autoCompact=true "
    "allows it"
)
_IDS: Final = UUID("5f0c3f1e-8d55-5d0a-9d0e-5c1f0a1d7e45")


@dataclass(frozen=True)
class FileFacts:
    """A file that is small, or of which many rows are deleted (`is_hollow`).

    Units: `modified_ms` in ms since the Unix epoch.
    """

    path: str
    size_bytes: int
    modified_ms: int
    deleted_rows: int = 0
    is_hollow: bool = False


@dataclass(frozen=True)
class PartitionFacts:
    """The files of a partition that may be written anew; `name` is its values, for people."""

    name: str
    files: tuple[FileFacts, ...]


@dataclass(frozen=True)
class MaintainedTable:
    """What the log says of a table at `version`.

    `size_bytes` and `files` count all live files; `partitions` have those that are small or hollow.
    `removed` are files that no version since names: until when they were removed, number and bytes,
    in order. `uncounted` are files without statistics, and `unsorted` those that do not have the
    order of a table that is `clustered_by` some columns. Writers changed rows at `arrived_ms`, and
    an unmodified job, or a writer past the gate, changed or removed some at `changed_elsewhere_ms`,
    which holds nothing up where the table `is_packed_always`. `hindrance` says why files can't be
    written anew here, or is empty. `written_bytes` are those of small files when the maintainer
    began, and of what writers added since. It has written `rewritten_bytes`, of which `early_bytes`
    did not fill a file.
    """

    table: UUID
    table_id: str
    name: str
    version: int
    interval: int
    target_bytes: int
    retention_ms: int
    files: int = 0
    size_bytes: int = 0
    rows: int = 0
    deleted_rows: int = 0
    partitions: tuple[PartitionFacts, ...] = ()
    removed: tuple[tuple[int, int, int], ...] = ()
    uncounted: tuple[FileFacts, ...] = ()
    clustered_by: str = ""
    unsorted: tuple[FileFacts, ...] = ()
    arrived_ms: int = 0
    changed_elsewhere_ms: int | None = None
    is_packed_always: bool = False
    hindrance: str = ""
    written_bytes: int = 0
    rewritten_bytes: int = 0
    early_bytes: int = 0
    vacuumed_ms: int | None = None
    checked_ms: int | None = None
    served_ms: int | None = None

    @property
    def deleted_share(self) -> float:
        """The share of the stored rows that are deleted, 0 to 1."""
        return self.deleted_rows / self.rows if self.rows else 0.0

    @property
    def packing_points(self) -> float:
        """The points of health that too many files cost, or will cost once there are twice as many:
        files are packed before a reader notices.
        """
        return merging_points(self.files, self.size_bytes, self.interval // 2)

    @property
    def health(self) -> int:
        """The points of 100 that are left after those that files and deleted rows cost."""
        lost = merging_points(self.files, self.size_bytes, self.interval)
        lost += purging_points(self.deleted_share)
        return round(max(0.0, 100 - lost - self.counting_points - self.sorting_points))

    @property
    def sorting_points(self) -> float:
        """The points of health that files cost which lack the order of a clustered table."""
        return sorting_points(sum(map(_size, self.unsorted)), self.size_bytes)

    @property
    def counting_points(self) -> float:
        """The points of health that files without statistics cost."""
        return counting_points(len(self.uncounted), self.files)

    def is_quiet(self, now_ms: int) -> bool:
        """Whether writers have changed no rows for an hour: what conflicts with them may run."""
        return now_ms - self.arrived_ms >= COLD_AFTER_MS

    def may_be_changed_elsewhere(self, now_ms: int) -> bool:
        """Whether somebody who would lose to a task is likely to change rows, as an hour before."""
        changed_ms = self.changed_elsewhere_ms
        is_recent = changed_ms is not None and now_ms - changed_ms < COLD_AFTER_MS
        return is_recent and not self.is_packed_always


@dataclass(frozen=True)
class Policy:
    """What holds for all tables: how old files of partitions that are not cold are before they are
    packed, how often a vacuum and a check may come, None for never, and how large a file may be
    that is written anew.
    """

    file_age_ms: int
    vacuum_interval_ms: int | None
    check_interval_ms: int | None = None
    file_bytes_max: int = TASK_BYTES_MAX


@dataclass(frozen=True)
class Chore:
    """Files to be written anew, each group of `bins` as one file, or counted, or a vacuum or check.

    `points` is the health that it gives, `cost_bytes` the size of the files that it reads; of
    these, `early_bytes` will be packed once more.
    """

    table: UUID
    table_id: str
    name: str
    kind: MaintenanceKind
    why: str
    points: float
    cost_bytes: int = 0
    bins: tuple[tuple[str, ...], ...] = ()
    partitions: tuple[str, ...] = ()
    early_bytes: int = 0

    @property
    def ratio(self) -> float:
        """The points for a byte."""
        return self.points / max(1, self.cost_bytes)

    def proposal_id(self, attempt: int) -> UUID:
        """Return the id of the task's proposal: the same wherever it is done again.

        `attempt` counts the proposals of these files that were refused for good.
        """
        paths = sorted(chain.from_iterable(self.bins))
        return uuid5(_IDS, "\n".join([self.table_id, self.kind, str(attempt), *paths]))


@dataclass(frozen=True)
class Budget:
    """How many bytes may be written anew in an hour and in a day, and what was, and when."""

    hour_bytes_max: int
    day_bytes_max: int
    spent: tuple[tuple[int, int], ...] = ()

    def left_bytes(self, now_ms: int) -> int:
        """Return how many bytes may be written anew now."""
        hour, day = (
            sum(size for at_ms, size in self.spent if now_ms - at_ms < window_ms)
            for window_ms in (HOUR_MS, DAY_MS)
        )
        return max(0, min(self.hour_bytes_max - hour, self.day_bytes_max - day))

    def after(self, now_ms: int, size_bytes: int) -> "Budget":
        """Return the budget after so many bytes were written anew."""
        kept = tuple(spent for spent in self.spent if now_ms - spent[0] < DAY_MS)
        return Budget(self.hour_bytes_max, self.day_bytes_max, (*kept, (now_ms, size_bytes)))


Spent = tuple[tuple[int, int], ...]
"""When how many bytes were spent, in order."""


def briefly(spent: Spent, now_ms: int, size_bytes: int) -> Spent:
    """Return what was spent in the last day with so many bytes more, short enough for a record.

    Law: a budget by it never allows more than one by each byte spent
    """
    kept = [entry for entry in spent if now_ms - entry[0] < DAY_MS]
    if kept and kept[-1][0] // SPENT_MS == now_ms // SPENT_MS:
        size_bytes += kept.pop()[1]
    return (*kept, (now_ms, size_bytes)) if size_bytes else tuple(kept)


@dataclass(frozen=True)
class Plan:
    """The tasks in their order; `affordable` of them fit into the budget, the others wait.

    `reasons` says of tables without a task why nothing is due.
    """

    tasks: tuple[Chore, ...] = ()
    affordable: int = 0
    reasons: Mapping[UUID, str] = field(default_factory=dict)

    def turn(self, *, with_vacuums: bool = True) -> tuple[Chore, ...]:
        """Return the first task of each table, as far as the budget goes."""
        first: dict[UUID, Chore] = {}
        for task in self.tasks[: self.affordable]:
            if with_vacuums or task.kind != "vacuum":
                first.setdefault(task.table, task)
        return tuple(first.values())


def plan(tables: Iterable[MaintainedTable], policy: Policy, left_bytes: int, now_ms: int) -> Plan:
    """Return what is to be done, and why nothing is to be done with other tables.

    Tables take turns. Within a turn a table that got nothing in the last hour comes before the
    others, then the task with the best ratio. A task that the budget does not allow holds up those
    behind it, so that none waits longer than the budget takes to allow it.
    """
    ordered: list[tuple[int, bool, float, str, Chore]] = []
    reasons: dict[UUID, str] = {}
    for table in tables:
        tasks, reason = tasks_of(table, policy, now_ms)
        if not tasks:
            reasons[table.table] = reason
        was_served = table.served_ms is not None and now_ms - table.served_ms < HOUR_MS
        ordered += [
            (turn, was_served, -task.ratio, str(task.table), task)
            for turn, task in enumerate(tasks)
        ]
    due = tuple(task for *_, task in sorted(ordered, key=lambda entry: entry[:4]))
    affordable = 0
    for task in due:
        if task.cost_bytes > left_bytes:
            break
        left_bytes -= task.cost_bytes
        affordable += 1
    return Plan(due, affordable, reasons)


def tasks_of(table: MaintainedTable, policy: Policy, now_ms: int) -> tuple[list[Chore], str]:
    """Return a table's tasks in their order, and why there are no more of them."""
    others = [*_check(table, policy, now_ms), *_vacuum(table, policy, now_ms)]
    if table.hindrance:
        return others, table.hindrance
    if table.may_be_changed_elsewhere(now_ms):
        return others, _ELSEWHERE
    find = _sorts if table.clustered_by else _bins
    bins = sorted(find(table, policy, now_ms), key=lambda each: each.order)
    allowed = list(_allowed(table, bins))
    purges = [] if table.clustered_by else list(_purges(table, _paths(allowed), policy, now_ms))
    counts = list(_counts(table, _paths([*allowed, *purges]), now_ms))
    tasks = [
        *others,
        *_tasks("recluster" if table.clustered_by else "pack", table, allowed),
        *_tasks("purge", table, purges),
        *_tasks("statistics", table, counts),
    ]
    return tasks, _reason(table, policy, now_ms, waits=len(allowed) < len(bins))


@dataclass(frozen=True)
class _Bin:
    """Files that become one, why, and what that is worth. It is early if it fills no file and more
    may come to its partition.
    """

    partition: str
    files: tuple[FileFacts, ...]
    why: str
    points: float
    is_cold: bool = True
    is_early: bool = False

    @property
    def cost_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(file.path for file in self.files)

    @property
    def order(self) -> tuple[bool, float, tuple[str, ...]]:
        """Cold partitions first, then the best ratio."""
        return not self.is_cold, -self.points / max(1, self.cost_bytes), self.paths


def _allowed(table: MaintainedTable, bins: Sequence[_Bin]) -> Iterator[_Bin]:
    """Yield the bins, or what of them, that writers wrote enough for to be written anew."""
    left_bytes = AMPLIFICATION_MAX * table.written_bytes - table.rewritten_bytes
    early_bytes = EARLY_MAX * table.written_bytes - table.early_bytes
    for wanted in bins:
        is_early = wanted.is_early
        each = _within(wanted, min(left_bytes, early_bytes if is_early else left_bytes))
        if each is not None:
            left_bytes -= each.cost_bytes
            early_bytes -= each.cost_bytes if is_early else 0
            yield each


def _within(each: _Bin, left_bytes: int) -> _Bin | None:
    """Return a bin of at most so many bytes; an early one without its largest files if need be.

    Those were packed before. With them, all that came since would wait for ever: it is as much as
    may be written anew, and they are always some bytes more.
    """
    if each.cost_bytes <= left_bytes:
        return each
    if not each.is_early:
        return None
    by_size = sorted(each.files, key=lambda file: (file.size_bytes, file.path))
    sizes = list(accumulate(map(_size, by_size)))
    kept = {file.path for file in by_size[: bisect_right(sizes, left_bytes)]}
    files = tuple(file for file in each.files if file.path in kept)
    if len(files) < FAN:
        return None
    return replace(each, files=files, points=each.points * (len(files) - 1) / (len(each.files) - 1))


def _bins(table: MaintainedTable, policy: Policy, now_ms: int) -> Iterator[_Bin]:
    """Yield the bins of small files that are worth packing."""
    points = table.packing_points
    spared = table.files - files_needed(table.files, table.size_bytes)
    if points <= 0:
        return
    for partition in table.partitions:
        small = [file for file in partition.files if _is_small(file, table)]
        newest_ms = max((file.modified_ms for file in small), default=0)
        is_cold = now_ms - newest_ms >= COLD_AFTER_MS
        if is_cold:
            groups, why = [small], "no file has come to their partition for an hour"
        else:
            old = [file for file in small if now_ms - file.modified_ms >= policy.file_age_ms]
            groups, why = _hot(old, table.target_bytes), "there are many of their size"
        larger = accumulate(map(len, groups), initial=0)
        for files in chain.from_iterable(
            _filled(group, table, 2 if is_cold else min(FAN_MAX, max(FAN, above)))
            for group, above in zip(groups, larger, strict=False)
        ):
            fills = 2 * sum(map(_size, files)) >= table.target_bytes
            worth = points * (len(files) - 1) / spared
            reason = "they fill a file" if fills else why
            is_early = not is_cold and not fills
            yield _Bin(partition.name, tuple(files), reason, worth, is_cold, is_early)


def _filled(
    files: Sequence[FileFacts], table: MaintainedTable, files_min: int
) -> Iterator[list[FileFacts]]:
    """Yield the files that become one file, in the order of their arrival: `files_min` of them, or
    as many as fill it.
    """
    ordered = sorted(files, key=lambda file: (file.modified_ms, file.path))
    for group in packed(ordered, _size, table.target_bytes, TASK_FILES_MAX):
        total = sum(map(_size, group))
        is_final = 2 * total >= table.target_bytes
        while not is_final and group and 2 * max(map(_size, group)) > total:
            # It is too large to be written anew for the sake of a few that are smaller.
            giant = max(group, key=_size)
            group.remove(giant)
            total -= giant.size_bytes
        if len(group) > 1 and (is_final or len(group) >= files_min):
            yield group


def _hot(files: Sequence[FileFacts], target_bytes: int) -> list[list[FileFacts]]:
    """Return the files of a partition that still grows, all together if they fill a file, else by
    size.
    """
    is_enough = 2 * sum(map(_size, files)) >= target_bytes
    return [list(files)] if is_enough else _tiers(files, target_bytes)


def _tiers(files: Iterable[FileFacts], target_bytes: int) -> list[list[FileFacts]]:
    """Return files of about the same size, the smallest last."""
    tiers: list[list[FileFacts]] = [[] for _ in range(TIERS_MAX + 1)]
    for file in files:
        tier = 0
        while tier < TIERS_MAX and file.size_bytes * FAN ** (tier + 1) <= target_bytes:
            tier += 1
        tiers[tier].append(file)
    return tiers


def _purges(table: MaintainedTable, taken: set[str], policy: Policy, now_ms: int) -> Iterator[_Bin]:
    """Yield each file of which many rows are deleted, if the table has many of them."""
    points = purging_points(table.deleted_share)
    if points <= 0:
        return
    hollow = [
        _Bin(
            partition.name,
            (file,),
            f"{table.deleted_share:.0%} of the table's rows are deleted, and each scan reads them",
            points * file.deleted_rows / table.deleted_rows,
        )
        for partition in table.partitions
        for file in partition.files
        if file.is_hollow and file.path not in taken and file.size_bytes <= policy.file_bytes_max
        if now_ms - file.modified_ms >= policy.file_age_ms
    ]
    yield from sorted(hollow, key=lambda each: each.order)


def _paths(bins: Iterable[_Bin]) -> set[str]:
    return {path for each in bins for path in each.paths}


def _counts(table: MaintainedTable, taken: set[str], now_ms: int) -> Iterator[_Bin]:
    """Yield each file without statistics that is an hour old: until then it may be packed, which
    gives it some.
    """
    why = "they lack statistics, and each scan reads them"
    points = table.counting_points / max(1, len(table.uncounted))
    for file in sorted(table.uncounted, key=lambda file: file.path):
        is_old = now_ms - file.modified_ms >= COLD_AFTER_MS
        if is_old and file.size_bytes <= TASK_BYTES_MAX and file.path not in taken:
            yield _Bin("", (file,), why, points)


def _sorts(table: MaintainedTable, policy: Policy, now_ms: int) -> Iterator[_Bin]:
    """Yield files of a clustered table that are sorted together, in a quiet window: rows change
    their order, so who changes rows beside it conflicts. Small files that are sorted go with those
    that are not.
    """
    if not table.is_quiet(now_ms) or not table.unsorted:
        return
    unsorted = {file.path: file for file in table.unsorted}
    small = [file for partition in table.partitions for file in partition.files]
    chosen = {file.path: file for file in small if _is_small(file, table)} | unsorted
    files = sorted(chosen.values(), key=lambda file: (file.modified_ms, file.path))
    files = [file for file in files if file.size_bytes <= policy.file_bytes_max]
    all_bytes = max(1, sum(map(_size, table.unsorted)))
    for group in packed(files, _size, TASK_BYTES_MAX, TASK_FILES_MAX):
        fresh_bytes = sum(file.size_bytes for file in group if file.path in unsorted)
        is_enough = len(group) > 1 or 2 * sum(map(_size, group)) >= table.target_bytes
        if fresh_bytes and is_enough:
            points = table.sorting_points * fresh_bytes / all_bytes
            yield _Bin("", tuple(group), f"the table is clustered by {table.clustered_by}", points)


def _tasks(kind: MaintenanceKind, table: MaintainedTable, bins: Sequence[_Bin]) -> Iterator[Chore]:
    """Yield tasks of bins that follow each other, within the limits of a task."""
    group: list[_Bin] = []
    for each in (*bins, None):
        together = [*group, *([each] if each else [])]
        is_full = (
            sum(one.cost_bytes for one in together) > TASK_BYTES_MAX
            or sum(len(one.files) for one in together) > TASK_FILES_MAX
        )
        if group and (each is None or is_full):
            yield _task(kind, table, group)
            group = []
        if each is not None:
            group.append(each)


def _task(kind: MaintenanceKind, table: MaintainedTable, bins: Sequence[_Bin]) -> Chore:
    cost_bytes = sum(each.cost_bytes for each in bins)
    files = sum(len(each.files) for each in bins)
    reasons = "; ".join(dict.fromkeys(each.why for each in bins))
    what = f"{files} files of {cost_bytes} bytes"
    done = {"statistics": "are counted", "recluster": "are sorted"}
    what += f" {done.get(kind, f'become {len(bins)}')}"
    return Chore(
        table.table,
        table.table_id,
        table.name,
        kind,
        f"{what}: {reasons}",
        sum(each.points for each in bins),
        cost_bytes,
        tuple(each.paths for each in bins),
        tuple(dict.fromkeys(each.partition for each in bins if each.partition)),
        sum(each.cost_bytes for each in bins if each.is_early),
    )


def _vacuum(table: MaintainedTable, policy: Policy, now_ms: int) -> Iterator[Chore]:
    """Yield a vacuum if files are past the retention that were not yet so at the last one."""
    last_ms, interval_ms = table.vacuumed_ms, policy.vacuum_interval_ms
    if interval_ms is None or (last_ms is not None and now_ms - last_ms < interval_ms):
        return
    until_ms = now_ms - table.retention_ms
    since_ms = 0 if last_ms is None else last_ms - table.retention_ms
    gone = [
        (files, size_bytes)
        for removed_ms, files, size_bytes in table.removed
        if since_ms < removed_ms <= until_ms
    ]
    files, size_bytes = (sum(column) for column in zip(*gone, strict=True)) if gone else (0, 0)
    points = vacuuming_points(files, size_bytes, table.size_bytes)
    if points > 0:
        why = f"{files} files of {size_bytes} bytes were removed before the retention began"
        yield Chore(table.table, table.table_id, table.name, "vacuum", why, float(points))


def _check(table: MaintainedTable, policy: Policy, now_ms: int) -> Iterator[Chore]:
    """Yield a check of a sample of the files, if the last one is long enough ago."""
    last_ms, interval_ms = table.checked_ms, policy.check_interval_ms
    is_due = last_ms is None or now_ms - last_ms >= (interval_ms or 0)
    if table.files and interval_ms is not None and is_due:
        why = f"{min(table.files, SAMPLE_FILES)} of its {table.files} files are drawn once a day"
        yield Chore(table.table, table.table_id, table.name, "check", why, CHECK_POINTS)


def _reason(table: MaintainedTable, policy: Policy, now_ms: int, *, waits: bool) -> str:
    """Return why a table has no more tasks."""
    if waits:
        return (
            f"packing more now would rewrite over {AMPLIFICATION_MAX} times the "
            f"{table.written_bytes} bytes that writers wrote, in all"
        )
    if table.clustered_by:
        return _unsorted_reason(table, policy, now_ms)
    files = [file for partition in table.partitions for file in partition.files]
    large = [file for file in files if file.is_hollow and file.size_bytes > policy.file_bytes_max]
    if large and purging_points(table.deleted_share) > 0:
        return (
            f"{len(large)} files with deleted rows are above {policy.file_bytes_max} bytes: "
            f"{_BY_SPARK}"
        )
    small = [file for file in files if _is_small(file, table)]
    young = [file for file in small if now_ms - file.modified_ms < policy.file_age_ms]
    fresh = sum(now_ms - file.modified_ms < COLD_AFTER_MS for file in table.uncounted)
    if fresh:
        return f"{fresh} files lack statistics, which are computed once they are an hour old"
    if any(file.size_bytes > TASK_BYTES_MAX for file in table.uncounted):
        return f"files above {TASK_BYTES_MAX} bytes lack statistics: no more is read at once here"
    if table.packing_points <= 0:
        return f"its files are few ({table.files}) or large, and few of its rows are deleted"
    if young:
        return f"{len(young)} of its {len(small)} small files are younger than maintain.file_age_s"
    return f"its {len(small)} small files are too few of one size in a partition to be packed"


def _unsorted_reason(table: MaintainedTable, policy: Policy, now_ms: int) -> str:
    """Return why no more files of a clustered table are sorted."""
    large = sum(file.size_bytes > policy.file_bytes_max for file in table.unsorted)
    if large:
        return (
            f"{large} files that are not clustered are above {policy.file_bytes_max} bytes: "
            f"{_BY_SPARK}"
        )
    if table.unsorted and not table.is_quiet(now_ms):
        return (
            f"{len(table.unsorted)} files are not clustered, and are sorted once no writer has "
            "changed rows for an hour"
        )
    return f"its files are clustered by {table.clustered_by}, but for {len(table.unsorted)} small"


def _is_small(file: FileFacts, table: MaintainedTable) -> bool:
    return 2 * file.size_bytes < table.target_bytes


def _size(file: FileFacts) -> int:
    return file.size_bytes
