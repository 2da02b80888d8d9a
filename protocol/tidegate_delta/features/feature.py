"""A row of the feature table: what Delta defines for a feature, and how far we support it.

A feature is *supported* by a table when its protocol lists or implies it, and *active* when its
metadata uses it. `INACTIVE` means that a feature can be listed without any requirement on us until
the metadata uses it.

The functions `uses_...` say whether a table's metadata uses a feature.

Spec: "Supported Features"
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, Flag, auto
from typing import Any

from tidegate_delta.log.actions import Metadata
from tidegate_delta.log.protocol_versions import LEGACY
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


def is_given(switch: Property[Any]) -> Active:
    """Return the predicate for a feature that is used where a property has a text.

    Spec: "Active Features"
    """
    return lambda metadata, schema: switch.key in metadata.configuration


def uses_invariants(metadata: Metadata, schema: StructType) -> bool:
    """Return whether a column has an invariant.

    Spec: "Column Invariants"
    """
    return _any_field_has(schema, "delta.invariants")


def uses_check_constraints(metadata: Metadata, schema: StructType) -> bool:
    """Return whether the table has CHECK constraints.

    Spec: "CHECK Constraints"
    """
    return any(key.lower().startswith(CONSTRAINT_PREFIX) for key in metadata.configuration)


def uses_generated_columns(metadata: Metadata, schema: StructType) -> bool:
    """Return whether a column is computed from others.

    Spec: "Generated Columns"
    """
    return _any_field_has(schema, "delta.generationExpression")


def uses_identity_columns(metadata: Metadata, schema: StructType) -> bool:
    """Return whether a column is an identity column.

    Spec: "Identity Columns"
    """
    return any(
        key.startswith("delta.identity.") for field in fields_of(schema) for key in field.metadata
    )


def uses_column_defaults(metadata: Metadata, schema: StructType) -> bool:
    """Return whether a column has a default.

    Spec: "Default Columns"
    """
    return _any_field_has(schema, "CURRENT_DEFAULT")


def uses_timestamp_ntz(metadata: Metadata, schema: StructType) -> bool:
    """Return whether a column is a timestamp without a zone.

    Spec: "Timestamp without timezone (TimestampNtz)"
    """
    return holds(schema, lambda kind: kind == TIMESTAMP_NTZ)


def uses_timestamp_nanos(metadata: Metadata, schema: StructType) -> bool:
    """Return whether a column is a timestamp in nanoseconds.

    Spec: "Primitive Types", except that the specification does not list these yet.
    """
    return holds(schema, lambda kind: kind in NANOS)


def uses_variant_type(metadata: Metadata, schema: StructType) -> bool:
    """Return whether a column holds variants.

    Spec: "Variant Data Type"
    """
    return holds(schema, lambda kind: kind == VARIANT)


def uses_geospatial(metadata: Metadata, schema: StructType) -> bool:
    """Return whether a column holds geometries or geographies.

    Spec: "Primitive Types"
    """
    return holds(schema, is_geospatial)


def uses_column_mapping(metadata: Metadata, schema: StructType) -> bool:
    """Return whether columns have physical names of their own.

    Spec: "Column Mapping"
    """
    return metadata.configuration.get(column_mapping_mode.key, "none").lower() != "none"


def uses_type_changes(metadata: Metadata, schema: StructType) -> bool:
    """Return whether a column's type was widened.

    Spec: "Type Change Metadata"
    """
    return _any_field_has(schema, "delta.typeChanges")


def uses_v2_checkpoints(metadata: Metadata, schema: StructType) -> bool:
    """Return whether checkpoints must be V2.

    Spec: "V2 Checkpoint Table Feature"
    """
    return metadata.configuration.get(checkpoint_policy.key, "classic").lower() == "v2"


def _any_field_has(schema: StructType, key: str) -> bool:
    return any(key in field.metadata for field in fields_of(schema))


class Support(Enum):
    """How far this release supports a feature."""

    YES = "yes"
    INACTIVE = "while inactive"
    NO = "no"


class FeatureKind(Enum):
    """Which clients must support a feature to use a table that lists it."""

    WRITER = "writers"
    READER_WRITER = "readers and writers"


class Trait(Flag):
    """What happens when a feature is listed or dropped, as in delta-spark 4.4.0.

    ENABLES_ITSELF: metadata that uses it adds it to the protocol, of an existing table too.
    ENABLES_NEW: the same for new tables only; an existing table must list it first.
    REMOVABLE: it can be dropped.
    LEAVES_TRACES: after a drop, old versions still need it: history is truncated or protected.
    FAILS_CONCURRENT: a transaction that read the table before the feature was listed must not be
    committed after, because its writer may not have met the feature's requirements.
    BINDS_ROWS: it sets requirements for rows or their writers once the protocol lists it.
    """

    NOTHING = 0
    ENABLES_ITSELF = auto()
    ENABLES_NEW = auto()
    REMOVABLE = auto()
    LEAVES_TRACES = auto()
    FAILS_CONCURRENT = auto()
    BINDS_ROWS = auto()


@dataclass(frozen=True)
class Feature:
    """A row of the table: `capability` names what a release must implement to support the feature.

    `switch` is the property that turns it on, if one does. Where that is not said by `true`,
    `used_if` tests whether metadata uses it, and `used_text` says so in words. `wanted` is a
    property by which writers may come to use it, so that it must be listed before any does. `needs`
    are the features that must be supported with it, and `remedy` is what to do about a table that
    is refused for it, where the usual one does not help.

    Spec: "Valid Feature Names in Table Features"
    """

    name: str
    capability: str
    kind: FeatureKind
    reads: Support
    writes: Support
    used_if: Active | None = None
    used_text: str = ""
    traits: Trait = Trait.NOTHING
    needs: tuple[str, ...] = ()
    wanted: Property[Any] | None = None
    switch: Property[Any] | None = None
    remedy: str = ""

    def active(self, metadata: Metadata, schema: StructType) -> bool:
        """Return whether the metadata uses it."""
        if self.used_if is not None:
            return self.used_if(metadata, schema)
        return self.switch is not None and self.switch.is_on(metadata)

    def is_required(self, metadata: Metadata, schema: StructType) -> bool:
        """Return whether the metadata requires the feature to be in the protocol."""
        is_wanted = self.wanted is not None and self.wanted.is_on(metadata)
        return is_wanted or self.active(metadata, schema)

    @property
    def used_by(self) -> str:
        """When a table uses it, in words."""
        return self.used_text or f"`{self.switch.key if self.switch else ''}` is true"

    @property
    def reader_writer(self) -> bool:
        """Whether readers must support it too."""
        return self.kind is FeatureKind.READER_WRITER

    @property
    def legacy(self) -> tuple[int, int] | None:
        """The reader and writer version that first imply it, or None."""
        return LEGACY.get(self.name)

    @property
    def final_name(self) -> str | None:
        """The final name of a preview feature, or None."""
        return PREVIEWS.get(self.name)

    @property
    def enables_itself(self) -> bool:
        """Whether metadata that uses it adds it to the protocol of a new table."""
        return bool(self.traits & (Trait.ENABLES_ITSELF | Trait.ENABLES_NEW))

    @property
    def enables_itself_later(self) -> bool:
        """Whether metadata that uses it adds it to the protocol of an existing table too."""
        return Trait.ENABLES_ITSELF in self.traits

    @property
    def is_removable(self) -> bool:
        """Whether it can be dropped."""
        return Trait.REMOVABLE in self.traits

    @property
    def leaves_traces(self) -> bool:
        """Whether versions from before a drop still need it."""
        return Trait.LEAVES_TRACES in self.traits

    @property
    def binds_rows(self) -> bool:
        """Whether it sets requirements for rows or their writers once the protocol lists it."""
        return Trait.BINDS_ROWS in self.traits

    @property
    def fails_concurrent(self) -> bool:
        """Whether listing it fails the transactions that read the table before."""
        return Trait.FAILS_CONCURRENT in self.traits


PREVIEWS = {
    "typeWidening-preview": "typeWidening",
    "variantType-preview": "variantType",
    "variantShredding-preview": "variantShredding",
    "geospatial-dev": "geospatial",
    "collations-preview": "collations",
    "catalogOwned-preview": "catalogManaged",
}
"""Preview name of a feature -> its final name. A table that lists one of them is not given the
other, so that clients which know only the preview name can go on.

Spec: "Valid Feature Names in Table Features"
"""
