"""The store of a committer's table."""

from tests.builders import ROOT, Gate
from tests.fakes.memory_store import MemoryStore


def store_of(gate: Gate) -> MemoryStore:
    """Return the store in memory that holds the committer's table."""
    store = gate.stores[ROOT]
    assert isinstance(store, MemoryStore)
    return store
