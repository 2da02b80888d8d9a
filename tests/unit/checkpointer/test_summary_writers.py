"""Which tables get checkpoints."""

import pytest

from tidegate_checkpointer.summary_writers import check_checkpointable, wants_v2
from tidegate_delta.errors import UnsupportedFeature
from tidegate_delta.features.feature import FeatureKind
from tidegate_delta.features.supported_features import FEATURES, Support
from tidegate_delta.log.actions import Metadata, Protocol

SCHEMA = '{"type":"struct","fields":[]}'
FOR_WRITERS = sorted(
    name
    for name, feature in FEATURES.items()
    if feature.kind is FeatureKind.WRITER and feature.writes is Support.YES
)


def check(*features: str, **configuration: str) -> None:
    protocol = Protocol(min_reader_version=1, min_writer_version=7, writer_features=features)
    metadata = Metadata(id="m", schema_string=SCHEMA, configuration=configuration)
    check_checkpointable(protocol, metadata, "t")


def check_for_readers(feature: str, **configuration: str) -> Metadata:
    """Check a table with a feature that readers must know, and return its metadata."""
    lists = {"reader_features": (feature,), "writer_features": (feature,)}
    protocol = Protocol(min_reader_version=3, min_writer_version=7, **lists)
    metadata = Metadata(id="m", schema_string=SCHEMA, configuration=configuration)
    check_checkpointable(protocol, metadata, "t")
    return metadata


@pytest.mark.parametrize("feature", FOR_WRITERS)
def test_what_leaves_a_checkpoint_as_it_is_may_be_on(feature: str) -> None:
    check(feature)


def test_a_table_with_deletion_vectors_is_summarised() -> None:
    check_for_readers("deletionVectors", **{"delta.enableDeletionVectors": "true"})


def test_a_table_with_its_change_feed_on_is_summarised() -> None:
    check("changeDataFeed", **{"delta.enableChangeDataFeed": "true"})


@pytest.mark.parametrize("feature", ["fromTheFuture", "collations"])
def test_what_may_change_a_checkpoint_is_refused_by_name(feature: str) -> None:
    with pytest.raises(UnsupportedFeature, match=feature) as caught:
        check(feature)
    assert caught.value.feature == feature


def test_protected_checkpoints_do_not_keep_us_from_writing_one_more() -> None:
    bound = {"delta.requireCheckpointProtectionBeforeVersion": "7"}
    check("checkpointProtection", **bound)


def test_a_table_with_v2_checkpoints_is_summarised() -> None:
    assert wants_v2(check_for_readers("v2Checkpoint", **{"delta.checkpointPolicy": "v2"}))


def test_a_table_that_enables_them_without_the_reader_feature_is_refused() -> None:
    with pytest.raises(UnsupportedFeature, match="v2Checkpoint"):
        check(**{"delta.checkpointPolicy": "v2"})


def test_a_table_that_we_cannot_read_is_refused() -> None:
    with pytest.raises(UnsupportedFeature, match="catalogManaged"):
        check_for_readers("catalogManaged")
