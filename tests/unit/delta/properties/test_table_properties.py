from typing import Any

import pytest

from tidegate_delta.errors import InvalidRequest
from tidegate_delta.features.supported_features import FEATURES
from tidegate_delta.log.actions import Metadata
from tidegate_delta.properties import table_properties
from tidegate_delta.properties.property import Property
from tidegate_delta.properties.table_properties import check_names, validate

DAY_MS = 86_400_000


def metadata(**configuration: str) -> Metadata:
    named = {f"delta.{key}": text for key, text in configuration.items()}
    return Metadata(id="t", schema_string="{}", configuration=named)


def test_what_is_absent_has_deltas_default() -> None:
    plain = metadata()
    assert table_properties.append_only(plain) is False
    assert table_properties.checkpoint_interval(plain) == 10
    assert table_properties.isolation_level(plain) == "Serializable"
    assert table_properties.log_retention_ms(plain) == 30 * DAY_MS
    assert table_properties.tombstone_retention_ms(plain) == 7 * DAY_MS
    assert table_properties.txn_retention_ms(plain) is None
    assert table_properties.num_indexed_columns(plain) == 32
    assert table_properties.stats_columns(plain) is None
    assert table_properties.compression_codec(plain) == "zstd"


def test_text_becomes_a_value() -> None:
    table = metadata(
        appendOnly="TRUE",
        checkpointInterval="3",
        isolationLevel="writeserializable",
        setTransactionRetentionDuration="interval 12 hours",
        dataSkippingNumIndexedCols="-1",
        dataSkippingStatsColumns="a, b.`c.d`",
    )
    assert table_properties.append_only(table) is True
    assert table_properties.checkpoint_interval(table) == 3
    assert table_properties.isolation_level(table) == "WriteSerializable"
    assert table_properties.txn_retention_ms(table) == DAY_MS // 2
    assert table_properties.num_indexed_columns(table) == -1
    assert table_properties.stats_columns(table) == (("a",), ("b", "c.d"))


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("appendOnly", "yes"),
        ("checkpointInterval", "0"),
        ("checkpointInterval", "ten"),
        ("isolationLevel", "Snapshot"),
        ("logRetentionDuration", "interval 1 month"),
        ("dataSkippingNumIndexedCols", "-2"),
        ("parquet.format.version", "1.1"),
        ("parquet.compression.codec", "brotli"),
    ],
)
def test_text_that_is_no_value_is_refused_with_its_property(key: str, text: str) -> None:
    with pytest.raises(InvalidRequest, match=f"delta.{key}") as caught:
        validate({f"delta.{key}": text})
    assert caught.value.error_class == "InvalidTableProperty"


def test_unknown_properties_are_left_alone() -> None:
    validate({"delta.unknown": "x", "mine": "y", "delta.checkpointInterval": "1"})


@pytest.mark.parametrize(
    ("key", "remedy"),
    [
        ("delta.checkpointIntervall", "did you mean 'delta.checkpointInterval'"),
        ("delta.appendonly", "did you mean 'delta.appendOnly'"),
        ("Delta.appendOnly", "did you mean 'delta.appendOnly'"),
        ("delta.minWriterVersion", "a table's protocol follows from its features"),
        ("delta.whatever.this.is", "leave it out"),
    ],
)
def test_a_property_that_delta_does_not_know_is_refused_by_name(key: str, remedy: str) -> None:
    with pytest.raises(InvalidRequest, match=remedy) as caught:
        check_names({"owner": "me", key: "true"})
    assert repr(key) in str(caught.value)
    assert caught.value.error_class == "DELTA_UNKNOWN_CONFIGURATION"


def test_what_is_checked_as_a_feature_is_let_through() -> None:
    check_names({record.key: "" for record in table_properties.ALL})
    check_names({"owner": "me", "tidegate.cdc.keyColumns": "k", "delta.constraints.c": "k > 0"})
    check_names({"delta.enableDeletionVectors": "true", "delta.feature.x": "supported"})


DELTA_SPARK = [
    "logRetentionDuration",
    "sampleRetentionDuration",
    "checkpointRetentionDuration",
    "checkpointInterval",
    "redirectReaderWriter-preview",
    "redirectWriterOnly-preview",
    "autoOptimize.autoCompact",
    "enableExpiredLogCleanup",
    "enableFullRetentionRollback",
    "deletedFileRetentionDuration",
    "dropFeatureTruncateHistory.retentionDuration",
    "randomizeFilePrefixes",
    "randomPrefixLength",
    "appendOnly",
    "enableDeletionVectors",
    "parquet.format.version",
    "enableVariantShredding",
    "autoOptimize",
    "dataSkippingNumIndexedCols",
    "dataSkippingStatsColumns",
    "dataSkippingStringPrefixLength",
    "compatibility.symlinkFormatManifest.enabled",
    "checkpoint.writeStatsAsJson",
    "checkpoint.writeStatsAsStruct",
    "enableChangeDataFeed",
    "columnMapping.mode",
    "columnMapping.maxColumnId",
    "setTransactionRetentionDuration",
    "isolationLevel",
    "checkpointPolicy",
    "enableRowTracking",
    "rowTrackingSuspended",
    "universalFormat.enabledFormats",
    "enableIcebergCompatV1",
    "enableIcebergCompatV2",
    "enableIcebergCompatV3",
    "autoOptimize.optimizeWrite",
    "enableTypeWidening",
    "universalFormat.iceberg.atomicConversion.supported",
    "castIcebergTimeType",
    "ignoreIcebergBucketPartition",
    "coordinatedCommits.commitCoordinator-preview",
    "coordinatedCommits.commitCoordinatorConf-preview",
    "coordinatedCommits.tableConf-preview",
    "enableInCommitTimestamps",
    "inCommitTimestampEnablementVersion",
    "inCommitTimestampEnablementTimestamp",
    "requireCheckpointProtectionBeforeVersion",
    "enableMaterializePartitionColumnsFeature",
    "writePartitionColumnsToParquet",
]
"""The keys of delta-spark 4.4.0's table configuration, without feature directives."""

