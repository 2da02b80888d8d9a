"""Every table property of the specification and of delta-spark, with Delta's defaults.

Spec: "Table Properties"
"""

import difflib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from tidegate_delta.errors import InvalidRequest
from tidegate_delta.properties.property import (
    LONG_BITS,
    Property,
    any_case,
    boolean,
    column_list,
    formats,
    interval_ms,
    page_format,
    string_map,
    whole,
    word,
)

CODECS: Final = frozenset({"uncompressed", "none", "snappy", "gzip", "lz4", "lz4_raw", "zstd"})

_INTERVAL: Final = "an interval such as '30 days', without months and years"
_POSITIVE: Final = "a positive whole number"
_NUMBER: Final = "a whole number"
_TEXT: Final = "a text"
_LONG_MIN: Final = -(2**63)


def _flag(key: str, *, default: bool = False) -> Property[bool]:
    return Property(f"delta.{key}", default, boolean, "true or false")


def _choice(key: str) -> Property[bool | None]:
    return Property(f"delta.{key}", None, boolean, "true or false")


def _interval(key: str, default: str) -> Property[int]:
    return Property(f"delta.{key}", interval_ms(default), interval_ms, _INTERVAL, "ms")


def _text(key: str) -> Property[str | None]:
    return Property(f"delta.{key}", None, str, _TEXT)


def _number(key: str, default: int, least: int, expected: str, unit: str) -> Property[int]:
    return Property(f"delta.{key}", default, whole(least), expected, unit)


def _known(key: str, read: Callable[[str], int], expected: str, unit: str) -> Property[int | None]:
    return Property(f"delta.{key}", None, read, expected, unit)


def _map(key: str) -> Property[Mapping[str, str]]:
    return Property(f"delta.{key}", {}, string_map, "a JSON object of strings")


append_only: Final = _flag("appendOnly")
change_feed_enabled: Final = Property(
    "delta.enableChangeDataFeed",
    default=False,
    read=boolean,
    expected="true or false",
    older=("delta.enableChangeDataCapture",),
)
deletion_vectors_enabled: Final = _flag("enableDeletionVectors")
in_commit_timestamps_enabled: Final = _flag("enableInCommitTimestamps")
row_tracking_enabled: Final = _flag("enableRowTracking")
row_tracking_suspended: Final = _flag("rowTrackingSuspended")
type_widening_enabled: Final = _flag("enableTypeWidening")
variant_shredding_enabled: Final = _flag("enableVariantShredding")
iceberg_compat_v1_enabled: Final = _choice("enableIcebergCompatV1")
iceberg_compat_v2_enabled: Final = _choice("enableIcebergCompatV2")
iceberg_compat_v3_enabled: Final = _choice("enableIcebergCompatV3")
partitions_in_files_enabled: Final = _choice("enableMaterializePartitionColumnsFeature")
symlink_manifests_enabled: Final = _flag("compatibility.symlinkFormatManifest.enabled")
log_cleanup_enabled: Final = _flag("enableExpiredLogCleanup", default=True)
checkpoint_stats_as_json: Final = _flag("checkpoint.writeStatsAsJson", default=True)
checkpoint_stats_as_struct: Final = _flag("checkpoint.writeStatsAsStruct", default=True)
random_prefixes: Final = _flag("randomizeFilePrefixes")
partitions_in_files: Final = _choice("writePartitionColumnsToParquet")

log_retention_ms: Final = _interval("logRetentionDuration", "interval 30 days")
tombstone_retention_ms: Final = _interval("deletedFileRetentionDuration", "interval 1 week")
checkpoint_retention_ms: Final = _interval("checkpointRetentionDuration", "interval 2 days")
truncated_retention_ms: Final = _interval(
    "dropFeatureTruncateHistory.retentionDuration", "interval 24 hours"
)
txn_retention_ms: Final = _known("setTransactionRetentionDuration", interval_ms, _INTERVAL, "ms")

checkpoint_interval: Final = _number("checkpointInterval", 10, 1, _POSITIVE, "commits")
random_prefix_length: Final = _number("randomPrefixLength", 2, 1, _POSITIVE, "characters")
num_indexed_columns: Final = _number(
    "dataSkippingNumIndexedCols", 32, -1, "a whole number from -1", "columns"
)
string_prefix_length: Final = _number(
    "dataSkippingStringPrefixLength", 32, 0, "a whole number from 0", "characters"
)
checkpoint_protection_version: Final = Property(
    "delta.requireCheckpointProtectionBeforeVersion",
    0,
    whole(0, LONG_BITS),
    "a version",
    "version",
)
ict_enablement_version: Final = _known(
    "inCommitTimestampEnablementVersion", whole(0, LONG_BITS), "a version", "version"
)
ict_enablement_timestamp_ms: Final = _known(
    "inCommitTimestampEnablementTimestamp", whole(_LONG_MIN, LONG_BITS), "a time in ms", "ms"
)
max_column_id: Final = Property(
    "delta.columnMapping.maxColumnId", 0, whole(_LONG_MIN, LONG_BITS), _NUMBER, settable=False
)

