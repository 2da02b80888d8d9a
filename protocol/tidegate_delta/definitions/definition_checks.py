"""Whether metaData and protocol are consistent: what each feature needs and excludes.

`check_definition` checks one definition as it would be written. Rules about column mapping are in
`column_mapping_checks`, those of tables that are also read as Iceberg or Hudi in `iceberg_compat`.
`stats_column_flaws` checks the columns for which properties request statistics.

Spec: "Supported Features"
"""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from tidegate_delta.data_skipping.predicate_tree import COLLATIONS
from tidegate_delta.definitions.column_mapping_checks import mapping_flaws
from tidegate_delta.definitions.definition import Definition, Flaw, configured
from tidegate_delta.definitions.feature_directives import is_directive
from tidegate_delta.definitions.iceberg_compat import iceberg_flaws, universal_flaws
from tidegate_delta.errors import InvalidRequest, TidegateError
from tidegate_delta.features.supported_features import FEATURES, unlisted_features
from tidegate_delta.log.protocol_versions import (
    LEGACY,
    READER_FEATURES_VERSION,
    WRITER_FEATURES_VERSION,
    shape_fault,
)
from tidegate_delta.properties import table_properties
from tidegate_delta.schema.column_mapping import ColumnMappingMode, mode_of
from tidegate_delta.schema.field_paths import check_names
from tidegate_delta.schema.types import (
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    SHORT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DataType,
    DecimalType,
    StructType,
    parse_schema,
    schema_string_problem,
    walk,
)

_FIELD: Final = configured(table_properties.stats_columns.key)
_BOUNDED: Final = frozenset(
    {BYTE, SHORT, INTEGER, LONG, FLOAT, DOUBLE, DATE, TIMESTAMP, TIMESTAMP_NTZ, STRING}
)


def stats_column_flaws(definition: Definition) -> Iterator[Flaw]:
    """Yield each named column that is no data column, can't have bounds, or is named twice.

    A struct stands for all fields inside it, whatever their type.
    Spec: "Per-file Statistics"
    """
    stats_columns = table_properties.stats_columns(definition.metadata)
    if stats_columns is None:
        return
    partitions = {name.lower() for name in definition.metadata.partition_columns}
    named: Counter[tuple[str, ...]] = Counter()
    for path in stats_columns:
        dotted_path = ".".join(path)
        if len(path) == 1 and path[0].lower() in partitions:
            yield Flaw(
                "stats_of_partition_column",
                _FIELD,
                f"names the partition column {dotted_path!r}",
                "leave it out: its values are in the log",
                "DELTA_COLUMN_DATA_SKIPPING_NOT_SUPPORTED_PARTITIONED_COLUMN",
            )
            continue
        kind = _find(definition.schema, path)
        if kind is None:
            yield Flaw(
                "stats_of_no_column",
                _FIELD,
                f"names {dotted_path!r}, which is no column of the table",
                "leave it out, or correct the name",
                "DELTA_COLUMN_NOT_FOUND_IN_SCHEMA",
            )
        elif len(path) == 1 and not _has_bounds(kind):
            yield Flaw(
                "stats_of_type",
                _FIELD,
                f"names {dotted_path!r}, whose type {kind} has no bounds",
                "leave it out",
                "DELTA_COLUMN_DATA_SKIPPING_NOT_SUPPORTED_TYPE",
            )
        else:
            named.update(_leaves(tuple(part.lower() for part in path), kind))
    twice = sorted(".".join(path) for path, count in named.items() if count > 1)
    if twice:
        yield Flaw(
            "stats_column_twice",
            _FIELD,
            f"names a column twice: {', '.join(twice)}",
            "name each once",
            "DELTA_DUPLICATE_DATA_SKIPPING_COLUMNS",
        )


def _find(kind: DataType, path: tuple[str, ...]) -> DataType | None:
    """Return the type at a path of names, which are matched without regard to case."""
    for name in path:
        if not isinstance(kind, StructType):
            return None
        field = next(
            (candidate for candidate in kind if candidate.name.lower() == name.lower()), None
        )
        if field is None:
            return None
        kind = field.kind
    return kind


def _has_bounds(kind: DataType) -> bool:
    return isinstance(kind, StructType | DecimalType) or kind in _BOUNDED


def _leaves(path: tuple[str, ...], kind: DataType) -> Iterator[tuple[str, ...]]:
    if not isinstance(kind, StructType):
        yield path
        return
    for field in kind:
        yield from _leaves((*path, field.name.lower()), field.kind)


DefinitionRule = Callable[[Definition], Iterator[Flaw]]

