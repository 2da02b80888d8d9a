"""Predicates that say whether a table's metadata uses a feature."""

from collections.abc import Callable
from typing import Any

from tidegate_delta.log.actions import Metadata
from tidegate_delta.properties.property import Property
from tidegate_delta.properties.table_properties import (
    CONSTRAINT_PREFIX,
    checkpoint_policy,
    column_mapping_mode,
)
from tidegate_delta.schema.types import (
    NANOS,
    TIMESTAMP_NTZ,
    VARIANT,
    StructType,
    holds,
    is_geospatial,
)
from tidegate_delta.schema.types import walk as fields_of

Active = Callable[[Metadata, StructType], bool]
"""Returns whether a table's metadata uses a feature."""


def given(switch: Property[Any]) -> Active:
    """Return the predicate for a feature that is used where a property has a text.

    Spec: "Active Features"
    """
    return lambda metadata, schema: switch.key in metadata.configuration


def invariants(metadata: Metadata, schema: StructType) -> bool:
    """Return whether a column has an invariant.

    Spec: "Column Invariants"
    """
    return _any_field_has(schema, "delta.invariants")


def check_constraints(metadata: Metadata, schema: StructType) -> bool:
    """Return whether the table has CHECK constraints.

    Spec: "CHECK Constraints"
    """
    return any(key.lower().startswith(CONSTRAINT_PREFIX) for key in metadata.configuration)


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
    return metadata.configuration.get(column_mapping_mode.key, "none").lower() != "none"


def type_changes(metadata: Metadata, schema: StructType) -> bool:
    """Return whether a column's type was widened.

    Spec: "Type Change Metadata"
    """
    return _any_field_has(schema, "delta.typeChanges")


def v2_checkpoints(metadata: Metadata, schema: StructType) -> bool:
    """Return whether checkpoints must be V2.

    Spec: "V2 Checkpoint Table Feature"
    """
    return metadata.configuration.get(checkpoint_policy.key, "classic").lower() == "v2"


def _any_field_has(schema: StructType, key: str) -> bool:
    return any(key in field.metadata for field in fields_of(schema))
