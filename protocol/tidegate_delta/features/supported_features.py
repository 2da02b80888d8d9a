"""The table of all features: what we read, write and refuse, and what Delta defines for each.

A row says when a table uses the feature, what happens when it is listed or dropped, and which other
features it needs; `protocol_versions.LEGACY` says which versions imply it. `docs/features.md` is
generated from it.

Protocols follow from features: the lowest one for a table's metadata, upgrades and downgrades.

Spec: "Supported Features"
"""

from collections.abc import Iterable, Mapping
from typing import Final

from tidegate_delta.constraints.row_constraints import requirements
from tidegate_delta.errors import BrokenLog, UnsupportedFeature
from tidegate_delta.features import feature
from tidegate_delta.features.feature import PREVIEWS, Feature, FeatureKind, Support, Trait
from tidegate_delta.log.actions import Metadata, Protocol
from tidegate_delta.log.protocol_versions import (
    WRITER_FEATURES_VERSION,
    check_shape,
    denormalised,
    merged,
    reader_features,
    supported_features,
    weakest,
    writer_features,
)
from tidegate_delta.properties import table_properties
from tidegate_delta.schema.column_mapping import check_mapped
from tidegate_delta.schema.field_paths import find_field
from tidegate_delta.schema.type_widening import check_widened
from tidegate_delta.schema.types import StructType, parse_schema

__all__ = (
    "FEATURES",
    "Feature",
    "Support",
    "check_readable",
    "check_writable",
    "closure",
    "unlisted_features",
)

_YES, _INACTIVE, _NO = Support.YES, Support.INACTIVE, Support.NO
_WRITERS, _BOTH = FeatureKind.WRITER, FeatureKind.READER_WRITER
_BY_HAND, _ITSELF, _NEW = Trait.NOTHING, Trait.ENABLES_ITSELF, Trait.ENABLES_NEW
_DROPS, _TRACES, _FAILS = Trait.REMOVABLE, Trait.LEAVES_TRACES, Trait.FAILS_CONCURRENT
_BINDS = Trait.BINDS_ROWS

_CATALOG: Final = (
    "a catalog decides which versions are the table's, so its log alone does not tell: open it "
    "through its catalog"
)
_ELSEWHERE: Final = (
    "the table is being moved or has been: use the one that its property "
    f"{table_properties.redirect.key} or {table_properties.redirect_of_writers.key} names"
)

