"""What only a writer can state about its rows, since the committer opens no data file."""

from dataclasses import dataclass
from typing import Any, Final

from tidegate.delta.actions import Metadata, Protocol
from tidegate.delta.features.constraints import expressions, hashes, requirements
from tidegate.pipeline.identity_values import IdentityDemand, IdentityUsage
from tidegate.pipeline.proposal import CdcMode, Operation, Proposal
from tidegate.producers import draft

LEASE: Final = "LEASE IDENTITY VALUES"
"""The operation of a commit that only leases identity values."""


@dataclass(frozen=True)
class Vouched:
    """A writer's statements about a proposal's rows; the fields are those of `Proposal`."""

    constraints_enforced: tuple[str, ...] = ()
    cdc_mode: CdcMode | None = None
    identity_usage: tuple[IdentityUsage, ...] = ()


NOTHING: Final = Vouched()


def in_table_already(metadata: Metadata, protocol: Protocol) -> tuple[str, ...]:
    """Return the hashes of a table's constraints: its own rows meet them, so copies do, too."""
    return tuple(hashes(expressions(requirements(metadata, protocol))))


def vouched_for(proposal: Proposal, word: Vouched) -> Proposal:
    """Return a proposal with its writer's statements added to those that it has."""
    told: dict[str, Any] = {
        "constraints_enforced": (*proposal.constraints_enforced, *word.constraints_enforced),
        "identity_usage": (*proposal.identity_usage, *word.identity_usage),
        "cdc_mode": word.cdc_mode or proposal.cdc_mode,
    }
    return proposal.model_copy(update=told)


def lease(target: draft.Target, stamp: draft.Stamp, *wanted: IdentityDemand) -> Proposal:
    """Return a proposal that leases identity values; the outcome's `assigned` has the blocks."""
    known = draft.append(target, stamp, ())
    told = {"operation": Operation(name=LEASE), "identity_leases": wanted}
    return known.model_copy(update=told)
