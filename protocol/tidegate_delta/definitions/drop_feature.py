"""DROP FEATURE: its preconditions, and what the dropping commit writes, as in delta-spark.

A feature may be dropped when the newest version has no trace of it. If old versions need it, their
history is truncated (`truncates_history`) or protected: clients without the feature must then keep
the checkpoints below the drop. Each precondition is a value; what remains in files and history is
counted by the caller and passed as `FeatureRemains`.

`traces` yields what is left of a feature in a table's metadata, files and log.

Spec: "Supported Features"
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from tidegate_delta.definitions.column_mapping_checks import is_mapped
from tidegate_delta.definitions.definition import Definition, Flaw, configured
from tidegate_delta.definitions.definition_changes import PROTECTION
from tidegate_delta.features.feature import (
    uses_column_mapping,
    uses_geospatial,
    uses_type_changes,
    uses_v2_checkpoints,
)
from tidegate_delta.features.supported_features import FEATURES, with_features, without_feature
from tidegate_delta.log.actions import (
    Action,
    CheckpointMetadata,
    FileAction,
    Metadata,
    Protocol,
    Sidecar,
)
from tidegate_delta.log.protocol_versions import supported_features
from tidegate_delta.properties import table_properties
from tidegate_delta.schema.types import parse_schema, walk

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
    """Yield the traces of a feature in the newest version of a table."""
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
    if uses_geospatial(definition.metadata, definition.schema):
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
    if uses_type_changes(definition.metadata, definition.schema):
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


_STILL_USED: Final = "DELTA_FEATURE_DROP_CONFLICT_REVALIDATION_FAIL"
_CLASSES: Final[Mapping[str, str]] = {
    "checkConstraints": "DELTA_CANNOT_DROP_CHECK_CONSTRAINT_FEATURE",
    "geospatial": "DELTA_CANNOT_DROP_GEOSPATIAL_FEATURE",
    "geospatial-dev": "DELTA_CANNOT_DROP_GEOSPATIAL_FEATURE",
    PROTECTION: "DELTA_FEATURE_DROP_CHECKPOINT_PROTECTION_WAIT_FOR_RETENTION_PERIOD",
}
"""delta-spark's error class for the remains of a feature, where it has its own."""

_GONE_WITH_IT: Final[Mapping[str, tuple[str, ...]]] = {
    "rowTracking": (
        table_properties.row_tracking_enabled.key,
        table_properties.row_tracking_suspended.key,
        table_properties.row_id_column.key,
        table_properties.row_commit_version_column.key,
    ),
    "materializePartitionColumns": (table_properties.partitions_in_files_enabled.key,),
}
"""Properties that the dropping commit removes: concurrent writers use them until then."""

DOMAINS_GONE: Final[Mapping[str, tuple[str, ...]]] = {"rowTracking": ("delta.rowTracking",)}
"""Domains that the dropping commit removes."""


@dataclass(frozen=True)
class Drop:
    """A feature to be dropped, and whether its history is truncated rather than protected."""

    name: str
    truncates_history: bool = False


def drop_flaws(drop: Drop, definition: Definition, remains: FeatureRemains) -> tuple[Flaw, ...]:
    """Return every flaw that prevents the drop of a feature."""
    refused = tuple(_not_to_be_dropped(drop, definition))
    if refused:
        return refused
    flaws = [*_needed(drop, definition), *_used(drop.name, definition, remains)]
    row = FEATURES[drop.name]
    if drop.truncates_history and row.leaves_traces and remains.history_uses:
        flaws.append(
            Flaw(
                "history_uses_feature",
                "history",
                f"holds versions that use the feature {drop.name!r}",
                f"wait until {table_properties.truncated_retention_ms.key} is over "
                "and drop it again",
                "DELTA_FEATURE_DROP_HISTORICAL_VERSIONS_EXIST",
            )
        )
    return tuple(flaws)


def dropped(drop: Drop, definition: Definition, version: int) -> Definition:
    """Return the definition that the dropping commit writes at a version of the table.

    Law: dropped(...).supported == one.supported - {name}, and the protection where it is needed
    """
    protected = FEATURES[drop.name].leaves_traces and not drop.truncates_history
    base = with_features(definition.protocol, (PROTECTION,)) if protected else definition.protocol
    gone = _GONE_WITH_IT.get(drop.name, ())
    kept = {key: text for key, text in definition.metadata.configuration.items() if key not in gone}
    if protected:
        kept[table_properties.checkpoint_protection_version.key] = str(version)
    return Definition(
        definition.metadata.with_(configuration=kept), without_feature(base, drop.name)
    )