# Name, capability, kind, whether we read and write it; how a table uses it; what happens when it
# is listed or dropped, and what it needs.
# fmt: off
_ROWS: Final = (
    Feature("appendOnly", "append-only tables", _WRITERS, _YES, _YES,
            switch=table_properties.append_only, traits=_ITSELF),
    Feature("invariants", "column invariants", _WRITERS, _YES, _YES,
            feature.uses_invariants, "a column has `delta.invariants`",
            _ITSELF | _FAILS | _BINDS),
    Feature("checkConstraints", "CHECK constraints", _WRITERS, _YES, _YES,
            feature.uses_check_constraints, "there is a `delta.constraints.NAME`",
            _ITSELF | _DROPS | _FAILS | _BINDS),
    Feature("changeDataFeed", "writing change data files", _WRITERS, _YES, _YES,
            switch=table_properties.change_feed_enabled, traits=_ITSELF | _BINDS),
    Feature("generatedColumns", "generated columns", _WRITERS, _YES, _YES,
            feature.uses_generated_columns, "a column has `delta.generationExpression`",
            _ITSELF | _FAILS | _BINDS),
    Feature("identityColumns", "identity columns", _WRITERS, _YES, _YES,
            feature.uses_identity_columns, "a column has `delta.identity.start`",
            _ITSELF | _FAILS),
    Feature("allowColumnDefaults", "column defaults", _WRITERS, _YES, _YES,
            feature.uses_column_defaults, "a column has `CURRENT_DEFAULT`",
            _FAILS | _BINDS),
    Feature("inCommitTimestamp", "in-commit timestamps", _WRITERS, _YES, _YES,
            switch=table_properties.in_commit_timestamps_enabled, traits=_ITSELF | _DROPS),
    Feature("rowTracking", "row tracking", _WRITERS, _YES, _YES,
            switch=table_properties.row_tracking_enabled, traits=_ITSELF | _DROPS,
            needs=("domainMetadata",)),
    Feature("domainMetadata", "domain metadata", _WRITERS, _YES, _YES,
            None, "the log has a live domain",
            _DROPS),
    Feature("clustering", "clustered tables", _WRITERS, _YES, _YES,
            None, "the log has the domain `delta.clustering`",
            _FAILS, ("domainMetadata",)),
    Feature("checkpointProtection", "checkpoint protection", _WRITERS, _YES, _YES,
            None, "`delta.requireCheckpointProtectionBeforeVersion` is above 0",
            _DROPS | _FAILS),
    Feature("materializePartitionColumns", "partition columns in files", _WRITERS, _YES, _NO,
            switch=table_properties.partitions_in_files_enabled, traits=_ITSELF | _DROPS | _FAILS),
    Feature("icebergCompatV1", "Iceberg compatibility", _WRITERS, _YES, _INACTIVE,
            switch=table_properties.iceberg_compat_v1_enabled, traits=_ITSELF,
            needs=("columnMapping",)),
    Feature("icebergCompatV2", "Iceberg compatibility", _WRITERS, _YES, _INACTIVE,
            switch=table_properties.iceberg_compat_v2_enabled, traits=_ITSELF,
            needs=("columnMapping",)),
    Feature("icebergCompatV3", "Iceberg compatibility", _WRITERS, _YES, _INACTIVE,
            switch=table_properties.iceberg_compat_v3_enabled, traits=_ITSELF,
            needs=("columnMapping", "rowTracking")),
    Feature("icebergWriterCompatV1", "Iceberg compatibility", _WRITERS, _YES, _NO,
            None, "`delta.enableIcebergWriterCompatV1` is true",
            _FAILS, ("icebergCompatV2",)),
    Feature("icebergWriterCompatV3", "Iceberg compatibility", _WRITERS, _YES, _NO,
            None, "`delta.enableIcebergWriterCompatV3` is true",
            _FAILS, ("icebergCompatV3",)),
    Feature("collations", "collations", _WRITERS, _YES, _NO,
            None, "a column has `__COLLATIONS`",
            _FAILS, ("domainMetadata",)),
    Feature("collations-preview", "collations", _WRITERS, _YES, _NO,
            None, "a column has `__COLLATIONS`",
            _FAILS, ("domainMetadata",)),
    Feature("columnMappingUsageTracking", "the record of column mapping", _WRITERS, _YES, _NO,
            None, "its protocol lists it",
            _FAILS, ("columnMapping",)),
    Feature("redirectWriterOnly-preview", "redirected tables", _WRITERS, _YES, _NO,
            feature.is_given(table_properties.redirect_of_writers),
            "`delta.redirectWriterOnly-preview` is set",
            _ITSELF | _DROPS | _FAILS,
            switch=table_properties.redirect_of_writers, remedy=_ELSEWHERE),
    Feature("coordinatedCommits-preview", "commits through a coordinator", _WRITERS, _INACTIVE, _NO,
            feature.is_given(table_properties.commit_coordinator),
            "`delta.coordinatedCommits.commitCoordinator-preview` is set",
            _ITSELF | _DROPS | _FAILS, ("inCommitTimestamp", "vacuumProtocolCheck"),
            switch=table_properties.commit_coordinator),
    Feature("timestampNtz", "timestamps without a zone", _BOTH, _YES, _YES,
            feature.uses_timestamp_ntz, "a column holds `timestamp_ntz`",
            _NEW),
    Feature("vacuumProtocolCheck", "the protocol check of VACUUM", _BOTH, _YES, _YES,
            None, "its protocol lists it",
            _DROPS | _TRACES),
    Feature("columnMapping", "column mapping", _BOTH, _YES, _YES,
            feature.uses_column_mapping, "`delta.columnMapping.mode` is name or id",
            _ITSELF | _DROPS | _TRACES, switch=table_properties.column_mapping_mode),
    Feature("typeWidening", "widened column types", _BOTH, _YES, _YES,
            feature.uses_type_changes, "`delta.enableTypeWidening` is true",
            _ITSELF | _DROPS | _TRACES, (),
            table_properties.type_widening_enabled, table_properties.type_widening_enabled),
    Feature("typeWidening-preview", "widened column types", _BOTH, _YES, _YES,
            feature.uses_type_changes, "a column has `delta.typeChanges`",
            _DROPS | _TRACES),
    Feature("deletionVectors", "deletion vectors", _BOTH, _YES, _YES,
            switch=table_properties.deletion_vectors_enabled, traits=_ITSELF | _DROPS | _TRACES),
    Feature("v2Checkpoint", "V2 checkpoints", _BOTH, _YES, _YES,
            feature.uses_v2_checkpoints, "`delta.checkpointPolicy` is v2",
            _ITSELF | _DROPS | _TRACES, switch=table_properties.checkpoint_policy),
    Feature("variantType", "the variant type", _BOTH, _YES, _YES,
            feature.uses_variant_type, "a column holds `variant`",
            _ITSELF | _FAILS | _BINDS),
    Feature("variantType-preview", "the variant type", _BOTH, _YES, _YES,
            None, "a column holds `variant`",
            _FAILS),
    Feature("variantShredding", "shredded variants", _BOTH, _YES, _YES,
            switch=table_properties.variant_shredding_enabled, traits=_ITSELF | _FAILS,
            needs=("variantType",)),
    Feature("variantShredding-preview", "shredded variants", _BOTH, _YES, _YES,
            None, "`delta.enableVariantShredding` is true",
            _FAILS, ("variantType",)),
    Feature("catalogManaged", "catalog-managed tables", _BOTH, _NO, _NO,
            None, "its protocol lists it",
            _BY_HAND, ("inCommitTimestamp", "vacuumProtocolCheck"), remedy=_CATALOG),
    Feature("catalogOwned-preview", "catalog-managed tables", _BOTH, _NO, _NO,
            None, "its protocol lists it",
            _FAILS, ("inCommitTimestamp", "vacuumProtocolCheck"), remedy=_CATALOG),
    Feature("geospatial", "geometry and geography types", _BOTH, _YES, _NO,
            feature.uses_geospatial, "a column holds `geometry` or `geography`",
            _ITSELF | _DROPS | _TRACES | _FAILS),
    Feature("geospatial-dev", "geometry and geography types", _BOTH, _NO, _NO,
            None, "a column holds `geometry` or `geography`",
            _DROPS | _TRACES | _FAILS),
    Feature("timestampNanos", "timestamps in nanoseconds", _BOTH, _YES, _NO,
            feature.uses_timestamp_nanos, "a column holds `timestamp_nanos`",
            _FAILS),
    Feature("redirectReaderWriter-preview", "redirected tables", _BOTH, _NO, _NO,
            feature.is_given(table_properties.redirect),
            "`delta.redirectReaderWriter-preview` is set",
            _ITSELF | _DROPS | _FAILS,
            switch=table_properties.redirect, remedy=_ELSEWHERE),
    Feature("adaptiveMetadata-preview", "adaptive metadata", _BOTH, _NO, _NO,
            None, "its protocol lists it",
            _FAILS, ("catalogManaged", "rowTracking", "domainMetadata", "deletionVectors",
                     "columnMapping"),
            remedy="its files stand in a tree of manifests beside the log: use an engine that "
                   "knows them"),
)
# fmt: on

