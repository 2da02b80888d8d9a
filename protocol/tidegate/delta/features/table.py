"""The one table of features: what we read, what we write, what we refuse by name.

A feature is *supported* by a table when its protocol lists or implies it, and *active* when its
metadata uses it. `INACTIVE` means that nothing is asked of us until the metadata uses the feature.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from tidegate.delta.actions import Metadata, Protocol
from tidegate.delta.errors import UnsupportedFeature
from tidegate.delta.features import activity
from tidegate.delta.features.arithmetic import (
    READER_FEATURES_VERSION,
    WRITER_FEATURES_VERSION,
    check_shape,
    reader_features,
    writer_features,
)
from tidegate.delta.schema.mapping import check_mapped
from tidegate.delta.schema.types import StructType, parse_schema
from tidegate.delta.schema.widening import check_widened


class Support(Enum):
    """How far we go with a feature.

    Spec: "Supported Features"
    """

    YES = "yes"
    INACTIVE = "while inactive"
    NO = "no"


Active = Callable[[Metadata, StructType], bool]


@dataclass(frozen=True)
class Feature:
    """A row of the table: `capability` says in words what a release must learn to support it.

    Spec: "Valid Feature Names in Table Features"
    """

    name: str
    capability: str
    reads: Support
    writes: Support
    active: Active = activity.never
    reader_writer: bool = False


def _writer(name: str, capability: str, writes: Support, active: Active) -> Feature:
    return Feature(name, capability, Support.YES, writes, active)


def _both(
    name: str,
    capability: str,
    reads: Support = Support.NO,
    writes: Support = Support.NO,
    active: Active = activity.never,
) -> Feature:
    return Feature(name, capability, reads, writes, active, reader_writer=True)


_YES, _INACTIVE, _NO = Support.YES, Support.INACTIVE, Support.NO

_ROWS: Final = (
    _writer("appendOnly", "append-only tables", _YES, activity.append_only),
    _writer("invariants", "column invariants", _INACTIVE, activity.invariants),
    _writer("checkConstraints", "CHECK constraints", _INACTIVE, activity.check_constraints),
    _writer("changeDataFeed", "writing change data files", _INACTIVE, activity.change_data_feed),
    _writer("generatedColumns", "generated columns", _INACTIVE, activity.generated_columns),
    _writer("identityColumns", "identity columns", _YES, activity.identity_columns),
    _writer("allowColumnDefaults", "column defaults", _INACTIVE, activity.column_defaults),
    _writer("inCommitTimestamp", "in-commit timestamps", _YES, activity.in_commit_timestamps),
    _writer("rowTracking", "row tracking", _YES, activity.row_tracking),
    _writer("domainMetadata", "domain metadata", _YES, activity.never),
    _writer("clustering", "clustered tables", _YES, activity.never),
    _writer("checkpointProtection", "checkpoint protection", _YES, activity.never),
    _writer("materializePartitionColumns", "partition columns in files", _NO, activity.never),
    _writer("icebergCompatV1", "Iceberg compatibility", _INACTIVE, activity.iceberg_compat("V1")),
    _writer("icebergCompatV2", "Iceberg compatibility", _INACTIVE, activity.iceberg_compat("V2")),
    _writer("icebergCompatV3", "Iceberg compatibility", _INACTIVE, activity.iceberg_compat("V3")),
    _writer("icebergWriterCompatV1", "Iceberg compatibility", _NO, activity.never),
    _writer("icebergWriterCompatV3", "Iceberg compatibility", _NO, activity.never),
    _writer("collations", "collations", _NO, activity.never),
    _writer("collations-preview", "collations", _NO, activity.never),
    _writer("redirectWriterOnly-preview", "redirected tables", _NO, activity.never),
    Feature(
        "coordinatedCommits-preview",
        "commits through a coordinator",
        _INACTIVE,
        _NO,
        activity.coordinated_commits,
    ),
    _both("timestampNtz", "timestamps without a zone", _YES, _YES, activity.timestamp_ntz),
    _both("vacuumProtocolCheck", "the protocol check of VACUUM", _YES, _YES),
    _both("columnMapping", "column mapping", _YES, _YES, activity.column_mapping),
    _both("typeWidening", "widened column types", _YES, _YES, activity.type_changes),
    _both("typeWidening-preview", "widened column types", _YES, _YES, activity.type_changes),
    _both("deletionVectors", "deletion vectors", _YES, _YES, activity.deletion_vectors),
    _both("v2Checkpoint", "V2 checkpoints", _YES, _YES, activity.v2_checkpoints),
    _both("variantType", "the variant type", _YES, _NO, activity.variant_type),
    _both("variantType-preview", "the variant type", _YES),
    _both("variantShredding", "shredded variants", _YES, _NO, activity.variant_shredding),
    _both("variantShredding-preview", "shredded variants", _YES),
    _both("catalogManaged", "catalog-managed tables"),
    _both("catalogOwned-preview", "catalog-managed tables"),
    _both("geospatial", "geometry and geography types", _YES, _NO, activity.geospatial),
    _both("timestampNanos", "timestamps in nanoseconds"),
    _both("redirectReaderWriter-preview", "redirected tables"),
    _both("adaptiveMetadata-preview", "adaptive metadata"),
)

FEATURES: Final[Mapping[str, Feature]] = {row.name: row for row in _ROWS}
"""Every feature we have heard of, by its exact name."""

_INSTEAD: Final[Mapping[str, str]] = {
    name: remedy
    for names, remedy in (
        (
            ("catalogManaged", "catalogOwned-preview"),
            "a catalog decides which versions are the table's, so its log alone does not tell: "
            "open it through its catalog",
        ),
        (
            ("redirectReaderWriter-preview", "redirectWriterOnly-preview"),
            "the table is being moved or has been: use the one that its property "
            "delta.redirectReaderWriter-preview or delta.redirectWriterOnly-preview names",
        ),
        (
            ("adaptiveMetadata-preview",),
            "its files stand in a tree of manifests beside the log: use an engine that knows them",
        ),
    )
    for name in names
}
"""What a refused feature means, where more is to be said than that we lack it."""

NEW_TABLE: Final = Protocol(min_reader_version=1, min_writer_version=2)


def check_readable(protocol: Protocol, metadata: Metadata, table: str) -> None:
    """Refuse a table that we would misread.

    Raises: UnsupportedFeature, which names the first feature in the way; `UnsupportedProtocol` for
    a version out of range or a malformed protocol action. BrokenLog for columns that are mapped
    and lack the name or the id by which they are found.
    Spec: "Reader Version Requirements"
    """
    schema = _check_known(protocol, metadata, table)
    _check_columns(protocol, metadata, schema, table)


def check_writable(protocol: Protocol, metadata: Metadata, table: str) -> None:
    """Refuse a table that we can't write as its protocol asks; what can't be read is refused too.

    Raises: as `check_readable`.
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
    _check_columns(protocol, metadata, schema, table)


