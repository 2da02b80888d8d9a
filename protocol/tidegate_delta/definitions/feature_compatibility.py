"""Rules for features, properties and columns that exclude or need one another."""

from collections.abc import Iterator
from typing import Final

from tidegate_delta.definitions.definition import Definition, Flaw, configured
from tidegate_delta.features import active_features
from tidegate_delta.properties import table_properties

_CHANGE_COLUMNS: Final = ("_change_type", "_commit_version", "_commit_timestamp")
_TIMED: Final = ("catalogManaged", "catalogOwned-preview", "coordinatedCommits-preview")


def row_tracking_agrees(one: Definition) -> Iterator[Flaw]:
    """Yield what contradicts row tracking: it is suspended, or its columns have no valid name.

    Spec: "Row Tracking"
    """
    if not table_properties.row_tracking_enabled(one.metadata):
        return
    if table_properties.row_tracking_suspended(one.metadata):
        yield Flaw(
            "row_tracking_suspended",
            configured(table_properties.row_tracking_suspended.key),
            "is true while row tracking is enabled",
            "disable row tracking before it is suspended",
            "DELTA_ROW_TRACKING_ILLEGAL_PROPERTY_COMBINATION",
        )
    for column in (table_properties.row_id_column, table_properties.row_commit_version_column):
        name = column(one.metadata)
        if not name:
            yield Flaw(
                "row_tracking_column_missing",
                configured(column.key),
                "names no column, while row tracking is enabled",
                "give it a name that no column has",
                "DELTA_MATERIALIZED_ROW_TRACKING_COLUMN_NAME_MISSING",
            )


def row_tracking_columns_free(one: Definition) -> Iterator[Flaw]:
    """Yield each materialised column name of row tracking that is also a column of the table.

    Spec: "Row Tracking"
    """
    taken = set(one.schema.names)
    taken |= {str(one.metadata.get("delta.columnMapping.physicalName")) for one in one.schema}
    for column in (table_properties.row_id_column, table_properties.row_commit_version_column):
        name = column(one.metadata)
        if name in taken:
            yield Flaw(
                "row_tracking_column_taken",
                configured(column.key),
                f"is {name!r}, which a column of the table is called too",
                "rename that column",
                "DELTA_ADDING_COLUMN_WITH_INTERNAL_NAME_FAILED",
            )


def vectors_allowed(one: Definition) -> Iterator[Flaw]:
    """Yield what excludes deletion vectors: another file format, or manifests without them.

    Spec: "Deletion Vectors"
    """
    if not table_properties.deletion_vectors_enabled(one.metadata):
        return
    failed = "DELTA_VIOLATE_TABLE_PROPERTY_VALIDATION_FAILED"
    if one.metadata.format.provider != "parquet":
        yield Flaw(
            "vectors_without_parquet",
            "metaData.format.provider",
            f"is {one.metadata.format.provider!r}, while deletion vectors are enabled",
            "disable deletion vectors",
            f"{failed}.PERSISTENT_DELETION_VECTORS_IN_NON_PARQUET_TABLE",
        )
    if table_properties.symlink_manifests_enabled(one.metadata):
        yield Flaw(
            "vectors_with_manifests",
            configured(table_properties.symlink_manifests_enabled.key),
            "is true while deletion vectors are enabled",
            "disable one of the two",
            f"{failed}.PERSISTENT_DELETION_VECTORS_WITH_INCREMENTAL_MANIFEST_GENERATION",
        )


def times_agree(one: Definition) -> Iterator[Flaw]:
    """Yield faults of in-commit timestamps: an incomplete enablement record, or a missing one.

    Spec: "In-Commit Timestamps"
    """
    version = table_properties.ict_enablement_version(one.metadata)
    time_ms = table_properties.ict_enablement_timestamp_ms(one.metadata)
    enabled = table_properties.in_commit_timestamps_enabled(one.metadata)
    if enabled and (version is None) != (time_ms is None):
        missing = table_properties.ict_enablement_timestamp_ms if time_ms is None else None
        yield Flaw(
            "half_an_enablement",
            configured((missing or table_properties.ict_enablement_version).key),
            "is missing, while its other half is there",
            "write both, or neither where they were enabled from the first version on",
        )
    for name in _TIMED:
        if name in one.supported and not enabled and _is_run_by_others(name, one):
            yield Flaw(
                "times_needed",
                configured(table_properties.in_commit_timestamps_enabled.key),
                f"is not true, which the feature {name!r} needs",
                "enable in-commit timestamps",
            )


def _is_run_by_others(name: str, one: Definition) -> bool:
    """Return whether a catalog or a named coordinator accepts the commits."""
    if name != "coordinatedCommits-preview":
        return True
    return active_features.coordinated_commits(one.metadata, one.schema)


def change_columns_free(one: Definition) -> Iterator[Flaw]:
    """Yield each column with a reserved name of the change data feed, where that is enabled.

    Spec: "Add CDC File"
    """
    if table_properties.change_feed_enabled(one.metadata):
        for name in _CHANGE_COLUMNS:
            if name in one.schema.names:
                yield Flaw(
                    "change_column_taken",
                    "metaData.schemaString",
                    f"has a column {name!r}, which the change data feed adds",
                    "rename the column, or disable the change data feed",
                    "DELTA_TABLE_ALREADY_CONTAINS_CDC_COLUMNS",
                )


def clustered_or_partitioned(one: Definition) -> Iterator[Flaw]:
    """Yield a flaw where a partitioned table supports clustering: these exclude each other.

    Spec: "Clustered Table"
    """
    if "clustering" in one.supported and one.metadata.partition_columns:
        yield Flaw(
            "clustered_and_partitioned",
            "metaData.partitionColumns",
            "are named, while the table supports clustering",
            "cluster the table, or partition it",
            "DELTA_CLUSTER_BY_WITH_PARTITIONED_BY",
        )


def adaptive_metadata_agrees(one: Definition) -> Iterator[Flaw]:
    """Yield each property that adaptive metadata needs and the table lacks.

    Spec: "Table Features", except that adaptive metadata is no part of the specification.
    """
    if "adaptiveMetadata-preview" not in one.supported:
        return
    for flag in (table_properties.row_tracking_enabled, table_properties.deletion_vectors_enabled):
        if not flag(one.metadata):
            yield Flaw(
                "adaptive_metadata_flag",
                configured(flag.key),
                "is not true, which adaptive metadata needs",
                "set it to true",
                "DELTA_ADAPTIVE_METADATA_REQUIRES_DEPENDENT_FEATURE_ENABLED",
            )
    if table_properties.column_mapping_mode(one.metadata) != "id":
        yield Flaw(
            "adaptive_metadata_mode",
            configured(table_properties.column_mapping_mode.key),
            "is not id, which adaptive metadata needs",
            "create the table with the mode id",
            "DELTA_ADAPTIVE_METADATA_REQUIRES_COLUMN_MAPPING_ID_MODE",
        )
