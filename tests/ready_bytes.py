"""Ready bytes, staged and proposed as exactly one version."""

from typing import Any

from tests import builders
from tidegate_delta.log.commit import sha256
from tidegate_messages.proposal import ClaimCheck, Proposal
from tidegate_runtime.storage.log_store import LogStore


def stage(store: LogStore, version: int, content: bytes) -> ClaimCheck:
    """Write bytes where they are staged, under a name that nobody has."""
    path = f"_delta_log/_staged_commits/{version:020d}.{builders.an_id()}.json"
    store.put(path, content)
    return ClaimCheck(path=path, size=len(content), sha256=sha256(content))


def verbatim(gate: builders.Gate, version: int, *rows: builders.Row, **told: Any) -> Proposal:
    """Return the proposal of some rows as exactly a version, staged in the gate's store."""
    claim = stage(gate.stores[builders.ROOT], version, builders.to_bytes(rows))
    known = {"kind": "verbatim", "exact_version": version, "claim_check": claim}
    return builders.proposal(**{"read_version": version - 1, **known, **told})
