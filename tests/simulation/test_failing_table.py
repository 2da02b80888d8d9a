"""Every decision on one table fails with an unforeseen error: the other tables are served."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import pytest

from tests.simulation.world import Broken, World
from tidegate_committer.loop import partition_worker

SEEDS = range(12)


def let_pass(work: Callable[[], Any], *_: Any, **__: Any) -> Any:
    return work()


@contextmanager
def not_contained(*_: Any, **__: Any) -> Iterator[None]:
    yield


def without_containment() -> mock._patch_dict:
    return mock.patch.dict(
        vars(partition_worker), {"attempted": let_pass, "contained": not_contained}
    )


def test_the_other_tables_are_served_and_that_one_is_once_it_can_be() -> None:
    struck = 0
    for seed in SEEDS:
        world = World(seed, is_odd=True)
        world.run()
        struck += world.stage.weather.struck["odd"]
    assert struck > len(SEEDS), "the world is too kind"


def test_without_the_catch_all_they_are_not() -> None:
    world = World(0, is_odd=True)
    with without_containment(), pytest.raises(Broken, match="broke all_answered"):
        world.run()