UNREADABLE: Final = "unreadable_schema"
_CHANGE_COLUMNS: Final = ("_change_type", "_commit_version", "_commit_timestamp")
_TIMED: Final = ("catalogManaged", "catalogOwned-preview", "coordinatedCommits-preview")
_MISMATCH: Final = "DELTA_FEATURES_PROTOCOL_METADATA_MISMATCH"


def check_definition(definition: Definition) -> tuple[Flaw, ...]:
    """Return the flaws of a definition, by the rules in their order.

    A property with an invalid value is treated as absent. A schema that can't be read is the only
    flaw reported.
    Spec: "Requirements for Readers"
    """
    flaws = (*_shape(definition), *_schema(definition), *_values(definition))
    if any(flaw.rule == UNREADABLE for flaw in flaws):
        return flaws
    plain = without_wrong_values(definition)
    return (*flaws, *(flaw for rule in RULES for flaw in rule(plain)))


def without_wrong_values(definition: Definition) -> Definition:
    """Return a definition without the properties whose values can't be read.

    Spec: "Table Properties"
    """
    unreadable_keys = {
        key for key, _ in table_properties.value_problems(definition.metadata.configuration)
    }
    if not unreadable_keys:
        return definition
    kept = {
        k: text for k, text in definition.metadata.configuration.items() if k not in unreadable_keys
    }
    return Definition(definition.metadata.with_(configuration=kept), definition.protocol)


def _shape(definition: Definition) -> Iterator[Flaw]:
    reader, writer = definition.protocol.min_reader_version, definition.protocol.min_writer_version
    fault = shape_fault(definition.protocol)
    if not 1 <= reader <= READER_FEATURES_VERSION or not 1 <= writer <= WRITER_FEATURES_VERSION:
        fault = f"reader version {reader} and writer version {writer}, which there are not"
    if fault is not None:
        half = reader == READER_FEATURES_VERSION and writer < WRITER_FEATURES_VERSION
        yield Flaw(
            "malformed_protocol",
            "protocol",
            f"has {fault}",
            "give lists of features with reader version 3 and writer version 7 alone",
            "DELTA_READ_FEATURE_PROTOCOL_REQUIRES_WRITE"
            if half
            else "DELTA_INVALID_PROTOCOL_VERSION",
        )


def _schema(definition: Definition) -> Iterator[Flaw]:
    try:
        parse_schema(definition.metadata.schema_string)
    except (TidegateError, ValueError, RecursionError) as error:
        yield Flaw(
            UNREADABLE,
            "metaData.schemaString",
            f"can't be read ({error.fault if isinstance(error, TidegateError) else error})",
            "write a schema of known types",
        )


def schema_spelt(definition: Definition) -> Iterator[Flaw]:
    """Yield what some readers do not parse in the schema, though we do.

    Spec: "Schema Serialization Format"
    """
    fault = schema_string_problem(definition.metadata.schema_string)
    if fault is not None:
        yield Flaw(
            "misspelt_schema",
            "metaData.schemaString",
            f"is not as all readers know schemas: {fault}",
            "write it as PROTOCOL.md spells it",
        )


def _values(definition: Definition) -> Iterator[Flaw]:
    for key, error in table_properties.value_problems(definition.metadata.configuration):
        yield Flaw("wrong_value", configured(key), str(error), "correct it", error.error_class)


def instructions_gone(definition: Definition) -> Iterator[Flaw]:
    """Yield each directive among the properties: directives are applied, never stored.

    Spec: "Change Metadata"
    """
    for key in definition.metadata.configuration:
        if is_directive(key):
            yield Flaw(
                "instruction_kept",
                configured(key),
                "is an instruction and would be kept",
                "do what it says in the protocol, and leave it out",
            )


def lists_agree(definition: Definition) -> Iterator[Flaw]:
    """Yield each feature that is missing from one of the protocol's lists."""
    reading = frozenset(definition.protocol.reader_features or ())
    writing = frozenset(definition.protocol.writer_features or ())
    for name in sorted(reading - writing):
        yield Flaw(
            "listed_for_readers_alone",
            "protocol.writerFeatures",
            f"lacks {name!r}, which readerFeatures list",
            "list it in both",
        )
    for name in sorted(writing - reading):
        row = FEATURES.get(name)
        if row is None or not row.reader_writer:
            continue
        implied = LEGACY.get(name, (READER_FEATURES_VERSION, 0))[0]
        below = definition.protocol.min_reader_version < READER_FEATURES_VERSION
        if not (below and definition.protocol.min_reader_version >= implied):
            yield Flaw(
                "listed_for_writers_alone",
                "protocol.readerFeatures",
                f"lacks {name!r}, which readers must know",
                "list it in both",
                "DELTA_FEATURE_REQUIRES_HIGHER_READER_VERSION",
            )


