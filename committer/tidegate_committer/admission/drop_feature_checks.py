"""Whether a feature may be dropped: is anything in the table still using it?"""

from collections.abc import Set
from typing import Final

from tidegate_committer.state.log_entry import Entry
from tidegate_committer.state.table_definition import TableDefinition
from tidegate_committer.state.table_state import TableState
from tidegate_delta.definitions.definition_changes import check_change
from tidegate_delta.definitions.feature_traces import FeatureRemains, traces
from tidegate_delta.features import row_tracking
from tidegate_delta.features.supported_features import FEATURES
from tidegate_delta.properties.table_properties import checkpoint_protection_version

DROP_FEATURE: Final = "DROP FEATURE"
"""The operation name of a commit that drops a feature."""

BOUND: Final = checkpoint_protection_version.key
"""The property that keeps old checkpoints for readers that know the dropped feature."""

NO_REMAINS: Final = FeatureRemains()


def needs_history(dropped: Set[str]) -> bool:
    """Return whether earlier versions need these features, so that their checkpoints stay."""
    return any(name in FEATURES and FEATURES[name].leaves_traces for name in dropped)


def moves_bound(before: TableDefinition, after: TableDefinition) -> bool:
    """Return whether a dropped feature must keep the checkpoints before the dropping version."""
    if "checkpointProtection" not in after.features:
        return False
    return needs_history(before.features - after.features)


def stays(dropped: Set[str]) -> bool:
    """Return whether the dropped feature is a single one that no release can remove."""
    return len(dropped) == 1 and not any(
        name in FEATURES and FEATURES[name].is_removable for name in dropped
    )


def before_drop(dropped: Set[str]) -> str:
    """Return what a writer must do before it drops features that `in_use` refuses."""
    if len(dropped) > 1:
        return "drop one at a time"
    if stays(dropped):
        return "keep it: it asks nothing where no property or column of the table uses it"
    return "take every trace of the feature out of the table first"


def in_use(
    dropped: Set[str], table_definition: TableDefinition, remains: FeatureRemains = NO_REMAINS
) -> str | None:
    """Return why features can't be dropped from a table, or None."""
    if len(dropped) > 1:
        return f"{len(dropped)} features go at once, of which each may hide another's traces"
    [name] = dropped
    if stays(dropped):
        return f"the feature {name!r} stays for ever"
    if name == row_tracking.FEATURE:
        # The proposal removes the ids from files to which winners gave some. So it is enough that
        # row tracking is disabled, and that no file had an id at the read version.
        enabled = row_tracking.is_enabled(table_definition.metadata)
        return f"the feature {name!r} is enabled" if enabled else None
    trace = next(traces(name, table_definition.definition, remains), None)
    return f"the feature {name!r} is in use: {trace[0]} {trace[1]}" if trace else None


def wrong_before_drop(
    dropped: Set[str], read: TableDefinition, after: TableDefinition
) -> str | None:
    """Return why a table is not ready for a drop, or would lose more than the feature, or None."""
    [name] = dropped
    flaws = check_change(read.definition, after.definition, dropping=name)
    return str(flaws[0]) if flaws else None


def left_by(winner: Entry) -> FeatureRemains:
    """Return what a winner's files and domains still use of features."""
    living = frozenset(domain.domain for domain in winner.domains if not domain.removed)
    return FeatureRemains(deletion_vectors=len(winner.vectors), domains=living)


def left_in(state: TableState) -> FeatureRemains:
    """Return what a table's files and domains still use of features."""
    living = frozenset(name for name, domain in state.domains.items() if not domain.removed)
    return FeatureRemains(deletion_vectors=state.files.with_vector, domains=living)
