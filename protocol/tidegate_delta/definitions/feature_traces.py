"""The traces of a feature in a table: in its metadata, its files and its log."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from tidegate_delta.definitions.column_mapping_checks import is_mapped
from tidegate_delta.definitions.definition import Definition, configured
from tidegate_delta.features import active_features
from tidegate_delta.properties import table_properties
from tidegate_delta.schema.types import walk

_COORDINATED: Final = (
    "delta.coordinatedCommits.commitCoordinator-preview",
    "delta.coordinatedCommits.commitCoordinatorConf-preview",
    "delta.coordinatedCommits.tableConf-preview",
)


@dataclass(frozen=True)
class FeatureRemains:
    """Traces of features in the files and the log of a table, counted by the caller.

    `history_uses`: a reachable version before this one holds an action that can be understood
    only with the feature.
    `oldest_version` is the oldest that can still be read, with its checkpoint.
    Spec: "Supported Features"
    """

    deletion_vectors: int = 0
    files_with_row_ids: int = 0
    domains: frozenset[str] = frozenset()
    stands_on_v2_checkpoint: bool = False
    unpublished_commits: int = 0
    history_uses: bool = False
    oldest_version: int = 0


Trace = tuple[str, str, str]
"""A field, the trace that is in it, and the remedy."""

TraceRule = Callable[[Definition, FeatureRemains], Iterator[Trace]]


def traces(name: str, definition: Definition, remains: FeatureRemains) -> Iterator[Trace]:
    """Yield the traces of a feature in the newest version of a table.

    Spec: "Supported Features"
    """
    rule = _RULES.get(name)
    if rule is not None:
        yield from rule(definition, remains)


def _constraints(definition: Definition, remains: FeatureRemains) -> Iterator[Trace]:
    for key in definition.metadata.configuration:
        if key.lower().startswith(table_properties.CONSTRAINT_PREFIX):
            yield configured(key), "is a CHECK constraint", "drop the constraint"


def _mapping(definition: Definition, remains: FeatureRemains) -> Iterator[Trace]:
    if table_properties.column_mapping_mode(definition.metadata) != "none":
        key = configured(table_properties.column_mapping_mode.key)
        yield key, "is not none", "write the files again and unset it"
    if any(is_mapped(field) for field in walk(definition.schema)):
        yield "metaData.schemaString", "gives ids or physical names to columns", "take them out"


def _geospatial(definition: Definition, remains: FeatureRemains) -> Iterator[Trace]:
    if active_features.geospatial(definition.metadata, definition.schema):
        yield "metaData.schemaString", "has a column of shapes on earth", "drop the column"


def _redirect(key: str) -> Callable[[Definition, FeatureRemains], Iterator[Trace]]:
    def traces(definition: Definition, remains: FeatureRemains) -> Iterator[Trace]:
        if key in definition.metadata.configuration:
            yield configured(key), "is set", "unset it"

    return traces


def _vectors(definition: Definition, remains: FeatureRemains) -> Iterator[Trace]:
    if table_properties.deletion_vectors_enabled(definition.metadata):
        yield configured(table_properties.deletion_vectors_enabled.key), "is true", "unset it"
    if remains.deletion_vectors:
        yield "files", f"have {remains.deletion_vectors} deletion vectors", "purge them"


def _row_ids(definition: Definition, remains: FeatureRemains) -> Iterator[Trace]:
    if table_properties.row_tracking_enabled(definition.metadata):
        yield configured(table_properties.row_tracking_enabled.key), "is true", "set it to false"
    if not table_properties.row_tracking_suspended(definition.metadata):
        yield (
            configured(table_properties.row_tracking_suspended.key),
            "is not true",
            "set it to true",
        )
    if remains.files_with_row_ids:
        yield "files", f"carry row ids ({remains.files_with_row_ids})", "add them without"


def _domains(definition: Definition, remains: FeatureRemains) -> Iterator[Trace]:
    if remains.domains:
        yield "domainMetadata", f"holds {', '.join(sorted(remains.domains))}", "remove the domains"


def _checkpoints(definition: Definition, remains: FeatureRemains) -> Iterator[Trace]:
    if table_properties.checkpoint_policy(definition.metadata) != "classic":
        yield configured(table_properties.checkpoint_policy.key), "is v2", "set it to classic"
    if remains.stands_on_v2_checkpoint:
        yield "checkpoint", "is a V2 checkpoint", "write a classic one"


def _coordinator(definition: Definition, remains: FeatureRemains) -> Iterator[Trace]:
    for key in _COORDINATED:
        if key in definition.metadata.configuration:
            yield configured(key), "is set", "unset it"
    if remains.unpublished_commits:
        yield "log", f"lacks {remains.unpublished_commits} commits", "publish them"


def _widening(definition: Definition, remains: FeatureRemains) -> Iterator[Trace]:
    if table_properties.type_widening_enabled(definition.metadata):
        yield configured(table_properties.type_widening_enabled.key), "is true", "unset it"
    if active_features.type_changes(definition.metadata, definition.schema):
        field = "metaData.schemaString"
        yield field, "records changes of types", "write the files again and take the record out"


def _times(definition: Definition, remains: FeatureRemains) -> Iterator[Trace]:
    if table_properties.in_commit_timestamps_enabled(definition.metadata):
        yield (
            configured(table_properties.in_commit_timestamps_enabled.key),
            "is true",
            "set it to false",
        )
    for half in (
        table_properties.ict_enablement_version,
        table_properties.ict_enablement_timestamp_ms,
    ):
        if half.key in definition.metadata.configuration:
            yield configured(half.key), "is set", "unset it"


def _protection(definition: Definition, remains: FeatureRemains) -> Iterator[Trace]:
    bound = table_properties.checkpoint_protection_version
    if remains.oldest_version < bound(definition.metadata):
        reason = (
            f"goes back to version {remains.oldest_version}, before {bound(definition.metadata)}"
        )
        yield "history", reason, f"wait until {table_properties.truncated_retention_ms.key} is over"
    elif bound.key in definition.metadata.configuration:
        yield configured(bound.key), "is set", "unset it: the history below it is gone"


_RULES: Final[Mapping[str, TraceRule]] = {
    "checkConstraints": _constraints,
    "columnMapping": _mapping,
    "geospatial": _geospatial,
    "geospatial-dev": _geospatial,
    "redirectReaderWriter-preview": _redirect("delta.redirectReaderWriter-preview"),
    "redirectWriterOnly-preview": _redirect("delta.redirectWriterOnly-preview"),
    "deletionVectors": _vectors,
    "rowTracking": _row_ids,
    "domainMetadata": _domains,
    "v2Checkpoint": _checkpoints,
    "coordinatedCommits-preview": _coordinator,
    "typeWidening": _widening,
    "typeWidening-preview": _widening,
    "inCommitTimestamp": _times,
    "checkpointProtection": _protection,
}
"""The rule for each feature's traces; a removable feature without a rule leaves none."""
