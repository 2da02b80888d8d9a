"""The committer with in-memory dependencies, `gate`, and the fixtures by which a module sets it up.

A module overrides `new_gate`, `first_proposals` or `after_first_proposals`, never `gate` itself.
"""

import math
from collections.abc import Callable, Sequence

import pytest

from tests.builders import Gate, create
from tidegate_committer.store_reads import log_audit
from tidegate_messages.proposal import Proposal


@pytest.fixture
def new_gate() -> Gate:
    """Return a committer without tables. Override it for other settings, stores or executors."""
    return Gate()


@pytest.fixture
def first_proposals() -> Sequence[Proposal]:
    """Return what the committer commits before the test. Override it for other tables."""
    return [create()]


@pytest.fixture
def after_first_proposals() -> Callable[[Gate], None]:
    """Return what is done last before the test. Override it to hold a store or to restart."""
    return lambda gate: None


@pytest.fixture
def gate(
    new_gate: Gate,
    first_proposals: Sequence[Proposal],
    after_first_proposals: Callable[[Gate], None],
) -> Gate:
    """Return a committer that has committed the first proposals, each before the next is sent."""
    for proposal in first_proposals:
        [outcome] = new_gate.ask(proposal)
        assert outcome.status == "committed", outcome
    after_first_proposals(new_gate)
    return new_gate


@pytest.fixture
def no_audit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no older heads read again: for tests that count what decisions read."""
    monkeypatch.setattr(log_audit, "LOOK_S", math.inf)
