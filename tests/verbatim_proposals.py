"""Stage a verbatim entry and propose it as exactly one version."""

from typing import Any

from tests import builders
from tests.fakes.memory_store import MemoryStore
from tidegate_delta.log.commit import sha256
from tidegate_messages.proposal import ClaimCheck, Proposal
from tidegate_runtime.storage.log_store import LogStore


def stage(store: LogStore, version: int, content: bytes) -> ClaimCheck:
    """Write bytes to the staging area under a unique name."""
    path = f"_delta_log/_staged_commits/{version:020d}.{builders.an_id()}.json"
    store.put(path, content)
    return ClaimCheck(path=path, size=len(content), sha256=sha256(content))


def verbatim(gate: builders.Gate, version: int, *rows: builders.Row, **fields: Any) -> Proposal:
    """Return a proposal of some rows as exactly one version, staged in the gate's store."""
    root = fields.get("table_root", builders.ROOT)
    store = gate.stores.setdefault(root, MemoryStore(root))
    claim = stage(store, version, builders.to_bytes(rows))
    known = {"kind": "verbatim", "exact_version": version, "claim_check": claim}
    return builders.proposal(**{"read_version": version - 1, **known, **fields})
