"""Admission by the table's features: vectors, row counts, metadata domains, dropped features.

The checks use the table that was read, with the proposal's own changes. What a winner changed since
then is left to the conflict rules.

A feature may be dropped if nothing in the table is still using it (`in_use`).
"""

from collections.abc import Set
from typing import Final

import orjson

from tidegate_committer.intake.candidate import BACKFILL, COMPUTE_STATS, UNBACKFILL, Candidate
from tidegate_committer.intake.proposal_actions import CheckedActions
from tidegate_committer.intake.refusals import (
    BAD_PROTOCOL,
    DOMAINS_NOT_SUPPORTED,
    FEATURE_IN_USE,
    MALFORMED,
    RESERVED_DOMAIN,
    ROW_IDS_WITHOUT_COUNT,
    TOO_LARGE,
    VECTOR_WITH_TIGHT_BOUNDS,
    VECTOR_WITHOUT_COUNT,
    VECTORS_NOT_ALLOWED,
    flaw,
)
from tidegate_committer.state.log_entry import Entry
from tidegate_committer.state.table_definition import TableDefinition
from tidegate_committer.state.table_state import TableState
from tidegate_delta.definitions.definition_changes import check_change
from tidegate_delta.definitions.drop_feature import FeatureRemains, traces
from tidegate_delta.features import row_tracking
from tidegate_delta.features.supported_features import FEATURES
from tidegate_delta.log.actions import Add
from tidegate_delta.log.file_paths import is_absolute
from tidegate_delta.properties.table_properties import (
    append_only,
    checkpoint_protection_version,
    deletion_vectors_enabled,
)
from tidegate_messages.outcome import Rejection

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


