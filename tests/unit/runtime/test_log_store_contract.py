"""Every store here is held to the laws of `tests/store_laws.py`; S3 is in the integration tests."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.store_laws import LAWS, assert_one_winner_each, contest
from tidegate.runtime.local_store import LocalStore
from tidegate.runtime.log_store import LogStore
from tidegate.runtime.memory import MemoryStore


@pytest.fixture(params=["memory", "local"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> LogStore:
    if request.param == "memory":
        return MemoryStore()
    return LocalStore(str(tmp_path / "a table"))


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_a_store_obeys_the_law(law: Callable[[LogStore], None], store: LogStore) -> None:
    law(store)


def test_of_eight_threads_one_wins_each_version(tmp_path: Path) -> None:
    stores: list[LogStore] = [LocalStore(str(tmp_path)) for _ in range(8)]
    assert_one_winner_each(contest(stores, versions=40), stores[0])
