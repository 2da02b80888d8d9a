"""The conflict rules about the table itself: protocol, metadata, domains, applications, row ids.

Each compares one winner with a proposal that is rebased over all winners before it. `RULES` in
`conflict_rules` has the order.
"""

from typing import Final

from tidegate_committer.admission.feature_checks import in_use, left_by, moves_bound
from tidegate_committer.conflicts.metadata_compatibility import conflict_free, neither_on_nor_off
from tidegate_committer.conflicts.metadata_patches import PatchEffect, unrebasable_change
from tidegate_committer.conflicts.rebase import ConflictFinding, RebaseState
from tidegate_committer.state.log_entry import Entry
from tidegate_committer.state.metadata_diff import in_common, touched
from tidegate_delta.features import row_tracking
from tidegate_delta.features.supported_features import FEATURES, Support, interrupting_features
from tidegate_delta.log.protocol_versions import (
    reader_features,
    supported_features,
    unreadable,
    writer_features,
)

DOMAIN_TWICE: Final = (
    "DELTA_DUPLICATE_DOMAIN_METADATA_INTERNAL_ERROR",
    "DeltaIllegalArgumentException",
)
"""delta-spark's error for a commit that writes one domain twice. It is no conflict."""


def protocol_unsupported(rebase_state: RebaseState, winner: Entry) -> ConflictFinding | None:
    """The winner requires versions or features that this release does not write."""
    if winner.protocol is None:
        return None
    problem = unreadable(winner.protocol)
    if problem is not None:
        return ConflictFinding(problem[0], error_class="DELTA_INVALID_PROTOCOL_VERSION")
    if not 1 <= winner.protocol.min_writer_version <= 7:
        return ConflictFinding(
            f"asks for writer version {winner.protocol.min_writer_version}",
            error_class="DELTA_INVALID_PROTOCOL_VERSION",
        )
    for features, access in ((reader_features, "READ"), (writer_features, "WRITE")):
        for name in sorted(features(winner.protocol) - FEATURES.keys()):
            error_class = f"DELTA_UNSUPPORTED_FEATURES_FOR_{access}"
            return ConflictFinding(
                f"asks for the unknown feature {name!r}", error_class=error_class
            )
    unwritten = [
        name
        for name in sorted(writer_features(winner.protocol))
        if FEATURES[name].writes is Support.NO
    ]
    if unwritten:
        return ConflictFinding(
            f"asks for the feature {unwritten[0]!r}, with which this release does not write",
            error_class="DELTA_UNSUPPORTED_FEATURES_FOR_WRITE",
        )
    return None


def protocol_changed(rebase_state: RebaseState, winner: Entry) -> ConflictFinding | None:
    """Both wrote a protocol, or the winner dropped a feature that the writer relied on."""
    if winner.protocol is None:
        return None
    if rebase_state.candidate.content.protocol is not None:
        return ConflictFinding("changed the protocol, as does the proposal")
    dropped = rebase_state.read.features - supported_features(winner.protocol)
    return ConflictFinding(f"dropped the feature {min(dropped)!r}") if dropped else None


def feature_binds_writers(rebase_state: RebaseState, winner: Entry) -> ConflictFinding | None:
    """The winner added a feature that has requirements on files which are written already."""
    if winner.protocol is None or rebase_state.candidate.patch is not None:
        return None
    # Only features that the winner lists by name count. A legacy writer version implies features
    # that nobody requested, and listing these later adds nothing new.
    named = frozenset(winner.protocol.writer_features or ())
    added = named.intersection(interrupting_features(rebase_state.now.protocol, winner.protocol))
    return (
        ConflictFinding(f"added the feature {min(added)!r}, which binds every writer")
        if added
        else None
    )


def dropped_feature_in_use(rebase_state: RebaseState, winner: Entry) -> ConflictFinding | None:
    """The proposal drops a feature, and after the winner the table still uses it."""
    if rebase_state.candidate.content.protocol is None:
        return None
    dropped = rebase_state.read.features - rebase_state.now.features
    if not dropped or dropped == {row_tracking.FEATURE}:
        return None
    own = rebase_state.candidate.content.metadata
    snapshot = (rebase_state.now if own is None else rebase_state.read).after(winner.metadata, None)
    use = in_use(dropped, snapshot, left_by(winner))
    return ConflictFinding(f"leaves a table in which {use}") if use else None


def metadata_changed(rebase_state: RebaseState, winner: Entry) -> ConflictFinding | None:
    """The winner changed schema, partitioning or properties on which the proposal depends."""
    if winner.metadata is None:
        return None
    candidate, now = rebase_state.candidate, rebase_state.now.metadata
    if candidate.content.metadata is not None:
        return ConflictFinding("changed the metadata, as does the proposal")
    if moves_bound(rebase_state.read, rebase_state.now) and not winner.is_identity_only:
        return ConflictFinding(
            "changed the metadata, in which the proposal moves the bound of checkpoints"
        )
    if candidate.patch is not None:
        common = in_common(rebase_state.touches, touched(now, winner.metadata))
        if common is None:
            return None
        touch = common.description(rebase_state.read.metadata)
        return ConflictFinding(f"changed {touch}, as does the proposal")
    features = rebase_state.after(winner).features
    change = conflict_free(now, winner.metadata, features, may_number=winner.is_identity_only)
    if change is not None and winner.is_patch:
        change = unrebasable_change(candidate, PatchEffect(now, winner.metadata, features))
    unclear = neither_on_nor_off(now, winner.metadata, features) if change else None
    exception = "IllegalArgumentException" if unclear else None
    return ConflictFinding(f"changed {change}", exception=exception) if change else None


