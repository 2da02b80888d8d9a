"""The pipeline survives the world: the real committer over stormy doors, seed by seed."""

import os

import pytest

from tests.simulation.world import World

SEEDS = 200


def chosen(config: pytest.Config) -> range:
    """Return the seeds to run: `--seed`/SEED one, `--seeds`/SEEDS that many."""
    one = config.getoption("--seed") if os.environ.get("SEED") is None else os.environ["SEED"]
    many = os.environ.get("SEEDS") or config.getoption("--seeds") or SEEDS
    return range(int(one), int(one) + 1) if one is not None else range(int(many))


def test_every_seed_keeps_every_invariant(request: pytest.FixtureRequest) -> None:
    for seed in chosen(request.config):
        World(seed).run()


def test_the_same_seed_gives_the_same_history() -> None:
    for seed in range(0, 200, 50):
        assert World(seed).run() == World(seed).run(), f"seed {seed} has two histories"
