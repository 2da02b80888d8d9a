"""Whether metaData and protocol may stand together: what each activation needs and excludes.

`check_definition` judges one definition as it would be written. The rules that look at columns are
in `mapped.py`, those of tables that are read as Iceberg or Hudi too in `iceberg.py`.
"""

from collections.abc import Callable, Iterator
from typing import Final

from tidegate.delta.errors import TidegateError
from tidegate.delta.features import activity, properties
from tidegate.delta.features.arithmetic import (
    LEGACY,
    READER_FEATURES_VERSION,
    WRITER_FEATURES_VERSION,
    shape_fault,
)
from tidegate.delta.features.definition import Definition, Flaw, configured
from tidegate.delta.features.iceberg import iceberg_flaws, universal_flaws
from tidegate.delta.features.instructions import is_instruction
from tidegate.delta.features.mapped import mapping_flaws
from tidegate.delta.features.stats_columns import stats_column_flaws
from tidegate.delta.features.table import FEATURES, unlisted_features
from tidegate.delta.schema.types import parse_schema

Rule = Callable[[Definition], Iterator[Flaw]]

_CHANGE_COLUMNS: Final = ("_change_type", "_commit_version", "_commit_timestamp")
_TIMED: Final = ("catalogManaged", "catalogOwned-preview", "coordinatedCommits-preview")
UNREADABLE: Final = "unreadable_schema"
_MISMATCH: Final = "DELTA_FEATURES_PROTOCOL_METADATA_MISMATCH"


def check_definition(one: Definition) -> tuple[Flaw, ...]:
    """Return everything that is wrong with a definition, by the rules in their order.

    A property with a value that it can't have is judged as if it were absent; a schema that can't
    be read leaves nothing else to be judged.
    Spec: "Requirements for Readers"
    """
    found = (*_shape(one), *_schema(one), *_values(one))
    if any(flaw.rule == UNREADABLE for flaw in found):
        return found
    plain = without_wrong_values(one)
    return (*found, *(flaw for rule in RULES for flaw in rule(plain)))


def without_wrong_values(one: Definition) -> Definition:
    """Return a definition without the properties whose values can't be read.

    Spec: "Table Properties"
    """
    wrong = {key for key, _ in properties.wrong_values(one.metadata.configuration)}
    if not wrong:
        return one
    kept = {k: text for k, text in one.metadata.configuration.items() if k not in wrong}
    return Definition(one.metadata.with_(configuration=kept), one.protocol)


def _shape(one: Definition) -> Iterator[Flaw]:
    reader, writer = one.protocol.min_reader_version, one.protocol.min_writer_version
    fault = shape_fault(one.protocol)
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


def _schema(one: Definition) -> Iterator[Flaw]:
    try:
        parse_schema(one.metadata.schema_string)
    except (TidegateError, ValueError, RecursionError) as error:
        yield Flaw(
            UNREADABLE,
            "metaData.schemaString",
            f"can't be read ({error})",
            "write a schema of known types",
        )


def _values(one: Definition) -> Iterator[Flaw]:
    for key, error in properties.wrong_values(one.metadata.configuration):
        yield Flaw("wrong_value", configured(key), str(error), "correct it", error.error_class)


def instructions_gone(one: Definition) -> Iterator[Flaw]:
    """Yield each property that is an instruction: they are obeyed, never kept.

    Spec: "Change Metadata"
    """
    for key in one.metadata.configuration:
        if is_instruction(key):
            yield Flaw(
                "instruction_kept",
                configured(key),
                "is an instruction and would be kept",
                "do what it says in the protocol, and leave it out",
            )


def lists_agree(one: Definition) -> Iterator[Flaw]:
    """Yield each feature that one of the lists of a protocol lacks.

    Spec: "Supported Features"
    """
    reading = frozenset(one.protocol.reader_features or ())
    writing = frozenset(one.protocol.writer_features or ())
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
        below = one.protocol.min_reader_version < READER_FEATURES_VERSION
        if not (below and one.protocol.min_reader_version >= implied):
            yield Flaw(
                "listed_for_writers_alone",
                "protocol.readerFeatures",
                f"lacks {name!r}, which readers must know",
                "list it in both",
                "DELTA_FEATURE_REQUIRES_HIGHER_READER_VERSION",
            )


def features_listed(one: Definition) -> Iterator[Flaw]:
    """Yield each feature that the metadata uses and the protocol does not support.

    Spec: "Active Features"
    """
    for name in unlisted_features(one.protocol, one.metadata):
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


