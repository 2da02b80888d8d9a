import pytest

from tidegate_delta.features.feature import PREVIEWS
from tidegate_delta.features.supported_features import FEATURES, closure
from tidegate_delta.log.protocol_versions import IMPLIED_BY_WRITER, LEGACY

FAILING = {
    "invariants",
    "checkConstraints",
    "generatedColumns",
    "identityColumns",
    "clustering",
    "allowColumnDefaults",
    "materializePartitionColumns",
    "variantType",
    "variantType-preview",
    "variantShredding",
    "variantShredding-preview",
    "geospatial",
    "geospatial-dev",
    "coordinatedCommits-preview",
    "checkpointProtection",
}
"""The released features for which delta-spark fails concurrent transactions."""

NOT_FAILING = {
    "appendOnly",
    "changeDataFeed",
    "columnMapping",
    "timestampNtz",
    "deletionVectors",
    "rowTracking",
    "domainMetadata",
    "icebergCompatV1",
    "icebergCompatV2",
    "icebergCompatV3",
    "v2Checkpoint",
    "catalogManaged",
    "typeWidening",
    "typeWidening-preview",
    "inCommitTimestamp",
    "vacuumProtocolCheck",
}


def test_features_that_bind_writers_at_once_fail_concurrent_transactions() -> None:
    assert [name for name in sorted(FAILING) if not FEATURES[name].fails_concurrent] == []
    assert [name for name in sorted(NOT_FAILING) if FEATURES[name].fails_concurrent] == []


def test_legacy_features_are_those_that_versions_imply() -> None:
    implied = {name for names in IMPLIED_BY_WRITER.values() for name in names}
    assert {name for name, row in FEATURES.items() if row.legacy} == implied == LEGACY.keys()
    assert FEATURES["columnMapping"].legacy == (2, 5)
    assert FEATURES["identityColumns"].legacy == (1, 6)
    assert FEATURES["rowTracking"].legacy is None


def test_a_legacy_feature_can_always_list_itself() -> None:
    assert [name for name in LEGACY if not FEATURES[name].enables_itself_later] == []


@pytest.mark.parametrize(
    ("name", "is_removable", "leaves_traces"),
    [
        ("appendOnly", False, False),
        ("checkConstraints", True, False),
        ("columnMapping", True, True),
        ("rowTracking", True, False),
        ("deletionVectors", True, True),
        ("vacuumProtocolCheck", True, True),
        ("redirectReaderWriter-preview", True, False),
        ("clustering", False, False),
        ("catalogManaged", False, False),
        ("variantType", False, False),
    ],
)
def test_what_can_be_dropped_and_what_its_history_needs(
    name: str, is_removable: bool, leaves_traces: bool
) -> None:
    assert FEATURES[name].is_removable is is_removable
    assert FEATURES[name].leaves_traces is leaves_traces


def test_timestamps_without_zone_are_listed_by_hand_in_a_table_that_exists() -> None:
    assert FEATURES["timestampNtz"].enables_itself
    assert not FEATURES["timestampNtz"].enables_itself_later


def test_what_a_feature_needs_is_in_the_table_and_needs_no_circle() -> None:
    for name, row in FEATURES.items():
        assert set(row.needs) <= FEATURES.keys()
        assert name not in closure(row.needs)


def test_a_preview_is_for_the_same_clients_as_the_final_feature() -> None:
    assert PREVIEWS.keys() | set(PREVIEWS.values()) <= FEATURES.keys()
    for preview, final in PREVIEWS.items():
        assert FEATURES[preview].kind is FEATURES[final].kind
        assert FEATURES[preview].final_name == final
        assert FEATURES[final].final_name is None


def test_a_feature_of_readers_alone_leaves_traces_where_it_can_be_dropped() -> None:
    unlike = [
        name
        for name, row in FEATURES.items()
        if row.is_removable and row.leaves_traces != row.reader_writer
    ]
    assert unlike == ["redirectReaderWriter-preview"]


def test_all_that_is_needed_is_found_through_others() -> None:
    assert closure(["icebergWriterCompatV3"]) == {
        "icebergWriterCompatV3",
        "icebergCompatV3",
        "columnMapping",
        "rowTracking",
        "domainMetadata",
    }
    assert closure(["fromMars"]) == {"fromMars"}
