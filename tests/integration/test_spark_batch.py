"""Spark writes and deletes through a real broker and committer; delta-rs reads the same rows."""

import json
import os
import signal
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Timer
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from tests.integration.conftest import Line
from tests.integration.spark_session import open_session
from tests.integration.test_producer_cli import Terminal
from tidegate_delta.errors import InvalidRequest
from tidegate_messages.outcome import Outcome
from tidegate_producers.cached_clients import client_for
from tidegate_producers.cli import table_commands
from tidegate_producers.datasource import use_session
from tidegate_producers.history.outcome_log import last_proposals
from tidegate_producers.options import for_writing
from tidegate_producers.parquet.file_rewrite import Rewritten
from tidegate_producers.table import Table
from tidegate_producers.table.merge import may_read_a_table
from tidegate_producers.table.spark_jobs import SparkRunner
from tidegate_producers.writing.row_delete import Rewriting, delete
from tidegate_producers.writing.table_write import WriteRequest
from tidegate_runtime.client.client import Client, Rejected
from tidegate_runtime.kafka.confluent_bus import KafkaBus

pytestmark = [pytest.mark.spark, pytest.mark.broker]


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    return open_session()


class SparkTable:
    """A running committer, and the path of a table that it serves."""

    def __init__(self, spark: SparkSession, line: Line) -> None:
        self.spark = spark
        self.line = line
        self.path = str(line.tables / "t")
        self.options = line.spark_options
        line.started("committer")

    def write(self, frame: DataFrame, mode: str = "append", **options: str) -> None:
        writer = frame.write.format("tidegate").mode(mode)
        writer.options(**self.options, **options).save(self.path)

    def frame(self, rows: list[tuple[Any, ...]], schema: str) -> DataFrame:
        return self.spark.createDataFrame(rows, schema)

    def table(self) -> Table:
        return Table.for_path(self.spark, self.path, self.options)

    def keys(self) -> list[int]:
        """Return the keys as delta-rs reads them, after checking that Spark reads the same."""
        foreign = sorted(DeltaTable(self.path).to_pyarrow_table()["k"].to_pylist())
        ours = sorted(row["k"] for row in self.table().to_df().select("k").collect())
        assert ours == foreign
        return foreign

    def proposals(self) -> int:
        bus = KafkaBus(self.line.kafka, "test")
        return len(last_proposals(bus, self.line.kafka.topics, 1000))


@pytest.fixture
def spark_table(spark: SparkSession, line: Line) -> SparkTable:
    return SparkTable(spark, line)


ROWS = "k long, p string, x double, s struct<a: int, b: array<string>>, at timestamp, d date"


def test_a_dataframe_is_created_appended_read_and_overwritten(spark_table: SparkTable) -> None:
    rows = spark_table.spark.sql(
        "SELECT id AS k, IF(id % 4 = 0, NULL, concat('p/', id % 3)) AS p, id / 7 AS x, "
        "named_struct('a', cast(id AS int), 'b', array('q', NULL)) AS s, "
        "timestamp'2013-01-01 10:00:00.123456' + make_interval(0,0,0,0,cast(id AS int)) AS at, "
        "date'2013-01-01' AS d FROM range(40)"
    )
    spark_table.write(rows, partitionColumns="p", name="first", userMetadata="why not")
    spark_table.write(spark_table.frame([(100, "p/1")], "k int, P string"))
    assert spark_table.keys() == [*range(40), 100]
    foreign = DeltaTable(spark_table.path).to_pyarrow_table().sort_by("k")
    ours = spark_table.table().to_df().orderBy("k").toArrow()
    assert ours.cast(foreign.schema).to_pylist() == foreign.to_pylist()
    assert spark_table.table().to_df(version=0).count() == 40

    spark_table.write(spark_table.frame([(7, "z")], "k long, p string"), "overwrite")
    assert spark_table.keys() == [7]
    history = spark_table.table().history().collect()
    assert [(row["version"], row["operation"]) for row in history] == [
        (2, "WRITE"),
        (1, "WRITE"),
        (0, "WRITE"),
    ]
    assert history[2]["userMetadata"] == "why not"
    assert history[0]["operationMetrics"]["numOutputRows"] == "1"
    assert [row["proposals"] for row in history] == [1, 1, 1]
    client: Client = client_for(
        for_writing({**spark_table.options, "path": spark_table.path}).kafka
    )
    assert client.require("first").table_root == spark_table.table().root


