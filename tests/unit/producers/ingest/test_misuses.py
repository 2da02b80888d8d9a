"""What is wrong with a route is said before anything runs: the option, and what to do."""

from pathlib import Path

import pytest

from tidegate_delta.errors import Misconfigured
from tidegate_producers.ingest.__main__ import settings_of
from tidegate_producers.ingest.spark_session import open_session

T = ("orders", "/lake/orders")
UPSERT = {"mode": "upsert", "key": "id"}

OPTIONS = [
    ({"format": "avro"}, "format avro needs registry", "the URL of the schema registry"),
    ({"format": "protobuf"}, "format protobuf needs registry", "the URL of the schema registry"),
    ({"format": "csv"}, "--format", "'json', 'avro' or 'protobuf'"),
    ({"mode": "replace"}, "--mode: ", "'append' or 'upsert'"),
    ({"mode": "upsert"}, "needs key", "the columns by which"),
    ({"key": "id"}, "key is for mode upsert", "leave key out"),
    ({"order_by": "at"}, "order_by is for mode upsert", "leave order_by out"),
    ({"delete_column": "gone"}, "delete_column is for mode upsert", "set mode to upsert"),
    ({**UPSERT, "order_by": "id"}, "order_by is one of the key's", "name another"),
    ({**UPSERT, "delete_column": "id"}, "delete_column is one of the key's", "name another"),
    ({"envelope": "debezium"}, "has updates and deletes", "set mode to upsert"),
    (
        {**UPSERT, "envelope": "debezium", "delete_column": "gone"},
        "delete_column",
        "says by itself",
    ),
    ({"envelope": "cloudevents"}, "--envelope: ", "'debezium_flat'"),
    ({"start": "yesterday"}, "start 'yesterday'", "earliest, latest, a time"),
    ({"start": "2026-01-01T00:00:00"}, "start", "with its zone"),
    ({"start": "clicks:0:5"}, "start names 'clicks'", "not among the topics"),
    ({"columns": "when"}, "columns has 'when'", "timestamp, topic, partition, offset"),
    ({"columns": "offset=a,partition=A"}, "columns gives", "leave one out"),
    ({"columns": "offset,offset=x"}, "columns gives", "leave one out"),
    ({"partition_by": "day", "cluster_by": "id"}, "partition_by or cluster_by", "no partitions"),
    ({"max_latency_s": "soon"}, "--max-latency-s: ", "valid number"),
    ({"max_latency_s": "-1"}, "--max-latency-s: ", "greater than or equal to 0"),
    ({"max_latency_s": "86400"}, "--max-latency-s: ", "less than or equal to 3600"),
    ({"batch_records_max": "0"}, "--batch-records-max: ", "greater than or equal to 1"),
    ({"batch_records_max": "many"}, "--batch-records-max: ", "valid integer"),
    ({"target_file_bytes": "1"}, "--target-file-bytes: ", "greater than or equal to 1048576"),
    ({"dead_letters_max": "-5"}, "--dead-letters-max: ", "greater than or equal to 0"),
    ({"dead_letters_share_max": "5"}, "--dead-letters-share-max: ", "less than or equal to 1"),
    ({"schema_evolution": "merge"}, "--schema-evolution: ", "'ignore'"),
    ({"select": "id"}, "select needs value_schema", "the columns of values"),
    ({"select": " "}, "--select: ", "at least 1 character"),
    ({"dead_letters_share_max": "-1"}, "--dead-letters-share-max: ", "or equal to 0"),
    ({"dead_letters_max": "1.5"}, "--dead-letters-max: ", "valid integer"),
    ({"start": "0:5:6:7"}, "start '0:5:6:7'", "PARTITION:OFFSET"),
    ({"columns": "offset=a,timestamp=a"}, "columns gives", "leave one out"),
    ({"after_restore": "ignore"}, "--after-restore: ", "'again'"),
    ({"after_data_loss": "again"}, "--after-data-loss: ", "'skip'"),
    ({"properties": "delta.appendOnly=true"}, "--properties: ", "settings of its own"),
    ({"properties": "{broken"}, "--properties: ", "is no JSON"),
    ({"topic_pattern": "or.*"}, "topics or topic_pattern", "one of them"),
]
"""Options of a route that copies the topic `orders` into a table, what the message begins with, and
what it tells to do."""


def refused(
    options: dict[str, str],
    arguments: tuple[str | None, str | None] = T,
    config: Path | None = None,
) -> str:
    with pytest.raises(Misconfigured) as caught:
        settings_of(config, (), arguments, options)
    return str(caught.value)


