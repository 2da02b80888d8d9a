import pytest

from tests.definitions import a_field, listing, metadata, versions
from tidegate_delta.definitions.drop_feature import dependents
from tidegate_delta.features.supported_features import (
    added_features,
    dropped_features,
    interrupting_features,
    minimum_protocol,
    protocol_for,
    self_enabling_features,
    with_features,
    without_feature,
)
from tidegate_delta.log.actions import Metadata, Protocol
from tidegate_delta.log.protocol_versions import supported_features


@pytest.mark.parametrize(
    ("names", "protocol"),
    [
        ((), versions(1, 1)),
        (("appendOnly", "invariants"), versions(1, 2)),
        (("appendOnly",), listing("appendOnly")),
        (("appendOnly", "invariants", "checkConstraints"), versions(1, 3)),
        (("rowTracking", "domainMetadata"), listing("domainMetadata", "rowTracking")),
        (
            ("columnMapping",),
            Protocol(
                min_reader_version=2, min_writer_version=7, writer_features=("columnMapping",)
            ),
        ),
        (
            ("columnMapping", "deletionVectors", "appendOnly"),
            listing(
                "appendOnly",
                "columnMapping",
                "deletionVectors",
                readers=("columnMapping", "deletionVectors"),
            ),
        ),
    ],
)
def test_features_have_a_weakest_protocol(names: tuple[str, ...], protocol: Protocol) -> None:
    assert protocol_for(names) == protocol


@pytest.mark.parametrize(
    ("about", "protocol"),
    [
        (metadata(), versions(1, 1)),
        (metadata(**{"delta.appendOnly": "true"}), listing("appendOnly")),
        (metadata(**{"delta.constraints.c": "a > 0"}), listing("checkConstraints")),
        (metadata(a_field("a", "variant")), listing("variantType", readers=("variantType",))),
        (
            metadata(**{"delta.enableTypeWidening": "true"}),
            listing("typeWidening", readers=("typeWidening",)),
        ),
        (
            metadata(**{"delta.enableIcebergCompatV3": "true"}),
            Protocol(
                min_reader_version=2,
                min_writer_version=7,
                writer_features=(
                    "columnMapping",
                    "domainMetadata",
                    "icebergCompatV3",
                    "rowTracking",
                ),
            ),
        ),
    ],
)
def test_metadata_has_a_minimum_protocol(about: Metadata, protocol: Protocol) -> None:
    assert minimum_protocol(about) == protocol


def test_an_inactive_feature_is_not_required() -> None:
    about = metadata(a_field("a", CURRENT_DEFAULT="1"))
    assert self_enabling_features(about) == ()


@pytest.mark.parametrize(
    ("preview", "about"),
    [
        ("variantType-preview", metadata(a_field("a", "variant"))),
        ("typeWidening-preview", metadata(**{"delta.enableTypeWidening": "true"})),
        ("geospatial-dev", metadata(a_field("a", "geometry"))),
    ],
)
def test_a_preview_stands_for_the_final_feature(preview: str, about: Metadata) -> None:
    assert len(self_enabling_features(about)) == 1
    assert self_enabling_features(about, (preview,)) == ()


def test_a_feature_is_added_with_all_that_it_needs() -> None:
    protocol = with_features(versions(1, 2), ("icebergCompatV3",))
    assert supported_features(protocol) == {
        "appendOnly",
        "invariants",
        "icebergCompatV3",
        "columnMapping",
        "rowTracking",
        "domainMetadata",
    }
    assert protocol.min_reader_version == 2


def test_adding_what_is_there_changes_nothing() -> None:
    odd = versions(2, 3)
    assert with_features(odd, ("checkConstraints",)) is odd


def test_adding_the_last_feature_of_a_version_leaves_no_lists() -> None:
    assert with_features(listing("appendOnly"), ("invariants",)) == versions(1, 2)


def test_features_that_nobody_has_heard_of_stay_where_they_are() -> None:
    before = listing("fromMars", "fromVenus", readers=("fromMars",))
    after = with_features(before, ("rowTracking",))
    assert after.reader_features == ("fromMars",)
    assert {"fromMars", "fromVenus", "rowTracking"} <= supported_features(after)


@pytest.mark.parametrize(
    ("before", "name", "after"),
    [
        (versions(2, 5), "columnMapping", versions(1, 4)),
        (
            listing("appendOnly", "deletionVectors", "invariants", readers=("deletionVectors",)),
            "deletionVectors",
            versions(1, 2),
        ),
        (versions(1, 3), "invariants", listing("appendOnly", "checkConstraints")),
    ],
)
def test_versions_fall_where_a_feature_is_dropped(
    before: Protocol, name: str, after: Protocol
) -> None:
    assert without_feature(before, name) == after


def test_a_change_of_protocol_adds_and_drops() -> None:
    before, after = versions(1, 4), listing("appendOnly", "clustering", "domainMetadata")
    assert added_features(before, after) == {"clustering", "domainMetadata"}
    assert dropped_features(before, after) == supported_features(before) - {"appendOnly"}


def test_some_features_fail_those_who_read_the_table_before() -> None:
    added = ("rowTracking", "clustering", "inCommitTimestamp", "invariants", "fromMars")
    after = with_features(versions(1, 1), added)
    assert interrupting_features(versions(1, 1), after) == ("clustering", "fromMars", "invariants")
    assert interrupting_features(after, after) == ()


def test_a_feature_knows_which_others_need_it() -> None:
    protocol = with_features(versions(1, 1), ("icebergCompatV3", "clustering"))
    assert dependents("domainMetadata", protocol) == ("clustering", "rowTracking")
    assert dependents("icebergCompatV3", protocol) == ()
