import pytest

from tidegate.delta.actions import Metadata
from tidegate.delta.errors import InvalidRequest
from tidegate.delta.features import properties
from tidegate.delta.features.intervals import interval_ms
from tidegate.delta.features.properties import check_names, validate
from tidegate.delta.features.texts import column_list

DAY_MS = 86_400_000


def metadata(**configuration: str) -> Metadata:
    named = {f"delta.{key}": text for key, text in configuration.items()}
    return Metadata(id="t", schema_string="{}", configuration=named)


def test_what_is_absent_has_deltas_default() -> None:
    plain = metadata()
    assert properties.append_only(plain) is False
    assert properties.checkpoint_interval(plain) == 10
    assert properties.isolation_level(plain) == "Serializable"
    assert properties.log_retention_ms(plain) == 30 * DAY_MS
    assert properties.tombstone_retention_ms(plain) == 7 * DAY_MS
    assert properties.txn_retention_ms(plain) is None
    assert properties.num_indexed_columns(plain) == 32
    assert properties.stats_columns(plain) is None
    assert properties.compression_codec(plain) == "zstd"


def test_text_becomes_a_value() -> None:
    table = metadata(
        appendOnly="TRUE",
        checkpointInterval="3",
        isolationLevel="writeserializable",
        setTransactionRetentionDuration="interval 12 hours",
        dataSkippingNumIndexedCols="-1",
        dataSkippingStatsColumns="a, b.`c.d`",
    )
    assert properties.append_only(table) is True
    assert properties.checkpoint_interval(table) == 3
    assert properties.isolation_level(table) == "WriteSerializable"
    assert properties.txn_retention_ms(table) == DAY_MS // 2
    assert properties.num_indexed_columns(table) == -1
    assert properties.stats_columns(table) == (("a",), ("b", "c.d"))


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
    ("text", "ms"),
    [
        ("interval 1 week", 7 * DAY_MS),
        ("INTERVAL 2 DAYS 3 hours", 2 * DAY_MS + 3 * 3_600_000),
        ("90 minutes", 5_400_000),
        ("interval 0 seconds", 0),
    ],
)
def test_an_interval_adds_up(text: str, ms: int) -> None:
    assert interval_ms(text) == ms


@pytest.mark.parametrize("text", ["", "interval", "1 month", "2 years", "-1 days", "7", "days 7"])
def test_what_is_no_fixed_length_is_no_interval(text: str) -> None:
    with pytest.raises(ValueError, match="no interval"):
        interval_ms(text)


@pytest.mark.parametrize("text", ["a,", "a..b", "a b", "`a", ",a"])
def test_what_is_no_list_of_columns_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no list of columns"):
        column_list(text)


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


def test_what_is_judged_as_a_feature_is_let_through() -> None:
    check_names({one.key: "" for one in properties.ALL})
    check_names({"owner": "me", "tidegate.cdc.keyColumns": "k", "delta.constraints.c": "k > 0"})
    check_names({"delta.enableDeletionVectors": "true", "delta.feature.x": "supported"})