stats_columns: Final[Property[tuple[tuple[str, ...], ...] | None]] = Property(
    "delta.dataSkippingStatsColumns", None, column_list, "a list of columns such as 'a, b.c'"
)
isolation_level: Final = Property(
    "delta.isolationLevel",
    "Serializable",
    any_case(("Serializable", "WriteSerializable")),
    "Serializable or WriteSerializable",
)
checkpoint_policy: Final = Property(
    "delta.checkpointPolicy",
    "classic",
    word(("classic", "v2")),
    "classic or v2",
)
column_mapping_mode: Final = Property(
    "delta.columnMapping.mode",
    "none",
    any_case(("none", "name", "id")),
    "none, name or id",
)
compression_codec: Final = Property(
    "delta.parquet.compression.codec",
    "zstd",
    any_case(CODECS),
    f"one of {', '.join(sorted(CODECS))}",
)
page_version: Final = Property(
    "delta.parquet.format.version", "1.0.0", page_format, "1.0.0 or 2.MINOR.PATCH"
)
universal_formats: Final[Property[tuple[str, ...]]] = Property(
    "delta.universalFormat.enabledFormats", (), formats, "iceberg, hudi or both"
)
row_id_column: Final = _text("rowTracking.materializedRowIdColumnName")
row_commit_version_column: Final = _text("rowTracking.materializedRowCommitVersionColumnName")
commit_coordinator: Final = _text("coordinatedCommits.commitCoordinator-preview")

redirect: Final = _text("redirectReaderWriter-preview")
redirect_of_writers: Final = _text("redirectWriterOnly-preview")

ALL: Final[tuple[Property[Any], ...]] = (
    append_only,
    change_feed_enabled,
    deletion_vectors_enabled,
    in_commit_timestamps_enabled,
    row_tracking_enabled,
    row_tracking_suspended,
    type_widening_enabled,
    variant_shredding_enabled,
    iceberg_compat_v1_enabled,
    iceberg_compat_v2_enabled,
    iceberg_compat_v3_enabled,
    partitions_in_files_enabled,
    symlink_manifests_enabled,
    log_cleanup_enabled,
    checkpoint_stats_as_json,
    checkpoint_stats_as_struct,
    random_prefixes,
    partitions_in_files,
    log_retention_ms,
    tombstone_retention_ms,
    checkpoint_retention_ms,
    truncated_retention_ms,
    txn_retention_ms,
    checkpoint_interval,
    random_prefix_length,
    num_indexed_columns,
    string_prefix_length,
    checkpoint_protection_version,
    ict_enablement_version,
    ict_enablement_timestamp_ms,
    max_column_id,
    stats_columns,
    isolation_level,
    checkpoint_policy,
    column_mapping_mode,
    compression_codec,
    page_version,
    universal_formats,
    row_id_column,
    row_commit_version_column,
    commit_coordinator,
    _flag("enableFullRetentionRollback", default=True),
    _flag("universalFormat.iceberg.atomicConversion.supported"),
    _flag("castIcebergTimeType"),
    _flag("ignoreIcebergBucketPartition"),
    _choice("autoOptimize"),
    _choice("autoOptimize.autoCompact"),
    _choice("autoOptimize.optimizeWrite"),
    _interval("sampleRetentionDuration", "interval 7 days"),
    _map("coordinatedCommits.commitCoordinatorConf-preview"),
    _map("coordinatedCommits.tableConf-preview"),
    redirect,
    redirect_of_writers,
)
"""Every property with a meaning in the spec or in delta-spark; the last ones are only stored."""

OLDER: Final[Mapping[str, Property[Any]]] = {key: prop for prop in ALL for key in prop.older}
"""Older keys that are read where a property's own key is absent."""

INSTRUCTIONS: Final = (
    "delta.minReaderVersion",
    "delta.minWriterVersion",
    "delta.ignoreProtocolDefaults",
)
FEATURE_PREFIX: Final = "delta.feature."
CONSTRAINT_PREFIX: Final = "delta.constraints."
UNIVERSAL_PREFIX: Final = "delta.universalformat.config."

PROPERTIES_OF_OTHER_ENGINES: Final = frozenset(
    {"delta.targetFileSize", "delta.tuneFileSizesForRewrites"}
)
"""Properties that only other engines use: any text is stored."""


def validate(configuration: Mapping[str, str]) -> None:
    """Check every known property.

    Raises: InvalidRequest, naming the first property with an invalid value.
    """
    for _, error in value_problems(configuration):
        raise error


def value_problems(configuration: Mapping[str, str]) -> Iterator[tuple[str, InvalidRequest]]:
    """Yield each property with an invalid value, and the error for it."""
    for prop in ALL:
        for key in (prop.key, *prop.older):
            if key in configuration:
                try:
                    prop.of({key: configuration[key]})
                except InvalidRequest as error:
                    yield key, error


def check_names(configuration: Mapping[str, str]) -> None:
    """Check that the `delta.` properties of a new table exist and are written as in Delta.

    A misspelt one would be stored without any effect. Existing tables keep what they have.
    Raises: InvalidRequest (`DELTA_UNKNOWN_CONFIGURATION`), with the nearest name.
    """
    known = {
        key.lower(): key
        for key in (*(prop.key for prop in ALL), *OLDER, *PROPERTIES_OF_OTHER_ENGINES)
    }
    for key in configuration:
        name = key.lower()
        if not name.startswith("delta.") or known.get(name) == key:
            continue
        if key.startswith((CONSTRAINT_PREFIX, FEATURE_PREFIX, UNIVERSAL_PREFIX)):
            continue
        remedy = "leave it out"
        if name in map(str.lower, INSTRUCTIONS):
            remedy = "leave it out: a table's protocol follows from its features"
        elif nearest := difflib.get_close_matches(name, known, 1, 0.7):
            remedy = f"did you mean {known[nearest[0]]!r}?"
        raise InvalidRequest(
            f"{key!r} is no table property that this release knows; {remedy}",
            error_class="DELTA_UNKNOWN_CONFIGURATION",
        )
