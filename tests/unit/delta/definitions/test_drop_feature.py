import pytest

from tests.definitions import a_field, listing, metadata, one_file, versions
from tidegate_delta.definitions.definition import Definition
from tidegate_delta.definitions.definition_changes import check_change
from tidegate_delta.definitions.drop_feature import (
    DOMAINS_GONE,
    Drop,
    FeatureRemains,
    drop_flaws,
    dropped,
    leaves_trace,
    traces,
)
from tidegate_delta.features.feature import Feature
from tidegate_delta.features.supported_features import FEATURES, protocol_for, with_features
from tidegate_delta.log.actions import (
    Action,
    CheckpointMetadata,
    DeletionVector,
    Metadata,
    Protocol,
    Sidecar,
)
from tidegate_delta.log.protocol_versions import supported_features

NOTHING = FeatureRemains()
REMOVABLE = [row for row in FEATURES.values() if row.is_removable]
BOUND = "delta.requireCheckpointProtectionBeforeVersion"


def found(drop: Drop, one: Definition, remains: FeatureRemains = NOTHING) -> list[tuple[str, str]]:
    """Return what prevents a drop: the field, and delta-spark's error class."""
    flaws = drop_flaws(drop, one, remains)
    return [(flaw.field, (flaw.error_class or "").removeprefix("DELTA_")) for flaw in flaws]


@pytest.mark.parametrize(
    ("drop", "error_class"),
    [
        (Drop("delta.enableDeletionVectors"), "FEATURE_DROP_FEATURE_IS_DELTA_PROPERTY"),
        (Drop("fromMars"), "FEATURE_DROP_UNSUPPORTED_CLIENT_FEATURE"),
        (Drop("catalogManaged"), "FEATURE_DROP_UNSUPPORTED_CLIENT_FEATURE"),
        (Drop("rowTracking"), "FEATURE_DROP_FEATURE_NOT_PRESENT"),
        (Drop("appendOnly"), "FEATURE_DROP_NONREMOVABLE_FEATURE"),
        (
            Drop("checkConstraints", truncates_history=True),
            "FEATURE_DROP_HISTORY_TRUNCATION_NOT_ALLOWED",
        ),
        (
            Drop("checkpointProtection"),
            "FEATURE_CAN_ONLY_DROP_CHECKPOINT_PROTECTION_WITH_HISTORY_TRUNCATION",
        ),
    ],
)
def test_what_cannot_be_dropped_is_reported_at_once(drop: Drop, error_class: str) -> None:
    protocol = with_features(versions(1, 3), ("checkpointProtection",))
    used = metadata(**{"delta.constraints.c": "a > 0"})
    assert found(drop, Definition(used, protocol)) == [("protocol", error_class)]


def test_what_others_need_is_dropped_after_them() -> None:
    one = Definition(metadata(), with_features(versions(1, 1), ("rowTracking",)))
    assert found(Drop("domainMetadata"), one) == [("protocol", "FEATURE_DROP_DEPENDENT_FEATURE")]


@pytest.mark.parametrize("row", REMOVABLE, ids=lambda row: row.name)
def test_a_feature_that_left_nothing_is_dropped(row: Feature) -> None:
    suspended = {"delta.rowTrackingSuspended": "true"} if row.name == "rowTracking" else {}
    one = Definition(metadata(**suspended), protocol_for((*row.needs, row.name, "appendOnly")))
    cuts = row.name == "checkpointProtection"
    drop = Drop(row.name, truncates_history=cuts)
    assert found(drop, one) == []
    after = dropped(drop, one, 7)
    protection = {"checkpointProtection"} if row.leaves_traces else set()
    assert after.supported == one.supported - {row.name} | protection
    assert after.metadata.configuration.get(BOUND) == ("7" if row.leaves_traces else None)
    assert check_change(one, after, dropping=row.name) == ()


@pytest.mark.parametrize("row", [row for row in REMOVABLE if row.leaves_traces])
def test_history_that_is_cut_off_needs_no_protection(row: Feature) -> None:
    one = Definition(metadata(), protocol_for((*row.needs, row.name)))
    drop = Drop(row.name, truncates_history=True)
    assert found(drop, one, FeatureRemains(history_uses=True)) == [
        ("history", "FEATURE_DROP_HISTORICAL_VERSIONS_EXIST")
    ]
    assert found(drop, one) == []
    assert dropped(drop, one, 7).supported == one.supported - {row.name}


def test_old_versions_stand_in_the_way_only_where_they_are_cut_off() -> None:
    one = Definition(metadata(), listing("deletionVectors", readers=("deletionVectors",)))
    assert found(Drop("deletionVectors"), one, FeatureRemains(history_uses=True)) == []


def test_the_protection_goes_when_the_history_that_it_protects_has_gone() -> None:
    one = Definition(metadata(**{BOUND: "5"}), listing("checkpointProtection"))
    drop = Drop("checkpointProtection", truncates_history=True)
    waits = "FEATURE_DROP_CHECKPOINT_PROTECTION_WAIT_FOR_RETENTION_PERIOD"
    assert found(drop, one, FeatureRemains(oldest_version=4)) == [("history", waits)]
    assert found(drop, one, FeatureRemains(oldest_version=5)) == [
        (f"metaData.configuration.{BOUND}", waits)
    ]
    unset = Definition(metadata(), one.protocol)
    assert found(drop, unset, FeatureRemains(oldest_version=5)) == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (versions(1, 3), versions(1, 2)),
        (versions(1, 4), listing("appendOnly", "changeDataFeed", "generatedColumns", "invariants")),
    ],
)
def test_a_legacy_protocol_is_lowered_or_listed(before: Protocol, after: Protocol) -> None:
    assert dropped(Drop("checkConstraints"), Definition(metadata(), before), 1).protocol == after


def test_row_tracking_takes_its_properties_and_its_domain_with_it() -> None:
    text = {
        "delta.enableRowTracking": "false",
        "delta.rowTrackingSuspended": "true",
        "delta.rowTracking.materializedRowIdColumnName": "x",
        "delta.rowTracking.materializedRowCommitVersionColumnName": "y",
        "mine": "1",
    }
    one = Definition(metadata(**text), with_features(versions(1, 2), ("rowTracking",)))
    after = dropped(Drop("rowTracking"), one, 3)
    assert after.metadata.configuration == {"mine": "1"}
    assert supported_features(after.protocol) == {"appendOnly", "domainMetadata", "invariants"}
    assert DOMAINS_GONE["rowTracking"] == ("delta.rowTracking",)


def test_shapes_on_earth_and_constraints_are_taken_out_by_hand() -> None:
    earth = Definition(
        metadata(a_field("a", "geometry")), listing("geospatial", readers=("geospatial",))
    )
    assert found(Drop("geospatial"), earth) == [
        ("metaData.schemaString", "CANNOT_DROP_GEOSPATIAL_FEATURE")
    ]
    checked = Definition(metadata(**{"delta.constraints.c": "a > 0"}), versions(1, 3))
    assert found(Drop("checkConstraints"), checked) == [
        ("metaData.configuration.delta.constraints.c", "CANNOT_DROP_CHECK_CONSTRAINT_FEATURE")
    ]


MAPPED = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "p"}
WIDENED = a_field("a", **{"delta.typeChanges": [{"fromType": "integer", "toType": "long"}]})
VECTOR = DeletionVector(storage_type="u", path_or_inline_dv="x", size_in_bytes=1, cardinality=1)
FILE = one_file("a", modification_time=1)
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
