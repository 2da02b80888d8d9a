import pytest

from tests.definitions import a_field, listing, metadata, versions
from tidegate_delta.definitions.definition import Definition
from tidegate_delta.definitions.feature_directives import (
    FeatureDirectives,
    canonical_keys,
    is_directive,
    read_directives,
    without_instructions,
)
from tidegate_delta.definitions.resolve_definition import define_new, resolve_definition
from tidegate_delta.errors import InvalidRequest, UnsupportedFeature
from tidegate_delta.log.actions import Metadata, Protocol
from tidegate_delta.log.protocol_versions import supported_features

LEGACY = versions(1, 2)
NTZ = {"type": "array", "elementType": "timestamp_ntz", "containsNull": True}


def resolved(before: Protocol, **text: str) -> Protocol:
    """Return the protocol of a table after a writer sets these properties."""
    made = resolve_definition(Definition(metadata(), before), metadata(**text))
    assert not made.flaws
    return made.definition.protocol


def test_a_new_plain_table_is_of_the_oldest_kind() -> None:
    assert define_new(metadata(**{"delta.appendOnly": "true"})).protocol == LEGACY


def test_a_new_table_with_timestamps_without_zone_lists_the_feature_and_all_implied() -> None:
    protocol = define_new(metadata(a_field("a", NTZ))).protocol
    assert protocol.reader_features == ("timestampNtz",)
    assert protocol.writer_features == ("appendOnly", "invariants", "timestampNtz")
    assert (protocol.min_reader_version, protocol.min_writer_version) == (3, 7)


def test_a_new_table_with_deletion_vectors_lists_the_feature_for_readers_and_writers() -> None:
    protocol = define_new(metadata(**{"delta.enableDeletionVectors": "true"})).protocol
    assert protocol.reader_features == ("deletionVectors",)
    assert protocol.writer_features == ("appendOnly", "deletionVectors", "invariants")


def test_a_new_table_that_uses_what_we_do_not_write_is_refused() -> None:
    with pytest.raises(UnsupportedFeature):
        define_new(metadata(**{"delta.enableIcebergCompatV2": "true"}))


@pytest.mark.parametrize(
    ("key", "text", "error_class"),
    [
        ("delta.feature.deletionvectors", "yes", "DELTA_UNSUPPORTED_FEATURE_STATUS"),
        ("delta.minWriterVersion", "two", "DELTA_PROTOCOL_PROPERTY_NOT_INT"),
        ("delta.minWriterVersion", "8", "DELTA_INVALID_PROTOCOL_VERSION"),
        ("delta.checkpointInterval", "0", "InvalidTableProperty"),
    ],
)
def test_a_new_table_with_an_invalid_instruction_is_refused(
    key: str, text: str, error_class: str
) -> None:
    with pytest.raises(InvalidRequest, match=key) as caught:
        define_new(metadata(**{key: text}))
    assert caught.value.error_class == error_class


def test_a_new_table_with_an_unknown_feature_is_refused_by_its_name() -> None:
    with pytest.raises(UnsupportedFeature, match="fromMars") as caught:
        define_new(metadata(**{"delta.feature.fromMars": "supported"}))
    assert caught.value.feature == "fromMars"
    assert caught.value.error_class == "DELTA_UNSUPPORTED_FEATURES_IN_CONFIG"


def test_a_new_table_gets_the_features_that_it_asks_for_and_keeps_no_instruction() -> None:
    made = define_new(
        metadata(**{"delta.feature.deletionvectors": "Supported", "delta.appendonly": "true"})
    )
    assert made.protocol.reader_features == ("deletionVectors",)
    assert made.metadata.configuration == {"delta.appendOnly": "true"}


@pytest.mark.parametrize(
    ("text", "protocol"),
    [
        ({"delta.minWriterVersion": "4"}, versions(1, 4)),
        ({"delta.minReaderVersion": "2", "delta.minWriterVersion": "5"}, versions(2, 5)),
        ({"delta.minReaderVersion": "2"}, versions(1, 2)),
        ({"delta.minWriterVersion": "5"}, versions(1, 4)),
        ({"delta.minReaderVersion": "3", "delta.minWriterVersion": "7"}, versions(1, 1)),
        ({"delta.ignoreProtocolDefaults": "true"}, versions(1, 1)),
        (
            {"delta.ignoreProtocolDefaults": "true", "delta.appendOnly": "true"},
            listing("appendOnly"),
        ),
        (
            {"delta.minWriterVersion": "7", "delta.feature.rowTracking": "supported"},
            listing("domainMetadata", "rowTracking"),
        ),
    ],
)
def test_versions_that_a_new_table_sets_mean_features(
    text: dict[str, str], protocol: Protocol
) -> None:
    made = resolve_definition(None, metadata(**text))
    assert made.flaws == ()
    assert made.definition.protocol == protocol


def test_reader_features_are_writer_features_too() -> None:
    made = resolve_definition(
        None, metadata(**{"delta.minReaderVersion": "3", "delta.minWriterVersion": "5"})
    )
    assert [flaw.error_class for flaw in made.flaws] == [
        "DELTA_READ_FEATURE_PROTOCOL_REQUIRES_WRITE"
    ]