FEATURES: Final[Mapping[str, Feature]] = {row.name: row for row in _ROWS}
"""Every known feature by its exact name."""


def check_readable(protocol: Protocol, metadata: Metadata, table: str) -> None:
    """Refuse a table that we would misread.

    Raises: UnsupportedFeature, which names the first unsupported feature; `UnsupportedProtocol` for
    a version out of range or a malformed protocol action. BrokenLog for mapped columns without the
    name or the id by which they are found.
    Spec: "Reader Version Requirements"
    """
    schema = _check_known(protocol, metadata, table)
    _check_columns(protocol, metadata, schema, table)


def check_writable(protocol: Protocol, metadata: Metadata, table: str) -> None:
    """Refuse a table that we can't read, or can't write as its protocol requires.

    Raises: as `check_readable`; BrokenLog for constraints, generated columns, identity columns or
    defaults that can't be read.
    Spec: "Writer Version Requirements"
    """
    schema = _check_known(protocol, metadata, table)
    if not 1 <= protocol.min_writer_version <= WRITER_FEATURES_VERSION:
        raise UnsupportedFeature(
            f"table {table} asks for writer version {protocol.min_writer_version}; this release "
            f"writes up to {WRITER_FEATURES_VERSION}: use a newer release",
            feature=f"writer version {protocol.min_writer_version}",
            error_class="UnsupportedProtocol",
        )
    for name in sorted(writer_features(protocol)):
        if name not in FEATURES or FEATURES[name].writes is Support.NO:
            raise _refusal(name, table, "write")
    for row in FEATURES.values():
        if row.writes is not Support.YES and row.active(metadata, schema):
            raise _refusal(row.name, table, "write")
    _check_listed(protocol, metadata, table)
    _check_columns(protocol, metadata, schema, table)
    try:
        requirements(metadata, protocol)
    except BrokenLog as error:
        raise error.with_fault(f"table {table}: {error.fault}") from error


