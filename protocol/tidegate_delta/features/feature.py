"""A row of the table of features: what Delta says of a feature, and how far we go with it.

A feature is *supported* by a table when its protocol lists or implies it, and *active* when its
metadata uses it. `INACTIVE` means that nothing is asked of us until the metadata uses the feature.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, Flag, auto

from tidegate_delta.features import active_features
from tidegate_delta.log.actions import Metadata
from tidegate_delta.log.protocol_versions import LEGACY
from tidegate_delta.schema.types import StructType

Active = Callable[[Metadata, StructType], bool]


class Support(Enum):
    """How far we go with a feature.

    Spec: "Supported Features"
    """

    YES = "yes"
    INACTIVE = "while inactive"
    NO = "no"


class FeatureKind(Enum):
    """Who must know a feature to use a table that lists it.

    Spec: "Supported Features"
    """

    WRITER = "writers"
    READER_WRITER = "readers and writers"


class Trait(Flag):
    """What happens around a feature, as delta-spark 4.4.0 has it.

    ENABLES_ITSELF: metadata that uses it brings it into the protocol, of an existing table too.
    ENABLES_NEW: the same for new tables alone; an existing one lists it by hand before.
    REMOVABLE: it can be dropped.
    LEAVES_TRACES: once dropped, old versions still need it: its history is cut off or protected.
    FAILS_CONCURRENT: a transaction that read the table before it was listed must not be committed
    after, because its writer may have ignored what the feature asks.

    Spec: "Supported Features"
    """

    NOTHING = 0
    ENABLES_ITSELF = auto()
    ENABLES_NEW = auto()
    REMOVABLE = auto()
    LEAVES_TRACES = auto()
    FAILS_CONCURRENT = auto()


@dataclass(frozen=True)
class Feature:
    """A row of the table: `capability` says in words what a release must learn to support it.

    `used_by` says in words when a table uses it and `active` whether it does; `wanted` whether the
    metadata allows writers to use it, so that it must be listed before any does. `needs` are the
    features that must be supported with it.

    Spec: "Valid Feature Names in Table Features"
    """

    name: str
    capability: str
    kind: FeatureKind
    reads: Support
    writes: Support
    active: Active = active_features.never
    used_by: str = ""
    traits: Trait = Trait.NOTHING
    needs: tuple[str, ...] = ()
    wanted: Active = active_features.never

    def is_asked(self, metadata: Metadata, schema: StructType) -> bool:
        """Return whether metadata must not stand without the feature in the protocol."""
        return self.active(metadata, schema) or self.wanted(metadata, schema)

    @property
    def reader_writer(self) -> bool:
        """Whether readers must know it too."""
        return self.kind is FeatureKind.READER_WRITER

    @property
    def legacy(self) -> tuple[int, int] | None:
        """The reader and writer version that first imply it, or None."""
        return LEGACY.get(self.name)

    @property
    def stands_for(self) -> str | None:
        """The final name of a feature that is a preview, or None."""
        return PREVIEWS.get(self.name)

    @property
    def enables_itself(self) -> bool:
        """Whether metadata that uses it brings it into the protocol of a new table."""
        return bool(self.traits & (Trait.ENABLES_ITSELF | Trait.ENABLES_NEW))

    @property
    def enables_itself_later(self) -> bool:
        """Whether metadata that uses it brings it into the protocol of an existing table too."""
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
"""Names from before a feature was final -> its final name. A table that lists one of them is not
given the other, so that clients that know the old name alone go on.

Spec: "Valid Feature Names in Table Features"
"""
