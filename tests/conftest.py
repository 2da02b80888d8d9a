"""Fixtures and options of all test folders: the simulation's seeds and the conformance corpus."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests import contained_errors, corpora

# Output is wrapped to the terminal's width; tests must not depend on it.
os.environ.pop("COLUMNS", None)

# The same examples every time, so that a failure is due to a change and not to luck. Nothing is
# timed. `--hypothesis-profile explore` tries other examples.
settings.register_profile("steady", derandomize=True, deadline=None)
settings.register_profile("explore", max_examples=1_000, deadline=None)
settings.load_profile("steady")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--seed n` (one, verbose), `--seeds n` (0 to n-1), and the sizes of other suites.

    CI uses the defaults; `make nightly` asks for more.
    """
    group = parser.getgroup("simulation")
    group.addoption("--seed", type=int, default=None, help="run this seed of the simulation only")
    group.addoption("--seeds", type=int, default=500, help="run this many seeds, from 0 (500)")
    stores = parser.getgroup("stores")
    stores.addoption(
        "--contests", type=int, default=200, help="names that two writers contest at once (200)"
    )
    parser.getgroup("oracle").addoption(
        "--asked", type=int, default=8, help="new cases that delta-spark itself decides (8)"
    )
    parser.getgroup("judge").addoption(
        "--judged",
        type=int,
        default=20,
        help="generated cases beside delta-spark, from seed 0 (20)",
    )
    parser.getgroup("judge").addoption(
        "--door", action="store_true", help="delta-spark commits through the gate"
    )
    processes = parser.getgroup("processes")
    processes.addoption(
        "--blows", type=int, default=34, help="kills and suspensions of committers under load (34)"
    )
    processes.addoption(
        "--versions", type=int, default=700, help="versions by all kinds of writers (700)"
    )
    processes.addoption(
        "--minutes", type=float, default=60.0, help="how long a maintained day is at night (60)"
    )
    parser.addoption(
        "--containers",
        action="store_true",
        help="use a container engine: tests/containers, and Kafka in a container",
    )
    parser.addoption(
        "--cluster", action="store_true", help="use the cluster of KUBECONFIG: tests/cluster"
    )
    parser.addoption(
        "--full",
        action="store_true",
        help="the night's length: every model configuration, long walks",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip what is marked `nightly` unless `--full` is given."""
    if config.getoption("--full"):
        return
    for item in items:
        if item.get_closest_marker("nightly"):
            item.add_marker(pytest.mark.skip(reason="runs at night, or with --full"))


@pytest.fixture(scope="session", autouse=True)
def no_error_is_swallowed() -> Iterator[None]:
    """Raise errors again that a service contains, so that a bug of ours fails its test."""
    with contained_errors.unswallowed():
        yield


@pytest.fixture
def contained() -> Iterator[None]:
    """Let services contain errors in this test, because containment is what it tests."""
    with contained_errors.expected():
        yield


@pytest.fixture(scope="session")
def corpus() -> Path:
    """Return the folder of the conformance corpus; skip where the clone has none beside it."""
    result = corpora.whole_corpus()
    if result is None:
        pytest.skip(corpora.ABSENT)
    return result


@pytest.fixture(scope="session")
def own_corpus() -> Path:
    """Return a folder with the part of the corpus made for this project; it is always available."""
    return corpora.own_corpus()