def unlisted_features(protocol: Protocol, metadata: Metadata) -> tuple[str, ...]:
    """Return the features that the metadata uses and the protocol neither lists nor implies.

    A feature that is listed by its preview name counts as listed.
    Spec: "Table Features for New and Existing Tables"
    """
    supported = writer_features(protocol)
    schema = parse_schema(metadata.schema_string)
    listed = supported | {PREVIEWS[name] for name in supported if name in PREVIEWS}
    used = (row.name for row in FEATURES.values() if row.is_required(metadata, schema))
    return tuple(name for name in used if name not in listed and name not in PREVIEWS)


def closure(names: Iterable[str]) -> frozenset[str]:
    """Return features and all that they need, directly or not.

    Law: closure(closure(n)) == closure(n)
    """
    closed, waiting = set[str](), list(names)
    while waiting:
        name = waiting.pop()
        if name not in closed:
            closed.add(name)
            waiting += FEATURES[name].needs if name in FEATURES else ()
    return frozenset(closed)


def _check_known(protocol: Protocol, metadata: Metadata, table: str) -> StructType:
    """Return the schema of a table; refuse it if reading it needs an unsupported feature."""
    check_shape(protocol, table)
    for name in sorted(reader_features(protocol)):
        if name not in FEATURES or FEATURES[name].reads is Support.NO:
            raise _refusal(name, table, "read")
    if metadata.format.provider != "parquet":
        raise _refusal(f"format {metadata.format.provider}", table, "read")
    schema = _schema(metadata, table)
    for row in FEATURES.values():
        if row.reads is not Support.YES and row.active(metadata, schema):
            raise _refusal(row.name, table, "read")
    return schema


def _schema(metadata: Metadata, table: str) -> StructType:
    """Return the schema of a table; refuse it if a partition column is missing from it.

    One that is spelt in another case is missing, too: engines differ in what they read there.
    """
    try:
        schema = parse_schema(metadata.schema_string)
    except (UnsupportedFeature, BrokenLog) as error:
        raise error.with_fault(f"table {table}: {error.fault}") from error
    for name in metadata.partition_columns:
        if schema.get(name) is None:
            known = find_field(schema, name)
            spelling = f", but {known.name!r}" if known is not None else ""
            raise BrokenLog(
                f"table {table} is partitioned by {name!r}, which its schema does not have"
                + spelling,
                error_class="CorruptCommit",
                remedy="restore it to a version before the commit that set its metaData",
            )
    return schema


