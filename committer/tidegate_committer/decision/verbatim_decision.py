"""Verbatim proposals: bytes that become exactly version N, unchanged and alone, or do not.

    N = head + 1    the bytes are written as version N, if they are valid; version 0 creates a table
    N ≤ head        version N holds these bytes: committed, a repeat; others: rejected, for ever
    N > head + 1    denied: there is a gap

A refusal need not be written into the log: version N never changes, so the log implies it. The
staged file is read only if the decision depends on it; a missing one does not change what the log
says.
"""

from dataclasses import dataclass, replace
from typing import Final

from tidegate_committer.admission.admission_rules import AdmissionInput, late_or_wrong_table
from tidegate_committer.decision.decision_types import Verdict, denied
from tidegate_committer.decision.machine import BatchPlan
from tidegate_committer.group_commit.entry_encoding import EncodedEntry
from tidegate_committer.group_commit.grouping import Group
from tidegate_committer.intake.candidate import Candidate
from tidegate_committer.intake.proposal_actions import overfull
from tidegate_committer.policy import Policy
from tidegate_committer.state.table_state import TableState
from tidegate_committer.verbatim.verbatim_validation import (
    AnsweredBytes,
    VerbatimEntry,
    VerbatimPriority,
    after_answer,
    after_native_group,
    entry_problem,
    parse_verbatim,
)
from tidegate_delta.log.commit import sha256
from tidegate_messages.outcome import Rejection

VERSION_TAKEN: Final = "version_taken"
STAGED_FILE: Final = "staged_file"


@dataclass(frozen=True)
class Decision:
    """The verdict on a verbatim entry; `ready`, if given, must be written to make it true.

    `writer` identifies the writer for verbatim priority: its `txn_id`, else the proposal's id.
    """

    verdict: Verdict
    writer: str
    ready: VerbatimEntry | None = None


def exact_version(candidate: Candidate) -> int:
    """Return the version that a verbatim entry is to become."""
    assert candidate.proposal is not None, "verbatim bytes are proposed"
    version = candidate.proposal.exact_version
    assert version is not None, "verbatim bytes are those of a version"
    return version


def needs_bytes(state: TableState, candidate: Candidate) -> bool:
    """Return whether the staged file must be read for the decision."""
    version = exact_version(candidate)
    if version > state.version:
        return version == state.version + 1
    entry = state.entries.get(version)
    is_other = entry is not None and entry.sha256 != candidate.claim.sha256
    return is_other and _declared_txn_id(candidate) is None


@dataclass(frozen=True)
class VerbatimCase:
    """A verbatim entry to decide. `content` is the staged file, if `needs_bytes`; None if it does
    not exist; a text that says why it cannot be read.
    """

    candidate: Candidate
    content: bytes | str | None
    now_ms: int
    policy: Policy


def decide(state: TableState, case: VerbatimCase) -> Decision:
    """Return the decision on a verbatim entry.

    Law: the state has the versions after the one that was read, as far as the log holds them
    """
    candidate = case.candidate
    version, claim = exact_version(candidate), candidate.claim
    name = _declared_txn_id(candidate)
    writer = name or str(candidate.id)
    own = state.entries.get(version)
    if own is not None and own.sha256 == claim.sha256:
        verdict = Verdict(candidate, "committed", version=version, repeat=True)
        return Decision(verdict, writer)
    if min(version, candidate.read_version + 1) < state.oldest:
        return Decision(Verdict(candidate, "expired"), writer)
    if version > state.version + 1:
        return Decision(_version_ahead(state, candidate), writer)
    validated: VerbatimEntry | None = None
    if needs_bytes(state, candidate):
        read_bytes = _read(candidate, case.content, case.policy)
        if isinstance(read_bytes, Rejection):
            verdict = Verdict(candidate, "denied", rejection=read_bytes)
            return Decision(verdict, writer)
        validated = read_bytes
        name = name or validated.entry.txn_id
        writer = name or str(candidate.id)
    committed_version = _version_with_txn_id(state, candidate, name)
    if committed_version is not None:
        reason = (
            f"txn_id: this work is committed, as version {committed_version}; take its rows for "
            "written"
        )
        return Decision(denied(candidate, "already_committed", reason), writer)
    if version <= state.version:
        return Decision(_version_taken(state, candidate), writer)
    assert validated is not None, "what may be written was read"
    read = state.table_definition_at(max(candidate.read_version, 0)) if state.version >= 0 else None
    admission_input = AdmissionInput(state.root, read, case.now_ms)
    complete = replace(candidate, content=validated.actions)
    rejection = late_or_wrong_table(complete, admission_input, case.policy)
    rejection = rejection or entry_problem(
        candidate, validated, state, case.now_ms, case.policy.roots
    )
    if rejection is not None:
        return Decision(Verdict(candidate, "denied", rejection=rejection), writer)
    return Decision(Verdict(candidate, "committed", "membership", version), writer, validated)


