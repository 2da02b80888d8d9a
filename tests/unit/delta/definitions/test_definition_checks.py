import pytest

from tests.definitions import a_field, listing, metadata, versions
from tidegate_delta.definitions.definition import Definition, Flaw, refuse
from tidegate_delta.definitions.definition_checks import check_definition, stats_column_flaws
from tidegate_delta.features.supported_features import minimum_protocol, with_features
from tidegate_delta.log.actions import Format, Metadata, Protocol

MISMATCH = "DELTA_FEATURES_PROTOCOL_METADATA_MISMATCH"


def found(about: Metadata, protocol: Protocol | None = None) -> list[tuple[str, str | None]]:
    """Return the rules that a definition breaks, each with delta-spark's error class."""
    flaws = check_definition(Definition(about, protocol or minimum_protocol(about)))
    assert all(flaw.field and flaw.reason and flaw.remedy for flaw in flaws)
    return [(flaw.rule, flaw.error_class) for flaw in flaws]


@pytest.mark.parametrize(
    "protocol", [versions(1, 1), versions(2, 3), versions(1, 7), listing("fromMars")]
)
def test_a_plain_table_may_stand_under_any_protocol(protocol: Protocol) -> None:
    filled = protocol.with_(writer_features=()) if protocol == versions(1, 7) else protocol
    assert found(metadata(), filled) == []


@pytest.mark.parametrize(
    ("protocol", "error_class"),
    [
        (versions(0, 2), "DELTA_INVALID_PROTOCOL_VERSION"),
        (versions(1, 8).with_(writer_features=()), "DELTA_INVALID_PROTOCOL_VERSION"),
        (versions(1, 7), "DELTA_INVALID_PROTOCOL_VERSION"),
        (versions(1, 2).with_(writer_features=("x",)), "DELTA_INVALID_PROTOCOL_VERSION"),
        (versions(3, 6).with_(reader_features=()), "DELTA_READ_FEATURE_PROTOCOL_REQUIRES_WRITE"),
    ],
)
def test_a_protocol_that_contradicts_itself_is_found(protocol: Protocol, error_class: str) -> None:
    assert ("malformed_protocol", error_class) in found(metadata(), protocol)


@pytest.mark.parametrize("text", ["", "[]", '{"type":"struct"}', "[" * 5000])
def test_a_schema_that_cannot_be_read_is_the_only_flaw(text: str) -> None:
    about = metadata(**{"delta.enableDeletionVectors": "true"}).with_(schema_string=text)
    assert found(about, versions(1, 2)) == [("unreadable_schema", None)]


def test_a_value_that_cannot_be_read_hides_no_other_flaw() -> None:
    about = metadata(**{"delta.checkpointInterval": "often", "delta.enableDeletionVectors": "true"})
    assert found(about, versions(1, 2)) == [
        ("wrong_value", "InvalidTableProperty"),
        ("feature_not_listed", MISMATCH),
    ]


@pytest.mark.parametrize(
    "key", ["delta.feature.rowTracking", "delta.MINREADERVERSION", "delta.ignoreProtocolDefaults"]
)
def test_an_instruction_that_would_be_kept_is_found(key: str) -> None:
    assert found(metadata(**{key: "supported"}), versions(1, 2)) == [("instruction_kept", None)]


def test_both_lists_name_what_readers_must_know() -> None:
    reading = Protocol(
        min_reader_version=3,
        min_writer_version=7,
        reader_features=("deletionVectors",),
        writer_features=(),
    )
    assert found(metadata(), reading) == [("listed_for_readers_alone", None)]
    assert found(metadata(), listing("deletionVectors")) == [
        ("listed_for_writers_alone", "DELTA_FEATURE_REQUIRES_HIGHER_READER_VERSION")
    ]
    assert found(metadata(), listing("columnMapping")) == [
        ("listed_for_writers_alone", "DELTA_FEATURE_REQUIRES_HIGHER_READER_VERSION")
    ]
    by_version = listing("columnMapping").with_(min_reader_version=2)
    assert found(metadata(), by_version) == []


