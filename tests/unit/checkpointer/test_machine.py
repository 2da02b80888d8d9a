"""Which maintenance is due, and when."""

from tidegate_checkpointer.machine import (
    RECENT_MAX,
    CheckpointDue,
    Checkpointed,
    ChecksumDue,
    ChecksumWritten,
    Compacted,
    CompactionDue,
    Notice,
    SummaryState,
    decide,
    evolve,
)

FRESH = SummaryState(compaction_interval=5)


def settle(state: SummaryState, due: object) -> SummaryState:
    match due:
        case CheckpointDue(version):
            return evolve(state, Checkpointed(version))
        case CompactionDue(start, end):
            return evolve(state, Compacted(start, end))
        case ChecksumDue(version):
            return evolve(state, ChecksumWritten(version))
    raise AssertionError(due)


def attend(state: SummaryState, head: int, interval: int = 10) -> tuple[SummaryState, list[object]]:
    due = decide(state, Notice(head, interval))
    for item in due:
        state = settle(state, item)
    return state, list(due)


def step_by_step(until: int, interval: int = 10) -> list[object]:
    state, done = FRESH, []
    for head in range(until + 1):
        state, due = attend(state, head, interval)
        done += due
    return done


def test_every_version_gets_a_checksum() -> None:
    sums = [due.version for due in step_by_step(25) if isinstance(due, ChecksumDue)]
    assert sums == list(range(26))


def test_every_tenth_version_gets_a_checkpoint_but_the_first() -> None:
    checkpoints = [due for due in step_by_step(31) if isinstance(due, CheckpointDue)]
    assert checkpoints == [CheckpointDue(10), CheckpointDue(20), CheckpointDue(30)]


def test_the_interval_is_the_tables_own() -> None:
    checkpoints = [due for due in step_by_step(5, interval=2) if isinstance(due, CheckpointDue)]
    assert checkpoints == [CheckpointDue(2), CheckpointDue(4)]


def test_compactions_cover_what_lies_above_the_checkpoint_and_never_straddle_one() -> None:
    compactions = [due for due in step_by_step(26) if isinstance(due, CompactionDue)]
    assert compactions == [
        CompactionDue(0, 4),
        CompactionDue(5, 9),
        CompactionDue(11, 15),
        CompactionDue(21, 25),
    ]


def test_compactions_are_followed_by_longer_ones_over_them() -> None:
    compactions = [due for due in step_by_step(52, 1000) if isinstance(due, CompactionDue)]
    assert compactions == [
        *(CompactionDue(start, start + 4) for start in (0, 5, 10, 15)),
        CompactionDue(0, 24),
        *(CompactionDue(start, start + 4) for start in (25, 30, 35, 40)),
        CompactionDue(25, 49),
    ]


def test_after_a_pause_only_the_longest_compactions_are_written() -> None:
    _, due = attend(FRESH, 160, 1000)
    compactions = [item for item in due if isinstance(item, CompactionDue)]
    assert compactions == [
        CompactionDue(0, 124),
        CompactionDue(125, 149),
        CompactionDue(150, 154),
        CompactionDue(155, 159),
    ]


def test_after_a_pause_only_the_newest_checkpoint_is_written() -> None:
    _, due = attend(FRESH, 47)
    assert [item for item in due if isinstance(item, CheckpointDue)] == [CheckpointDue(40)]


def test_after_a_pause_compactions_begin_behind_the_checkpoint_that_is_due() -> None:
    _, due = attend(FRESH, 47)
    assert [item for item in due if isinstance(item, CompactionDue)] == [CompactionDue(41, 45)]


def test_after_a_long_pause_old_versions_stay_without_a_checksum() -> None:
    _, due = attend(FRESH, 1_000)
    sums = [item.version for item in due if isinstance(item, ChecksumDue)]
    assert sums == list(range(1_001 - RECENT_MAX, 1_001))


def test_what_is_due_comes_in_the_order_of_versions_and_the_checkpoint_first() -> None:
    _, due = attend(SummaryState(5, checkpoint=0, compacted=5, checksummed=8), 10)
    assert due == [ChecksumDue(9), CheckpointDue(10), ChecksumDue(10)]


def test_nothing_is_due_twice() -> None:
    state, _ = attend(FRESH, 47)
    assert decide(state, Notice(47, 10)) == ()


def test_a_hint_ahead_of_the_log_is_not_written_back() -> None:
    state, due = attend(SummaryState(5, checkpoint=90, compacted=-1, checksummed=90), 12)
    assert due == []
    assert state.checkpoint == 90


def test_what_another_has_done_further_on_is_kept() -> None:
    state = evolve(SummaryState(5, checkpoint=20, compacted=25, checksummed=25), Checkpointed(10))
    assert (state.checkpoint, state.compacted, state.checksummed) == (20, 25, 25)
