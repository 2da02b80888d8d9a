"""Statements that only a writer can make about its rows: the committer opens no data file."""

from dataclasses import dataclass
from typing import Any, Final

from tidegate_delta.constraints.row_constraints import expressions, hashes, requirements
from tidegate_delta.log.actions import Metadata, Protocol
from tidegate_messages.identity_values import IdentityDemand, IdentityUsage
from tidegate_messages.proposal import CdcMode, Operation, Proposal
from tidegate_runtime.client import proposal_drafts

LEASE: Final = "LEASE IDENTITY VALUES"
"""The operation of a commit that only leases identity values."""


@dataclass(frozen=True)
class Attestation:
    """A writer's statements about a proposal's rows; the fields are those of `Proposal`."""

    constraints_enforced: tuple[str, ...] = ()
    cdc_mode: CdcMode | None = None
    identity_usage: tuple[IdentityUsage, ...] = ()


NOTHING: Final = Attestation()


def in_table_already(metadata: Metadata, protocol: Protocol) -> tuple[str, ...]:
    """Return the hashes of a table's constraints: its own rows meet them, so copies of them do."""
    return tuple(hashes(expressions(requirements(metadata, protocol))))


def with_attestation(proposal: Proposal, attestation: Attestation) -> Proposal:
    """Return a proposal with its writer's statements added to those it already has."""
    statements: dict[str, Any] = {
        "constraints_enforced": (*proposal.constraints_enforced, *attestation.constraints_enforced),
        "identity_usage": (*proposal.identity_usage, *attestation.identity_usage),
        "cdc_mode": attestation.cdc_mode or proposal.cdc_mode,
    }
    return proposal.model_copy(update=statements)


def lease(
    target: proposal_drafts.Target, stamp: proposal_drafts.Stamp, *demands: IdentityDemand
) -> Proposal:
    """Return a proposal that leases identity values; the outcome's `assigned` holds the blocks."""
    draft = proposal_drafts.append(target, stamp, ())
    lease_fields = {"operation": Operation(name=LEASE), "identity_leases": demands}
    return draft.model_copy(update=lease_fields)
