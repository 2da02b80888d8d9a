"""What every test folder shares: the options of the simulation, and the conformance corpus."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests import corpora, unswallowed

# Whoever runs the tests may have a terminal of any width; the tests have none.
os.environ.pop("COLUMNS", None)

# The same examples every time, so that a change is judged and not luck; nothing is timed.
# `--hypothesis-profile explore` looks further.
settings.register_profile("steady", derandomize=True, deadline=None)
settings.register_profile("explore", max_examples=1_000, deadline=None)
settings.load_profile("steady")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--seed n` (one, loudly), `--seeds n` (that many, from 0), and how much there is of else.

    CI takes what stands here; `make nightly` asks for more of the same.
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
    processes = parser.getgroup("processes")
    processes.addoption(
        "--blows", type=int, default=64, help="kills and suspensions of committers under load (64)"
    )
    processes.addoption(
        "--versions", type=int, default=5_000, help="versions by all kinds of writers (5,000)"
    )
    parser.addoption(
        "--full", action="store_true", help="the night's length: large models, long walks"
    )


@pytest.fixture(scope="session", autouse=True)
def no_error_is_swallowed() -> Iterator[None]:
    """Have what a service contains raised again, so that a fault of ours fails its test."""
    with unswallowed.unswallowed():
        yield


@pytest.fixture
def contained() -> Iterator[None]:
    """Let services contain errors in this test: it is about that."""
    with unswallowed.expected():
        yield


@pytest.fixture(scope="session")
def corpus() -> Path:
    """Return the folder of the conformance corpus, or skip: a lone clone has none beside it."""
    found = corpora.whole_corpus()
    if found is None:
        pytest.skip(corpora.ABSENT)
    return found


@pytest.fixture(scope="session")
def own_corpus() -> Path:
    """Return a folder with the part of the corpus that was made for this project: always there."""
    return corpora.own_corpus()
