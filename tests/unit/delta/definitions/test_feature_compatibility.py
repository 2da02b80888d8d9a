import pytest

from tests.definitions import a_field, metadata
from tidegate_delta.definitions.definition import Definition
from tidegate_delta.definitions.definition_checks import check_definition
from tidegate_delta.features.protocol_upgrades import minimum_protocol, with_features
from tidegate_delta.log.actions import Format, Metadata

ROW_TRACKING = {
    "delta.enableRowTracking": "true",
    "delta.rowTracking.materializedRowIdColumnName": "_row-id",
    "delta.rowTracking.materializedRowCommitVersionColumnName": "_row-version",
}
VECTORS = {"delta.enableDeletionVectors": "true"}
TIMES = {"delta.enableInCommitTimestamps": "true"}
FEED = {"delta.enableChangeDataFeed": "true"}


def found(about: Metadata, *features: str) -> list[tuple[str, str | None]]:
    """Return the rules that metadata breaks under the lowest protocol with these features."""
    protocol = with_features(minimum_protocol(about), features)
    flaws = check_definition(Definition(about, protocol))
    return [(flaw.rule, flaw.error_class) for flaw in flaws]


@pytest.mark.parametrize(
    "text", [ROW_TRACKING, VECTORS, TIMES, FEED, {**ROW_TRACKING, **VECTORS, **TIMES, **FEED}]
)
def test_what_agrees_passes(text: dict[str, str]) -> None:
    assert found(metadata(**text)) == []


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
                a_field("a", **{"delta.columnMapping.physicalName": "_row-version"}),
                **ROW_TRACKING,
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
    assert found(about) == [(rule, error_class)]


def test_what_is_missing_of_an_enablement_is_named() -> None:
    about = metadata(**TIMES, **{"delta.inCommitTimestampEnablementTimestamp": "3"})
    (flaw,) = check_definition(Definition(about, minimum_protocol(about)))
    assert flaw.field == "metaData.configuration.delta.inCommitTimestampEnablementVersion"


def test_a_table_is_clustered_or_partitioned() -> None:
    about = metadata(a_field("a"), a_field("p")).with_(partition_columns=("p",))
    assert found(about) == []
    assert found(about, "clustering") == [
        ("clustered_and_partitioned", "DELTA_CLUSTER_BY_WITH_PARTITIONED_BY")
    ]


def test_a_table_of_a_catalog_has_times_of_its_own() -> None:
    assert found(metadata(), "catalogManaged") == [("times_needed", None)]
    assert found(metadata(**TIMES), "catalogManaged") == []
    assert found(metadata(), "coordinatedCommits-preview") == []
    named = metadata(**{"delta.coordinatedCommits.commitCoordinator-preview": "x"})
    assert found(named) == [("times_needed", None)]


def test_adaptive_metadata_needs_what_it_needs_turned_on() -> None:
    rules = [rule for rule, _ in found(metadata(**TIMES), "adaptiveMetadata-preview")]
    assert rules == ["adaptive_metadata_flag", "adaptive_metadata_flag", "adaptive_metadata_mode"]
