"""The steps of a decision, in order: the first that returns a verdict decides.

The proposal id is looked up before conflicts are checked, because a committed proposal would
conflict with itself. A rejection is a promise: if neither the log nor the bytes imply it, it is
written into the log before it is published.

A proposal's metaData is resolved first: feature directives are applied and removed, and features in
use are listed. A writer that turns a feature on by a property need not compute the protocol. If it
also writes a protocol, nothing is changed.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from tidegate_committer.admission import admission_rules as admission
from tidegate_committer.admission import change_data_checks, post_rebase_checks
from tidegate_committer.admission.identity_allocation import IdentityCounters, numbers, with_reached
from tidegate_committer.conflicts import metadata_patches
from tidegate_committer.conflicts.concurrent_appends import needs_too_many_tests
from tidegate_committer.conflicts.conflict_rules import RULES_VERSION, Conflict, follow, skips_rules
from tidegate_committer.conflicts.rebase import begin, with_own_ids_only
from tidegate_committer.decision import decision_types
from tidegate_committer.decision.decision_types import (
    Consider,
    DecisionInput,
    Verdict,
    another_entry,
    denied,
    target_of,
)
from tidegate_committer.decision.required_reads import burden, known_vectors
from tidegate_committer.group_commit.grouping import fits
from tidegate_committer.intake.candidate import Candidate
from tidegate_committer.intake.refusals import (
    BAD_PATH,
    BAD_PREDICATE,
    DUPLICATE,
    MALFORMED,
    NOT_SUPPORTED,
)
from tidegate_committer.row_level import moved_removals, row_deletes, row_relocation
from tidegate_committer.row_level.moved_removals import HeadOfTable
from tidegate_committer.row_level.row_deletes import concerned
from tidegate_committer.state.log_entry import Entry
from tidegate_committer.state.table_definition import TableDefinition, table_definition_after
from tidegate_committer.state.table_state import DecidedProposal
from tidegate_delta.definitions.definition import Flaw
from tidegate_delta.definitions.resolve_definition import resolve_definition
from tidegate_delta.errors import TidegateError
from tidegate_delta.properties.table_properties import txn_retention_ms
from tidegate_messages.outcome import Rejection
from tidegate_messages.proposal import NO_APP_VERSION


def with_resolved_definition(candidate: Candidate, read: TableDefinition) -> Candidate | Rejection:
    """Return the proposal with the definition that it asks for, or a refusal if it can't have that.

    Metadata that can't be parsed is left to admission, which says why.
    """
    content = candidate.content
    if content.metadata is None or content.protocol is not None:
        return candidate
    try:
        resolved = resolve_definition(read.definition, content.metadata)
    except (TidegateError, ValueError, RecursionError):
        return candidate
    if resolved.flaws:
        return _refusal(resolved.flaws[0])
    metadata, protocol = resolved.definition
    if metadata == content.metadata and protocol == read.protocol:
        return candidate
    listed = None if protocol == read.protocol else protocol
    return replace(candidate, content=replace(content, metadata=metadata, protocol=listed))


def _refusal(flaw: Flaw) -> Rejection:
    return Rejection(
        rule=flaw.rule,
        reason=f"actions.{flaw}",
        advice="fix",
        error_class=flaw.error_class,
        field=f"actions.{flaw.field}",
    )


Step = Callable[[DecisionInput, Consider], Verdict | Consider | None]
"""Returns a verdict; or the command with a changed candidate for the next step; or None, to go on
with the candidate unchanged.
"""


IMPLIED_BY_BYTES: Final = frozenset({MALFORMED, DUPLICATE, BAD_PATH, NOT_SUPPORTED, BAD_PREDICATE})
"""Rules whose refusals depend only on the proposal's bytes (with those of its claim check), on the
table's definition at its read version, and on RULES_VERSION. Limits that an operator can change
refuse by other rules (`too_large`).
"""


def read_ahead(view: DecisionInput, command: Consider) -> Verdict | None:
    """Deny: the version that was read does not exist."""
    candidate = command.candidate
    if candidate.read_version <= view.state.version:
        return None
    return denied(
        candidate,
        "read_version_ahead",
        f"read_version: {candidate.read_version} is not in the log, whose head is "
        f"{view.state.version}; read the table and propose again",
    )


def below_the_log(view: DecisionInput, command: Consider) -> Verdict | None:
    """Expire: the log no longer holds every version after the one that was read."""
    since = command.candidate.read_version + 1
    if since < view.state.oldest:
        return Verdict(command.candidate, "expired")
    assert since >= view.state.window_start, "the versions after the read one are at hand"
    return None


def answered_before(view: DecisionInput, command: Consider) -> Verdict | None:
    """If the id is in the log or the group, repeat its answer; deny other bytes under that id."""
    candidate = command.candidate
    decided = _known(view, command)
    if decided is None:
        return None
    if not candidate.is_cancel and decided.sha256 not in (None, candidate.sha256):
        return denied(
            candidate,
            "id_reused",
            "proposal_id: it came before with other bytes; take a new id for other work",
        )
    if decided.rejection is not None:
        return Verdict(candidate, "rejected", rejection=decided.rejection, repeat=True)
    return Verdict(candidate, "committed", "nothing", decided.version, decided.place, repeat=True)


def _known(view: DecisionInput, command: Consider) -> DecidedProposal | None:
    target = target_of(command.candidate)
    in_group = view.group.decisions.get(target)
    if in_group is None:
        return view.state.decisions.get(target)
    digest, result = in_group
    if isinstance(result, Rejection):
        return DecidedProposal(view.group.version, 0, digest, result)
    return DecidedProposal(view.group.version, result, digest)


def created_before(view: DecisionInput, command: Consider) -> Verdict | None:
    """Reject creating a table that exists. Version 0 implies the rejection, so none is written."""
    if command.candidate.read_version >= 0:
        return None
    if view.state.version < 0 and not view.group.members:
        return None
    rejection = Rejection(
        rule="table_exists",
        reason=f"read_version: {view.state.root} holds a table; write to it, or make it known with "
        "`tidegate table register`",
        advice="fix",
        error_class="DELTA_TABLE_ALREADY_EXISTS",
        field="read_version",
        winner_version=0,
    )
    return Verdict(command.candidate, "rejected", rejection=rejection)


def behind_its_application(view: DecisionInput, command: Consider) -> Verdict | None:
    """Defer to another entry: a member moves the same application. An entry holds one `txn` of
    each, and the next version is compared with the landed one.
    """
    group, candidate = view.group, command.candidate
    if not group.app_ids or group.app_ids.isdisjoint([txn.app_id for txn in candidate.txns]):
        return None
    return another_entry(candidate)


def app_txn_seen(view: DecisionInput, command: Consider) -> Verdict | None:
    """Reject: the table has this version of an application, or a later one.

    For `app_txn` this is Delta's rule. Of `app_txns`, which are compared with what their writer
    expects, it only finds that the table has all of them already.
    """
    proposal, state = command.candidate.proposal, view.state
    if proposal is None or state.version < 0:
        return None
    own = proposal.app_txn
    seen = state.apps.get(own.app_id) if own else None
    if own is not None and seen is not None and seen.version >= own.version:
        rejection = decision_types.app_txn_seen(state, seen, own.version, "app_txn")
        return _against_application(view, command, rejection)
    current = [state.apps.get(txn.app_id) for txn in proposal.app_txns]
    versions = [txn.version for txn in proposal.app_txns]
    if current and current[0] and [txn.version if txn else None for txn in current] == versions:
        rejection = decision_types.app_txn_seen(state, current[0], versions[0], "app_txns[0]")
        return _against_application(view, command, rejection)
    return None


def app_txn_unexpected(view: DecisionInput, command: Consider) -> Verdict | None:
    """Reject or deny: the table does not have an application at the version that its writer
    expects.

    Where the table is further than expected, no later version makes that undone, so the rejection
    is final. Where it is behind, proposals before this one may still be sent again: a denial.
    """
    proposal, state = command.candidate.proposal, view.state
    if proposal is None or not proposal.app_txns:
        return None
    for index, advance in enumerate(proposal.app_txns):
        seen = state.apps.get(advance.app_id)
        version = seen.version if seen else NO_APP_VERSION
        if version == advance.expected:
            continue
        rejection = decision_types.app_txn_conflict(state, seen, advance, f"app_txns[{index}]")
        if version < advance.expected:
            return Verdict(command.candidate, "denied", rejection=rejection)
        return _against_application(view, command, rejection)
    return None


def _against_application(view: DecisionInput, command: Consider, rejection: Rejection) -> Verdict:
    # With `delta.setTransactionRetentionDuration` the table may drop the application later, so then
    # the rejection must be written to the log.
    keeps = txn_retention_ms(view.state.table_definition.metadata) is None
    return _negative(view, command, rejection, is_implied=keeps)


def complete_metadata(view: DecisionInput, command: Consider) -> Verdict | Consider | None:
    """Complete the metadata that it writes as Delta does (features, columns), or reject it."""
    candidate, state = command.candidate, view.state
    if candidate.content.metadata is None or candidate.flaw is not None or state.version < 0:
        return None
    completed = with_resolved_definition(
        candidate, state.table_definition_at(candidate.read_version)
    )
    if isinstance(completed, Rejection):
        return _negative(view, command, completed, is_implied=False)
    return None if completed is candidate else command._replace(candidate=completed)


def inadmissible(view: DecisionInput, command: Consider) -> Verdict | None:
    """Reject at admission: the proposal is malformed, illegal for the table, or not allowed.

    What is wrong in itself is refused again whenever the same bytes come: it is not written.
    """
    candidate, state = command.candidate, view.state
    read = state.table_definition_at(candidate.read_version) if state.version >= 0 else None
    admission_input = admission.AdmissionInput(state.root, read, command.now_ms)
    rejection = admission.refusal(candidate, admission_input, view.policy)
    if rejection is None:
        return None
    return _negative(view, command, rejection, is_implied=rejection.rule in IMPLIED_BY_BYTES)


def unlawful_patch(view: DecisionInput, command: Consider) -> Verdict | None:
    """Reject: its metadata patch is illegal for the table that it read."""
    candidate, state = command.candidate, view.state
    if candidate.patch is None:
        return None
    rejection = metadata_patches.patch_problem(candidate, state, view.policy)
    return _negative(view, command, rejection, is_implied=False) if rejection else None


def unreadable_rows(view: DecisionInput, command: Consider) -> Verdict | None:
    """Reject: its deletion vectors can't be read, do not fit their files, or are too large.

    This is checked before conflicts, because the log does not say whether a file can be read.
    """
    candidate, state = command.candidate, view.state
    if state.version < 0:
        rejection: Rejection | None = row_deletes.no_table() if candidate.intents else None
    elif not row_relocation.depends_on_rows(candidate, state.since(candidate.read_version)):
        return None
    elif burden(state, candidate, view.known) > view.policy.vector_bytes_max:
        rejection = row_deletes.too_heavy(view.policy)
    else:
        needed = known_vectors(state, candidate, view.known)
        unreadable = row_deletes.unreadable(needed, view.known)
        rejection = unreadable or row_deletes.row_intent_problem(candidate, view.known)
    return _negative(view, command, rejection, is_implied=False) if rejection else None


def meets_rewritten_rows(view: DecisionInput, command: Consider) -> Verdict | None:
    """Defer to another entry: a member brings its own deletion vector, or moves rows that the
    proposal names, or deletes rows that the proposal moves. Only the landed entry shows the
    resulting rows.
    """
    candidate, state, group = command.candidate, view.state, view.group
    if not group.may_meet_rows_of(candidate):
        return None
    # Members name files as the head does; rows that the proposal read may have moved into these.
    candidate = row_relocation.at_head(candidate, state.since(candidate.read_version))
    deletes = group.merges.tallies.keys()
    if candidate.moves.keys().isdisjoint(deletes) and not any(
        concerned(candidate, member) or _moves_rows_of(candidate, member)
        for member in group.beyond_row_deletes
    ):
        return None
    return another_entry(command.candidate)


def _moves_rows_of(candidate: Candidate, member: Entry) -> bool:
    if not member.moved:
        return False
    named = candidate.intended | candidate.files_read | candidate.followed
    return not (named | candidate.content.removed).isdisjoint(member.moved)


def conflicting(view: DecisionInput, command: Consider) -> Verdict | Consider | None:
    """Reject if a conflict rule fires against a version after the one it read, or an earlier
    member.

    Otherwise go on with the rebased candidate: as if it had read the table at the head.
    """
    candidate, state = command.candidate, view.state
    if state.version < 0:
        return None
    if candidate.is_plain_append and state.table_definitions[-1][0] <= candidate.read_version:
        return None
    read, group = state.table_definition_at(candidate.read_version), view.group
    accepted_candidate = with_own_ids_only(candidate, state)
    if accepted_candidate is None:
        return Verdict(candidate, "expired")
    rebase_state = begin(accepted_candidate, read, admission.level_of(candidate, read), view.known)
    result = follow(rebase_state, state.since(candidate.read_version))
    if not (isinstance(result, Conflict) or skips_rules(result, group.write_summary, group.adds)):
        if needs_too_many_tests(result.candidate, group.write_summary.count):
            return another_entry(candidate)
        result = follow(result, group.rivals(result.candidate, view.known))
    if isinstance(result, Conflict):
        return _negative(view, command, result.rejection, is_implied=True)
    return None if result.candidate is candidate else command._replace(candidate=result.candidate)


def removes_moved_files(view: DecisionInput, command: Consider) -> Verdict | Consider | None:
    """Go on with the removes of files that winners compacted as removes of their rows, where these
    are now; reject it if the table allows no such change.
    """
    candidate, state = command.candidate, view.state
    if not candidate.leaving:
        return None
    winners = tuple(state.since(candidate.read_version))
    head = HeadOfTable(state.table_definition, winners, view.policy, command.now_ms)
    result = moved_removals.at_head(candidate, head, view.known)
    if isinstance(result, Rejection):
        return _negative(view, command, result, is_implied=False)
    return command._replace(candidate=result)


def behind_a_table_change(view: DecisionInput, command: Consider) -> Verdict | None:
    """Defer to another entry: a member changes metadata or protocol, and later proposals are
    decided on the result.
    """
    if not view.group.changes_table:
        return None
    return another_entry(command.candidate)


def patched(view: DecisionInput, command: Consider) -> Verdict | Consider | None:
    """Apply its metadata patch to the table at the head; reject it if the result is illegal."""
    candidate, state = command.candidate, view.state
    if candidate.patch is None:
        return None
    result = metadata_patches.with_patch(candidate, state.table_definition, state, view.policy)
    if isinstance(result, Rejection):
        # The patch was legal when its writer read: a winner's table change makes it illegal.
        rejection = result.model_copy(update={"advice": "rerun"})
        return _negative(view, command, rejection, is_implied=False)
    return command._replace(candidate=result)


def cannot_share_entry(view: DecisionInput, command: Consider) -> Verdict | None:
    """Defer to another entry: it may not share one with the members, e.g. over a common file."""
    candidate = command.candidate
    return None if fits(view.group, candidate, view.policy) else another_entry(candidate)


def reject_at_head(view: DecisionInput, command: Consider) -> Verdict | None:
    """Reject: a file to remove is not live, a file to add is, or the table allows no removals."""
    candidate, state = command.candidate, view.state
    if state.version < 0:
        misnamed = post_rebase_checks.new_path_form_problem(
            candidate.content, state, view.policy.roots
        )
        return _negative(view, command, misnamed, is_implied=False) if misnamed else None
    rejection = post_rebase_checks.problem_at_head(candidate, state, view.policy, view.known)
    rejection = rejection or change_data_checks.incomplete(
        candidate, state.table_definition, view.known.files
    )
    return _negative(view, command, rejection, is_implied=False) if rejection else None


def rows_wrong_at_head(view: DecisionInput, command: Consider) -> Verdict | None:
    """Reject: a file that loses rows is not live, not as its writer saw it, or may not lose any."""
    candidate, state = command.candidate, view.state
    if not (candidate.intents or candidate.moved_away):
        return None
    entries = list(state.since(candidate.read_version))
    rejection = row_deletes.may_not_delete(
        candidate, state.table_definition
    ) or row_deletes.deleted_files_problem(candidate, state.files, entries, view.known)
    rejection = rejection or row_relocation.relocation_problem(candidate, entries, view.known)
    return _negative(view, command, rejection, is_implied=False) if rejection else None


def values_taken(view: DecisionInput, command: Consider) -> Verdict | Consider | None:
    """Reject: its identity values are taken by others, or it does not say which it uses. Otherwise
    go on with the values assigned to it.
    """
    candidate, state, group = command.candidate, view.state, view.group
    content, proposal = candidate.content, candidate.proposal
    before = state.table_definition if state.version >= 0 else None
    after = table_definition_after(before, content.metadata, content.protocol)
    uses_values = proposal and (proposal.identity_usage or proposal.identity_leases)
    if not (after.numbered or uses_values):
        return None
    counters = IdentityCounters(
        with_reached(after.numbered, group.marks),
        with_reached(before.numbered, group.marks) if before is not None else {},
        lambda lease: group.leases.get(lease) or state.leases.get(lease),
    )
    assigned = numbers(candidate, counters)
    if isinstance(assigned, Rejection):
        return _negative(view, command, assigned, is_implied=False)
    return command._replace(candidate=replace(candidate, numbers=assigned)) if assigned else None


def app_versions(view: DecisionInput, command: Consider) -> Verdict:
    """Answer which version of each application the table has, once the members have landed."""
    candidate, state = command.candidate, view.state
    if candidate.flaw is not None:
        return Verdict(candidate, "denied", rejection=candidate.flaw)
    if view.group.members:
        return another_entry(candidate)
    assert candidate.proposal is not None, "a question is a proposal"
    txns = {app_id: state.apps.get(app_id) for app_id in candidate.proposal.app_ids}
    versions = {name: txn.version if txn else NO_APP_VERSION for name, txn in txns.items()}
    return Verdict(candidate, "answered", version=state.version, app_versions=versions)


def give_up(view: DecisionInput, command: Consider) -> Verdict | None:
    """Cancel: refuse the named proposal for ever."""
    rejection = Rejection(
        rule="cancelled",
        reason=f"cancelled by its writer's proposal {command.candidate.id}; propose the work again",
        advice="rerun",
    )
    return _negative(view, command, rejection, is_implied=False)


STEPS: Final[tuple[Step, ...]] = (
    read_ahead,
    below_the_log,
    answered_before,
    behind_a_table_change,
    created_before,
    behind_its_application,
    app_txn_seen,
    complete_metadata,
    inadmissible,
    app_txn_unexpected,
    unlawful_patch,
    unreadable_rows,
    meets_rewritten_rows,
    conflicting,
    removes_moved_files,
    patched,
    cannot_share_entry,
    reject_at_head,
    rows_wrong_at_head,
    values_taken,
)
"""A candidate that passes all steps is committed."""

CANCEL_STEPS: Final[tuple[Step, ...]] = (read_ahead, below_the_log, answered_before, give_up)
"""The steps of a cancel: it needs no admission, for it changes nothing in the table."""

QUESTION_STEPS: Final[tuple[Step, ...]] = (app_versions,)
"""The steps of a question about applications."""


def _negative(
    view: DecisionInput, command: Consider, rejection: Rejection, *, is_implied: bool
) -> Verdict:
    """Return a verdict against a candidate, of a kind whose promise can be kept.

    If the log or the bytes imply the rejection (`is_implied`), and this version of the rules
    produced it, it is final by itself. Otherwise it must be written to the log first
    (`needs="refusal"`). If nothing can be written, the candidate is denied, which promises nothing.
    """
    candidate = command.candidate
    if is_implied and view.state.rules == RULES_VERSION:
        return Verdict(candidate, "rejected", rejection=rejection)
    if view.state.version < 0 and not view.group.members:
        return Verdict(candidate, "denied", rejection=rejection)
    if not command.may_refuse:
        return decision_types.unwritten(candidate, rejection)
    return Verdict(candidate, "rejected", "refusal", rejection=rejection)
