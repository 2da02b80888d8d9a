"""What only a writer can vouch for, since the committer opens no data file."""

from dataclasses import dataclass
from typing import Any, Final

from tidegate.delta.actions import Metadata, Protocol
from tidegate.delta.features.constraints import expressions, hashes, requirements
from tidegate.pipeline.identity_values import IdentityDemand, IdentityUsage
from tidegate.pipeline.proposal import CdcMode, Operation, Proposal
from tidegate.producers import draft

LEASE: Final = "LEASE IDENTITY VALUES"
"""What a commit calls itself that only gives identity values out."""


@dataclass(frozen=True)
class Vouched:
    """What held for the rows of a proposal, by its writer's word: see `pipeline.proposal`."""

    constraints_enforced: tuple[str, ...] = ()
    cdc_mode: CdcMode | None = None
    identity_usage: tuple[IdentityUsage, ...] = ()


NOTHING: Final = Vouched()


def in_table_already(metadata: Metadata, protocol: Protocol) -> tuple[str, ...]:
    """Return the hashes of what holds for rows that a table holds, and whoever copies them."""
    return tuple(hashes(expressions(requirements(metadata, protocol))))


def vouched_for(proposal: Proposal, word: Vouched) -> Proposal:
    """Return a proposal with its writer's word on it; what it says by itself stays."""
    told: dict[str, Any] = {
        "constraints_enforced": (*proposal.constraints_enforced, *word.constraints_enforced),
        "identity_usage": (*proposal.identity_usage, *word.identity_usage),
        "cdc_mode": word.cdc_mode or proposal.cdc_mode,
    }
    return proposal.model_copy(update=told)


def lease(target: draft.Target, stamp: draft.Stamp, *wanted: IdentityDemand) -> Proposal:
    """Return the request for identity values; the outcome's `assigned` has the blocks."""
    known = draft.append(target, stamp, ())
    told = {"operation": Operation(name=LEASE), "identity_leases": wanted}
    return known.model_copy(update=told)
