"""Whether metaData and protocol are consistent: what each feature needs and excludes.

`check_definition` checks one definition as it would be written. Rules about column mapping are in
`column_mapping_checks`, those between features in `feature_compatibility`, those of tables that are
also read as Iceberg or Hudi in `iceberg_compat`.
"""

from collections.abc import Callable, Iterator
from typing import Final

from tidegate_delta.data_skipping.resolved_columns import COLLATIONS
from tidegate_delta.definitions.column_mapping_checks import mapping_flaws
from tidegate_delta.definitions.definition import Definition, Flaw, configured
from tidegate_delta.definitions.feature_compatibility import (
    adaptive_metadata_agrees,
    change_columns_free,
    clustered_or_partitioned,
    row_tracking_agrees,
    row_tracking_columns_free,
    times_agree,
    vectors_allowed,
)
from tidegate_delta.definitions.feature_directives import is_directive
from tidegate_delta.definitions.iceberg_compat import iceberg_flaws, universal_flaws
from tidegate_delta.definitions.stats_column_checks import stats_column_flaws
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
from tidegate_delta.schema.schema_string_checks import misspelt
from tidegate_delta.schema.types import parse_schema, walk

DefinitionRule = Callable[[Definition], Iterator[Flaw]]

UNREADABLE: Final = "unreadable_schema"
_MISMATCH: Final = "DELTA_FEATURES_PROTOCOL_METADATA_MISMATCH"


def check_definition(one: Definition) -> tuple[Flaw, ...]:
    """Return the flaws of a definition, by the rules in their order.

    A property with an invalid value is treated as absent. A schema that can't be read is the only
    flaw reported.
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
    wrong = {key for key, _ in table_properties.wrong_values(one.metadata.configuration)}
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
            f"can't be read ({error.fault if isinstance(error, TidegateError) else error})",
            "write a schema of known types",
        )


def schema_spelt(one: Definition) -> Iterator[Flaw]:
    """Yield what some readers do not parse in the schema, though we do.

    Spec: "Schema Serialization Format"
    """
    wrong = misspelt(one.metadata.schema_string)
    if wrong is not None:
        yield Flaw(
            "misspelt_schema",
            "metaData.schemaString",
            f"is not as all readers know schemas: {wrong}",
            "write it as PROTOCOL.md spells it",
        )


def _values(one: Definition) -> Iterator[Flaw]:
    for key, error in table_properties.wrong_values(one.metadata.configuration):
        yield Flaw("wrong_value", configured(key), str(error), "correct it", error.error_class)


def instructions_gone(one: Definition) -> Iterator[Flaw]:
    """Yield each directive among the properties: directives are applied, never stored.

    Spec: "Change Metadata"
    """
    for key in one.metadata.configuration:
        if is_directive(key):
            yield Flaw(
                "instruction_kept",
                configured(key),
                "is an instruction and would be kept",
                "do what it says in the protocol, and leave it out",
            )


def lists_agree(one: Definition) -> Iterator[Flaw]:
    """Yield each feature that is missing from one of the protocol's lists.

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


def columns_named(one: Definition) -> Iterator[Flaw]:
    """Yield column names that files, or other writers, can't write.

    Spec: "Column Mapping"
    """
    try:
        check_names(one.schema, is_mapped=mode_of(one.metadata) is not ColumnMappingMode.NONE)
    except InvalidRequest as error:
        yield Flaw(
            "misnamed_columns",
            "metaData.schemaString",
            f"has names that no table may have: {error}",
            "name the columns otherwise, or map them",
            error.error_class,
        )


def strings_not_collated(one: Definition) -> Iterator[Flaw]:
    """Yield each column with a collation: its strings are not compared by their bytes.

    Spec: "Table Features", except that collations are proposed and not yet part of it.
    """
    for field in walk(one.schema):
        if field.metadata.get(COLLATIONS):
            yield Flaw(
                "collated_column",
                "metaData.schemaString",
                f"gives the column {field.name!r} a collation, which this release does not write",
                f"leave {COLLATIONS} out",
                "DELTA_UNSUPPORTED_DATA_TYPES",
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
