"""Worlds where operators move tables between topic partitions, beside all other faults."""

from unittest import mock

import pytest

from tests.simulation.world import Broken, World
from tidegate_committer.loop.outcome_publisher import OutcomePublisher
from tidegate_messages.published_records import TableRecord

SEEDS = range(2_000, 2_024)
NOTICES = 2_006
"""A seed in which a committer that had lost its topic partition publishes a table that moved."""


@pytest.mark.parametrize("seed", SEEDS)
def test_with_tables_that_move_all_invariants_hold(seed: int) -> None:
    World(seed, has_moves=True).run()


def test_without_its_number_a_move_would_be_undone_by_who_lost_the_table() -> None:
    publish = OutcomePublisher.moved

    def unnumbered(self: OutcomePublisher, record: TableRecord) -> None:
        publish(self, record.model_copy(update={"ruling": None}))

    with (
        mock.patch.object(OutcomePublisher, "moved", unnumbered),
        pytest.raises(Broken, match="one_home_after_moves"),
    ):
        World(NOTICES, has_moves=True).run()