OF_THE_SPECIFICATION = (
    "parquet.compression.codec",
    "rowTracking.materializedRowIdColumnName",
    "rowTracking.materializedRowCommitVersionColumnName",
)


def test_every_property_of_delta_spark_and_the_specification_is_known() -> None:
    keys = [record.key for record in table_properties.ALL]
    assert sorted(keys) == sorted(f"delta.{key}" for key in (*DELTA_SPARK, *OF_THE_SPECIFICATION))
    assert {
        "delta.enableChangeDataCapture": table_properties.change_feed_enabled
    } == table_properties.OLDER


def test_each_switch_of_a_feature_is_a_property_and_turns_on_one_feature() -> None:
    switches = [feature.switch for feature in FEATURES.values() if feature.switch is not None]
    assert len({switch.key for switch in switches}) == len(switches)
    assert {switch.key for switch in switches} <= {record.key for record in table_properties.ALL}
    assert FEATURES["v2Checkpoint"].switch is table_properties.checkpoint_policy


def test_an_old_name_stands_in_for_a_property_that_is_absent() -> None:
    assert table_properties.change_feed_enabled(metadata(enableChangeDataCapture="true"))
    both = metadata(enableChangeDataCapture="true", enableChangeDataFeed="false")
    assert not table_properties.change_feed_enabled(both)


def test_an_invalid_value_under_an_old_name_is_named_by_it() -> None:
    with pytest.raises(InvalidRequest, match=r"delta\.enableChangeDataCapture' is 'no'"):
        validate({"delta.enableChangeDataCapture": "no", "delta.enableChangeDataFeed": "true"})


def test_every_problem_is_listed() -> None:
    text = {"delta.appendOnly": "1", "delta.checkpointInterval": "-1", "delta.autoOptimize": "x"}
    assert [key for key, _ in table_properties.value_problems(text)] == list(text)


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("checkpointPolicy", "V2"),
        ("appendOnly", " true"),
        ("checkpointInterval", "1_0"),
        ("checkpointInterval", "2147483648"),
        ("autoOptimize.autoCompact", "auto"),
        ("universalFormat.enabledFormats", "iceberg, hudi"),
        ("universalFormat.enabledFormats", "hudi,hudi"),
        ("coordinatedCommits.tableConf-preview", "[]"),
        ("coordinatedCommits.tableConf-preview", "{"),
        ("requireCheckpointProtectionBeforeVersion", "-1"),
        ("parquet.format.version", "2.1"),
        ("isolationLevel", "SnapshotIsolation"),
        ("columnMapping.mode", "position"),
        ("inCommitTimestampEnablementTimestamp", "9223372036854775808"),
    ],
)
def test_what_delta_spark_would_not_read_is_refused(key: str, text: str) -> None:
    with pytest.raises(InvalidRequest, match=key):
        validate({f"delta.{key}": text})


@pytest.mark.parametrize(
    ("one", "text", "value"),
    [
        (table_properties.column_mapping_mode, "NAME", "name"),
        (table_properties.compression_codec, "SNAPPY", "snappy"),
        (table_properties.universal_formats, "hudi,iceberg", ("hudi", "iceberg")),
        (table_properties.universal_formats, "", ()),
        (table_properties.max_column_id, "+7", 7),
        (table_properties.iceberg_compat_v2_enabled, "False", False),
        (table_properties.checkpoint_protection_version, "9223372036854775807", 2**63 - 1),
        (table_properties.truncated_retention_ms, "1.5 seconds", 1500),
        (table_properties.page_version, "2.12.0", "2.12.0"),
    ],
)
def test_each_kind_of_text_is_read(one: Property[Any], text: str, value: Any) -> None:
    assert one.of({one.key: text}) == value


def test_an_absent_flag_is_none_where_delta_distinguishes_it_from_false() -> None:
    assert table_properties.iceberg_compat_v2_enabled(metadata()) is None
    assert table_properties.ict_enablement_version(metadata()) is None
    assert table_properties.max_column_id(metadata()) == 0


def test_what_engines_write_alone_is_marked() -> None:
    unsettable = [record.key for record in table_properties.ALL if not record.settable]
    assert unsettable == ["delta.columnMapping.maxColumnId"]
