"""DROP FEATURE: its preconditions, and what the dropping commit writes, as in delta-spark.

A feature may be dropped when the newest version has no trace of it. If old versions need it, their
history is truncated (`truncates_history`) or protected: clients without the feature must then keep
the checkpoints below the drop. Each precondition is a value; what remains in files and history is
counted by the caller and passed as `FeatureRemains`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from tidegate_delta.definitions.definition import Definition, Flaw
from tidegate_delta.definitions.definition_changes import PROTECTION
from tidegate_delta.definitions.feature_traces import FeatureRemains, traces
from tidegate_delta.features import active_features
from tidegate_delta.features.protocol_upgrades import with_features, without_feature
from tidegate_delta.features.supported_features import FEATURES
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
from tidegate_delta.schema.types import parse_schema

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
    """A feature to be dropped, and whether its history is truncated rather than protected.

    Spec: "Supported Features"
    """

    name: str
    truncates_history: bool = False


def drop_flaws(drop: Drop, definition: Definition, remains: FeatureRemains) -> tuple[Flaw, ...]:
    """Return every flaw that prevents the drop of a feature.

    Spec: "Supported Features"
    """
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
    Spec: "Supported Features"
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
    """Return the features of a protocol that need another one, by name.

    Spec: "Supported Features"
    """
    return tuple(
        sorted(
            feature
            for feature in supported_features(protocol) & FEATURES.keys()
            if name in FEATURES[feature].needs
        )
    )


def leaves_trace(name: str, action: Action) -> bool:
    """Return whether an action of an old version can be understood only with a feature.

    Spec: "Supported Features"
    """
    match name, action:
        case "columnMapping", Metadata():
            return active_features.column_mapping(action, parse_schema(action.schema_string))
        case (("typeWidening" | "typeWidening-preview"), Metadata()):
            return active_features.type_changes(action, parse_schema(action.schema_string))
        case "v2Checkpoint", Metadata():
            return active_features.v2_checkpoints(action, parse_schema(action.schema_string))
        case "v2Checkpoint", CheckpointMetadata() | Sidecar():
            return True
        case "deletionVectors", Metadata():
            return table_properties.deletion_vectors_enabled.is_on(action)
        case "deletionVectors", FileAction():
            return action.deletion_vector is not None
        case _:
            return False
