from collections.abc import Iterator
from typing import Final

import pytest

from tests import builders
from tests.fakes.memory_store import MemoryStore
from tests.unit.producers.answering_bus import ROOT, TABLE, Gate, ManualClock, committed
from tidegate_delta.errors import BrokenLog
from tidegate_delta.log.commit import sha256
from tidegate_messages.codec import decode
from tidegate_messages.outcome import Outcome
from tidegate_messages.proposal import Proposal
from tidegate_messages.topics import Topics
from tidegate_runtime.client.client import Client
from tidegate_runtime.client.proposal_builders import Target
from tidegate_runtime.client.verbatim_commits import propose_bytes

CONTENT: Final = builders.to_bytes([builders.info(txnId="w"), builders.add("a")])
TARGET: Final = Target(TABLE, ROOT, 3, builders.TABLE_ID)


def test_the_bytes_are_staged_before_they_are_proposed() -> None:
    store, seen = MemoryStore(ROOT), []

    def answers(proposal: Proposal, digest: str) -> Iterator[Outcome]:
        seen.append(store.read(proposal.claim.path))
        yield committed(proposal, digest, 5)

    gate = Gate(Topics(partitions=1), answers)
    gate.register()
    with Client(gate, gate.topics, ManualClock()) as client:
        outcome = propose_bytes(client, store, TARGET, 5, CONTENT)
        again = propose_bytes(client, store, TARGET, 5, CONTENT)
    assert (outcome.status, outcome.version) == ("committed", 5)
    assert again.proposal_id == outcome.proposal_id
    assert seen == [CONTENT, CONTENT]
    proposal = decode(Proposal, gate.sent[0][1])
    assert (proposal.kind, proposal.exact_version, proposal.read_version) == ("verbatim", 5, 3)
    assert (proposal.txn_id, proposal.claim.sha256) == ("w", sha256(CONTENT))
    assert proposal.claim.path.startswith(f"_delta_log/_staged_commits/{5:020d}.")


def test_what_is_no_commit_is_not_proposed() -> None:
    gate = Gate(Topics(partitions=1), lambda proposal, digest: ())
    gate.register()
    with Client(gate, gate.topics, ManualClock()) as client, pytest.raises(BrokenLog):
        propose_bytes(client, MemoryStore(ROOT), TARGET, 5, b"{")
    assert gate.sent == []
