"""Check a metadata patch against the table that was read, and apply it to the table at the head."""

from tidegate_committer.admission.constraint_checks import not_validated
from tidegate_committer.admission.table_change_checks import wrong_table
from tidegate_committer.intake.candidate import Candidate
from tidegate_committer.intake.refusals import BAD_METADATA, fault_in, flaw
from tidegate_committer.policy import Policy
from tidegate_committer.state.table_definition import TableDefinition
from tidegate_committer.state.table_state import TableState
from tidegate_delta.definitions.definition import refuse
from tidegate_delta.definitions.definition_changes import check_change
from tidegate_delta.errors import TidegateError
from tidegate_delta.features.clustering import physical_clustering_columns
from tidegate_messages.metadata_patch import metadata_hash
from tidegate_messages.outcome import Rejection
from tidegate_messages.patch_apply import applied

_FIELD = "metadata_patch"


def wrong_patch(candidate: Candidate, state: TableState, policy: Policy) -> Rejection | None:
    """Return why a patch does not fit the table that its writer read, or None."""
    patch = candidate.patch
    assert patch is not None, "the proposal has a patch"
    read = state.table_definition_at(candidate.read_version)
    if patch.base is not None and patch.base != metadata_hash(read.metadata):
        problem = f"is not the hash of the metadata at version {candidate.read_version}"
        return flaw("other_metadata", f"{_FIELD}.base", problem, "read the table and propose again")
    patched = with_patch(candidate, read, state, policy)
    if isinstance(patched, Rejection):
        return patched
    after = read.after(patched.content.metadata, patched.content.protocol)
    return not_validated(candidate, read, after)


def with_patch(
    candidate: Candidate, table_definition: TableDefinition, state: TableState, policy: Policy
) -> Candidate | Rejection:
    """Return the proposal with its patch applied to a table, or a refusal.

    Metadata and protocol are checked together, as a change of that table.
    """
    patch = candidate.patch
    assert patch is not None, "the proposal has a patch"
    try:
        before = table_definition.definition
        after = applied(patch, before, candidate.id, physical_clustering_columns(state.domains))
        refuse(check_change(before, after), state.root)
    except (TidegateError, ValueError, RecursionError) as error:
        return _refusal(error)
    listed = None if after.protocol == table_definition.protocol else after.protocol
    patched = candidate.with_table(after.metadata, listed)
    return wrong_table(patched.content, table_definition, state.root, policy) or patched


def _refusal(error: Exception) -> Rejection:
    rejection = flaw(BAD_METADATA, _FIELD, fault_in(error), "correct what it names")
    error_class = error.error_class if isinstance(error, TidegateError) else None
    return rejection.model_copy(update={"error_class": error_class})
