"""Worlds in which a committer judges three records at a time, and calls all history long ago."""

from unittest import mock

import pytest

from tests.simulation.world import World
from tidegate.committer.loop import table_cache, unsettled
from tidegate.committer.reading import history

SEEDS = range(1_000, 1_012)


@pytest.mark.parametrize("seed", SEEDS)
def test_records_are_held_back_and_set_aside_and_all_invariants_hold(seed: int) -> None:
    with (
        mock.patch.object(history, "FETCHED_MAX", 0),
        mock.patch.object(table_cache, "FETCHED_MAX", 0),
        mock.patch.object(unsettled, "JUDGED_MAX", 3),
    ):
        World(seed).run()