def test_a_path_and_its_uri_are_one_table_beside_a_folder_named_like_the_uri(
    spark_table: SparkTable,
) -> None:
    """delta-rs 1.6 takes a path of `sp%20ace` for `sp ace`, so that our reader reads that one."""
    line, spark, terminal = spark_table.line, spark_table.spark, Terminal(spark_table.line)
    folders = [line.tables / "sp ace", line.tables / "sp%20ace"]
    for number, folder in enumerate(folders):
        terminal.json(table_commands.app, "create", str(folder), "--schema", "k long, name string")
        for form in (str(folder), folder.as_uri(), folder.as_uri().replace("file://", "file:")):
            rows = spark_table.frame([(number, form)], "k long, name string")
            rows.write.format("tidegate").mode("append").options(**spark_table.options).save(form)
            described = terminal.json(table_commands.app, "describe", form)
            assert described["registered"]["name"] == folder.name
    listed = terminal.json(table_commands.app, "list")
    assert {(one["name"], one["table_root"]) for one in listed} == {
        (folder.name, folder.as_uri()) for folder in folders
    }
    for number, folder in enumerate(folders):
        for form in (str(folder), folder.as_uri()):
            read = spark.read.format("tidegate").options(**spark_table.options).load(form)
            changed = Table.for_path(spark, form, spark_table.options).to_df()
            for frame in (read, changed):
                assert [row["k"] for row in frame.collect()] == [number] * 3, form
        assert len(list(folder.glob("*.parquet"))) == 3
        table, clone = (Table.for_path(spark, str(folder), spark_table.options), f"{folder} c%20#")
        table.clone(clone)
        table.update("k >= 0", {"k": str(number + 10)})
        for path, keys in ((str(folder), [number + 10] * 3), (clone, [number] * 3)):
            found = Table.for_path(spark, path, spark_table.options).to_df().collect()
            assert [row["k"] for row in found] == keys
        described = terminal.json(table_commands.app, "describe", Path(clone).as_uri())
        assert described["registered"]["status"] == "open"
    for form in (str(folders[0]), folders[0].as_uri()):
        assert DeltaTable(form).to_pyarrow_table()["k"].to_pylist() == [10] * 3


def _count_until_interrupted(spark: SparkSession) -> None:
    """Count until Ctrl-C, which leaves this thread without an active session."""
    Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    while True:
        spark.range(1).count()


def test_threads_and_interrupted_programs_write(spark_table: SparkTable) -> None:
    rows = spark_table.frame([(1,)], "k long")
    use_session(spark_table.spark)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(spark_table.write, rows).result()
    with pytest.raises(KeyboardInterrupt):
        _count_until_interrupted(spark_table.spark)
    spark_table.write(rows)
    assert spark_table.keys() == [1, 1]


def test_an_app_transaction_is_written_once(spark_table: SparkTable) -> None:
    for _ in range(2):
        spark_table.write(spark_table.frame([(1,)], "k long"), txnAppId="job", txnVersion="7")
    spark_table.write(spark_table.frame([(2,)], "k long"), txnAppId="job", txnVersion="8")
    assert spark_table.keys() == [1, 2]
    assert DeltaTable(spark_table.path).transaction_version("job") == 8


