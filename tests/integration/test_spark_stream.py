"""A structured stream into a table: every row once, even if a batch is written again."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from tests.integration.conftest import Line
from tests.integration.spark_session import REMOTE, open_session
from tests.integration.waiting import until
from tidegate_producers.history.outcome_log import last_proposals
from tidegate_producers.table import Table
from tidegate_runtime.kafka.confluent_bus import KafkaBus

pytestmark = [pytest.mark.spark, pytest.mark.broker]

ROWS_A_FILE = 10
STARTS_S = 600.0
"""A guard against what hangs; nothing is measured."""

BEGINS_MAX = 8
"""How often a query is begun whose worker Spark did not wait for."""

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    return open_session()


class Stream:
    """The source files of a stream, one per batch, and the table it writes."""

    def __init__(self, spark: SparkSession, line: Line, folder: Path) -> None:
        self.spark = spark
        self.line = line
        self.source = folder / "source"
        self.checkpoint = folder / "checkpoint"
        self.path = str(line.tables / "t")
        line.started("committer")

    def files(self, first: int, count: int) -> None:
        """Add files to the source, with consecutive keys."""
        for number in range(first, first + count):
            low = number * ROWS_A_FILE
            frame = self.spark.range(low, low + ROWS_A_FILE, 1, 1).withColumnRenamed("id", "k")
            frame.write.parquet(str(self.source / f"file-{number:03d}"))

    def run(self) -> None:
        """Write all that is there, one batch per file, and end."""
        query = (
            self.spark.readStream.schema("k long")
            .option("maxFilesPerTrigger", 1)
            .parquet(str(self.source / "*"))
            .writeStream.format("tidegate")
            .option("partitionColumns", "")
            .option("checkpointLocation", str(self.checkpoint))
            .option("kafka.bootstrap.servers", self.line.kafka.bootstrap_servers)
            .option("topicPrefix", self.line.kafka.topic_prefix)
            .trigger(availableNow=True)
            .start(self.path)
        )
        query.awaitTermination()

    def forget_last_batch(self) -> None:
        """Make Spark believe that its last batch was not committed, as after a crash."""
        commits = self.checkpoint / "commits"
        last = max((path for path in commits.iterdir() if path.name.isdigit()), key=_number)
        last.unlink()
        (commits / f".{last.name}.crc").unlink(missing_ok=True)

    def answers(self) -> list[tuple[str, str | None]]:
        """Return status and rule of each proposal's outcome, in sending order."""
        kafka = self.line.kafka
        result = last_proposals(KafkaBus(kafka, "test"), kafka.topics, 1000)
        reasons = [item.outcomes[-1].rejection for item in result]
        rules = [reason.rule if reason else None for reason in reasons]
        return [(one.status, rule) for one, rule in zip(result, rules, strict=True)]

    def keys(self) -> list[int]:
        result: list[int] = DeltaTable(self.path).to_pyarrow_table()["k"].to_pylist()
        return sorted(result)


@pytest.fixture
def stream(spark: SparkSession, line: Line, tmp_path: Path) -> Stream:
    return Stream(spark, line, tmp_path)


def test_each_micro_batch_is_in_the_table_once_though_it_was_written_twice(stream: Stream) -> None:
    stream.files(0, 3)
    stream.run()
    assert stream.keys() == list(range(30))
    assert stream.answers() == [("committed", None)] * 3
    stream.forget_last_batch()
    stream.run()
    assert stream.keys() == list(range(30))
    assert stream.answers()[3:] == [("rejected", "app_txn_seen")]
    stream.files(3, 1)
    stream.run()
    assert stream.keys() == list(range(40))
    history = DeltaTable(stream.path).history()
    assert [entry["operation"] for entry in history if entry["version"] > 0][-1] == (
        "STREAMING UPDATE"
    )


@pytest.mark.timeout(1_500)
def test_a_stream_killed_in_mid_flight_goes_on_from_its_checkpoint(stream: Stream) -> None:
    stream.files(0, 6)
    argv = [
        sys.executable,
        *("-m", "tests.integration.spark_stream_program"),
        str(stream.source / "*"),
        str(stream.checkpoint),
        stream.path,
        stream.line.kafka.bootstrap_servers,
        stream.line.kafka.topic_prefix,
    ]
    # A second server of Spark Connect would find its port taken: the program is a classic one.
    connect = (REMOTE, "SPARK_CONNECT_MODE_ENABLED", "SPARK_LOCAL_REMOTE")
    environment = {name: value for name, value in os.environ.items() if name not in connect}
    with subprocess.Popen(argv, cwd=ROOT, env=environment, start_new_session=True) as program:

        def is_written() -> bool:
            assert program.poll() is None, "the stream ended before it could be killed"
            return _has_versions(stream.path, 2)

        until(is_written, "two versions", STARTS_S)
        os.killpg(program.pid, signal.SIGKILL)
    stream.run()
    assert stream.keys() == list(range(60))


