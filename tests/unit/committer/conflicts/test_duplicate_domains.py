"""A foreign version that names a metadata domain twice: which configuration holds is undefined."""

import pytest

from tests.builders import (
    ROOT,
    Gate,
    Row,
    add,
    delete,
    info,
    metadata,
    proposal,
    protocol,
    to_bytes,
)
from tests.support.tables import creating
from tidegate_delta.log.file_names import commit_name, in_log
from tidegate_messages.outcome import Outcome
from tidegate_messages.proposal import Proposal

SAID: Row = {"domainMetadata": {"domain": "a", "configuration": "{}", "removed": False}}
WITH = protocol(1, 7, writerFeatures=["domainMetadata", "appendOnly", "invariants"])
WITHOUT = protocol(1, 7, writerFeatures=["appendOnly", "invariants"])


def gate_with(before: Row, *foreign: Row) -> Gate:
    """Return a committer whose table has a foreign version 2."""
    gate = Gate()
    gate.ask(creating(before, metadata(), add("old")))
    gate.ask(proposal(add("x")))
    gate.stores[ROOT].put(in_log(commit_name(2)), to_bytes([info(), *foreign]))
    return gate


def is_domain_twice(outcome: Outcome) -> bool:
    wrong = outcome.rejection
    return wrong is not None and (wrong.rule, wrong.error_class) == (
        "domain_metadata_changed",
        "DELTA_DUPLICATE_DOMAIN_METADATA_INTERNAL_ERROR",
    )


@pytest.mark.parametrize("before_restart", [True, False])
@pytest.mark.parametrize("one", [proposal(add("n"), read_version=1), delete("old", read_version=1)])
def test_no_proposal_follows_it_a_blind_append_neither(one: Proposal, before_restart: bool) -> None:
    gate = gate_with(WITH, SAID, SAID)
    if before_restart:
        [outcome] = gate.ask(proposal(add("after"), read_version=2))
        assert outcome.status == "committed"
        gate.restart()
    [outcome] = gate.ask(one)
    assert is_domain_twice(outcome)


def test_so_it_is_where_the_version_itself_adds_the_feature() -> None:
    [outcome] = gate_with(WITHOUT, WITH, SAID, SAID).ask(proposal(add("n"), read_version=1))
    assert is_domain_twice(outcome)
