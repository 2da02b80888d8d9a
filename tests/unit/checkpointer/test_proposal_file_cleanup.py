"""Claim files and staged commits are deleted once no request can refer to them, and not before."""

import pytest

from tests.fakes.memory_store import MemoryStore
from tidegate_checkpointer.service import sweep_proposal_files

NOW_MS = 1_000_000
STAGED = "_delta_log/_staged_commits"
CLAIM = "_tidegate/proposals/0197a000-0000-7000-8000-000000000001.ndjson"
NAME = "3f0e4c2a-0000-4000-8000-000000000001"


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore("memory://t", lambda: NOW_MS)


def test_expired_files_of_actions_and_decided_versions_go(store: MemoryStore) -> None:
    decided = f"{STAGED}/{7:020d}.{NAME}.json"
    for path in (CLAIM, decided, "part-0.parquet"):
        store.put(path, b"x")
    assert sweep_proposal_files(store, 7, NOW_MS + 1) == 2
    assert set(store.files) == {"part-0.parquet"}


def test_a_staged_version_that_is_not_in_the_log_yet_stays_however_old(store: MemoryStore) -> None:
    path = f"{STAGED}/{8:020d}.{NAME}.json"
    store.put(path, b"x")
    assert sweep_proposal_files(store, 7, NOW_MS + 1) == 0
    assert set(store.files) == {path}


def test_files_that_may_still_be_needed_stay(store: MemoryStore) -> None:
    store.put(CLAIM, b"x")
    store.put(f"{STAGED}/{1:020d}.{NAME}.json", b"x")
    assert sweep_proposal_files(store, 7, NOW_MS) == 0


def test_files_that_are_nobodys_stay(store: MemoryStore) -> None:
    for path in ("_tidegate/proposals/notes.txt", f"{STAGED}/notes.json", "_tidegate/other.ndjson"):
        store.put(path, b"x")
    assert sweep_proposal_files(store, 7, NOW_MS + 1) == 0
