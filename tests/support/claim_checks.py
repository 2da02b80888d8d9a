"""Proposals whose actions are in a claim file."""

from typing import Any

from tests.builders import ROOT, Gate, Row, an_id, digest_of, proposal, to_bytes
from tidegate_messages.proposal import Proposal


def claiming(gate: Gate, *rows: Row, **fields: Any) -> Proposal:
    """Return a proposal whose rows are in a claim file of the committer's table."""
    content, own = to_bytes(rows), an_id()
    path = f"_tidegate/proposals/{own}.ndjson"
    gate.stores[ROOT].put(path, content)
    claim = {"path": path, "size": len(content), "sha256": digest_of(content)}
    return proposal(proposal_id=own, claim_check=claim, **fields)