@pytest.mark.parametrize(
    ("about", "error_class"),
    [
        (metadata(**{"delta.appendOnly": "true"}), MISMATCH),
        (metadata(a_field("a", **{"delta.generationExpression": "1"})), MISMATCH),
        (metadata(a_field("a", "timestamp_ntz")), "DELTA_FEATURES_REQUIRE_MANUAL_ENABLEMENT"),
        (
            metadata(a_field("a", CURRENT_DEFAULT="1")),
            "WRONG_COLUMN_DEFAULTS_FOR_DELTA_FEATURE_NOT_ENABLED",
        ),
        (metadata(**{"delta.enableTypeWidening": "true"}), MISMATCH),
        (metadata(**{"delta.redirectWriterOnly-preview": "{}"}), MISMATCH),
        (metadata(**{"delta.enableChangeDataCapture": "true"}), MISMATCH),
    ],
)
def test_what_the_metadata_uses_the_protocol_must_list(about: Metadata, error_class: str) -> None:
    assert found(about, versions(1, 1)) == [("feature_not_listed", error_class)]


def test_the_old_name_of_the_change_feed_counts_only_without_the_new_one() -> None:
    about = metadata(
        **{"delta.enableChangeDataCapture": "true", "delta.enableChangeDataFeed": "false"}
    )
    assert found(about, versions(1, 1)) == []


@pytest.mark.parametrize("name", ["a b", "a,b", "a=b", "a\tb"])
def test_names_that_files_cannot_spell_need_column_mapping(name: str) -> None:
    wrong = [("misnamed_columns", "DELTA_INVALID_CHARACTERS_IN_COLUMN_NAMES")]
    assert found(metadata(a_field(name))) == wrong
    inside = a_field("s", {"type": "struct", "fields": [a_field(name)]})
    assert found(metadata(inside)) == wrong
    ids = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "c"}
    mapped = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "1"}
    assert found(metadata(a_field(name, **ids), **mapped)) == []


def test_no_column_has_a_collation() -> None:
    collated = a_field("s", "string", __COLLATIONS={"s": "spark.UTF8_LCASE"})
    assert found(metadata(collated)) == [("collated_column", "DELTA_UNSUPPORTED_DATA_TYPES")]


def test_what_a_feature_needs_must_be_listed_with_it() -> None:
    assert found(metadata(), listing("rowTracking")) == [("needed_feature_missing", MISMATCH)]
    assert found(metadata(), listing("icebergCompatV1")) == [
        ("needed_feature_missing", "DELTA_ICEBERG_COMPAT_VIOLATION.MISSING_REQUIRED_TABLE_FEATURE")
    ]
    assert found(metadata(), with_features(versions(1, 1), ("icebergCompatV3",))) == []


def test_a_refusal_names_every_flaw_and_the_class_of_the_first() -> None:
    flaws = (Flaw("a", "x", "is bad", "mend it", "DELTA_A"), Flaw("b", "y", "is worse", "go"))
    with pytest.raises(Exception, match="x is bad: mend it; y is worse: go") as caught:
        refuse(flaws, "here")
    assert getattr(caught.value, "error_class", None) == "DELTA_A"
    refuse((), "here")


ROW_TRACKING = {
    "delta.enableRowTracking": "true",
    "delta.rowTracking.materializedRowIdColumnName": "_row-id",
    "delta.rowTracking.materializedRowCommitVersionColumnName": "_row-version",
}
VECTORS = {"delta.enableDeletionVectors": "true"}
TIMES = {"delta.enableInCommitTimestamps": "true"}
FEED = {"delta.enableChangeDataFeed": "true"}


def found_with(about: Metadata, *features: str) -> list[tuple[str, str | None]]:
    """Return the rules that metadata breaks under the lowest protocol with these features."""
    protocol = with_features(minimum_protocol(about), features)
    flaws = check_definition(Definition(about, protocol))
    return [(flaw.rule, flaw.error_class) for flaw in flaws]


@pytest.mark.parametrize(
    "text", [ROW_TRACKING, VECTORS, TIMES, FEED, {**ROW_TRACKING, **VECTORS, **TIMES, **FEED}]
)
def test_what_agrees_passes(text: dict[str, str]) -> None:
    assert found_with(metadata(**text)) == []


