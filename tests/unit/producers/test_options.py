"""Options: known ones are read, unknown and unsupported ones refused by name with a hint."""

import pytest

from tidegate_delta.errors import InvalidRequest, Misconfigured, UnsupportedFeature
from tidegate_messages.proposal import AppTxn
from tidegate_messages.record_headers import compose_traceparent
from tidegate_producers.options import app_txn_of, for_reading, for_writing, kafka_settings

PATH = {"path": "/data/t"}


@pytest.fixture(autouse=True)
def _no_broker_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KAFKA_BOOTSTRAP_SERVERS", raising=False)


def test_options_are_read_as_spark_spells_them_in_lower_case() -> None:
    options = for_writing(
        {
            **PATH,
            "partitioncolumns": "month, `day`",
            "outcometimeout": "2m",
            "maxrecordsperfile": "10",
            "isolationlevel": "writeserializable",
            "usermetadata": "why",
            "storage.endpoint_url": "http://127.0.0.1:9",
            "checkpointlocation": "/c",
        }
    )
    assert options.place.root == "file:///data/t"
    assert options.place.storage == {"endpoint_url": "http://127.0.0.1:9"}
    assert options.partition_columns == ("month", "day")
    assert options.outcome_timeout_s == 120
    assert options.records_per_file_max == 10
    assert options.isolation == "WriteSerializable"
    assert options.user_metadata == "why"


def test_partition_columns_of_any_name_are_given_in_backticks() -> None:
    given = for_writing({**PATH, "partitioncolumns": "a.b, `x, y`,`tick``s`"})
    assert given.partition_columns == ("a.b", "x, y", "tick`s")
    assert for_writing({**PATH, "partitioncolumns": ""}).partition_columns == ()
    with pytest.raises(InvalidRequest, match="partitionColumns=a b: expected names"):
        for_writing({**PATH, "partitioncolumns": "a b"})


def test_a_trace_to_continue_is_a_w3c_context() -> None:
    trace = compose_traceparent(0xABC, 0xDEF, 1)
    assert for_writing({**PATH, "traceparent": trace}).traceparent == trace
    with pytest.raises(InvalidRequest, match="traceparent=00-abc: expected a W3C trace context"):
        for_writing({**PATH, "traceparent": "00-abc"})


def test_an_unknown_option_is_refused_with_the_nearest_known_one() -> None:
    with pytest.raises(InvalidRequest, match="'txnAppID2'; did you mean 'txnAppId'"):
        for_writing({**PATH, "txnAppID2": "x"})
    with pytest.raises(InvalidRequest, match="did you mean 'versionAsOf'"):
        for_reading({**PATH, "version": "1"})


@pytest.mark.parametrize("name", ["replaceOn", "readChangeFeed", "optimizeWrite"])
def test_deltas_later_options_are_refused_by_name(name: str) -> None:
    with pytest.raises(UnsupportedFeature, match=name) as raised:
        for_writing({**PATH, name.lower(): "x"})
    assert raised.value.feature == name


@pytest.mark.parametrize(
    ("given", "error_class"),
    [
        (
            {"replaceWhere": "day = 1", "partitionOverwriteMode": "dynamic"},
            "DELTA_REPLACE_WHERE_WITH_DYNAMIC_PARTITION_OVERWRITE",
        ),
        (
            {"overwriteSchema": "true", "partitionOverwriteMode": "dynamic"},
            "DELTA_OVERWRITE_SCHEMA_WITH_DYNAMIC_PARTITION_OVERWRITE",
        ),
        ({"overwriteSchema": "true", "replaceWhere": "day = 1"}, "DELTA_ILLEGAL_OPTION"),
    ],
    ids=str,
)
def test_only_one_option_may_set_what_is_replaced(given: dict[str, str], error_class: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        for_writing({**PATH, **given})
    assert raised.value.error_class == error_class


def test_options_with_one_possible_value_take_that_one() -> None:
    for_writing({**PATH, "datachange": "true"})
    with pytest.raises(UnsupportedFeature, match="dataChange=false"):
        for_writing({**PATH, "datachange": "false"})


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("outcomeTimeout", "soon"),
        ("maxRecordsPerFile", "0"),
        ("compression", "rar"),
        ("isolationLevel", "chaos"),
        ("mergeSchema", "yes"),
        ("overwriteSchema", "1"),
        ("partitionOverwriteMode", "some"),
        ("txnVersion", "-1"),
        ("txnVersion", "9223372036854775808"),
        ("readVersion", "\N{SUPERSCRIPT TWO}"),
    ],
)
def test_a_bad_value_names_the_option_and_what_was_expected(option: str, value: str) -> None:
    with pytest.raises(InvalidRequest, match=f"{option}={value}: expected"):
        for_writing({**PATH, option: value})


def test_an_app_transaction_is_whole_or_none() -> None:
    assert app_txn_of(for_writing(PATH)) is None
    whole = for_writing({**PATH, "txnappid": "a", "txnversion": "3"})
    assert app_txn_of(whole) == AppTxn(app_id="a", version=3)
    with pytest.raises(InvalidRequest, match="belong together"):
        app_txn_of(for_writing({**PATH, "txnappid": "a"}))


def test_a_path_is_needed() -> None:
    with pytest.raises(InvalidRequest, match="no path"):
        for_writing({})


def test_a_table_of_sparks_catalog_is_refused_with_another_way() -> None:
    with pytest.raises(InvalidRequest, match=r"INSERT INTO.*CREATE TEMPORARY VIEW"):
        for_writing({})
    created = {**PATH, "provider": "tidegate", "owner": "ann", "location": "file:/t"}
    with pytest.raises(InvalidRequest, match=r"CREATE TABLE.*Table\.create"):
        for_reading(created)


def test_kafka_options_stand_above_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "outside:1")
    assert kafka_settings({}).bootstrap_servers == "outside:1"
    settings = kafka_settings(
        {
            "kafka.bootstrap.servers": "here:2",
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.username": "u",
            "kafka.sasl.password": "p",
            "kafka.linger.ms": "1",
            "topicprefix": "other.",
        }
    )
    assert settings.bootstrap_servers == "here:2"
    assert settings.security.protocol == "SASL_SSL"
    assert settings.client == {"linger.ms": "1"}
    assert settings.topics.proposals == "other.proposals"


def test_an_invalid_kafka_option_is_named_and_no_secret_is_shown() -> None:
    with pytest.raises(Misconfigured, match="mechanism") as raised:
        kafka_settings({"kafka.security.protocol": "SASL_SSL", "kafka.sasl.password": "hush"})
    assert "hush" not in str(raised.value)


def test_time_travel_takes_a_version_or_a_timestamp_in_utc() -> None:
    assert for_reading({**PATH, "versionasof": "3"}).version == 3
    at = for_reading({**PATH, "timestampasof": "1970-01-02 00:00:01"}).timestamp_ms
    assert at == 86_401_000
    with pytest.raises(InvalidRequest, match="not both"):
        for_reading({**PATH, "versionasof": "3", "timestampasof": "2020-01-01"})
    with pytest.raises(InvalidRequest, match="timestampAsOf=yesterday: expected"):
        for_reading({**PATH, "timestampasof": "yesterday"})


def test_a_writers_options_do_not_disturb_a_reader() -> None:
    for_reading({**PATH, "kafka.bootstrap.servers": "here:2", "txnappid": "a"})


def test_properties_of_a_new_table_are_passed_over_by_a_read() -> None:
    assert for_writing({**PATH, "delta.appendonly": "true"}).properties == {
        "delta.appendonly": "true"
    }
    for_reading({**PATH, "delta.appendonly": "true"})