def test_a_problem_is_reported_before_anything_is_proposed(spark_table: SparkTable) -> None:
    Table.create(
        spark_table.spark,
        spark_table.path,
        "k long NOT NULL, p string",
        ["p"],
        {},
        spark_table.options,
    )
    before = spark_table.proposals()
    wrong: list[tuple[list[tuple[Any, ...]], str, Mapping[str, str], str]] = [
        ([(1, 2)], "k long, q long", {}, "no column 'q'"),
        ([("1",)], "k string", {}, "'k' has type long, but the DataFrame's has type string"),
        ([("x",)], "p string", {}, "'k' is NOT NULL, and the DataFrame lacks it"),
        ([(1,)], "k long", {"partitionColumns": "k"}, "partitioned by"),
        ([(1,)], "k long", {"userMetaData2": "x"}, "did you mean 'userMetadata'"),
        ([(1,)], "k long", {"replaceWhere": "k = 1"}, "replaceWhere is for an overwrite"),
        ([(None,)], "k long", {}, "'k' is NOT NULL, and 1 of 1 rows hold null"),
    ]
    for rows, schema, options, like in wrong:
        with pytest.raises(Exception, match=like):
            spark_table.write(spark_table.frame(rows, schema), **options)
    assert spark_table.proposals() == before
    assert DeltaTable(spark_table.path).version() == 0


def test_an_overwrite_of_some_partitions_alone_is_no_overwrite_of_all(
    spark_table: SparkTable,
) -> None:
    spark_table.write(
        spark_table.frame([(1, "a"), (2, "b")], "k long, p string"), partitionColumns="p"
    )
    mode = "spark.sql.sources.partitionOverwriteMode"
    spark_table.spark.conf.set(mode, "dynamic")
    try:
        for rows in ([(3, "a")], []):
            spark_table.write(spark_table.frame(rows, "k long, p string"), "overwrite")
        assert spark_table.keys() == [2, 3]
        said = {"partitionOverwriteMode": "static"}
        spark_table.write(spark_table.frame([(4, "a")], "k long, p string"), "overwrite", **said)
    finally:
        spark_table.spark.conf.unset(mode)
    assert spark_table.keys() == [4]


def test_a_table_outside_the_gate_is_refused_with_the_command_that_brings_it_in(
    spark_table: SparkTable,
) -> None:
    _foreign_table(spark_table.path)
    with pytest.raises(AnalysisException, match="tidegate table register"):
        spark_table.write(spark_table.frame([(1,)], "k long"))


def test_a_delete_rewrites_files_here_and_on_executors(spark_table: SparkTable) -> None:
    spark_table.write(
        spark_table.spark.sql("SELECT id AS k, id % 2 AS p FROM range(20)"), partitionColumns="p"
    )
    assert spark_table.table().delete("k < 4") == 1
    assert spark_table.keys() == list(range(4, 20))
    options = for_writing({**spark_table.options, "path": spark_table.path})
    client, saying = client_for(options.kafka), WriteRequest.of(options)
    runner = SparkRunner(spark_table.spark, here_bytes_max=0)
    outcome = delete(client, options.place, "k IN (4, 5, 6)", saying, runner)
    assert outcome is not None
    assert outcome.version == 2
    assert spark_table.keys() == list(range(7, 20))
    assert spark_table.table().delete("k = 1000") is None
    assert spark_table.table().delete("p = 0") == 3
    assert spark_table.keys() == list(range(7, 20, 2))
    assert spark_table.table().delete() == 4
    assert spark_table.keys() == []


def test_a_vacuum_shows_the_files_that_go_then_deletes_them(spark_table: SparkTable) -> None:
    spark_table.write(spark_table.spark.sql("SELECT id AS k FROM range(4)"))
    table = spark_table.table()
    table.delete("k < 2")
    assert table.vacuum().count() == 0
    with pytest.raises(InvalidRequest, match="below the table's"):
        table.vacuum(retention_hours=0)
    shown = table.vacuum(retention_hours=0, retention_check=False).collect()
    assert shown
    assert all(row["why"].startswith("removed before") for row in shown)
    gone = table.vacuum(retention_hours=0, dry_run=False, retention_check=False)
    assert gone.count() == len(shown)
    assert not any(Path(spark_table.path, row["path"]).exists() for row in shown)
    assert spark_table.keys() == [2, 3]
    operations = [row["operation"] for row in table.history(2).collect()]
    assert operations == ["VACUUM END", "VACUUM START"]