def drop_precondition_problem(
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


CLUSTERING: Final = "delta.clustering"
WITH_FEATURE: Final = {CLUSTERING: "clustering"}
"""Domains of table features that a proposal may write, and the feature that each requires."""

IN_PLACE: Final = frozenset({DROP_FEATURE, COMPUTE_STATS, BACKFILL, UNBACKFILL})
"""Operations that add files again unchanged. They may repeat vectors where no new ones are allowed.
"""

CLONE: Final = "CLONE"
"""The operation that adds the files of another table. It may bring along the vectors that they have
there, and no others."""

NOT_REMOVABLE: Final = "DELTA_FEATURE_DROP_UNSUPPORTED_CLIENT_FEATURE"
"""delta-spark's error class for dropping a feature that it can't remove."""

ROWS_MAX: Final = 10**14
"""Rows that one proposal may add to a table with row tracking. No table has as many."""

MARK_MAX: Final = 2**62
"""The greatest row id after which a table still assigns more."""

_COUNT: Final = "actions.add.stats.numRecords"

MAY_BE_TIGHT: Final = frozenset(
    {"Manual Update", COMPUTE_STATS, "RESTORE", "CLONE", BACKFILL, UNBACKFILL}
)
"""Operations that repeat vectors together with statistics which another writer made."""


def vector_problem(candidate: Candidate, after: TableDefinition) -> Rejection | None:
    """Return why a deletion vector may not be written, or None."""
    if not candidate.content.vectors:
        return None
    supported = "deletionVectors" in after.features
    enabled = deletion_vectors_enabled.is_on(after.metadata)
    if not (supported and (enabled or _repeats_vectors(candidate))):
        return flaw(
            VECTORS_NOT_ALLOWED,
            "actions.add.deletionVector",
            "the table takes no new deletion vectors",
            "set delta.enableDeletionVectors, or rewrite the file",
            path=min(candidate.content.vectors),
        )
    for add in candidate.content.adds:
        if add.deletion_vector is not None:
            rejection = _vector_statistics_problem(add, candidate)
            if rejection is not None:
                return rejection
    return None


def _repeats_vectors(candidate: Candidate) -> bool:
    """Return whether all vectors of a proposal are those that its files already had."""
    if candidate.operation == CLONE:
        return all(is_absolute(path) for path in candidate.content.vectors)
    return candidate.operation in IN_PLACE


def _vector_statistics_problem(add: Add, candidate: Candidate) -> Rejection | None:
    assert add.deletion_vector is not None, "only files with a vector are looked at"
    count = row_tracking.physical_records(add.stats)
    if count is None or count < add.deletion_vector.cardinality:
        return flaw(
            VECTOR_WITHOUT_COUNT,
            _COUNT,
            f"{add.path[:128]!r} has a deletion vector and {count} rows, deleted ones included",
            "count the rows of the file",
            path=add.path,
        )
    if candidate.operation in MAY_BE_TIGHT:
        return None
    if orjson.loads(add.stats or "{}").get("tightBounds") is not False:
        return flaw(
            VECTOR_WITH_TIGHT_BOUNDS,
            "actions.add.stats.tightBounds",
            f"{add.path[:128]!r} has a deletion vector, and bounds that are not said to be wide",
            "say tightBounds: false",
            path=add.path,
        )
    return None


def removal_problem(content: CheckedActions, table_definition: TableDefinition) -> Rejection | None:
    """Return which file is removed with its rows from an append-only table, or None."""
    if not content.removes or not append_only(table_definition.metadata):
        return None
    removed = next((remove for remove in content.removes if remove.data_change), None)
    if removed is None:
        return None
    return flaw(
        "append_only",
        "actions",
        f"{removed.path[:128]!r} is removed from a table that only takes appends",
        "unset delta.appendOnly first",
        path=removed.path,
    )


def uncounted_rows(candidate: Candidate, after: TableDefinition) -> Rejection | None:
    """Return why a new file can't be given row ids, or None."""
    if not candidate.content.adds or not after.tracks_rows:
        return None
    rows = 0
    for add in candidate.content.adds:
        if add.base_row_id is not None:
            continue
        count = row_tracking.physical_records(add.stats)
        if count is None:
            return flaw(
                ROW_IDS_WITHOUT_COUNT,
                _COUNT,
                f"{add.path[:128]!r} does not say how many rows it has, and the table tracks rows",
                "write the statistics of the file",
                path=add.path,
            )
        rows += count
        if rows > ROWS_MAX:
            problem = f"come to {rows} rows with {add.path[:128]!r}, {ROWS_MAX} are allowed"
            return flaw(TOO_LARGE, _COUNT, problem, "count the rows of each file", path=add.path)
    return None


def no_ids_left(candidate: Candidate, after: TableDefinition, mark: int) -> Rejection | None:
    """Return why no row ids are left for new files, or None. `mark` is the greatest assigned.

    Ids are 64-bit integers. Half of them are kept for one entry, so that the ids of all its
    members, each with as many rows as it may have, stay in the range.
    """
    if not candidate.content.adds or not after.tracks_rows or mark <= MARK_MAX:
        return None
    problem = f"needs row ids, and the table has given {mark} of them"
    return flaw(TOO_LARGE, "actions.add", problem, "copy the rows into a new table")


def domain_problem(candidate: Candidate, after: TableDefinition) -> Rejection | None:
    """Return why a metadata domain may not be written, or None."""
    for domain in candidate.content.domains:
        if domain.domain == row_tracking.DOMAIN and (
            not domain.removed or row_tracking.supports(after.protocol)
        ):
            return flaw(
                RESERVED_DOMAIN,
                "actions.domainMetadata",
                f"the domain {row_tracking.DOMAIN!r} is kept by the committer",
                "leave it out: row ids are given when the entry is written",
            )
        if "domainMetadata" not in after.features:
            return flaw(
                DOMAINS_NOT_SUPPORTED,
                "actions.domainMetadata",
                f"the table has no metadata domains, so none called {domain.domain[:64]!r}",
                "add the feature domainMetadata to the table first",
            )
        feature = None if domain.removed else WITH_FEATURE.get(domain.domain)
        if feature and feature not in after.features:
            return flaw(
                DOMAINS_NOT_SUPPORTED,
                "actions.domainMetadata",
                f"the domain {domain.domain!r} belongs to a feature that the table lacks",
                f"add the feature {feature!r} to the table first",
            )
        if domain.domain == CLUSTERING and not domain.removed:
            rejection = _clustering_problem(domain.configuration)
            if rejection is not None:
                return rejection
    return None


def _clustering_problem(configuration: str) -> Rejection | None:
    try:
        columns = orjson.loads(configuration)["clusteringColumns"]
        good = isinstance(columns, list) and all(
            isinstance(path, list) and path and all(isinstance(name, str) for name in path)
            for path in columns
        )
    except (orjson.JSONDecodeError, KeyError, TypeError):
        good = False
    if good:
        return None
    return flaw(
        MALFORMED,
        "actions.domainMetadata.configuration",
        "names no clusteringColumns as lists of physical names",
        'write {"clusteringColumns": [["name"], ...]}',
    )


def feature_drop_problem(
    candidate: Candidate, read: TableDefinition, after: TableDefinition
) -> Rejection | None:
    """Return why the proposal may not drop the features that it drops, or None."""
    dropped = read.features - after.features
    if not dropped:
        return _refuse_empty_drop(candidate)
    if candidate.operation != DROP_FEATURE:
        return flaw(
            BAD_PROTOCOL,
            "actions.protocol",
            f"drops the feature {min(dropped)!r}",
            "keep every feature that the table has, or drop one by DROP FEATURE",
        )
    problem = in_use(dropped, after) or drop_precondition_problem(dropped, read, after)
    if problem is None:
        return None
    rejection = flaw(
        FEATURE_IN_USE,
        "actions.protocol",
        f"drops {', '.join(sorted(dropped))}: {problem}",
        before_drop(dropped),
    )
    return (
        rejection.model_copy(update={"error_class": NOT_REMOVABLE}) if stays(dropped) else rejection
    )


def _refuse_empty_drop(candidate: Candidate) -> Rejection | None:
    """Refuse a DROP FEATURE that writes a protocol but drops no feature."""
    if candidate.operation != DROP_FEATURE or candidate.content.protocol is None:
        return None
    remedy = "leave out the feature that is dropped"
    return flaw(BAD_PROTOCOL, "actions.protocol", f"drops no feature by {DROP_FEATURE}", remedy)
