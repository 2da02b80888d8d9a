"""What the maintainer decides, one example each, and the reasons that it gives."""

from dataclasses import replace

import pytest

from tests.property.test_maintenance import (
    MIB,
    NOW_MS,
    PLENTY,
    POLICY,
    of_files,
    small,
)
from tidegate_producers.maintenance.machine import (
    DAY_MS,
    HOUR_MS,
    TASK_BYTES_MAX,
    MaintainedTable,
    Plan,
    Policy,
    plan,
    tasks_of,
)
from tidegate_producers.maintenance.settings import MaintainSection


def many(count: int, size: int = 1_000, age_ms: int = DAY_MS) -> MaintainedTable:
    return of_files({"day=1": [small(f"f{n:03}", size, age_ms) for n in range(count)]})


def test_the_files_of_a_cold_partition_become_one_in_the_order_of_arrival() -> None:
    files = [small(f"f{n}", 1_000, DAY_MS - n) for n in range(20)]
    [task], _ = tasks_of(of_files({"day=1": files[::-1]}), POLICY, NOW_MS)
    assert task.bins == (tuple(file.path for file in files),)
    assert (task.kind, task.partitions, task.cost_bytes) == ("pack", ("day=1",), 20_000)
    assert task.why.startswith("20 files of 20000 bytes become 1: no file has come")
    assert task.points == pytest.approx(30 * 19 / 20)


def test_cold_partitions_come_before_those_that_grow_and_young_files_wait() -> None:
    hot = [small(f"hot{n}", 1_000, 10 * 60_000) for n in range(10)]
    young = [small(f"young{n}", 1_000, 1_000) for n in range(10)]
    cold = [small(f"cold{n}", 5_000) for n in range(10)]
    [task], reason = tasks_of(of_files({"a": [*hot, *young], "b": cold}), POLICY, NOW_MS)
    first, second = task.bins
    assert {path.rstrip("0123456789") for path in first} == {"cold"}
    assert {path.rstrip("0123456789") for path in second} == {"hot"}
    assert "younger than maintain.file_age_s" in reason


def test_a_large_file_is_not_written_anew_for_a_few_small_ones() -> None:
    giant = small("giant", 7 * MIB)
    [task], _ = tasks_of(
        of_files({"": [giant, *(small(f"f{n}", 1_000) for n in range(15))]}), POLICY, NOW_MS
    )
    assert "giant" not in task.bins[0]


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        (many(5), "its files are few (5)"),
        (replace(many(30), hindrance="it is clustered by k"), "it is clustered"),
        (replace(many(30), changed_elsewhere_ms=NOW_MS - 1), "an unmodified job, or a writer past"),
        (replace(many(30), written_bytes=1), "over 2 times the 1 bytes"),
        (many(30, age_ms=1_000), "younger than"),
        (
            of_files({str(n): [small(f"f{n}", 1_000)] for n in range(30)}),
            "too few of one size in a partition",
        ),
        (
            of_files({"": [small(f"f{n}", TASK_BYTES_MAX + n, deleted=50) for n in range(1, 4)]}),
            "3 files with deleted rows are above 268435456 bytes: Spark writes these anew, if",
        ),
    ],
)
def test_a_table_without_a_task_has_a_reason(table: MaintainedTable, reason: str) -> None:
    tasks, why = tasks_of(table, POLICY, NOW_MS)
    assert tasks == []
    assert reason in why
    assert plan([table], POLICY, PLENTY, NOW_MS).reasons == {table.table: why}


def test_files_are_packed_before_they_cost_points() -> None:
    [task], _ = tasks_of(many(10), POLICY, NOW_MS)
    assert many(10).health == 100
    assert task.points > 0
    assert tasks_of(many(6), POLICY, NOW_MS)[0] == [], "twice as many cost none either"