def plan_of(state: TableState, decision: Decision) -> BatchPlan:
    """Return the plan that makes a decision true: an entry of its own, or none."""
    group = Group(state.version + 1)
    if decision.ready is not None:
        group.take(decision.verdict.candidate)
    verdict = decision.verdict
    answer = AnsweredBytes(decision.writer, verdict.candidate.claim.sha256, verdict.status)
    return BatchPlan(group, (verdict,), decision.ready, answer)


def encoded_of(plan: BatchPlan) -> EncodedEntry | None:
    """Return the entry of a verbatim plan, None for any other plan."""
    validated = plan.ready
    return (
        EncodedEntry(
            validated.content,
            validated.entry,
            validated.actions.adds,
            verbatim=plan.verdicts[0].candidate.id,
        )
        if validated
        else None
    )


def priority_after(priority: VerbatimPriority, plan: BatchPlan, now_s: float) -> VerbatimPriority:
    """Return the verbatim priority after a plan was carried out."""
    if plan.answer is not None:
        return after_answer(priority, plan.answer, now_s)
    return priority if plan.group.is_empty else after_native_group(priority)


def _declared_txn_id(candidate: Candidate) -> str | None:
    return candidate.proposal.txn_id if candidate.proposal else None


def _version_with_txn_id(state: TableState, candidate: Candidate, name: str | None) -> int | None:
    """Return the version after the read one that has the same `txnId`, or None."""
    if name is None:
        return None
    since = state.since(candidate.read_version)
    return next((entry.version for entry in since if entry.txn_id == name), None)


def _read(
    candidate: Candidate, content: bytes | str | None, policy: Policy
) -> VerbatimEntry | Rejection:
    claim = candidate.claim
    problem = None
    if content is None:
        problem = "is not there"
    elif isinstance(content, str):
        problem = f"cannot be read: {content}"
    elif len(content) != claim.size or sha256(content) != claim.sha256:
        problem = "holds other bytes than were proposed"
    if problem is not None or not isinstance(content, bytes):
        reason = (
            f"claim_check: {claim.path[:256]!r} {problem}; stage the bytes again, and propose them"
        )
        return Rejection(rule=STAGED_FILE, reason=reason, advice="fix", field="claim_check")
    return overfull(content, policy) or parse_verbatim(exact_version(candidate), content)


def _version_ahead(state: TableState, candidate: Candidate) -> Verdict:
    return denied(
        candidate,
        "version_ahead",
        f"exact_version: {exact_version(candidate)} is not the next one, the table's head is "
        f"{state.version}; read the table and propose the version after it",
    )


def _version_taken(state: TableState, candidate: Candidate) -> Verdict:
    version = exact_version(candidate)
    rejection = Rejection(
        rule=VERSION_TAKEN,
        reason=f"exact_version: {version} holds other bytes, the table's head is {state.version}; "
        "look at the versions since, and propose the one after it",
        advice="rebase",
        field="exact_version",
        winner_version=version,
        head_version=state.version,
    )
    return Verdict(candidate, "rejected", rejection=rejection)