def _not_to_be_dropped(drop: Drop, definition: Definition) -> Iterator[Flaw]:
    """Yield why a feature can never be dropped from this table."""
    name, row = drop.name, FEATURES.get(drop.name)
    property_keys = {known.key.lower() for known in table_properties.ALL}

    def flaw(rule: str, reason: str, remedy: str, error_class: str) -> Flaw:
        return Flaw(rule, "protocol", f"{reason} {name!r}", remedy, f"DELTA_FEATURE_{error_class}")

    if name not in definition.supported and name.lower() in property_keys:
        yield flaw(
            "drop_of_property",
            "has no feature of the name of the property",
            "unset the property instead",
            "DROP_FEATURE_IS_DELTA_PROPERTY",
        )
    elif row is None or name.startswith("catalog"):
        yield flaw(
            "drop_not_known",
            "can't be rid by this release of the feature",
            "check its name, as the table has "
            f"{', '.join(sorted(definition.supported)) or 'none'}; what this release does not "
            "know, another engine may drop",
            "DROP_UNSUPPORTED_CLIENT_FEATURE",
        )
    elif name not in definition.supported:
        yield flaw(
            "drop_of_absent",
            "does not support the feature",
            "leave it as it is",
            "DROP_FEATURE_NOT_PRESENT",
        )
    elif not row.is_removable:
        yield flaw(
            "drop_refused", "can't be rid of the feature", "keep it", "DROP_NONREMOVABLE_FEATURE"
        )
    elif drop.truncates_history and not (row.leaves_traces or name == PROTECTION):
        yield flaw(
            "drop_truncates_for_nothing",
            "has no history to be cut off of the feature",
            "drop it without cutting off history",
            "DROP_HISTORY_TRUNCATION_NOT_ALLOWED",
        )
    elif name == PROTECTION and not drop.truncates_history:
        yield flaw(
            "drop_keeps_history",
            "protects history by the feature",
            "drop it together with the history that it protects",
            "CAN_ONLY_DROP_CHECKPOINT_PROTECTION_WITH_HISTORY_TRUNCATION",
        )


def _needed(drop: Drop, definition: Definition) -> Iterator[Flaw]:
    needing = dependents(drop.name, definition.protocol)
    if needing:
        yield Flaw(
            "drop_of_needed",
            "protocol",
            f"supports {', '.join(needing)}, which need the feature {drop.name!r}",
            "drop them first",
            "DELTA_FEATURE_DROP_DEPENDENT_FEATURE",
        )


def _used(name: str, definition: Definition, remains: FeatureRemains) -> Iterator[Flaw]:
    """Yield the traces of the feature in the newest version."""
    for field, reason, remedy in traces(name, definition, remains):
        yield Flaw("feature_in_use", field, reason, remedy, _CLASSES.get(name, _STILL_USED))


def dependents(name: str, protocol: Protocol) -> tuple[str, ...]:
    """Return the features of a protocol that need another one, by name."""
    return tuple(
        sorted(
            feature
            for feature in supported_features(protocol) & FEATURES.keys()
            if name in FEATURES[feature].needs
        )
    )


def leaves_trace(name: str, action: Action) -> bool:
    """Return whether an action of an old version can be understood only with a feature."""
    match name, action:
        case "columnMapping", Metadata():
            return uses_column_mapping(action, parse_schema(action.schema_string))
        case (("typeWidening" | "typeWidening-preview"), Metadata()):
            return uses_type_changes(action, parse_schema(action.schema_string))
        case "v2Checkpoint", Metadata():
            return uses_v2_checkpoints(action, parse_schema(action.schema_string))
        case "v2Checkpoint", CheckpointMetadata() | Sidecar():
            return True
        case "deletionVectors", Metadata():
            return table_properties.deletion_vectors_enabled.is_on(action)
        case "deletionVectors", FileAction():
            return action.deletion_vector is not None
        case _:
            return False
