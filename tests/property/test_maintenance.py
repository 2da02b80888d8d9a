"""The maintainer's decisions: budgets, fairness, benefit, and an end."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from tidegate_producers.maintenance.machine import (
    AMPLIFICATION_MAX,
    DAY_MS,
    HOUR_MS,
    SPENT_MS,
    TASK_BYTES_MAX,
    TASK_FILES_MAX,
    Budget,
    Chore,
    FileFacts,
    MaintainedTable,
    PartitionFacts,
    Policy,
    Spent,
    briefly,
    plan,
    tasks_of,
)

MIB: Final = 1024 * 1024
NOW_MS: Final = 100 * DAY_MS
POLICY: Final = Policy(file_age_ms=60_000, vacuum_interval_ms=DAY_MS)
ROWS: Final = 100
PLENTY: Final = 1 << 60


def of_files(
    files: dict[str, list[FileFacts]], number: int = 1, written_bytes: int | None = None
) -> MaintainedTable:
    """Return the facts of a table of these files by partition, all of which may be written anew."""
    every = [file for members in files.values() for file in members]
    size_bytes = sum(file.size_bytes for file in every)
    return MaintainedTable(
        table=UUID(int=number),
        table_id=f"id-{number}",
        name=f"t{number}",
        version=1,
        interval=10,
        target_bytes=16 * MIB,
        retention_ms=7 * DAY_MS,
        files=len(every),
        size_bytes=size_bytes,
        rows=ROWS * len(every),
        deleted_rows=sum(file.deleted_rows for file in every),
        partitions=tuple(PartitionFacts(name, tuple(of)) for name, of in files.items()),
        written_bytes=size_bytes if written_bytes is None else written_bytes,
    )


def small(name: str, size: int, age_ms: int = DAY_MS, deleted: int = 0) -> FileFacts:
    return FileFacts(name, size, NOW_MS - age_ms, deleted, deleted > ROWS // 20)


SIZES = st.one_of(st.integers(1, 64 * 1024), st.integers(1, 20 * MIB))
AGES = st.sampled_from([0, 30_000, 10 * 60_000, 2 * HOUR_MS, DAY_MS])


REWRITES = {"pack", "purge", "recluster", "statistics"}


@st.composite
def tables(draw: st.DrawFn, number: int = 1) -> MaintainedTable:
    is_clustered = draw(st.sampled_from([False, False, True]))
    files = {
        f"p={partition}": [
            small(
                f"{number}-{partition}-{index}",
                draw(SIZES),
                draw(AGES),
                draw(st.sampled_from([0, 0, 0, 3, 60])),
            )
            for index in range(draw(st.integers(0, 40)))
        ]
        for partition in range(1 if is_clustered else draw(st.integers(1, 3)))
    }
    every = [file for members in files.values() for file in members]
    uncounted = tuple(file for file in every if draw(st.sampled_from([True, False, False])))
    arrived_ms = NOW_MS - draw(AGES)
    unsorted = tuple(file for file in every if draw(st.booleans())) if is_clustered else ()
    return replace(
        of_files(files, number),
        uncounted=uncounted,
        arrived_ms=arrived_ms,
        changed_elsewhere_ms=draw(st.sampled_from([None, None, arrived_ms])),
        clustered_by="k" if is_clustered else "",
        unsorted=unsorted,
    )


def done(table: MaintainedTable, tasks: Sequence[Chore], now_ms: int) -> MaintainedTable:
    """Return the facts of a table after tasks, each of whose bins became one file without deleted
    rows.
    """
    files = {partition.name: list(partition.files) for partition in table.partitions}
    rewritten = table.rewritten_bytes
    rows = table.rows
    left = {file.path for file in table.uncounted}
    gone_paths = {path for task in tasks for group in task.bins for path in group}
    left -= gone_paths
    counted = [task for task in tasks if task.kind == "statistics"]
    gone_paths -= {path for task in counted for group in task.bins for path in group}
    unsorted = tuple(file for file in table.unsorted if file.path not in gone_paths)
    for task in tasks:
        if task.kind == "statistics":
            continue
        rewritten += task.cost_bytes
        for number, group in enumerate(task.bins):
            for members in files.values():
                gone = [file for file in members if file.path in group]
                if gone:
                    assert len(gone) == len(group), "a bin lies in one partition"
                    members[:] = [file for file in members if file.path not in group]
                    size = sum(file.size_bytes for file in gone)
                    members.append(FileFacts(f"{task.proposal_id(0)}-{number}", size, now_ms))
                    rows -= sum(file.deleted_rows for file in gone)
    after = of_files(files, table.table.int, table.written_bytes)
    uncounted = tuple(file for file in table.uncounted if file.path in left)
    return replace(
        after,
        rewritten_bytes=rewritten,
        rows=rows,
        uncounted=uncounted,
        arrived_ms=table.arrived_ms,
        changed_elsewhere_ms=table.changed_elsewhere_ms,
        clustered_by=table.clustered_by,
        unsorted=unsorted,
    )


@given(tables())
def test_equal_facts_give_equal_tasks_with_a_benefit_within_their_limits(
    table: MaintainedTable,
) -> None:
    tasks, reason = tasks_of(table, POLICY, NOW_MS)
    shuffled = replace(
        table,
        partitions=tuple(
            replace(partition, files=partition.files[::-1])
            for partition in reversed(table.partitions)
        ),
    )
    assert {task.proposal_id(0) for task in tasks} == {
        task.proposal_id(0) for task in tasks_of(shuffled, POLICY, NOW_MS)[0]
    }
    taken = [path for task in tasks for group in task.bins for path in group]
    assert len(taken) == len(set(taken)), "a file is in one task"
    assert reason
    for task in tasks:
        assert task.points > 0
        assert task.cost_bytes <= TASK_BYTES_MAX
        assert sum(map(len, task.bins)) <= TASK_FILES_MAX
        assert task.why
    assert table.packing_points or not any(task.kind == "pack" for task in tasks)
    kinds = {task.kind for task in tasks}
    assert table.is_quiet(NOW_MS) or "recluster" not in kinds
    assert not table.may_be_changed_elsewhere(NOW_MS) or not kinds & REWRITES
    assert not kinds & ({"pack", "purge"} if table.clustered_by else {"recluster"})


@given(tables())
def test_once_the_tasks_are_done_there_are_no_more(table: MaintainedTable) -> None:
    now_ms = NOW_MS
    table = replace(table, written_bytes=PLENTY)
    for _ in range(12):
        tasks, _ = tasks_of(table, POLICY, now_ms)
        if not tasks and now_ms > NOW_MS and table.is_quiet(now_ms):
            break
        assert all(task.bins for task in tasks)
        table = done(table, tasks, now_ms)
        now_ms += 2 * HOUR_MS
    assert tasks_of(table, POLICY, now_ms)[0] == []
    assert table.uncounted == ()
    assert len(table.unsorted) <= 1, "a small file waits for others"


@given(st.lists(st.tuples(st.integers(1, 30), SIZES), min_size=1, max_size=60))
def test_packing_rewrites_no_more_than_twice_what_writers_wrote(
    rounds: list[tuple[int, int]],
) -> None:
    table, now_ms = of_files({"": []}), NOW_MS
    for number, (count, size) in enumerate(rounds):
        now_ms += 10 * 60_000
        fresh = [FileFacts(f"{number}-{n}", size, now_ms - 60_000) for n in range(count)]
        files = [*(table.partitions[0].files if table.partitions else ()), *fresh]
        written = table.written_bytes + count * size
        table = replace(of_files({"": files}, 1, written), rewritten_bytes=table.rewritten_bytes)
        table = done(table, tasks_of(table, POLICY, now_ms)[0], now_ms)
        assert table.rewritten_bytes <= AMPLIFICATION_MAX * written


@given(tables(1), tables(2), tables(3), st.integers(0, 60 * MIB))
def test_the_budget_is_kept_and_tables_take_turns(
    one: MaintainedTable, two: MaintainedTable, three: MaintainedTable, left_bytes: int
) -> None:
    planned = plan([one, two, three], POLICY, left_bytes, NOW_MS)
    affordable = planned.tasks[: planned.affordable]
    assert sum(task.cost_bytes for task in affordable) <= left_bytes
    assert planned.turn() == tuple(dict.fromkeys(planned.turn()))
    assert len({task.table for task in planned.turn()}) == len(planned.turn())
    for table in (one, two, three):
        has_task = any(task.table == table.table for task in planned.tasks)
        assert has_task != (table.table in planned.reasons)
    turns: dict[UUID, int] = {}
    begun = [turns.setdefault(task.table, 0) for task in planned.tasks]
    assert len(begun) == len(planned.tasks)
    seen: list[int] = []
    for task in planned.tasks:
        seen.append(turns[task.table])
        turns[task.table] += 1
    assert seen == sorted(seen), "nobody is served twice before others are served once"


@given(st.lists(st.tuples(st.integers(0, 3 * DAY_MS), st.integers(0, 50)), max_size=30))
def test_no_hour_and_no_day_gets_more_than_its_budget(steps: list[tuple[int, int]]) -> None:
    budget, spent, now_ms = Budget(100, 300), list[tuple[int, int]](), NOW_MS
    for step_ms, wanted in steps:
        now_ms += step_ms
        if wanted <= budget.left_bytes(now_ms):
            budget = budget.after(now_ms, wanted)
            spent.append((now_ms, wanted))
    for at_ms, _ in spent:
        for window_ms, most in ((HOUR_MS, 100), (DAY_MS, 300)):
            within = [size for then, size in spent if at_ms - window_ms < then <= at_ms]
            assert sum(within) <= most


@given(st.lists(st.tuples(st.integers(0, 2 * HOUR_MS), st.integers(0, 50)), max_size=60))
def test_a_budget_that_is_restored_allows_no_more_than_the_one_that_was_lost(
    steps: list[tuple[int, int]],
) -> None:
    budget, now_ms = Budget(100, 300), NOW_MS
    spent: Spent = ()
    for step_ms, size in steps:
        now_ms += step_ms
        budget, spent = budget.after(now_ms, size), briefly(spent, now_ms, size)
        restored = replace(budget, spent=spent)
        assert restored.left_bytes(now_ms) <= budget.left_bytes(now_ms)
        assert restored.left_bytes(now_ms + DAY_MS) == 100
        assert len(spent) <= DAY_MS // SPENT_MS + 1


def test_every_table_is_served_though_one_always_has_better_tasks() -> None:
    """A large table gets new small files all the time; twenty others have one task each."""
    now_ms, budget = NOW_MS, Budget(TASK_BYTES_MAX, 24 * TASK_BYTES_MAX)
    poor = {
        number: of_files({"": [small(f"{number}-{n}", 7 * MIB) for n in range(30)]}, number)
        for number in range(2, 22)
    }
    served: set[int] = set()
    served_ms: dict[int, int] = {}
    for hour in range(100):
        rich = of_files({"": [small(f"{hour}-{n}", 1_000, 2 * HOUR_MS) for n in range(400)]})
        current = [
            replace(table, served_ms=served_ms.get(table.table.int))
            for table in (rich, *(poor[number] for number in poor if number not in served))
        ]
        for task in plan(current, POLICY, budget.left_bytes(now_ms), now_ms).turn():
            budget = budget.after(now_ms, task.cost_bytes)
            served_ms[task.table.int] = now_ms
            served |= {task.table.int} - {1}
        now_ms += HOUR_MS // 4
    assert served == set(poor)


def test_a_stream_leaves_about_twice_the_root_of_its_files() -> None:
    """A file a second for six hours, packed every minute, in a partition that never grows cold."""
    table, now_ms, count = replace(of_files({"": []}), target_bytes=128 * MIB), NOW_MS, 0
    for minute in range(6 * 60):
        now_ms += 60_000
        fresh = [FileFacts(f"{minute}-{n}", 5_000, now_ms - 60_000) for n in range(60)]
        count += len(fresh)
        files = [*(table.partitions[0].files if table.partitions else ()), *fresh]
        grown = replace(
            of_files({"": files}, 1, 5_000 * count),
            rewritten_bytes=table.rewritten_bytes,
            early_bytes=table.early_bytes,
            target_bytes=table.target_bytes,
        )
        tasks, _ = tasks_of(grown, POLICY, now_ms)
        after = done(grown, tasks, now_ms)
        early = grown.early_bytes + sum(task.early_bytes for task in tasks)
        table = replace(after, target_bytes=grown.target_bytes, early_bytes=early)
        assert table.files <= 60 + 2.5 * count**0.5
    assert table.rewritten_bytes <= AMPLIFICATION_MAX * 5_000 * count
    assert max(file.size_bytes for file in table.partitions[0].files) >= 64 * MIB