def features_listed(definition: Definition) -> Iterator[Flaw]:
    """Yield each feature that the metadata uses and the protocol does not support.

    Spec: "Active Features"
    """
    for name in unlisted_features(definition.protocol, definition.metadata):
        error_class = _MISMATCH
        if name == "allowColumnDefaults":
            error_class = "WRONG_COLUMN_DEFAULTS_FOR_DELTA_FEATURE_NOT_ENABLED"
        elif not FEATURES[name].enables_itself_later:
            error_class = "DELTA_FEATURES_REQUIRE_MANUAL_ENABLEMENT"
        yield Flaw(
            "feature_not_listed",
            "protocol",
            f"does not list the feature {name!r}, which is used where {FEATURES[name].used_by}",
            "list it, or leave its use out",
            error_class,
        )


def needs_met(definition: Definition) -> Iterator[Flaw]:
    """Yield each feature that a supported one needs and the protocol does not support."""
    for name in sorted(definition.supported & FEATURES.keys()):
        for needed in FEATURES[name].needs:
            if needed not in definition.supported:
                of_iceberg = name.startswith("icebergCompat")
                yield Flaw(
                    "needed_feature_missing",
                    "protocol",
                    f"lists {name!r} without {needed!r}, which it needs",
                    f"list {needed!r} too",
                    "DELTA_ICEBERG_COMPAT_VIOLATION.MISSING_REQUIRED_TABLE_FEATURE"
                    if of_iceberg
                    else _MISMATCH,
                )


def columns_named(definition: Definition) -> Iterator[Flaw]:
    """Yield column names that files, or other writers, can't write.

    Spec: "Column Mapping"
    """
    try:
        check_names(
            definition.schema, is_mapped=mode_of(definition.metadata) is not ColumnMappingMode.NONE
        )
    except InvalidRequest as error:
        yield Flaw(
            "misnamed_columns",
            "metaData.schemaString",
            f"has names that no table may have: {error}",
            "name the columns otherwise, or map them",
            error.error_class,
        )


def strings_not_collated(definition: Definition) -> Iterator[Flaw]:
    """Yield each column with a collation: its strings are not compared by their bytes.

    Spec: "Table Features", except that collations are proposed and not yet part of it.
    """
    for field in walk(definition.schema):
        if field.metadata.get(COLLATIONS):
            yield Flaw(
                "collated_column",
                "metaData.schemaString",
                f"gives the column {field.name!r} a collation, which this release does not write",
                f"leave {COLLATIONS} out",
                "DELTA_UNSUPPORTED_DATA_TYPES",
            )


def row_tracking_agrees(definition: Definition) -> Iterator[Flaw]:
    """Yield what contradicts row tracking: it is suspended, or its columns have no valid name.

    Spec: "Row Tracking"
    """
    if not table_properties.row_tracking_enabled(definition.metadata):
        return
    if table_properties.row_tracking_suspended(definition.metadata):
        yield Flaw(
            "row_tracking_suspended",
            configured(table_properties.row_tracking_suspended.key),
            "is true while row tracking is enabled",
            "disable row tracking before it is suspended",
            "DELTA_ROW_TRACKING_ILLEGAL_PROPERTY_COMBINATION",
        )
    for column in (table_properties.row_id_column, table_properties.row_commit_version_column):
        name = column(definition.metadata)
        if not name:
            yield Flaw(
                "row_tracking_column_missing",
                configured(column.key),
                "names no column, while row tracking is enabled",
                "give it a name that no column has",
                "DELTA_MATERIALIZED_ROW_TRACKING_COLUMN_NAME_MISSING",
            )


def row_tracking_columns_free(definition: Definition) -> Iterator[Flaw]:
    """Yield each materialised column name of row tracking that is also a column of the table.

    Spec: "Row Tracking"
    """
    taken = set(definition.schema.names)
    taken |= {
        str(definition.metadata.get("delta.columnMapping.physicalName"))
        for definition in definition.schema
    }
    for column in (table_properties.row_id_column, table_properties.row_commit_version_column):
        name = column(definition.metadata)
        if name in taken:
            yield Flaw(
                "row_tracking_column_taken",
                configured(column.key),
                f"is {name!r}, which a column of the table is called too",
                "rename that column",
                "DELTA_ADDING_COLUMN_WITH_INTERNAL_NAME_FAILED",
            )