def needs_met(one: Definition) -> Iterator[Flaw]:
    """Yield each feature that a supported one needs and the protocol does not support.

    Spec: "Supported Features"
    """
    for name in sorted(one.supported & FEATURES.keys()):
        for needed in FEATURES[name].needs:
            if needed not in one.supported:
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


def row_tracking_agrees(one: Definition) -> Iterator[Flaw]:
    """Yield what contradicts row tracking: it is suspended, or its columns have no usable name.

    Spec: "Row Tracking"
    """
    if not properties.row_tracking_enabled(one.metadata):
        return
    if properties.row_tracking_suspended(one.metadata):
        yield Flaw(
            "row_tracking_suspended",
            configured(properties.row_tracking_suspended.key),
            "is true while row tracking is enabled",
            "disable row tracking before it is suspended",
            "DELTA_ROW_TRACKING_ILLEGAL_PROPERTY_COMBINATION",
        )
    for column in (properties.row_id_column, properties.row_commit_version_column):
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
    """Yield each name of a materialised column that a column of the table has too.

    Spec: "Row Tracking"
    """
    taken = set(one.schema.names)
    taken |= {str(one.metadata.get("delta.columnMapping.physicalName")) for one in one.schema}
    for column in (properties.row_id_column, properties.row_commit_version_column):
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
    """Yield what excludes deletion vectors: another format of files, manifests that lack them.

    Spec: "Deletion Vectors"
    """
    if not properties.deletion_vectors_enabled(one.metadata):
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
    if properties.symlink_manifests_enabled(one.metadata):
        yield Flaw(
            "vectors_with_manifests",
            configured(properties.symlink_manifests_enabled.key),
            "is true while deletion vectors are enabled",
            "disable one of the two",
            f"{failed}.PERSISTENT_DELETION_VECTORS_WITH_INCREMENTAL_MANIFEST_GENERATION",
        )


def times_agree(one: Definition) -> Iterator[Flaw]:
    """Yield what contradicts in-commit timestamps: half an enablement, or none where one is needed.

    Spec: "In-Commit Timestamps"
    """
    version = properties.ict_enablement_version(one.metadata)
    time_ms = properties.ict_enablement_timestamp_ms(one.metadata)
    enabled = properties.in_commit_timestamps_enabled(one.metadata)
    if enabled and (version is None) != (time_ms is None):
        missing = properties.ict_enablement_timestamp_ms if time_ms is None else None
        yield Flaw(
            "half_an_enablement",
            configured((missing or properties.ict_enablement_version).key),
            "is missing, while its other half is there",
            "write both, or neither where they were enabled from the first version on",
        )
    for name in _TIMED:
        if name in one.supported and not enabled and _is_run_by_others(name, one):
            yield Flaw(
                "times_needed",
                configured(properties.in_commit_timestamps_enabled.key),
                f"is not true, which the feature {name!r} needs",
                "enable in-commit timestamps",
            )


def _is_run_by_others(name: str, one: Definition) -> bool:
    """Whether the commits go through a catalog or a coordinator; the latter must be named."""
    if name != "coordinatedCommits-preview":
        return True
    return activity.coordinated_commits(one.metadata, one.schema)


def change_columns_free(one: Definition) -> Iterator[Flaw]:
    """Yield each column that has a name of the change data feed, where it is enabled.

    Spec: "Add CDC File"
    """
    if properties.change_feed_enabled(one.metadata):
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
    """Yield a flaw where a partitioned table supports clustering: a table has one or the other.

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
    """Yield each property that adaptive metadata needs and the table does not have.

    Spec: "Table Features", except that adaptive metadata is no part of the specification.
    """
    if "adaptiveMetadata-preview" not in one.supported:
        return
    for flag in (properties.row_tracking_enabled, properties.deletion_vectors_enabled):
        if not flag(one.metadata):
            yield Flaw(
                "adaptive_metadata_flag",
                configured(flag.key),
                "is not true, which adaptive metadata needs",
                "set it to true",
                "DELTA_ADAPTIVE_METADATA_REQUIRES_DEPENDENT_FEATURE_ENABLED",
            )
    if properties.column_mapping_mode(one.metadata) != "id":
        yield Flaw(
            "adaptive_metadata_mode",
            configured(properties.column_mapping_mode.key),
            "is not id, which adaptive metadata needs",
            "create the table with the mode id",
            "DELTA_ADAPTIVE_METADATA_REQUIRES_COLUMN_MAPPING_ID_MODE",
        )


RULES: Final[tuple[Rule, ...]] = (
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
"""What is judged of a definition that can be read, in this order."""
