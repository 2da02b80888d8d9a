"""Predicates that say whether a table's metadata uses a feature."""

from collections.abc import Callable
from typing import Final

from tidegate_delta.log.actions import Metadata
from tidegate_delta.schema.types import (
    NANOS,
    TIMESTAMP_NTZ,
    VARIANT,
    StructType,
    holds,
    is_geospatial,
)
from tidegate_delta.schema.types import walk as fields_of

_TRUE: Final = "true"


def never(metadata: Metadata, schema: StructType) -> bool:
    """Return False: the metadata does not show whether the feature is used.

    Spec: "Active Features"
    """
    return False


def append_only(metadata: Metadata, schema: StructType) -> bool:
    """Return whether rows may only be added.

    Spec: "Append-only Tables"
    """
    return _is_true(metadata, "delta.appendOnly")


def invariants(metadata: Metadata, schema: StructType) -> bool:
    """Return whether a column has an invariant.

    Spec: "Column Invariants"
    """
    return _any_field_has(schema, "delta.invariants")


def check_constraints(metadata: Metadata, schema: StructType) -> bool:
    """Return whether the table has CHECK constraints.

    Spec: "CHECK Constraints"
    """
    return any(key.lower().startswith("delta.constraints.") for key in metadata.configuration)


def change_data_feed(metadata: Metadata, schema: StructType) -> bool:
    """Return whether writers must write change data files.

    The older property counts if the newer one is absent.
    Spec: "Writer Requirements for AddCDCFile"
    """
    new, old = "delta.enableChangeDataFeed", "delta.enableChangeDataCapture"
    return _is_true(metadata, new if new in metadata.configuration else old)


def generated_columns(metadata: Metadata, schema: StructType) -> bool:
    """Return whether a column is computed from others.

    Spec: "Generated Columns"
    """
    return _any_field_has(schema, "delta.generationExpression")


def identity_columns(metadata: Metadata, schema: StructType) -> bool:
    """Return whether a column is an identity column.

    Spec: "Identity Columns"
    """
    return any(
        key.startswith("delta.identity.") for field in fields_of(schema) for key in field.metadata
    )


def column_defaults(metadata: Metadata, schema: StructType) -> bool:
    """Return whether a column has a default.

    Spec: "Default Columns"
    """
    return _any_field_has(schema, "CURRENT_DEFAULT")


def in_commit_timestamps(metadata: Metadata, schema: StructType) -> bool:
    """Return whether commits have in-commit timestamps.

    Spec: "In-Commit Timestamps"
    """
    return _is_true(metadata, "delta.enableInCommitTimestamps")


def row_tracking(metadata: Metadata, schema: StructType) -> bool:
    """Return whether rows have ids.

    Spec: "Row Tracking"
    """
    return _is_true(metadata, "delta.enableRowTracking")


def iceberg_compat(version: str) -> Callable[[Metadata, StructType], bool]:
    """Return the predicate for one version of Iceberg compatibility.

    Spec: "Iceberg Compatibility V1"
    """

    def active(metadata: Metadata, schema: StructType) -> bool:
        return _is_true(metadata, f"delta.enableIcebergCompat{version}")

    return active


def coordinated_commits(metadata: Metadata, schema: StructType) -> bool:
    """Return whether commits may be stored outside the table's log.

    Spec: "Catalog-managed tables"
    """
    return bool(metadata.configuration.get("delta.coordinatedCommits.commitCoordinator-preview"))


def timestamp_ntz(metadata: Metadata, schema: StructType) -> bool:
    """Return whether a column is a timestamp without a zone.

    Spec: "Timestamp without timezone (TimestampNtz)"
    """
    return holds(schema, lambda kind: kind == TIMESTAMP_NTZ)


def timestamp_nanos(metadata: Metadata, schema: StructType) -> bool:
    """Return whether a column is a timestamp in nanoseconds.

    Spec: "Primitive Types", except that the specification does not list these yet.
    """
    return holds(schema, lambda kind: kind in NANOS)


def variant_type(metadata: Metadata, schema: StructType) -> bool:
    """Return whether a column holds variants.

    Spec: "Variant Data Type"
    """
    return holds(schema, lambda kind: kind == VARIANT)


def geospatial(metadata: Metadata, schema: StructType) -> bool:
    """Return whether a column holds geometries or geographies.

    Spec: "Primitive Types"
    """
    return holds(schema, is_geospatial)


def column_mapping(metadata: Metadata, schema: StructType) -> bool:
    """Return whether columns have physical names of their own.

    Spec: "Column Mapping"
    """
    return metadata.configuration.get("delta.columnMapping.mode", "none").lower() != "none"


def type_changes(metadata: Metadata, schema: StructType) -> bool:
    """Return whether a column's type was widened.

    Spec: "Type Change Metadata"
    """
    return _any_field_has(schema, "delta.typeChanges")


def type_widening(metadata: Metadata, schema: StructType) -> bool:
    """Return whether writers may widen the types of columns.

    Spec: "Type Widening"
    """
    return _is_true(metadata, "delta.enableTypeWidening")


def partitions_in_files(metadata: Metadata, schema: StructType) -> bool:
    """Return whether data files must hold the partition columns too.

    Spec: "Data Files", except that the feature is proposed and not part of the specification yet.
    """
    return _is_true(metadata, "delta.enableMaterializePartitionColumnsFeature")


def redirected(feature: str) -> Callable[[Metadata, StructType], bool]:
    """Return the predicate for tables that are being moved or have been moved.

    Spec: "Table Features", except that redirected tables are no part of the specification.
    """

    def active(metadata: Metadata, schema: StructType) -> bool:
        return f"delta.{feature}" in metadata.configuration

    return active


def deletion_vectors(metadata: Metadata, schema: StructType) -> bool:
    """Return whether writers may write deletion vectors.

    Spec: "Deletion Vectors"
    """
    return _is_true(metadata, "delta.enableDeletionVectors")


def v2_checkpoints(metadata: Metadata, schema: StructType) -> bool:
    """Return whether checkpoints must be V2.

    Spec: "V2 Checkpoint Table Feature"
    """
    return metadata.configuration.get("delta.checkpointPolicy", "classic").lower() == "v2"


def variant_shredding(metadata: Metadata, schema: StructType) -> bool:
    """Return whether writers may shred variants.

    Spec: "Variant Shredding"
    """
    return _is_true(metadata, "delta.enableVariantShredding")


def _is_true(metadata: Metadata, key: str) -> bool:
    return metadata.configuration.get(key, "").strip().lower() == _TRUE


def _any_field_has(schema: StructType, key: str) -> bool:
    return any(key in field.metadata for field in fields_of(schema))