def domain_metadata_changed(rebase_state: RebaseState, winner: Entry) -> ConflictFinding | None:
    """Both wrote one domain, or the winner wrote one that was read. `delta.rowTracking` is exempt,
    because row ids are assigned again.
    """
    if not winner.domains:
        return None
    if winner.repeats_a_domain and "domainMetadata" in rebase_state.after(winner).features:
        detail = "wrote one metadata domain twice, and which holds is not said"
        return ConflictFinding(detail, None, *DOMAIN_TWICE)
    own = {domain.domain for domain in rebase_state.candidate.content.domains}
    own.update(rebase_state.candidate.reads.domains)
    shared = own & {domain.domain for domain in winner.domains} - {row_tracking.DOMAIN}
    if not shared:
        return None
    return ConflictFinding(f"wrote the metadata domain {min(shared)!r}", domain=min(shared))


def concurrent_transaction(rebase_state: RebaseState, winner: Entry) -> ConflictFinding | None:
    """The winner wrote a txn action of an application whose version the proposal had read."""
    if not winner.txns or not rebase_state.candidate.reads.app_ids:
        return None
    shared = winner.app_ids.intersection(rebase_state.candidate.reads.app_ids)
    return (
        ConflictFinding(f"moved the application {min(shared)!r}", app_id=min(shared))
        if shared
        else None
    )


def row_ids_of_no_table(rebase_state: RebaseState, winner: Entry) -> ConflictFinding | None:
    """The table is without row tracking support, but row ids were given.

    The proposal gives or removes row ids and the table does not support row tracking after the
    winner, or the winner gave row ids and the proposal drops that support.
    """
    candidate = rebase_state.candidate
    drops = candidate.content.protocol is not None and winner.is_backfill
    if not (candidate.only_moves_row_ids or drops):
        return None
    if row_tracking.supports(rebase_state.after(winner).protocol):
        return None
    if drops:
        return ConflictFinding("gave row ids, and the proposal leaves a table that knows of none")
    return ConflictFinding(
        f"leaves a table without row ids, and the proposal is a {candidate.operation}"
    )


def backfill_of_more_than_files(rebase_state: RebaseState, winner: Entry) -> ConflictFinding | None:
    """The winner added or removed files, and the backfill does more than give ids to files."""
    candidate, content = rebase_state.candidate, rebase_state.candidate.content
    if not candidate.is_backfill or not (winner.added or winner.removed):
        return None
    if not row_tracking.supports(rebase_state.after(winner).protocol):
        return None
    has_more = content.removes or content.changes or content.domains or candidate.txns
    if not (has_more or content.metadata or content.protocol):
        return None
    return ConflictFinding("touched files, and the backfill holds more than files to give ids to")


def unbackfill_meets_backfill(rebase_state: RebaseState, winner: Entry) -> ConflictFinding | None:
    """The proposal is a row tracking unbackfill, and the winner a backfill."""
    if not rebase_state.candidate.is_unbackfill or not winner.is_backfill:
        return None
    if not row_tracking.supports(rebase_state.after(winner).protocol):
        return None
    return ConflictFinding("gave row ids that the proposal takes away")


def unclear_table(rebase_state: RebaseState, winner: Entry) -> ConflictFinding | None:
    """The winner left properties that do not say how to write the table: a contradiction, or an
    unknown isolation level.
    """
    if winner.metadata is None or rebase_state.candidate.patch is not None:
        return None
    unclear = rebase_state.after(winner).unclear
    if unclear is None:
        return None
    return ConflictFinding(f"leaves a table where {unclear.what}", error_class=unclear.error_class)


def row_ids_without_statistics(rebase_state: RebaseState, winner: Entry) -> ConflictFinding | None:
    """The table tracks rows, and a new file does not say how many rows it has."""
    if not winner.changes_table and rebase_state.read.tracks_rows:
        # Admission has checked this against the table that was read.
        return None
    if not rebase_state.candidate.content.adds or not rebase_state.after(winner).tracks_rows:
        return None
    # Ids in files from before the table tracked rows are not kept: they are assigned again.
    begins = not rebase_state.now.tracks_rows
    for add in rebase_state.candidate.content.adds:
        is_given = begins or add.base_row_id is None
        if is_given and row_tracking.physical_records(add.stats) is None:
            detail = f"leaves a table that tracks rows, and {add.path!r} has no numRecords"
            return ConflictFinding(detail, add.path)
    return None