def _check_listed(protocol: Protocol, metadata: Metadata, table: str) -> None:
    """Refuse features that are used but not listed and set requirements for rows.

    Writers differ in whether they apply these.
    """
    for name in unlisted_features(protocol, metadata):
        if FEATURES[name].binds_rows:
            raise UnsupportedFeature(
                f"table {table} uses the feature {name!r} ({FEATURES[name].capability}), but its "
                "protocol does not list it, so that writers differ in what they ask of rows",
                feature=name,
                remedy=f"set delta.feature.{name} to supported, or leave its use out",
            )


def _check_columns(protocol: Protocol, metadata: Metadata, schema: StructType, table: str) -> None:
    mapped = feature.uses_column_mapping(metadata, schema)
    if mapped and "columnMapping" not in reader_features(protocol):
        raise UnsupportedFeature(
            f"table {table} maps its columns, but its protocol does not ask for it, so that "
            "readers differ in what they make of its files",
            feature="columnMapping",
            remedy="add the feature 'columnMapping' to the table, or restore it to a version "
            "without the mapping",
        )
    check_mapped(metadata, schema, table)
    check_widened(schema, table)


def _refusal(name: str, table: str, action: str) -> UnsupportedFeature:
    row = FEATURES.get(name)
    meaning = row.capability if row else "a feature this release has not heard of"
    usual = f"{action} it with another engine, or drop the feature from the table"
    return UnsupportedFeature(
        f"table {table} uses the feature {name!r} ({meaning}), with which this release does not "
        f"{action} tables",
        feature=name,
        remedy=(row.remedy if row else "") or usual,
    )


def protocol_for(names: Iterable[str]) -> Protocol:
    """Return the weakest protocol that supports exactly the given features.

    An unknown name is taken to be a writer-only feature.
    Law: supported_features(protocol_for(n)) == frozenset(n)
    Spec: "Table Features for New and Existing Tables"
    """
    features = frozenset(names)
    reading = (name for name in features if name in FEATURES and FEATURES[name].reader_writer)
    return weakest(reading, features)


def self_enabling_features(metadata: Metadata, supported: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the features that metadata adds to a protocol by itself, in the order of FEATURES.

    A feature whose preview is supported is left out. So are features that are used but never add
    themselves, such as column defaults.
    Spec: "Active Features"
    """
    schema = parse_schema(metadata.schema_string)
    previewed = {PREVIEWS[name] for name in supported if name in PREVIEWS}
    return tuple(
        row.name
        for row in FEATURES.values()
        if row.enables_itself and row.name not in previewed and row.is_required(metadata, schema)
    )


def minimum_protocol(metadata: Metadata) -> Protocol:
    """Return the weakest protocol that the metadata allows.

    Law: metadata that uses more has a protocol that supports no less
    Spec: "Table Features for New and Existing Tables"
    """
    return protocol_for(closure(self_enabling_features(metadata)))


def with_features(protocol: Protocol, names: Iterable[str]) -> Protocol:
    """Return a protocol with more features and all that they need; unchanged if it has them.

    Law: it supports what the protocol did
    """
    supported = supported_features(protocol)
    if closure(names) <= supported:
        return protocol
    return merged(denormalised(protocol), protocol_for(closure(names)))


def without_feature(protocol: Protocol, name: str) -> Protocol:
    """Return the weakest protocol with the same features except one."""
    reading = frozenset(denormalised(protocol).reader_features or ()) - {name}
    return weakest(reading, supported_features(protocol) - {name})


def added_features(before: Protocol, after: Protocol) -> frozenset[str]:
    """Return the features that a change of protocol adds."""
    return supported_features(after) - supported_features(before)


def dropped_features(before: Protocol, after: Protocol) -> frozenset[str]:
    """Return the features that a change of protocol removes."""
    return supported_features(before) - supported_features(after)


def interrupting_features(before: Protocol, after: Protocol) -> tuple[str, ...]:
    """Return, by name, the added features that fail transactions which read the table before.

    The writers of those may not have met what such a feature requires of every file. Unknown
    features are included, because their requirements are unknown.
    """
    return tuple(
        sorted(
            name
            for name in added_features(before, after)
            if name not in FEATURES or FEATURES[name].fails_concurrent
        )
    )
