"""Clients of other people read the change stream without any bridge: their rows are the table's.

They come from Maven Central and Debian; the tests run at night. docs/changes.md names what they
need to be set to.
"""

import json
import logging
import subprocess
import time
from base64 import b64encode
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import pyspark
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.sql import DataFrame, SparkSession, functions

from tests.integration.all_cases import JudgedTable, Row
from tests.integration.conftest import Line
from tests.integration.connect_sink import Postgres, connect, maven_jars, postgres, registry
from tests.integration.test_cdc_publisher import committed
from tests.protobuf_records import of_record
from tidegate_local.kafka_jars import java_command
from tidegate_messages import codec
from tidegate_messages.published_records import TableRecord
from tidegate_runtime.kafka.client_protocols import TopicPartition
from tidegate_runtime.kafka.confluent_bus import KafkaBus

_log = logging.getLogger(__name__)
pytestmark = [pytest.mark.nightly, pytest.mark.broker]
PATIENCE_S: Final = 180.0
SPARK_KAFKA: Final = "org.apache.spark:spark-sql-kafka-0-10_2.13"
FLINK: Final = "2.0.0"
FLINK_JARS: Final = (
    "flink-table-api-java-bridge",
    "flink-table-planner-loader",
    "flink-table-runtime",
    "flink-clients",
    "flink-connector-base",
    "flink-json",
)
FLINK_KAFKA: Final = "org.apache.flink:flink-connector-kafka:4.0.1-2.0"
FLINK_READER: Final = Path(__file__).with_name("FlinkReader.java")
Rows = list[dict[str, Any]]
Read = Callable[[], Rows]

FOR_CONNECT: Final = {
    "value_format": "json_schema",
    "key_format": "json_schema",
    "types": "debezium",
    "struct_handling": "json",
    "look_s": "0.5",
}
CONVERTERS: Final = {
    "key.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
}


def registered(line: Line) -> JudgedTable:
    """Return a table with rows from before it was registered."""
    table = JudgedTable(line.tables / "t")
    table.create()
    record = TableRecord(
        table=UUID(int=1),
        table_root=table.folder.as_uri(),
        name="t",
        proposals_topic=line.kafka.topics.proposals,
        topic_partition=0,
    )
    sending = KafkaBus(line.kafka, "test").producer()
    at = TopicPartition(line.kafka.topics.table_state, 0)
    sending.publish(at, str(record.table).encode(), codec.encode(record), codec.headers(record))
    sending.flush(30.0)
    return table


def jdbc_sink(line: Line, server: Postgres, **more: str) -> dict[str, str]:
    return {
        "name": "sink",
        "connector.class": "io.debezium.connector.jdbc.JdbcSinkConnector",
        "topics": line.kafka.topics.changes("t"),
        "connection.url": f"jdbc:postgresql://127.0.0.1:{server.port}/sink",
        "connection.username": "postgres",
        "connection.password": "",
        "insert.mode": "upsert",
        "delete.enabled": "true",
        "primary.key.mode": "record_key",
        "schema.evolution": "basic",
        "collection.name.format": "copy",
        **more,
    }


def in_postgres(row: Row) -> dict[str, Any]:
    """Return a row as PostgreSQL's to_jsonb gives what the sink wrote of it."""

    def shown(name: str, value: Any) -> Any:
        match value:
            case datetime():
                # PostgreSQL drops zeros at the end of a fraction of a second.
                text = value.replace(tzinfo=None).isoformat()
                short = text.rstrip("0").rstrip(".") if value.microsecond else text
                return short if value.tzinfo is None else short + "+00:00"
            case date():
                return value.isoformat()
            case bytes():
                return "\\x" + value.hex()
            case float():
                return Decimal(repr(value))
            case _:
                return value

    return {name: shown(name, value) for name, value in row.items()}


def sorted_rows(rows: Rows) -> Rows:
    return sorted(rows, key=lambda row: (row["region"], row["id"]))


def wait_equal(read: Read, wanted: Rows, check: Callable[[], None]) -> None:
    """Wait until a copy has exactly these rows."""
    until_s = time.monotonic() + PATIENCE_S
    result: Rows = []
    while time.monotonic() < until_s:
        check()
        result = sorted_rows(read())
        if result == wanted:
            return
        time.sleep(0.5)
    assert result == wanted