def test_what_was_packed_waits_where_it_would_take_more_than_writers_wrote() -> None:
    packed = small("packed", 1_500, 20 * 60_000)
    fresh = [small(f"f{n:03}", 1_000, 10 * 60_000) for n in range(20)]
    table = replace(of_files({"": [packed, *fresh]}), written_bytes=40_000, early_bytes=20_000)
    [task], _ = tasks_of(table, POLICY, NOW_MS)
    assert task.bins == (tuple(file.path for file in fresh),)
    assert tasks_of(replace(table, early_bytes=35_000), POLICY, NOW_MS)[0] == [], "too few fit"


def test_deleted_rows_are_purged_where_the_table_has_many() -> None:
    files = [small(f"f{n}", 12 * MIB, deleted=60 if n < 3 else 0) for n in range(8)]
    [task], _ = tasks_of(of_files({"": files}), POLICY, NOW_MS)
    assert (task.kind, len(task.bins)) == ("purge", 3)
    assert "22% of the table's rows are deleted" in task.why
    few = [small(f"f{n}", 12 * MIB, deleted=60 if n < 1 else 0) for n in range(30)]
    assert tasks_of(of_files({"": few}), POLICY, NOW_MS)[0] == []


def test_statistics_are_computed_of_files_that_are_an_hour_old() -> None:
    files = [small(f"f{n}", MIB) for n in range(4)]
    table = replace(of_files({"": files}), uncounted=tuple(files[:2]), arrived_ms=NOW_MS)
    [task], _ = tasks_of(table, POLICY, NOW_MS)
    assert (task.kind, task.bins, task.points) == ("statistics", (("f0",), ("f1",)), 5.0)
    assert task.why.startswith("2 files of 2097152 bytes are counted: they lack statistics")
    assert table.health == 95
    fresh = replace(table, uncounted=tuple(replace(file, modified_ms=NOW_MS) for file in files[:2]))
    tasks, reason = tasks_of(fresh, POLICY, NOW_MS)
    assert tasks == []
    assert reason == "2 files lack statistics, which are computed once they are an hour old"
    giant = replace(table, uncounted=(small("giant", TASK_BYTES_MAX + 1),))
    tasks, reason = tasks_of(giant, POLICY, NOW_MS)
    assert tasks == []
    assert "bytes lack statistics: no more is read at once here" in reason


def test_each_large_file_is_a_task_of_its_own_where_spark_writes_it() -> None:
    large = [small(f"l{n}", TASK_BYTES_MAX + 1, deleted=50) for n in range(2)]
    hollow = small("f", 1_000, deleted=50)
    table = of_files({"": [*large, hollow]})
    with_spark = replace(POLICY, file_bytes_max=TASK_BYTES_MAX + 1)
    tasks, reason = tasks_of(table, with_spark, NOW_MS)
    assert [task.bins for task in tasks] == [(("f",),), (("l0",),), (("l1",),)]
    assert {task.kind for task in tasks} == {"purge"}
    assert reason == "its files are few (3) or large, and few of its rows are deleted"
    table = replace(table, clustered_by="k", unsorted=(*large, hollow))
    tasks, reason = tasks_of(table, with_spark, NOW_MS)
    assert {task.bins for task in tasks} >= {(("l0",),), (("l1",),)}
    assert {task.kind for task in tasks} == {"recluster"}


def test_a_check_comes_once_a_day_whatever_holds_the_files() -> None:
    daily = replace(POLICY, check_interval_ms=DAY_MS)
    for table in (many(5), replace(many(5), hindrance="it is clustered by k")):
        [task], _ = tasks_of(table, daily, NOW_MS)
        assert (task.kind, task.cost_bytes, task.points) == ("check", 0, 1.0)
        assert task.why == "5 of its 5 files are drawn once a day"
        assert tasks_of(replace(table, checked_ms=NOW_MS - DAY_MS + 1), daily, NOW_MS)[0] == []
        assert tasks_of(replace(table, checked_ms=NOW_MS - DAY_MS), daily, NOW_MS)[0] == [task]
    assert tasks_of(of_files({}), daily, NOW_MS)[0] == []