def vectors_allowed(definition: Definition) -> Iterator[Flaw]:
    """Yield what excludes deletion vectors: another file format, or manifests without them.

    Spec: "Deletion Vectors"
    """
    if not table_properties.deletion_vectors_enabled(definition.metadata):
        return
    failed = "DELTA_VIOLATE_TABLE_PROPERTY_VALIDATION_FAILED"
    if definition.metadata.format.provider != "parquet":
        yield Flaw(
            "vectors_without_parquet",
            "metaData.format.provider",
            f"is {definition.metadata.format.provider!r}, while deletion vectors are enabled",
            "disable deletion vectors",
            f"{failed}.PERSISTENT_DELETION_VECTORS_IN_NON_PARQUET_TABLE",
        )
    if table_properties.symlink_manifests_enabled(definition.metadata):
        yield Flaw(
            "vectors_with_manifests",
            configured(table_properties.symlink_manifests_enabled.key),
            "is true while deletion vectors are enabled",
            "disable one of the two",
            f"{failed}.PERSISTENT_DELETION_VECTORS_WITH_INCREMENTAL_MANIFEST_GENERATION",
        )


def times_agree(definition: Definition) -> Iterator[Flaw]:
    """Yield faults of in-commit timestamps: an incomplete enablement record, or a missing one.

    Spec: "In-Commit Timestamps"
    """
    version = table_properties.ict_enablement_version(definition.metadata)
    time_ms = table_properties.ict_enablement_timestamp_ms(definition.metadata)
    enabled = table_properties.in_commit_timestamps_enabled(definition.metadata)
    if enabled and (version is None) != (time_ms is None):
        missing = table_properties.ict_enablement_timestamp_ms if time_ms is None else None
        yield Flaw(
            "half_an_enablement",
            configured((missing or table_properties.ict_enablement_version).key),
            "is missing, while its other half is there",
            "write both, or neither where they were enabled from the first version on",
        )
    for name in _TIMED:
        if name in definition.supported and not enabled and _is_run_by_others(name, definition):
            yield Flaw(
                "times_needed",
                configured(table_properties.in_commit_timestamps_enabled.key),
                f"is not true, which the feature {name!r} needs",
                "enable in-commit timestamps",
            )


def _is_run_by_others(name: str, definition: Definition) -> bool:
    """Return whether a catalog or a named coordinator accepts the commits."""
    if name != "coordinatedCommits-preview":
        return True
    return bool(table_properties.commit_coordinator(definition.metadata))


def change_columns_free(definition: Definition) -> Iterator[Flaw]:
    """Yield each column with a reserved name of the change data feed, where that is enabled.

    Spec: "Add CDC File"
    """
    if table_properties.change_feed_enabled(definition.metadata):
        for name in _CHANGE_COLUMNS:
            if name in definition.schema.names:
                yield Flaw(
                    "change_column_taken",
                    "metaData.schemaString",
                    f"has a column {name!r}, which the change data feed adds",
                    "rename the column, or disable the change data feed",
                    "DELTA_TABLE_ALREADY_CONTAINS_CDC_COLUMNS",
                )


def clustered_or_partitioned(definition: Definition) -> Iterator[Flaw]:
    """Yield a flaw where a partitioned table supports clustering: these exclude each other.

    Spec: "Clustered Table"
    """
    if "clustering" in definition.supported and definition.metadata.partition_columns:
        yield Flaw(
            "clustered_and_partitioned",
            "metaData.partitionColumns",
            "are named, while the table supports clustering",
            "cluster the table, or partition it",
            "DELTA_CLUSTER_BY_WITH_PARTITIONED_BY",
        )


def adaptive_metadata_agrees(definition: Definition) -> Iterator[Flaw]:
    """Yield each property that adaptive metadata needs and the table lacks.

    Spec: "Table Features", except that adaptive metadata is no part of the specification.
    """
    if "adaptiveMetadata-preview" not in definition.supported:
        return
    for flag in (table_properties.row_tracking_enabled, table_properties.deletion_vectors_enabled):
        if not flag(definition.metadata):
            yield Flaw(
                "adaptive_metadata_flag",
                configured(flag.key),
                "is not true, which adaptive metadata needs",
                "set it to true",
                "DELTA_ADAPTIVE_METADATA_REQUIRES_DEPENDENT_FEATURE_ENABLED",
            )
    if table_properties.column_mapping_mode(definition.metadata) != "id":
        yield Flaw(
            "adaptive_metadata_mode",
            configured(table_properties.column_mapping_mode.key),
            "is not id, which adaptive metadata needs",
            "create the table with the mode id",
            "DELTA_ADAPTIVE_METADATA_REQUIRES_COLUMN_MAPPING_ID_MODE",
        )


RULES: Final[tuple[DefinitionRule, ...]] = (
    schema_spelt,
    columns_named,
    strings_not_collated,
    instructions_gone,
    lists_agree,
    features_listed,
    needs_met,
    mapping_flaws,
    iceberg_flaws,
    universal_flaws,
    row_tracking_agrees,
    row_tracking_columns_free,
    vectors_allowed,
    times_agree,
    stats_column_flaws,
    change_columns_free,
    clustered_or_partitioned,
    adaptive_metadata_agrees,
)
"""The rules for a definition that can be read, in this order."""