def follow_all_cases(
    table: JudgedTable,
    read: Read,
    check: Callable[[], None],
    shown: Callable[[Row], dict[str, Any]] = in_postgres,
) -> None:
    """Do every case, and wait after each until the copy has the table's rows."""

    def wanted() -> Rows:
        return sorted_rows([shown(row) for row in table.rows()])

    def copied() -> Rows:
        # A sink keeps a dropped column, with the values of before; it has no marker's rule.
        names = table.rows()[0].keys()
        return [{name: row.get(name) for name in names} for row in read()]

    wait_equal(copied, wanted(), check)
    for name, write in table.steps():
        write()
        _log.info("%s: version %s", name, table.table.version())
        wait_equal(copied, wanted(), check)


def in_debeziums_types(row: Row) -> dict[str, Any]:
    """Return a row as a record with `types=debezium` and structs has it."""
    at, local = row["at"], row["local"]
    since = datetime(1970, 1, 1, tzinfo=UTC)
    return {
        **row,
        "day": row["day"] and (row["day"] - date(1970, 1, 1)).days,
        "at": at and f"{at.replace(tzinfo=None).isoformat(timespec='microseconds')}Z",
        "local": local and (local.replace(tzinfo=UTC) - since) // timedelta(microseconds=1),
    }


def in_iso_types(row: Row) -> dict[str, Any]:
    """Return a row as a record with the default types has it, parsed as JSON."""

    def shown(value: Any) -> Any:
        match value:
            case datetime():
                text = value.replace(tzinfo=None).isoformat(timespec="microseconds")
                return text if value.tzinfo is None else f"{text}Z"
            case date():
                return value.isoformat()
            case bytes():
                return b64encode(value).decode()
            case Decimal():
                return f"{value:f}"
            case _:
                return value

    return {name: shown(value) for name, value in row.items()}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("envelope", ["debezium", "flat"])
def test_a_plain_consumer_has_the_rows_after_each_case(line: Line, envelope: str) -> None:
    table = registered(line)
    line.started("cdc_publisher", cdc={"envelope": envelope, "look_s": "0.5"})
    topic = line.kafka.topics.changes("t")

    def rows() -> Rows:
        copy: dict[bytes | None, dict[str, Any]] = {}
        for message in committed(line, topic):
            value = None if message.value() is None else json.loads(message.value() or b"")
            copy.pop(message.key(), None)
            if value is not None and envelope == "debezium" and value["after"] is not None:
                copy[message.key()] = value["after"]
            elif value is not None and value.get("__deleted") == "false":
                copy[message.key()] = {
                    name: one for name, one in value.items() if not name.startswith("__")
                }
        return list(copy.values())

    follow_all_cases(table, rows, lambda: None, in_iso_types)


