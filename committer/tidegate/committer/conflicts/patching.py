"""Where a patch is committed: judged by the table that was read, applied to the one at the head."""

import orjson

from tidegate.committer.admission.enforcement import not_validated
from tidegate.committer.admission.feature_admission import CLUSTERING
from tidegate.committer.admission.table_changes import wrong_table
from tidegate.committer.conflicts.patches import applied
from tidegate.committer.proposals.basis import Basis
from tidegate.committer.proposals.candidate import Candidate
from tidegate.committer.proposals.flaws import BAD_METADATA, fault_in, flaw
from tidegate.committer.proposals.policy import Policy
from tidegate.committer.tables.state import TableState
from tidegate.delta.errors import TidegateError
from tidegate.delta.features.changes import check_change
from tidegate.delta.features.definition import refuse
from tidegate.pipeline.metadata_patch import metadata_hash
from tidegate.pipeline.outcome import Rejection

_FIELD = "metadata_patch"


def wrong_patch(candidate: Candidate, state: TableState, policy: Policy) -> Rejection | None:
    """Return why a patch does not go with the table that its writer read, or None."""
    patch = candidate.patch
    assert patch is not None, "only who brings a patch is asked for it"
    read = state.basis_at(candidate.read_version)
    if patch.base is not None and patch.base != metadata_hash(read.metadata):
        what = f"is not the hash of the metadata at version {candidate.read_version}"
        return flaw("other_metadata", f"{_FIELD}.base", what, "read the table and propose again")
    found = with_patch(candidate, read, state, policy)
    if isinstance(found, Rejection):
        return found
    after = read.after(found.content.metadata, found.content.protocol)
    return not_validated(candidate, read, after)


def with_patch(
    candidate: Candidate, basis: Basis, state: TableState, policy: Policy
) -> Candidate | Rejection:
    """Return a proposal that brings what its patch makes of a table, or why it makes nothing.

    Metadata and protocol are judged together, as a change of the table that they are applied to.
    """
    patch = candidate.patch
    assert patch is not None, "only who brings a patch is asked for it"
    try:
        before = basis.definition
        after = applied(patch, before, candidate.id, _clustered_by(state))
        refuse(check_change(before, after), state.root)
    except (TidegateError, ValueError, RecursionError) as error:
        return _refusal(error)
    listed = None if after.protocol == basis.protocol else after.protocol
    patched = candidate.with_table(after.metadata, listed)
    return wrong_table(patched.content, basis, state.root, policy) or patched


def _clustered_by(state: TableState) -> list[tuple[str, ...]]:
    """Return the physical paths of the columns that a table is clustered by at its head."""
    domain = state.domains.get(CLUSTERING)
    if domain is None or domain.removed:
        return []
    try:
        return [tuple(path) for path in orjson.loads(domain.configuration)["clusteringColumns"]]
    except (KeyError, TypeError) as error:
        raise ValueError(f"the domain {CLUSTERING!r} names no clusteringColumns") from error


def _refusal(error: Exception) -> Rejection:
    made = flaw(BAD_METADATA, _FIELD, fault_in(error), "correct what it names")
    error_class = error.error_class if isinstance(error, TidegateError) else None
    return made.model_copy(update={"error_class": error_class})
