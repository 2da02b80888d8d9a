"""Worlds where a committer decides three records at a time and keeps no history in memory."""

from unittest import mock

import pytest

from tests.simulation.world import World
from tidegate_committer.loop import read_ahead, table_cache
from tidegate_committer.store_reads import table_loading

SEEDS = range(1_000, 1_012)


@pytest.mark.parametrize("seed", SEEDS)
def test_with_small_limits_all_invariants_hold(seed: int) -> None:
    with (
        mock.patch.object(table_loading, "FETCHED_MAX", 0),
        mock.patch.object(table_cache, "FETCHED_MAX", 0),
        mock.patch.object(read_ahead, "HANDLED_MAX", 3),
    ):
        World(seed).run()