@pytest.mark.parametrize(
    ("before", "text", "after"),
    [
        (LEGACY, {}, LEGACY),
        (versions(2, 3), {}, versions(2, 3)),
        (LEGACY, {"delta.appendOnly": "true"}, LEGACY),
        (LEGACY, {"delta.constraints.c": "a > 0"}, versions(1, 3)),
        (LEGACY, {"delta.minWriterVersion": "3"}, versions(1, 3)),
        (versions(2, 5), {"delta.minWriterVersion": "3"}, versions(2, 5)),
        (LEGACY, {"delta.minReaderVersion": "2", "delta.minWriterVersion": "5"}, versions(2, 5)),
        (
            LEGACY,
            {"delta.enableRowTracking": "true"},
            listing("appendOnly", "domainMetadata", "invariants", "rowTracking"),
        ),
        (listing("appendOnly"), {"delta.feature.INVARIANTS": "enabled"}, LEGACY),
        (
            listing("variantType-preview", readers=("variantType-preview",)),
            {},
            listing("variantType-preview", readers=("variantType-preview",)),
        ),
    ],
)
def test_a_table_that_exists_is_upgraded_as_far_as_it_must(
    before: Protocol, text: dict[str, str], after: Protocol
) -> None:
    assert resolved(before, **text) == after


def test_an_upgrade_keeps_what_nobody_has_heard_of() -> None:
    before = listing("fromMars", readers=("fromMars",))
    after = resolved(before, **{"delta.enableDeletionVectors": "true"})
    assert after.reader_features == ("deletionVectors", "fromMars")


def test_timestamps_without_zone_must_be_listed_by_hand_in_a_table_that_exists() -> None:
    before = Definition(metadata(), LEGACY)
    used = metadata(a_field("a", "timestamp_ntz"))
    made = resolve_definition(before, used)
    assert [flaw.error_class for flaw in made.flaws] == ["DELTA_FEATURES_REQUIRE_MANUAL_ENABLEMENT"]
    asked = used.with_(configuration={"delta.feature.timestampNtz": "supported"})
    made = resolve_definition(before, asked)
    assert made.flaws == ()
    assert "timestampNtz" in made.definition.supported
    assert made.definition.metadata.configuration == {}


def test_a_protocol_that_is_given_is_kept_where_it_suffices() -> None:
    wide = listing("appendOnly", "deletionVectors", readers=("deletionVectors",))
    made = resolve_definition(Definition(metadata(), LEGACY), metadata(), wide)
    assert made.definition.protocol is wide
    more = metadata(**{"delta.enableRowTracking": "true"})
    made = resolve_definition(Definition(metadata(), LEGACY), more, wide)
    assert supported_features(made.definition.protocol) == supported_features(wide) | {
        "rowTracking",
        "domainMetadata",
    }


@pytest.mark.parametrize(
    "about",
    [
        metadata(**{"delta.feature.catalogManaged": "supported"}),
        metadata(**{"delta.coordinatedCommits.commitCoordinator-preview": "somebody"}),
    ],
)
def test_who_takes_commits_elsewhere_gives_them_their_own_time(about: Metadata) -> None:
    made = resolve_definition(None, about).definition
    assert made.metadata.configuration["delta.enableInCommitTimestamps"] == "true"
    assert {"inCommitTimestamp", "vacuumProtocolCheck"} <= made.supported


def test_a_problem_of_a_new_table_has_delta_sparks_error_class() -> None:
    with pytest.raises(InvalidRequest, match="dataSkippingStatsColumns") as caught:
        define_new(metadata(**{"delta.dataSkippingStatsColumns": "b"}))
    assert caught.value.error_class == "DELTA_COLUMN_NOT_FOUND_IN_SCHEMA"


def test_properties_are_spelt_as_delta_spark_keeps_them() -> None:
    assert canonical_keys(
        {
            "delta.APPENDONLY": "true",
            "DELTA.enablechangedatacapture": "true",
            "Delta.Feature.RowTracking": "supported",
            "delta.universalFormat.config.iceberg.Catalog": "x",
            "delta.Constraints.Positive": "a > 0",
            "delta.whoKnows": "1",
            "AppendOnly": "mine",
        }
    ) == {
        "delta.appendOnly": "true",
        "delta.enableChangeDataCapture": "true",
        "delta.feature.rowtracking": "supported",
        "delta.universalformat.config.iceberg.catalog": "x",
        "delta.Constraints.Positive": "a > 0",
        "delta.whoKnows": "1",
        "AppendOnly": "mine",
    }


@pytest.mark.parametrize(
    "key",
    [
        "delta.feature.x",
        "DELTA.FEATURE.X",
        "delta.minreaderversion",
        "delta.minWriterVersion",
        "delta.ignoreProtocolDefaults",
    ],
)
def test_instructions_are_known_however_they_are_spelt(key: str) -> None:
    assert is_directive(key)
    assert without_instructions({key: "1", "delta.appendOnly": "true", "feature.x": "y"}) == {
        "delta.appendOnly": "true",
        "feature.x": "y",
    }


def test_instructions_set_features_and_versions() -> None:
    result, flaws = read_directives(
        {
            "delta.feature.RowTracking": "ENABLED",
            "delta.minreaderversion": "2",
            "delta.minWriterVersion": "+5",
            "delta.ignoreProtocolDefaults": "True",
            "delta.appendOnly": "true",
        }
    )
    assert flaws == ()
    assert result == FeatureDirectives(frozenset({"rowTracking"}), 2, 5, ignores_defaults=True)


@pytest.mark.parametrize("text", ["0", "4", "x", "", "2.0", " 2"])
def test_a_version_that_there_is_not_is_no_instruction(text: str) -> None:
    result, flaws = read_directives({"delta.minReaderVersion": text})
    assert result == FeatureDirectives()
    assert [flaw.field for flaw in flaws] == ["metaData.configuration.delta.minReaderVersion"]


def test_every_problem_of_a_feature_is_listed() -> None:
    _, flaws = read_directives({"delta.feature.fromMars": "perhaps"})
    assert [flaw.rule for flaw in flaws] == ["feature_status", "unknown_feature"]
    assert all("delta.feature.fromMars" in str(flaw) for flaw in flaws)
