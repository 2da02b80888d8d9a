"""Tables that are also read as Iceberg or Hudi: which settings and types that excludes."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from tidegate_delta.definitions.definition import Definition, Flaw, configured
from tidegate_delta.errors import UnsupportedFeature
from tidegate_delta.properties import table_properties
from tidegate_delta.properties.property import Property
from tidegate_delta.schema.type_widening import TypeChange, changes
from tidegate_delta.schema.types import (
    BYTE,
    DOUBLE,
    FLOAT,
    SHORT,
    TIMESTAMP_NTZ,
    VARIANT,
    VOID,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructType,
    holds,
    is_geospatial,
    walk,
)

_VIOLATION: Final = "DELTA_ICEBERG_COMPAT_VIOLATION"
_UNIVERSAL: Final = "DELTA_UNIVERSAL_FORMAT_VIOLATION"
_INTEGRAL: Final = ("byte", "short", "integer", "long")
_SIMPLE: Final = frozenset(
    {*_INTEGRAL, "float", "double", "string", "binary", "boolean"}
    | {"timestamp", "timestamp_ntz", "date"}
)


@dataclass(frozen=True)
class _Compat:
    """A version of Iceberg compatibility: its property and the types it allows."""

    enabled: Property[bool | None]
    holds: Callable[[DataType], bool]
    has_vectors: bool

    def flaw(self, rule: str, field: str, reason: str, remedy: str, kind: str) -> Flaw:
        """Return a flaw that names this version of Iceberg compatibility."""
        full_reason = f"{reason}, while {self.enabled.key} is true"
        return Flaw(rule, field, full_reason, remedy, f"{_VIOLATION}.{kind}")


def _is_simple(kind: DataType) -> bool:
    return isinstance(kind, DecimalType) or (
        isinstance(kind, PrimitiveType) and kind.name in _SIMPLE
    )


def _holds_v1(kind: DataType) -> bool:
    return not (isinstance(kind, MapType | ArrayType) or kind == VOID or is_geospatial(kind))


def _holds_v2(kind: DataType) -> bool:
    return _is_simple(kind) or isinstance(kind, StructType | ArrayType | MapType)


def _holds_v3(kind: DataType) -> bool:
    return _holds_v2(kind) or kind == VARIANT or is_geospatial(kind)


_VERSIONS: Final[Mapping[str, _Compat]] = {
    "V1": _Compat(table_properties.iceberg_compat_v1_enabled, _holds_v1, has_vectors=False),
    "V2": _Compat(table_properties.iceberg_compat_v2_enabled, _holds_v2, has_vectors=False),
    "V3": _Compat(table_properties.iceberg_compat_v3_enabled, _holds_v3, has_vectors=True),
}


def iceberg_flaws(definition: Definition) -> Iterator[Flaw]:
    """Yield what prevents a table from being read as Iceberg, if it is to be.

    Spec: "Writer Requirements for IcebergCompatV1", "Writer Requirements for IcebergCompatV2"
    """
    active = [compat for compat in _VERSIONS.values() if compat.enabled(definition.metadata)]
    if len(active) > 1:
        yield active[0].flaw(
            "iceberg_versions",
            configured(active[1].enabled.key),
            "is true",
            "enable one version of it",
            "VERSION_MUTUAL_EXCLUSIVE",
        )
    for compat in active:
        yield from _property_problems(definition, compat)
        yield from _type_problems(definition, compat)
        yield from _change_problems(definition, compat)


def universal_flaws(definition: Definition) -> Iterator[Flaw]:
    """Yield what prevents a table from being read in the other formats of its properties.

    Spec: "Iceberg Compatibility V1"
    """
    named = table_properties.universal_formats(definition.metadata)
    key = configured(table_properties.universal_formats.key)
    if "iceberg" in named and not any(v.enabled(definition.metadata) for v in _VERSIONS.values()):
        yield Flaw(
            "iceberg_without_compatibility",
            key,
            "names iceberg, while no version of Iceberg compatibility is enabled",
            "enable delta.enableIcebergCompatV2 too",
            f"{_UNIVERSAL}.ICEBERG_COMPAT_REQUIRED",
        )
    if "hudi" not in named:
        return
    if table_properties.deletion_vectors_enabled(definition.metadata):
        yield Flaw(
            "hudi_with_vectors",
            key,
            "names hudi, while deletion vectors are enabled",
            "disable deletion vectors",
            f"{_UNIVERSAL}.HUDI_DELETE_VECTORS_NOT_SUPPORTED",
        )
    refused = (VOID, BYTE, SHORT, TIMESTAMP_NTZ)
    if holds(definition.schema, lambda kind: kind in refused or is_geospatial(kind)):
        yield Flaw(
            "hudi_type",
            "metaData.schemaString",
            "has a column of a type that Hudi lacks, while hudi is a format of the table",
            "give it another type, or leave hudi out",
            f"{_UNIVERSAL}.HUDI_UNSUPPORTED_DATA_TYPE",
        )


def iceberg_change_flaws(before: Definition, after: Definition) -> Iterator[Flaw]:
    """Yield changes that a table read as Iceberg may not make: partition columns, V3 itself.

    Spec: "Writer Requirements for IcebergCompatV1"
    """
    old, new = before.metadata.partition_columns, after.metadata.partition_columns
    for compat in _VERSIONS.values():
        if compat.enabled(after.metadata) and old and tuple(old) != tuple(new):
            yield compat.flaw(
                "iceberg_partition_columns",
                "metaData.partitionColumns",
                f"change from {list(old)} to {list(new)}",
                "keep the names of partition columns",
                "REPLACE_TABLE_CHANGE_PARTITION_NAMES",
            )
    third = _VERSIONS["V3"].enabled
    if third(before.metadata) and not third(after.metadata):
        yield Flaw(
            "iceberg_v3_disabled",
            configured(third.key),
            "is no longer true, and cannot be disabled",
            "keep it, or make a new table",
        )


def _property_problems(definition: Definition, compat: _Compat) -> Iterator[Flaw]:
    if table_properties.column_mapping_mode(definition.metadata) == "none":
        yield compat.flaw(
            "iceberg_without_mapping",
            configured(table_properties.column_mapping_mode.key),
            "is none",
            "map columns by name or id",
            "WRONG_REQUIRED_TABLE_PROPERTY",
        )
    if not compat.has_vectors and table_properties.deletion_vectors_enabled(definition.metadata):
        yield compat.flaw(
            "iceberg_with_vectors",
            configured(table_properties.deletion_vectors_enabled.key),
            "is true",
            "disable deletion vectors and purge those that there are",
            "DELETION_VECTORS_SHOULD_BE_DISABLED",
        )
    if compat is _VERSIONS["V3"] and not table_properties.row_tracking_enabled(definition.metadata):
        yield compat.flaw(
            "iceberg_without_row_tracking",
            configured(table_properties.row_tracking_enabled.key),
            "is not true",
            "enable row tracking",
            "WRONG_REQUIRED_TABLE_PROPERTY",
        )


def _type_problems(definition: Definition, compat: _Compat) -> Iterator[Flaw]:
    for field in definition.schema:
        if holds(field.kind, lambda kind: not compat.holds(kind)):
            yield compat.flaw(
                "iceberg_type",
                "metaData.schemaString",
                f"has the column {field.name!r} of the type {field.kind}",
                "give it another type",
                "UNSUPPORTED_DATA_TYPE",
            )
    for name in definition.metadata.partition_columns:
        column = definition.schema.get(name)
        if column is not None and not _is_simple(column.kind):
            yield compat.flaw(
                "iceberg_partition_type",
                "metaData.partitionColumns",
                f"name {name!r} of the type {column.kind}",
                "partition by a column of another type",
                "UNSUPPORTED_PARTITION_DATA_TYPE",
            )


def _change_problems(definition: Definition, compat: _Compat) -> Iterator[Flaw]:
    if not {"typeWidening", "typeWidening-preview"} & definition.supported:
        return
    for field in walk(definition.schema):
        try:
            recorded = changes(field)
        except (ValueError, UnsupportedFeature) as error:
            reason = f"records a change of {field.name!r} that can't be read ({error})"
            recorded = ()
            yield compat.flaw(
                "iceberg_type_change",
                "metaData.schemaString",
                reason,
                "record it as PROTOCOL.md spells it",
                "UNSUPPORTED_TYPE_WIDENING",
            )
        for change in recorded:
            if not _iceberg_widens(change):
                yield compat.flaw(
                    "iceberg_type_change",
                    "metaData.schemaString",
                    f"has widened {field.name!r} from {change.before} to {change.after}, which "
                    "Iceberg does not know",
                    "write its files again with the wider type and drop the record",
                    "UNSUPPORTED_TYPE_WIDENING",
                )


def _iceberg_widens(change: TypeChange) -> bool:
    before, after = change.before, change.after
    if before == after or (before, after) == (FLOAT, DOUBLE):
        return True
    if isinstance(before, DecimalType) and isinstance(after, DecimalType):
        return before.scale == after.scale and before.precision <= after.precision
    order = {name: size for size, name in enumerate(_INTEGRAL)}
    smaller, larger = order.get(str(before)), order.get(str(after))
    return smaller is not None and larger is not None and smaller <= larger