def unlisted_features(protocol: Protocol, metadata: Metadata) -> tuple[str, ...]:
    """Return the features that the metadata uses and the protocol neither lists nor implies.

    Spec: "Table Features for New and Existing Tables"
    """
    supported = writer_features(protocol)
    schema = parse_schema(metadata.schema_string)
    used = (row.name for row in FEATURES.values() if row.active(metadata, schema))
    return tuple(name for name in used if name not in supported)


def protocol_for_new_table(metadata: Metadata) -> Protocol:
    """Return the least protocol under which a table with this metadata may be created.

    Raises: UnsupportedFeature for metadata that uses a feature we don't write.
    Spec: "Table Features for New and Existing Tables"
    """
    asked = sorted(key for key in metadata.configuration if key.startswith("delta.feature."))
    if asked:
        raise UnsupportedFeature(
            f"a new table asks for features by property ({', '.join(asked)}), which this release "
            "does not do: leave these properties out",
            feature=asked[0].removeprefix("delta.feature."),
        )
    schema = parse_schema(metadata.schema_string)
    active = [row for row in FEATURES.values() if row.active(metadata, schema)]
    implied = writer_features(NEW_TABLE)
    if all(row.name in implied for row in active):
        protocol = NEW_TABLE
    else:
        protocol = _with_lists(active, implied)
    check_writable(protocol, metadata, "that is to be created")
    return protocol


def _check_known(protocol: Protocol, metadata: Metadata, table: str) -> StructType:
    """Return the schema of a table that asks its readers for nothing we have not learnt."""
    check_shape(protocol, table)
    for name in sorted(reader_features(protocol)):
        if name not in FEATURES or FEATURES[name].reads is Support.NO:
            raise _refusal(name, table, "read")
    if metadata.format.provider != "parquet":
        raise _refusal(f"format {metadata.format.provider}", table, "read")
    schema = parse_schema(metadata.schema_string)
    for row in FEATURES.values():
        if row.reads is not Support.YES and row.active(metadata, schema):
            raise _refusal(row.name, table, "read")
    return schema


def _check_columns(protocol: Protocol, metadata: Metadata, schema: StructType, table: str) -> None:
    mapped = activity.column_mapping(metadata, schema)
    if mapped and "columnMapping" not in reader_features(protocol):
        raise UnsupportedFeature(
            f"table {table} maps its columns, but its protocol does not ask for it, so that "
            "readers differ in what they make of its files: add the feature 'columnMapping' to "
            "the table, or restore it to a version without the mapping",
            feature="columnMapping",
        )
    check_mapped(metadata, schema, table)
    check_widened(schema, table)


def _with_lists(active: list[Feature], implied: frozenset[str]) -> Protocol:
    reads = tuple(sorted(row.name for row in active if row.reader_writer))
    writes = tuple(sorted(implied | {row.name for row in active}))
    return Protocol(
        min_reader_version=READER_FEATURES_VERSION if reads else 1,
        min_writer_version=WRITER_FEATURES_VERSION,
        reader_features=reads or None,
        writer_features=writes,
    )


def _refusal(name: str, table: str, verb: str) -> UnsupportedFeature:
    row = FEATURES.get(name)
    meaning = row.capability if row else "a feature this release has not heard of"
    usual = f"{verb} it with another engine, or drop the feature from the table"
    return UnsupportedFeature(
        f"table {table} uses the feature {name!r} ({meaning}), with which this release does not "
        f"{verb} tables: {_INSTEAD.get(name, usual)}",
        feature=name,
    )