def test_files_of_a_clustered_table_are_sorted_together_in_a_quiet_window() -> None:
    files = [small(f"f{n}", MIB, DAY_MS - n) for n in range(4)]
    table = replace(of_files({"": files}), clustered_by="k", unsorted=tuple(files[1:]))
    [task], _ = tasks_of(table, POLICY, NOW_MS)
    assert (task.kind, task.bins) == ("recluster", (("f0", "f1", "f2", "f3"),))
    assert task.points == pytest.approx(7.5)
    assert task.why == "4 files of 4194304 bytes are sorted: the table is clustered by k"
    assert table.health == 92
    busy = replace(table, arrived_ms=NOW_MS - HOUR_MS + 1)
    tasks, reason = tasks_of(busy, POLICY, NOW_MS)
    assert tasks == []
    assert "3 files are not clustered, and are sorted once no writer" in reason
    giant = replace(table, unsorted=(small("giant", TASK_BYTES_MAX + 1),))
    tasks, reason = tasks_of(giant, POLICY, NOW_MS)
    assert tasks == []
    assert "1 files that are not clustered are above 268435456 bytes: Spark writes" in reason
    tasks, reason = tasks_of(replace(table, unsorted=()), POLICY, NOW_MS)
    assert tasks == []
    assert reason == "its files are clustered by k, but for 0 small"


def test_a_vacuum_comes_after_the_retention_and_once_for_what_was_removed() -> None:
    removed_ms = NOW_MS - 7 * DAY_MS - HOUR_MS
    table = replace(many(5), removed=((removed_ms, 3, 9_000),))
    [task], _ = tasks_of(table, POLICY, NOW_MS)
    assert (task.kind, task.cost_bytes, task.points) == ("vacuum", 0, 10.0)
    assert tasks_of(table, POLICY, removed_ms + 7 * DAY_MS - 1)[0] == [], "kept for so long"
    assert tasks_of(replace(table, vacuumed_ms=NOW_MS - 1), POLICY, NOW_MS)[0] == []
    later = replace(table, vacuumed_ms=NOW_MS)
    assert tasks_of(later, POLICY, NOW_MS + 2 * DAY_MS)[0] == [], "nothing was removed since"
    assert tasks_of(table, Policy(60_000, None), NOW_MS)[0] == []


def test_the_first_task_of_each_table_is_a_turn_as_far_as_the_budget_goes() -> None:
    large = of_files({"": [small(f"l{n}", 7 * MIB) for n in range(200)]}, 1)
    tiny = of_files({"": [small(f"t{n}", 100) for n in range(20)]}, 2)
    planned = plan([large, tiny], POLICY, PLENTY, NOW_MS)
    assert [task.name for task in planned.turn()] == ["t2", "t1"]
    assert len(planned.tasks) > 3
    assert plan([large, tiny], POLICY, 0, NOW_MS).turn() == ()
    assert Plan().turn() == ()


def test_the_id_of_a_task_is_that_of_its_files() -> None:
    [task], _ = tasks_of(many(20), POLICY, NOW_MS)
    [same], _ = tasks_of(replace(many(20), version=9), POLICY, NOW_MS + 1)
    assert task.proposal_id(0) == same.proposal_id(0)
    assert task.proposal_id(0) != task.proposal_id(1)
    [other], _ = tasks_of(many(21), POLICY, NOW_MS)
    assert task.proposal_id(0) != other.proposal_id(0)


def test_quiet_hours_and_patterns_of_names() -> None:
    section = MaintainSection(tables=("lake.*",), off=("*_raw",), quiet_hours="22:00-06:30")
    assert [section.includes(name) for name in ("lake.a", "lake.a_raw", "other")] == [
        True,
        False,
        False,
    ]
    hours = {hour: section.is_quiet(hour * HOUR_MS + 100 * DAY_MS) for hour in (5, 7, 21, 22)}
    assert hours == {5: True, 7: False, 21: False, 22: True}
    assert not MaintainSection().is_quiet(0)
    with pytest.raises(ValueError, match="give two times"):
        MaintainSection(quiet_hours="8-18")
