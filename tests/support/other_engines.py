"""Commits that another engine writes past the committer."""

from tests.builders import ROOT, Gate, Row, info, to_bytes
from tests.fakes.memory_store import MemoryStore
from tidegate_delta.log.file_names import commit_name, in_log


def write(gate: Gate, version: int, *rows: Row) -> None:
    """Write a version as another engine."""
    store = gate.stores[ROOT]
    assert isinstance(store, MemoryStore)
    store.files[in_log(commit_name(version))] = to_bytes([info("DELETE"), *rows])
