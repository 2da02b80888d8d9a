"""The record of a gate in this process; its bus stamps records with the gate's clock."""

import json

from tests.builders import ROOT, Gate
from tests.linearizability.run_record import Account, PublishedOutcome, Table, proposals


def account_of(gate: Gate, root: str = ROOT) -> Account:
    """Return what a gate received, answered and wrote for one table."""
    sent = [
        (record.value or b"", record.timestamp_ms) for record in gate.records(gate.topics.proposals)
    ]
    result = [
        PublishedOutcome(json.loads(record.value or b""), record.timestamp_ms)
        for record in gate.records(gate.topics.outcomes)
    ]
    return Account(proposals(sent), result, {root: Table(gate.entries(root))})
