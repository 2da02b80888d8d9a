"""What of a checkpoint is found to contradict the log, with and without tombstones."""

import pytest

from tests.unit.delta.checkpoints.test_checkpoint_rows import DAY_MS, NOW_MS, snapshot
from tidegate_delta.checkpoints.checkpoint_comparison import differences
from tidegate_delta.log.actions import Remove
from tidegate_delta.snapshots.file_action_columns import removes_to_columns
from tidegate_delta.snapshots.snapshot import Snapshot


def removed(*ages_days: int) -> Snapshot:
    removes = [
        Remove(path=f"r{age}", data_change=True, deletion_timestamp=NOW_MS - age * DAY_MS)
        for age in ages_days
    ]
    return snapshot(tombstones=removes_to_columns(removes))


@pytest.mark.parametrize("of", [removed(), removed(30), removed(1), removed(1, 30)])
def test_a_checkpoint_that_holds_what_the_log_says_has_no_differences(of: Snapshot) -> None:
    assert differences(of, of, NOW_MS) == ()


def test_a_checkpoint_may_lack_expired_tombstones_and_no_others() -> None:
    assert differences(removed(), removed(30), NOW_MS) == ()
    assert differences(removed(30), removed(1, 2), NOW_MS) == (
        "it lacks 2 tombstones that have not expired",
    )
    assert differences(removed(1), removed(1, 2, 30), NOW_MS) == (
        "it lacks 1 tombstones that have not expired",
    )
