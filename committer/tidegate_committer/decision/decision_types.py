"""The types of a decision: the command `Consider`, its `DecisionInput`, and the `Verdict`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple
from uuid import UUID

from tidegate_committer.group_commit.grouping import Group
from tidegate_committer.intake.candidate import Candidate
from tidegate_committer.intake.refusals import FILE_MISSING
from tidegate_committer.policy import Policy
from tidegate_committer.state.fetched_inputs import NOTHING, FetchedInputs
from tidegate_committer.state.table_state import TableState
from tidegate_delta.log.actions import Txn
from tidegate_messages.outcome import ClientAdvice, Rejection, Status
from tidegate_messages.proposal import NO_APP_VERSION, AppTxnAdvance, Proposal

Needs = Literal["nothing", "membership", "refusal", "another entry"]
"""What must be written to the log before a verdict may be published: nothing, the proposal as a
member of the entry, or its refusal. "another entry" is only for `BatchPlanner`: decide it again
with the next entry.
"""


class Consider(NamedTuple):
    """The command to decide a candidate; `may_refuse`: whether a refusal may be written."""

    candidate: Candidate
    now_ms: int
    may_refuse: bool = True


@dataclass(frozen=True)
class DecisionInput:
    """The input of a decision: the table's state, the group so far, the operator's policy.

    `known` is what was read from the store for it, beyond the state.
    """

    state: TableState
    group: Group
    policy: Policy
    known: FetchedInputs = NOTHING


class Verdict(NamedTuple):
    """The decision on one delivery of a proposal, valid once the group's entry has landed.

    `version` and `place` say in which version it is committed, and as which member. `repeat`: the
    log already had the answer. `row_ids` are the base row ids of its new files, by path, if the
    table tracks rows. `app_versions` answers a question for versions of applications.
    """

    candidate: Candidate
    status: Status
    needs: Needs = "nothing"
    version: int | None = None
    place: int | None = None
    rejection: Rejection | None = None
    repeat: bool = False
    row_ids: Mapping[str, int] | None = None
    app_versions: Mapping[str, int] | None = None


def target_of(candidate: Candidate) -> UUID:
    """Return the id of the proposal that a delivery decides: for a cancel, the cancelled one."""
    proposal = candidate.proposal
    if proposal is not None and proposal.kind == "cancel" and proposal.cancels is not None:
        return proposal.cancels
    return candidate.id


def another_entry(candidate: Candidate) -> Verdict:
    """Return the internal verdict that a candidate waits for the next entry."""
    return Verdict(candidate, "denied", "another entry")


def denied(candidate: Candidate, rule: str, reason: str, advice: ClientAdvice = "fix") -> Verdict:
    """Return a denial: it promises nothing about other deliveries of the same proposal."""
    rejection = Rejection(rule=rule, reason=reason, advice=advice, field=field_of(reason))
    return Verdict(candidate, "denied", rejection=rejection)


def claim_unread(candidate: Candidate, waited_s: float) -> Verdict:
    """Return the denial of a proposal whose own files could not be read for `waited_s`."""
    if candidate.proposal is not None and candidate.proposal.claim_check is None:
        reason = (
            f"verify_files: the files that it adds could not be looked at for {waited_s:g} s: "
            "their store hangs or fails; send the same bytes again once it answers"
        )
        return denied(candidate, FILE_MISSING, reason, "retry")
    reason = (
        f"claim_check: {candidate.claim.path[:256]!r} could not be read for {waited_s:g} s: "
        "its store hangs or fails; send the same bytes again once it answers"
    )
    return denied(
        candidate, "staged_file" if candidate.is_verbatim else "claim_check", reason, "retry"
    )


def unwritten(candidate: Candidate, rejection: Rejection) -> Verdict:
    """Return the denial that replaces a refusal which may not be written to the log at the
    moment.
    """
    retry_later = Rejection(
        rule="too_many_refusals",
        reason=f"{rejection.reason} (rule {rejection.rule}; too many refusals in a short time to "
        "write this one down: send it again later for an answer that holds)",
        advice="retry",
        error_class=rejection.error_class,
        field=rejection.field,
        path=rejection.path,
    )
    return Verdict(candidate, "denied", rejection=retry_later)


def app_txn_seen(state: TableState, last_txn: Txn, version: int, field: str) -> Rejection:
    """Return the rejection of an application's version that the table has, or has passed."""
    if last_txn.version == version:
        detail = f"at version {last_txn.version}: this version of it is there; skip it"
    else:
        detail = (
            f"at version {last_txn.version}, which is after {version}: skip this work if the id "
            "has one writer; if it has several, the table may lack these rows"
        )
    named = _application(state, last_txn, field, detail)
    return Rejection(rule="app_txn_seen", advice="skip", **named)


def app_txn_conflict(
    state: TableState, last_txn: Txn | None, advance: AppTxnAdvance, field: str
) -> Rejection:
    """Return the rejection of an application's version whose expected predecessor is not the one
    that the table has.
    """
    current = Txn(app_id=advance.app_id, version=NO_APP_VERSION) if last_txn is None else last_txn
    state_found = "without a version" if last_txn is None else f"at version {last_txn.version}"
    expected = "none" if advance.expected == NO_APP_VERSION else advance.expected
    if current.version < advance.expected:
        cause = "what comes before is not committed (yet): propose that first"
    else:
        cause = (
            "another writer went on, or this one has an older position: ask, and go on from there"
        )
    detail = f"{state_found}, where {expected} was expected before {advance.version}; {cause}"
    return Rejection(
        rule="app_txn_conflict",
        advice="rerun",
        expected_app_version=advance.expected,
        **_application(state, current, field, detail),
    )


def _application(state: TableState, txn: Txn, field: str, detail: str) -> dict[str, Any]:
    """Return the fields of a rejection over an application."""
    winner = state.written_by(txn.app_id)
    winner_id = winner.proposal_with(None, txn.app_id) if winner else None
    return {
        "reason": f"{field}: version {state.version} of the table has application "
        f"{txn.app_id!r} {detail}",
        "field": f"{field}.version",
        "winner_version": winner.version if winner else None,
        "winner_proposal_id": str(winner_id) if winner_id else None,
        "head_version": state.version,
        "app_id": txn.app_id,
        "app_version": txn.version,
    }


def field_of(reason: str) -> str | None:
    """Return the proposal field that a reason names at its start, before a colon, or None."""
    field = reason.partition(":")[0]
    return field if field.partition(".")[0] in Proposal.model_fields else None
