"""Proposals that create tables."""

from typing import Any

from tests.builders import Row, proposal
from tidegate_messages.proposal import Operation, Proposal


def creating(*rows: Row, **fields: Any) -> Proposal:
    """Return the proposal that creates a table with these rows."""
    return proposal(*rows, read_version=-1, operation=Operation(name="CREATE TABLE"), **fields)
