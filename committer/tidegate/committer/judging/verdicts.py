"""The words of a decision: what is asked, what is looked at, and what is answered."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple
from uuid import UUID

from tidegate.committer.group_commit.grouping import Group
from tidegate.committer.proposals.candidate import Candidate
from tidegate.committer.proposals.known import NOTHING, Known
from tidegate.committer.proposals.policy import Policy
from tidegate.committer.tables.state import TableState
from tidegate.delta.actions import Txn
from tidegate.pipeline.outcome import Advice, Rejection, Status
from tidegate.pipeline.proposal import Proposal

Needs = Literal["nothing", "membership", "refusal", "another entry"]
"""What must stand in the log before a verdict may be told."""


class Consider(NamedTuple):
    """Decide on a candidate. `may_refuse` is false where no more refusals may be written."""

    candidate: Candidate
    now_ms: int
    may_refuse: bool = True


@dataclass(frozen=True)
class View:
    """What a decision looks at: the table, the group before it, what the operator allows.

    `known` is what was read for it besides.
    """

    state: TableState
    group: Group
    policy: Policy
    known: Known = NOTHING


class Verdict(NamedTuple):
    """What becomes of one delivery, once the group's entry has landed.

    `row_ids` are the first ids of its new files by their paths, where the table tracks rows.
    """

    candidate: Candidate
    status: Status
    needs: Needs = "nothing"
    version: int | None = None
    place: int | None = None
    rejection: Rejection | None = None
    repeat: bool = False
    row_ids: Mapping[str, int] | None = None


def target_of(candidate: Candidate) -> UUID:
    """Return the proposal that a delivery is about: another one in a cancel."""
    proposal = candidate.proposal
    if proposal is not None and proposal.kind == "cancel" and proposal.cancels is not None:
        return proposal.cancels
    return candidate.id


def another_entry(candidate: Candidate) -> Verdict:
    """Return that a candidate can't be decided on in this entry; it is never told so."""
    return Verdict(candidate, "denied", "another entry")


def denied(candidate: Candidate, rule: str, reason: str, advice: Advice = "fix") -> Verdict:
    """Return a verdict that promises nothing about other deliveries."""
    rejection = Rejection(rule=rule, reason=reason, advice=advice, field=field_of(reason))
    return Verdict(candidate, "denied", rejection=rejection)


def unwritten(candidate: Candidate, rejection: Rejection) -> Verdict:
    """Return the denial of who is refused by what can't be written into the log just now."""
    told = Rejection(
        rule="too_many_refusals",
        reason=f"{rejection.reason} (rule {rejection.rule}; too many refusals in a short time to "
        "write this one down: send it again later for an answer that holds)",
        advice="retry",
        error_class=rejection.error_class,
        field=rejection.field,
        path=rejection.path,
    )
    return Verdict(candidate, "denied", rejection=told)


def app_txn_seen(state: TableState, seen: Txn, asked: int) -> Rejection:
    """Return the refusal of an application's version in a table that was seen to have it."""
    winner = state.written_by(seen.app_id)
    since = f" since the table's version {winner.version}" if winner else ""
    by = winner.proposal_with(None, seen.app_id) if winner else None
    return Rejection(
        rule="app_txn_seen",
        reason=f"app_txn: the table has application {seen.app_id!r} at version {seen.version}"
        f"{since}, so {asked} is in it or comes too late; go on with the next one",
        advice="fix",
        field="app_txn.version",
        winner_version=winner.version if winner else None,
        winner_proposal_id=str(by) if by else None,
        app_id=seen.app_id,
    )


def field_of(reason: str) -> str | None:
    """Return the field of a proposal with which a reason begins, as ours do; else None."""
    field = reason.partition(":")[0]
    return field if field.partition(".")[0] in Proposal.model_fields else None
