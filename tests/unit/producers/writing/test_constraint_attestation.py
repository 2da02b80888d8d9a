"""A writer's attestation of constraints on its proposals."""

from tests.builders import TABLE, TABLE_ID, add, an_id, proposal
from tidegate_messages.proposal import IdentityDemand, IdentityUsage
from tidegate_producers.writing.column_checks import (
    LEASE,
    NOTHING,
    Attestation,
    lease,
    with_attestation,
)
from tidegate_runtime.client.proposal_builders import Stamp, Target

HASH, OTHER = "a" * 64, "b" * 64


def test_a_field_is_added_to_what_a_proposal_states() -> None:
    usage = IdentityUsage(column="x", low=1, high=9)
    said = Attestation((HASH,), "explicit", (usage,))
    one = proposal(add("a"), constraints_enforced=[OTHER], cdc_mode="implicit")
    result = with_attestation(one, said)
    assert result.constraints_enforced == (OTHER, HASH)
    assert (result.cdc_mode, result.identity_usage) == ("explicit", (usage,))
    assert with_attestation(one, NOTHING) == one


def test_a_lease_reads_nothing_and_writes_no_file() -> None:
    wanted = IdentityDemand(column="x", count=5)
    asked = lease(Target(TABLE, "file:///t", 3, TABLE_ID), Stamp(an_id(), 7), wanted)
    assert asked.operation.name == LEASE
    assert (asked.identity_leases, asked.actions) == ((wanted,), ())
    assert asked.reads is not None
    assert asked.reads.is_empty
