import pytest

from tests.definitions import a_field, metadata, versions
from tidegate_delta.definitions.definition import Definition
from tidegate_delta.definitions.drop_feature import FeatureRemains, leaves_trace, traces
from tidegate_delta.log.actions import (
    Action,
    Add,
    CheckpointMetadata,
    DeletionVector,
    Metadata,
    Sidecar,
)

MAPPED = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "p"}
WIDENED = a_field("a", **{"delta.typeChanges": [{"fromType": "integer", "toType": "long"}]})
VECTOR = DeletionVector(storage_type="u", path_or_inline_dv="x", size_in_bytes=1, cardinality=1)
FILE = Add(path="a", partition_values={}, size=1, modification_time=1, data_change=True)
CHECKPOINT = CheckpointMetadata(version=3)
SIDECAR = Sidecar(path="x", size_in_bytes=1, modification_time=1)


def fields(name: str, about: Metadata, remains: FeatureRemains) -> list[str]:
    """Return where a table still has traces of a feature."""
    result = traces(name, Definition(about, versions(1, 2)), remains)
    return [field.removeprefix("metaData.configuration.") for field, _, _ in result]


@pytest.mark.parametrize(
    ("name", "about", "remains", "left"),
    [
        (
            "columnMapping",
            metadata(a_field("a", **MAPPED), **{"delta.columnMapping.mode": "name"}),
            FeatureRemains(),
            ["delta.columnMapping.mode", "metaData.schemaString"],
        ),
        (
            "deletionVectors",
            metadata(**{"delta.enableDeletionVectors": "true"}),
            FeatureRemains(deletion_vectors=2),
            ["delta.enableDeletionVectors", "files"],
        ),
        (
            "rowTracking",
            metadata(**{"delta.enableRowTracking": "true"}),
            FeatureRemains(files_with_row_ids=1),
            ["delta.enableRowTracking", "delta.rowTrackingSuspended", "files"],
        ),
        (
            "domainMetadata",
            metadata(),
            FeatureRemains(domains=frozenset({"mine"})),
            ["domainMetadata"],
        ),
        (
            "v2Checkpoint",
            metadata(**{"delta.checkpointPolicy": "v2"}),
            FeatureRemains(stands_on_v2_checkpoint=True),
            ["delta.checkpointPolicy", "checkpoint"],
        ),
        (
            "coordinatedCommits-preview",
            metadata(**{"delta.coordinatedCommits.tableConf-preview": "{}"}),
            FeatureRemains(unpublished_commits=1),
            ["delta.coordinatedCommits.tableConf-preview", "log"],
        ),
        (
            "typeWidening-preview",
            metadata(WIDENED, **{"delta.enableTypeWidening": "true"}),
            FeatureRemains(),
            ["delta.enableTypeWidening", "metaData.schemaString"],
        ),
        (
            "inCommitTimestamp",
            metadata(
                **{
                    "delta.enableInCommitTimestamps": "true",
                    "delta.inCommitTimestampEnablementVersion": "1",
                    "delta.inCommitTimestampEnablementTimestamp": "1",
                }
            ),
            FeatureRemains(),
            [
                "delta.enableInCommitTimestamps",
                "delta.inCommitTimestampEnablementVersion",
                "delta.inCommitTimestampEnablementTimestamp",
            ],
        ),
        (
            "redirectWriterOnly-preview",
            metadata(**{"delta.redirectWriterOnly-preview": "{}"}),
            FeatureRemains(),
            ["delta.redirectWriterOnly-preview"],
        ),
    ],
)
def test_what_is_left_of_a_feature_is_named(
    name: str, about: Metadata, remains: FeatureRemains, left: list[str]
) -> None:
    assert fields(name, about, remains) == left
    suspended = {"delta.rowTrackingSuspended": "true"} if name == "rowTracking" else {}
    assert fields(name, metadata(**suspended), FeatureRemains()) == []


def test_a_feature_without_requirements_leaves_no_trace() -> None:
    used = metadata(**{"delta.enableMaterializePartitionColumnsFeature": "true"})
    assert fields("materializePartitionColumns", used, FeatureRemains()) == []


@pytest.mark.parametrize(
    ("name", "action", "leaves"),
    [
        ("columnMapping", metadata(**{"delta.columnMapping.mode": "id"}), True),
        ("columnMapping", metadata(), False),
        ("typeWidening", metadata(WIDENED), True),
        ("typeWidening", metadata(**{"delta.enableTypeWidening": "true"}), False),
        ("v2Checkpoint", metadata(**{"delta.checkpointPolicy": "v2"}), True),
        ("v2Checkpoint", CHECKPOINT, True),
        ("v2Checkpoint", SIDECAR, True),
        ("deletionVectors", metadata(**{"delta.enableDeletionVectors": "true"}), True),
        ("deletionVectors", FILE, False),
        ("deletionVectors", FILE.with_(deletion_vector=VECTOR), True),
        ("vacuumProtocolCheck", metadata(), False),
        ("columnMapping", CHECKPOINT, False),
    ],
)
def test_an_old_action_needs_a_feature_or_not(name: str, action: Action, leaves: bool) -> None:
    assert leaves_trace(name, action) is leaves