@pytest.mark.parametrize(
    ("about", "rule", "error_class"),
    [
        (
            metadata(**{**ROW_TRACKING, "delta.rowTrackingSuspended": "true"}),
            "row_tracking_suspended",
            "DELTA_ROW_TRACKING_ILLEGAL_PROPERTY_COMBINATION",
        ),
        (
            metadata(**{**ROW_TRACKING, "delta.rowTracking.materializedRowIdColumnName": ""}),
            "row_tracking_column_missing",
            "DELTA_MATERIALIZED_ROW_TRACKING_COLUMN_NAME_MISSING",
        ),
        (
            metadata(a_field("_row-id"), **ROW_TRACKING),
            "row_tracking_column_taken",
            "DELTA_ADDING_COLUMN_WITH_INTERNAL_NAME_FAILED",
        ),
        (
            metadata(
                a_field("a", **{"delta.columnMapping.physicalName": "_row-version"}), **ROW_TRACKING
            ),
            "row_tracking_column_taken",
            "DELTA_ADDING_COLUMN_WITH_INTERNAL_NAME_FAILED",
        ),
        (
            metadata(**VECTORS).with_(format=Format(provider="orc")),
            "vectors_without_parquet",
            "DELTA_VIOLATE_TABLE_PROPERTY_VALIDATION_FAILED."
            "PERSISTENT_DELETION_VECTORS_IN_NON_PARQUET_TABLE",
        ),
        (
            metadata(**VECTORS, **{"delta.compatibility.symlinkFormatManifest.enabled": "true"}),
            "vectors_with_manifests",
            "DELTA_VIOLATE_TABLE_PROPERTY_VALIDATION_FAILED."
            "PERSISTENT_DELETION_VECTORS_WITH_INCREMENTAL_MANIFEST_GENERATION",
        ),
        (
            metadata(**TIMES, **{"delta.inCommitTimestampEnablementVersion": "3"}),
            "half_an_enablement",
            None,
        ),
        (
            metadata(a_field("_change_type", "string"), a_field("a"), **FEED),
            "change_column_taken",
            "DELTA_TABLE_ALREADY_CONTAINS_CDC_COLUMNS",
        ),
    ],
)
def test_what_excludes_one_another_is_found(
    about: Metadata, rule: str, error_class: str | None
) -> None:
    assert found_with(about) == [(rule, error_class)]


def test_what_is_missing_of_an_enablement_is_named() -> None:
    about = metadata(**TIMES, **{"delta.inCommitTimestampEnablementTimestamp": "3"})
    (flaw,) = check_definition(Definition(about, minimum_protocol(about)))
    assert flaw.field == "metaData.configuration.delta.inCommitTimestampEnablementVersion"


def test_a_table_is_clustered_or_partitioned() -> None:
    about = metadata(a_field("a"), a_field("p")).with_(partition_columns=("p",))
    assert found_with(about) == []
    assert found_with(about, "clustering") == [
        ("clustered_and_partitioned", "DELTA_CLUSTER_BY_WITH_PARTITIONED_BY")
    ]


def test_a_table_of_a_catalog_has_times_of_its_own() -> None:
    assert found_with(metadata(), "catalogManaged") == [("times_needed", None)]
    assert found_with(metadata(**TIMES), "catalogManaged") == []
    assert found_with(metadata(), "coordinatedCommits-preview") == []
    named = metadata(**{"delta.coordinatedCommits.commitCoordinator-preview": "x"})
    assert found_with(named) == [("times_needed", None)]


def test_adaptive_metadata_needs_what_it_needs_turned_on() -> None:
    rules = [rule for rule, _ in found_with(metadata(**TIMES), "adaptiveMetadata-preview")]
    assert rules == ["adaptive_metadata_flag", "adaptive_metadata_flag", "adaptive_metadata_mode"]


STRUCT = {"type": "struct", "fields": [a_field("x"), a_field("B", "binary")]}
FIELDS = (a_field("a"), a_field("p", "string"), a_field("b", "binary"), a_field("s", STRUCT))


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ("", []),
        ("a", []),
        ("A, S.X", []),
        ("s", []),
        ("s.b", []),
        ("P", ["stats_of_partition_column"]),
        ("b", ["stats_of_type"]),
        ("c", ["stats_of_no_column"]),
        ("a.x", ["stats_of_no_column"]),
        ("s.y", ["stats_of_no_column"]),
        ("a, A", ["stats_column_twice"]),
        ("s, s.x", ["stats_column_twice"]),
        ("c, b", ["stats_of_no_column", "stats_of_type"]),
    ],
)
def test_statistics_are_of_columns_that_have_bounds(text: str, rules: list[str]) -> None:
    about = metadata(*FIELDS, **{"delta.dataSkippingStatsColumns": text})
    one = Definition(about.with_(partition_columns=("p",)), versions(1, 2))
    assert [flaw.rule for flaw in stats_column_flaws(one)] == rules


def test_a_table_that_names_no_columns_needs_none() -> None:
    assert list(stats_column_flaws(Definition(metadata(*FIELDS), versions(1, 2)))) == []