@pytest.mark.parametrize(("options", "fault", "remedy"), OPTIONS, ids=lambda part: str(part)[:40])
def test_a_wrong_option_is_named_with_what_to_do(
    options: dict[str, str], fault: str, remedy: str
) -> None:
    text = refused(options)
    assert fault in text
    assert remedy in text


ARGUMENTS = [
    ((None, None), {}, "there is no route", "give TOPICS and TABLE"),
    (("orders", None), {}, "give TOPICS and TABLE", "tidegate ingest orders"),
    ((None, None), {"mode": "append"}, "give TOPICS and TABLE", "tidegate ingest orders"),
    (
        ("/lake/orders", None),
        {"topic_pattern": "or(der"},
        "is no regular expression",
        "topic_pattern",
    ),
    (("orders,orders", "/lake/orders"), {}, "names a topic twice", "leave one out"),
    (("a,b", "/lake/orders"), {"start": "kafka-delta-ingest:x"}, "reads one topic", "topics"),
    (("a,b", "/lake/orders"), {"start": "0:5"}, "with several topics", "TOPIC:PARTITION:OFFSET"),
]


@pytest.mark.parametrize(("arguments", "options", "fault", "remedy"), ARGUMENTS)
def test_wrong_arguments_are_named_with_what_to_do(
    arguments: tuple[str | None, str | None], options: dict[str, str], fault: str, remedy: str
) -> None:
    text = refused(options, arguments)
    assert fault in text
    assert remedy in text


def test_every_mistake_of_a_file_is_listed_at_once(tmp_path: Path) -> None:
    file = tmp_path / "ingest.yaml"
    file.write_text(
        "ingest:\n  routes:\n"
        "    a: {topics: [orders], table: /lake/a, mode: upsert}\n"
        "    b: {topics: [orders], table: /lake/b, modes: append}\n"
        "    c: {topics: [orders], table: /lake/c, start: soon}\n"
        "  sparkk: {}\n"
    )
    text = refused({}, (None, None), file)
    for fault in ("routes.a", "needs key", "did you mean 'mode'", "start 'soon'", "'spark'"):
        assert fault in text


@pytest.mark.parametrize("name", ["spark.master", "spark.jars.packages", "spark.jars"])
@pytest.mark.parametrize("is_variable", [True, False])
def test_what_a_spark_connect_server_must_be_given_is_refused_before_it_is_called(
    monkeypatch: pytest.MonkeyPatch, name: str, is_variable: bool
) -> None:
    given = {name: "x"}
    if is_variable:
        monkeypatch.setenv("SPARK_REMOTE", "sc://spark:15002")
    else:
        given["spark.remote"] = "sc://spark:15002"
    with pytest.raises(Misconfigured) as caught:
        open_session(given)
    text = str(caught.value)
    assert f"ingest.spark.{name} is not a setting of a session of Spark Connect" in text
    assert "give it to the server at sc://spark:15002 when that is started" in text


@pytest.mark.parametrize("url", ["local[2]", "spark://master:7077", ""])
def test_only_an_address_of_a_spark_connect_server_is_one(url: str) -> None:
    with pytest.raises(Misconfigured, match="such as sc://host:15002: correct ingest"):
        open_session({"spark.remote": url})


def test_two_routes_may_not_share_positions(tmp_path: Path) -> None:
    file = tmp_path / "ingest.yaml"
    file.write_text(
        "ingest:\n  routes:\n"
        "    a: {topics: [orders], table: /lake/a}\n"
        "    b: {topics: [clicks, orders], table: /lake/a/, where: x = 1}\n"
    )
    assert "routes a and b both copy orders into /lake/a" in refused({}, (None, None), file)


def test_a_route_of_the_command_line_has_its_options() -> None:
    options = {"mode": "upsert", "key": "id, region", "columns": "offset,timestamp=at"}
    settings = settings_of(None, ("ingest.spark.spark.master=local[1]",), T, options)
    [(name, route)] = settings.ingest.routes.items()
    assert (name, route.topics, route.table) == ("orders", ("orders",), "/lake/orders")
    assert route.key == ("id", "region")
    assert route.record_columns == {"offset": "kafka_offset", "timestamp": "at"}
    assert settings.ingest.spark == {"spark.master": "local[1]"}


def test_with_a_pattern_the_one_argument_is_the_table() -> None:
    settings = settings_of(None, (), ("/lake/orders", None), {"topic_pattern": r"orders\..*"})
    assert settings.ingest.routes["orders"].table == "/lake/orders"