def test_a_delete_means_the_rows_that_a_query_shows(spark_table: SparkTable) -> None:
    spark_table.write(
        spark_table.spark.sql(
            "SELECT 1L AS k, timestamp'2024-01-01 02:00:00Z' AS at "
            "UNION ALL SELECT 2L, timestamp'2024-01-01 06:00:00Z'"
        )
    )
    spark_table.spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        before = "at < '2024-01-01'"
        assert [row["k"] for row in spark_table.table().to_df().where(before).collect()] == [1]
        assert spark_table.table().delete(before) == 1
    finally:
        spark_table.spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert spark_table.keys() == [2]


def test_of_two_deletes_of_one_file_the_second_is_rejected_with_the_reason(
    spark_table: SparkTable,
) -> None:
    spark_table.write(spark_table.frame([(1,), (2,), (3,)], "k long").coalesce(1))
    options = for_writing({**spark_table.options, "path": spark_table.path})
    client, saying = client_for(options.kafka), WriteRequest.of(options)
    runner = SparkRunner(spark_table.spark)

    def overtaken(rewriting: Rewriting, files: Any) -> Any:
        done: list[Rewritten] = list(runner(rewriting, files))
        assert spark_table.table().delete("k = 1") == 1
        return done

    with pytest.raises(Rejected) as raised:
        delete(client, options.place, "k = 2", saying, overtaken)
    outcome: Outcome = raised.value.outcome
    # The winner rewrote the file, and a reader of its rows had to see what it added.
    assert raised.value.error_class == "ConcurrentAppendException"
    assert outcome.rejection is not None
    assert outcome.rejection.winner_version == 1
    assert ".parquet" in str(raised.value)
    assert spark_table.keys() == [2, 3]
    assert spark_table.table().delete("k = 2") is not None
    assert spark_table.keys() == [3]


def test_changes_of_one_file_at_once_all_come_though_the_file_is_rewritten(
    spark_table: SparkTable,
) -> None:
    spark_table.write(spark_table.spark.sql("SELECT id AS k FROM range(6)").coalesce(1))
    source = spark_table.spark.sql("SELECT 5L AS k")

    def merge() -> int | None:
        merged = spark_table.table().alias("t").merge(source.alias("s"), "t.k = s.k")
        return merged.whenMatchedDelete().execute()

    changes: list[Callable[[], int | None]] = [
        lambda: spark_table.table().delete("k = 0"),
        lambda: spark_table.table().update("k = 1", {"k": "k + 10"}),
        merge,
    ]
    with ThreadPoolExecutor(len(changes)) as pool:
        versions = list(pool.map(lambda change: change(), changes))
    assert sorted(version or 0 for version in versions) == [1, 2, 3]
    assert spark_table.keys() == [2, 3, 4, 11]
    own = spark_table.table().to_df()
    assert may_read_a_table(own.where("k > 2").select("k"))
    assert not may_read_a_table(source)


def _foreign_table(path: str) -> None:
    """Write version 0 by hand: a table that is not registered."""
    schema = {
        "type": "struct",
        "fields": [{"name": "k", "type": "long", "nullable": True, "metadata": {}}],
    }
    rows: list[dict[str, Any]] = [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {
            "metaData": {
                "id": "foreign",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps(schema),
                "partitionColumns": [],
                "configuration": {},
            }
        },
    ]
    log = Path(path) / "_delta_log"
    log.mkdir(parents=True)
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (log / f"{0:020d}.json").write_text(text)
    assert DeltaTable(path).to_pyarrow_table().schema == pa.schema([("k", pa.int64())])