@pytest.mark.timeout(900)
def test_spark_structured_streaming_has_the_rows_after_each_case(
    line: Line, tmp_path: Path
) -> None:
    table = registered(line)
    line.started("cdc_publisher", cdc={"look_s": "0.5"})
    jars = maven_jars(f"spark-kafka-{pyspark.__version__}", f"{SPARK_KAFKA}:{pyspark.__version__}")
    spark = (
        SparkSession.builder.appName("judge")
        .master("local[2]")
        .config("spark.jars", ",".join(str(jar) for jar in jars.glob("*.jar")))
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "1g")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    image = (
        "region string, id bigint, amount decimal(38,10), day date, at timestamp, "
        "local timestamp_ntz, blob binary, tags array<string>, counts map<string,bigint>, "
        "place struct<city:string,zip:int>, ok boolean, ratio double, small smallint, more string"
    )
    copy: dict[bytes, tuple[int, Row | None]] = {}

    def take(batch: DataFrame, _number: int) -> None:
        value = functions.from_json(batch["value"].cast("string"), f"after struct<{image}>")
        chosen = batch.select("key", "offset", "headers", value["after"].alias("after"))
        for key, offset, headers, after in chosen.collect():
            is_marker = any(header.key == "marker" for header in headers or ())
            if not is_marker and offset >= copy.get(bytes(key), (-1, None))[0]:
                row = None if after is None else after.asDict(recursive=True)
                copy[bytes(key)] = offset, row

    def rows() -> Rows:
        stream = (
            spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", line.kafka.bootstrap_servers)
            .option("kafka.isolation.level", "read_committed")
            .option("subscribe", line.kafka.topics.changes("t"))
            .option("startingOffsets", "earliest")
            .option("includeHeaders", "true")
            .load()
        )
        query = (
            stream.writeStream.foreachBatch(take)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(int(PATIENCE_S))
        return [in_sparks_types(row) for _, row in copy.values() if row is not None]

    try:
        follow_all_cases(table, rows, lambda: None, dict)
    finally:
        spark.stop()


@pytest.mark.timeout(900)
def test_flink_has_the_rows_after_each_case(line: Line) -> None:
    table = registered(line)
    line.started("cdc_publisher", cdc={"look_s": "0.5"})
    flink = (f"org.apache.flink:{name}:{FLINK}" for name in FLINK_JARS)
    jars = maven_jars(f"flink-{FLINK}", *flink, FLINK_KAFKA)
    columns = (
        "region STRING, id BIGINT, amount DECIMAL(38, 10), `day` DATE, `at` TIMESTAMP_LTZ(6), "
        "`local` TIMESTAMP(6), `blob` BYTES, tags ARRAY<STRING>, counts MAP<STRING, BIGINT>, "
        "place ROW<city STRING, zip INT>, ok BOOLEAN, ratio DOUBLE, small SMALLINT, more STRING"
    )
    opened = [f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in ("util", "lang", "time")]
    program = [java_command(), *opened, "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*"]
    topic = line.kafka.topics.changes("t")
    where = [str(FLINK_READER), line.kafka.bootstrap_servers, topic, columns, "region,id"]

    def rows() -> Rows:
        done = subprocess.run([*program, *where], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-4000:]
        return [json.loads(text) for text in done.stdout.splitlines() if text.startswith("{")]

    follow_all_cases(table, rows, lambda: None, in_iso_types)


def in_sparks_types(row: Row) -> Row:
    """Return a row that Spark collected as delta-rs gives it."""
    at, blob = row["at"], row["blob"]
    # Spark gives instants in the local time of this machine, without a zone.
    instant = None if at is None else at.astimezone(UTC)
    return {**row, "at": instant, "blob": None if blob is None else bytes(blob)}


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("record_format", "types"), [("avro", "debezium"), ("protobuf", "iso")])
def test_a_consumer_with_a_schema_registry_has_the_rows_after_each_case(
    line: Line, tmp_path: Path, record_format: str, types: str
) -> None:
    table = registered(line)
    with registry(tmp_path / "registry") as url:
        form = {"value_format": record_format, "key_format": record_format, "types": types}
        line.started("cdc_publisher", cdc={**form, "registry.url": url, "look_s": "0.5"})
        client = SchemaRegistryClient({"url": url})
        read_avro = AvroDeserializer(client)
        topic = line.kafka.topics.changes("t")

        def read(record: bytes | None, of: MessageField) -> dict[str, Any] | None:
            if record_format == "protobuf":
                return of_record(client, topic, record, of)
            value = read_avro(record, SerializationContext(topic, of))
            assert value is None or isinstance(value, dict)
            return value

        def rows() -> Rows:
            copy: dict[tuple[Any, ...], dict[str, Any]] = {}
            for message in committed(line, topic):
                key = read(message.key(), MessageField.KEY)
                value = read(message.value(), MessageField.VALUE)
                assert key is not None
                after = None if value is None else value["after"]
                copy.pop(tuple(key.values()), None)
                if after is not None:
                    copy[tuple(key.values())] = after
            return list(copy.values())

        in_types = in_debeziums_types if types == "debezium" else in_iso_types
        follow_all_cases(table, rows, lambda: None, in_types)
        subjects = SchemaRegistryClient({"url": url}).get_subjects()
        assert {f"{topic}-key", f"{topic}-value"} <= set(subjects)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("flattened", [False, True], ids=["envelope", "ExtractNewRecordState"])
def test_the_jdbc_sink_of_debezium_has_the_rows_after_each_case(
    line: Line, tmp_path: Path, flattened: bool
) -> None:
    table = registered(line)
    line.started("cdc_publisher", cdc=FOR_CONNECT)
    more = {
        "transforms": "unwrap",
        "transforms.unwrap.type": "io.debezium.transforms.ExtractNewRecordState",
    }
    with postgres(tmp_path / "pg") as server:
        sink = jdbc_sink(line, server, **(more if flattened else {}))
        with connect(
            line.kafka.bootstrap_servers, tmp_path / "connect", sink, CONVERTERS
        ) as worker:
            follow_all_cases(table, lambda: server.rows("copy"), worker.check)
