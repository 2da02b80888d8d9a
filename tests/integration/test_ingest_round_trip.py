"""A table's change stream, ingested into a second table, makes it equal at each END.

All verbs, by us and by delta-spark; both tables are read by us and by delta-spark.
"""

import json
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyspark
import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from delta import DeltaTable, configure_spark_with_delta_pip
from pyspark.errors import PySparkException, PySparkRuntimeError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from tests.integration.conftest import Line
from tests.integration.waiting import until
from tidegate_producers.ingest.job import RouteRunner
from tidegate_producers.ingest.settings import IngestSettings
from tidegate_producers.ingest.spark_session import KAFKA
from tidegate_producers.options import TableLocation
from tidegate_producers.table import Table
from tidegate_producers.table.target_frame import quoted
from tidegate_runtime.clock import SystemClock
from tidegate_runtime.service.health import Health
from tidegate_runtime.service.runner import Running
from tidegate_runtime.service.settings import load

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.nightly]

WAIT_S = 300.0
"""A guard against what hangs; nothing is measured."""

_log = logging.getLogger(__name__)

CONFIG = {
    "spark.driver.memory": "2g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
COLUMNS = (
    "id BIGINT, text STRING, price DECIMAL(10,2), day DATE, at TIMESTAMP, local TIMESTAMP_NTZ, "
    "ratio DOUBLE, raw BINARY, flag BOOLEAN, part STRUCT<n: INT, s: STRING>, list ARRAY<BIGINT>, "
    "named MAP<STRING, INT>"
)
PROPERTIES = {
    "tidegate.cdc.keyColumns": "id",
    "delta.enableDeletionVectors": "true",
    "delta.enableChangeDataFeed": "true",
}


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.appName("round-trip").master("local[2]")
    for key, value in CONFIG.items():
        builder = builder.config(key, value)
    package = f"org.apache.spark:{KAFKA}:{pyspark.__version__}"
    try:
        session = configure_spark_with_delta_pip(builder, [package]).getOrCreate()
    except (PySparkException, PySparkRuntimeError):
        pytest.skip("delta-spark and Spark's Kafka source can't be had: no Maven answers")
    session.sparkContext.setLogLevel("OFF")
    return session


class Trip:
    """A table, its change stream, and the table that a job makes of it."""

    def __init__(self, spark: SparkSession, line: Line) -> None:
        self.spark, self.line = spark, line
        self.source, self.copy = line.tables / "source", line.tables / "copy"
        self.table = Table.create(
            spark, str(self.source), COLUMNS, [], PROPERTIES, line.spark_options
        )
        self.topic = line.kafka.topics.changes("source")
        consumer = {"bootstrap.servers": line.kafka.bootstrap_servers, "group.id": "ends"}
        self._ends = Consumer({**consumer, "isolation.level": "read_committed"})
        # What is committed before is a snapshot, which has no END.
        until(self._has_begun, "the stream has begun")

    def _has_begun(self) -> bool:
        try:
            _, end = self._ends.get_watermark_offsets(TopicPartition(self.topic, 0), timeout=10.0)
        except KafkaException:
            return False
        return end > 0

    def rows(self, first: int, count: int) -> DataFrame:
        """Return rows with nulls, NaN, an empty text, and nested values."""
        return self.spark.range(first, first + count, 1, 2).selectExpr(
            "id",
            "CASE id % 4 WHEN 0 THEN NULL WHEN 1 THEN '' ELSE concat('row é \" ', id) END AS text",
            "CAST(id * 1.25 AS DECIMAL(10,2)) AS price",
            "date_add(DATE'2024-02-28', CAST(id AS INT)) AS day",
            "timestamp_micros(1700000000123456 + id) AS at",
            "TIMESTAMP_NTZ'2024-01-01 00:00:00.000001' AS local",
            "CASE id % 3 WHEN 0 THEN CAST('NaN' AS DOUBLE) WHEN 1 THEN id / 7 END AS ratio",
            "CASE WHEN id % 5 > 0 THEN encode(concat('b', id), 'UTF-8') END AS raw",
            "id % 2 = 0 AS flag",
            "IF(id % 7 = 0, NULL, named_struct('n', CAST(id AS INT), 's', 'x')) AS part",
            "IF(id % 6 = 0, NULL, array(id, NULL, id + 1)) AS list",
            "map('k', CAST(id AS INT), 'none', NULL) AS named",
        )

    def wait_for_end(self) -> int:
        """Wait for the END of the table's newest version, and return it."""
        version = len(list(self.source.glob("_delta_log/*.json"))) - 1
        topic = self.line.kafka.topics.cdc_transactions
        self._ends.assign([TopicPartition(topic, 0, 0)])
        until_s = time.monotonic() + WAIT_S
        while time.monotonic() < until_s:
            message = self._ends.poll(0.5)
            if message is None or message.error() is not None or not message.value():
                continue
            said = json.loads(message.value() or b"")
            if said["status"] == "END" and said["id"].endswith(f":{version}"):
                return version
        pytest.fail(f"no END of version {version}")

    def ingest(self) -> None:
        """Copy what the topic has, as `tidegate ingest --once` does."""
        route = {"topics": self.topic, "table": self.copy.as_uri(), "mode": "upsert", "key": "id"}
        route |= {"envelope": "debezium", "value_schema": COLUMNS, "dead_letters_max": "0"}
        given = dict(self.line.settings)
        given |= {f"ingest.routes.r.{key}": value for key, value in route.items()}
        settings = load(IngestSettings, None, given)
        places = {"r": TableLocation(self.copy.as_uri(), settings.storage)}
        clock = SystemClock()
        job = RouteRunner(self.spark, settings, places, once=True)
        job.run(Running(clock, Health(clock)), lambda run: None)

    def check(self, what: str) -> None:
        """Check that both tables have the same rows for delta-spark, and for us.

        The copy keeps columns that the source has dropped, and adds one with its first value.
        """
        for name in ("delta", "tidegate"):
            source, copy = (self._read(name, root) for root in (self.source, self.copy))
            columns = [
                F.col(quoted(field.name))
                if field.name in copy.columns
                else F.lit(None).cast(field.dataType).alias(field.name)
                for field in source.schema.fields
            ]
            assert texts(source) == texts(copy.select(*columns)), f"{what}: read by {name}"

    def _read(self, name: str, root: Path) -> DataFrame:
        reader = self.spark.read.format(name)
        if name == "tidegate":
            reader = reader.options(**self.line.spark_options)
        return reader.load(str(root))


def texts(rows: DataFrame) -> list[str]:
    """Return rows as texts that tell a null from what is absent, and each microsecond."""
    options = {
        "ignoreNullFields": "false",
        "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
        "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    }
    return sorted(row[0] for row in rows.select(F.to_json(F.struct("*"), options)).collect())


def verbs(trip: Trip) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield the verbs, which run in this order, by us and by delta-spark in turn."""
    ours, spark, path = trip.table, trip.spark, str(trip.source)
    theirs = DeltaTable.forPath(spark, path)
    merged = trip.rows(40, 20).selectExpr("* EXCEPT (text)", "'merged' AS text")
    yield "append", lambda: ours.append(trip.rows(0, 50))
    yield "their append", lambda: trip.rows(50, 10).write.format("delta").mode("append").save(path)
    yield "update", lambda: ours.update("id % 3 = 0", set={"text": "'updated'", "part.n": "9"})
    yield "their update", lambda: theirs.update("id % 5 = 0", {"price": "price + 1"})
    yield "change of keys", lambda: ours.update("id < 3", set={"id": "id + 1000"})
    yield "their change of keys", lambda: theirs.update("id = 3", {"id": "id + 1000L"})
    yield "delete", lambda: ours.delete("id % 10 = 7")
    yield "their delete", lambda: theirs.delete("id % 10 = 8")
    merge = ours.alias("t").merge(merged.alias("s"), "t.id = s.id").whenMatchedUpdateAll()
    yield "merge", merge.whenNotMatchedInsertAll().whenNotMatchedBySourceDelete("t.id = 5").execute
    their_merge = theirs.alias("t").merge(merged.alias("s"), "t.id = s.id")
    their_merge = their_merge.whenMatchedDelete("s.id % 2 = 0").whenNotMatchedInsertAll()
    yield "their merge", their_merge.execute
    yield "keys swapped", lambda: ours.update("id IN (11, 12)", set={"id": "23 - id"})
    yield "part overwritten", lambda: ours.overwrite(trip.rows(20, 5), "id BETWEEN 20 AND 30")
    yield "optimize", lambda: ours.optimize().executeCompaction()
    yield "column added", lambda: ours.alter(add_columns="more INT")
    yield "new column", lambda: ours.update("id > 50", set={"more": "CAST(id AS INT)"})
    yield "overwritten", lambda: ours.overwrite(trip.rows(10, 30).selectExpr("*", "1 AS more"))
    yield "restored", lambda: ours.restoreToVersion(3)
    yield "emptied", ours.delete
    yield "again", lambda: ours.append(trip.rows(5, 5))


@pytest.mark.timeout(3_600)
def test_a_copy_by_its_changes_is_equal_at_each_end(spark: SparkSession, line: Line) -> None:
    line.started("committer")
    line.started("cdc_publisher", cdc={"provide_transaction_metadata": "true"})
    trip = Trip(spark, line)
    for what, run in verbs(trip):
        _log.info("%s", what)
        run()
        trip.wait_for_end()
        trip.ingest()
        trip.check(what)