def _has_versions(path: str, count: int) -> bool:
    log = Path(path) / "_delta_log"
    return log.is_dir() and len(list(log.glob("*.json"))) >= count


def _number(path: Path) -> int:
    return int(path.name)


class Following:
    """A query that reads a table as a stream, started again and again with one checkpoint."""

    def __init__(self, spark: SparkSession, table: Table, checkpoint: Path) -> None:
        self.spark, self.table, self.checkpoint = spark, table, checkpoint
        self.batches = checkpoint.with_name(f"{checkpoint.name} batches")
        self.batches.mkdir()

    def run(self, **options: str) -> list[list[int]]:
        """Read what there is, and return the keys of each batch.

        Spark gives its Python worker ten seconds to start, a constant, which a busy machine
        exceeds: a query that has not begun is begun again.
        """
        for path in self.batches.iterdir():
            path.unlink()
        for _ in range(BEGINS_MAX - 1):
            try:
                return self._run(options)
            except StreamingQueryException as error:
                if "Current State: INITIALIZING" not in str(error):
                    raise
        return self._run(options)

    def _run(self, options: Mapping[str, str]) -> list[list[int]]:
        reading = self.spark.readStream.format("tidegate").options(**options).load(self.table.root)
        query = (
            reading.writeStream.foreachBatch(_keys_into(str(self.batches)))
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        paths = sorted(self.batches.iterdir(), key=_number)
        return [json.loads(path.read_text()) for path in paths]


def _keys_into(folder: str) -> Callable[[DataFrame, int], None]:
    """Return what writes the keys of a batch into a file: Spark Connect calls it elsewhere."""

    def write(rows: DataFrame, batch_id: int) -> None:
        keys = sorted(row["k"] for row in rows.collect())
        Path(folder, str(batch_id)).write_text(json.dumps(keys))

    return write


def test_a_table_is_read_as_a_stream_and_continued(
    spark: SparkSession, line: Line, tmp_path: Path
) -> None:
    line.started("committer")
    options = {
        "kafka.bootstrap.servers": line.kafka.bootstrap_servers,
        "topicPrefix": line.kafka.topic_prefix,
    }
    vectors = {"delta.enableDeletionVectors": "true"}
    table = Table.create(spark, str(line.tables / "s"), "k long", [], vectors, options)
    following = Following(spark, table, tmp_path / "checkpoint")

    def append(*keys: int) -> None:
        table.append(spark.createDataFrame([(key,) for key in keys], "k long").coalesce(1))

    append(1, 2)
    table.delete("k = 2")
    append(3)
    assert following.run(maxFilesPerTrigger="1") == [[1], [3]]
    append(4)
    append(5, 55)
    assert following.run() == [[4, 5, 55]]
    assert following.run() == []
    table.delete("k = 5")
    with pytest.raises(StreamingQueryException, match="skipChangeCommits"):
        following.run()
    append(6)
    assert following.run(skipChangeCommits="true") == [[6]]
    table.alter(add_columns="v int")
    table.optimize().executeCompaction()
    append(7)
    assert following.run(skipChangeCommits="true") == [[7]]
    again = Following(spark, table, tmp_path / "other")
    assert again.run(startingVersion="3", skipChangeCommits="true") == [[3, 4, 5, 6, 7, 55]]


def test_the_change_data_feed_is_read_as_delta_spark_names_it(
    spark: SparkSession, line: Line
) -> None:
    line.started("committer")
    options = {
        "kafka.bootstrap.servers": line.kafka.bootstrap_servers,
        "topicPrefix": line.kafka.topic_prefix,
    }
    fed = {"delta.enableChangeDataFeed": "true", "delta.enableDeletionVectors": "true"}
    table = Table.create(spark, str(line.tables / "fed"), "k long", [], fed, options)
    table.append(spark.range(3).withColumnRenamed("id", "k"))
    table.delete("k = 1")
    feed = spark.read.format("tidegate").option("readChangeFeed", "true")
    changes = feed.option("startingVersion", 1).load(table.root)
    assert changes.columns == ["k", "_change_type", "_commit_version", "_commit_timestamp"]
    result = [(row["k"], row["_change_type"], row["_commit_version"]) for row in changes.collect()]
    inserted = [(k, "insert", 1) for k in range(3)]
    assert sorted(result) == sorted([*inserted, (1, "delete", 2)])
    only = feed.option("startingVersion", 2).option("endingVersion", 2).load(table.root)
    assert [row["k"] for row in only.where("_change_type = 'delete'").collect()] == [1]
    # Spark asks for the columns without saying whether a stream is read, which needs no start.
    without_start = spark.read.format("tidegate").option("readChangeFeed", "true").load(table.root)
    with pytest.raises(PySparkException, match="startingVersion"):
        without_start.collect()
