"""What people get wrong in Spark: the first or the last line that they see says what to do.

`tests/unit/producers/test_misuses.py` has the misuses that are found without Spark.
"""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from tests.integration.conftest import Line
from tests.integration.spark_session import REMOTE, open_session
from tidegate_delta.errors import TidegateError
from tidegate_producers.history.outcome_log import last_proposals
from tidegate_producers.table import Table
from tidegate_producers.table.table_builder import IdentityGenerator
from tidegate_runtime.kafka.confluent_bus import KafkaBus

pytestmark = [pytest.mark.spark, pytest.mark.broker]

ROWS: Final = "SELECT id AS k, cast(id AS int) AS v, 'a' AS tag, date'2024-05-01' AS at"
TARGET: Final = "t"
NOWHERE: Final = {"kafka.bootstrap.servers": "127.0.0.1:1", "outcomeTimeout": "2s"}


class Misused:
    """A table of many kinds of columns, and a committer that serves it."""

    def __init__(self, spark: SparkSession, line: Line) -> None:
        line.started("committer")
        self.spark, self.line = spark, line
        self.options = line.spark_options
        self.path = str(line.tables / TARGET)
        builder = Table.createIfNotExists(spark, self.options).location(self.path)
        builder = builder.addColumn("k", "bigint", nullable=False).addColumn("v", "int")
        builder = builder.addColumn("tag", "varchar(3)").addColumn("at", "date")
        builder = builder.addColumn("s", "struct<a: int, b: string>")
        builder = builder.addColumn("year", "int", generatedAlwaysAs="year(at)")
        self.table: Table = builder.execute()
        self.table.append(spark.sql(f"{ROWS} FROM range(4)"))
        self.table.add_constraint("few", "v < 100")
        builder = Table.createIfNotExists(spark, self.options).location(f"{self.path}-numbered")
        builder = builder.addColumn("n", "bigint", generatedAlwaysAs=IdentityGenerator())
        self.numbered: Table = builder.addColumn("k", "bigint").execute()
        plain = spark.sql("SELECT id AS k, 'x' AS p FROM range(3)")
        self.plain = str(line.tables / "plain")
        self.writer(plain).options(partitionColumns="p").save(self.plain)

    def writer(self, frame: DataFrame, mode: str | None = "append") -> Any:
        writer = frame.write.format("tidegate").options(**self.options)
        return writer.mode(mode) if mode else writer

    def query(self, text: str) -> DataFrame:
        return self.spark.sql(text)

    def stream(self) -> DataFrame:
        rates = self.spark.readStream.format("rate").option("rowsPerSecond", 50).load()
        return rates.selectExpr("value AS k")

    def started(self, options: Mapping[str, str], start: Callable[[Any], Any]) -> None:
        """Start a stream that reads rows and writes them, and wait until it fails."""
        place = str(self.line.tables.parent / f"checkpoint-{len(options)}-{id(start)}")
        writer = self.stream().writeStream.format("tidegate").options(**self.options)
        query = start(writer.options(**options).option("checkpointLocation", place))
        try:
            query.awaitTermination(60)
        finally:
            query.stop()

    def merge(self, source: str, condition: str = "t.k = s.k") -> Any:
        return self.table.alias("t").merge(self.query(source).alias("s"), condition)

    def proposals(self) -> int:
        bus = KafkaBus(self.line.kafka, "test")
        return len(last_proposals(bus, self.line.kafka.topics, 1000))


class Misuse(NamedTuple):
    """A wrong program, and what the first or the last line of its error names and advises."""

    name: str
    act: Callable[[Misused], object]
    wrong: str
    remedy: str


def appended(text: str) -> Callable[[Misused], object]:
    return lambda t: t.table.append(t.query(text))


MISUSES: Final = [
    Misuse(
        "unknown option",
        lambda t: t.writer(t.query("SELECT 1L AS k")).option("txnAppIdd", "a").save(t.plain),
        "'txnappidd'",
        "'txnAppId'",
    ),
    Misuse(
        "value of an option",
        lambda t: t.writer(t.query("SELECT 1L AS k")).option("mergeSchema", "yes").save(t.plain),
        "mergeSchema=yes",
        "true, false",
    ),
    Misuse(
        "unknown column",
        lambda t: t.writer(t.query("SELECT 1L AS k, 2 AS q")).save(t.plain),
        "'q'",
        "mergeSchema=true",
    ),
    Misuse(
        "wrong type",
        lambda t: t.writer(t.query("SELECT 'one' AS k")).save(t.plain),
        "'k'",
        "cast it to long",
    ),
    Misuse(
        "null in a task",
        lambda t: t.table.append(t.query("SELECT cast(NULL AS bigint) AS k, 1 AS v")),
        "'k'",
        "fill or filter",
    ),
    Misuse(
        "too long in a task", appended("SELECT 9L AS k, 1 AS v, 'long' AS tag"), "'tag'", "cut them"
    ),
    Misuse(
        "no mode",
        lambda t: t.writer(t.query("SELECT 1L AS k"), None).save(t.plain),
        "ErrorIfExists",
        "Append",
    ),
    Misuse("constraint", appended("SELECT 9L AS k, 100 AS v"), r"CHECK few", "correct the rows"),
    Misuse("null constraint", appended("SELECT 9L AS k"), r"CHECK few", "correct the rows"),
    Misuse(
        "generated value",
        appended("SELECT 9L AS k, 1 AS v, date'2024-05-01' AS at, 1999 AS year"),
        "Generated Column year",
        "correct the rows",
    ),
    Misuse(
        "identity value",
        lambda t: t.numbered.append(t.query("SELECT 9L AS k, 7L AS n")),
        "'n'",
        "leave",
    ),
    Misuse(
        "data source on constraints",
        lambda t: t.writer(t.query("SELECT 9L AS k")).save(t.path),
        "few|year",
        r"Table\.append",
    ),
    Misuse(
        "rows outside replaceWhere",
        lambda t: (
            t.writer(t.query("SELECT 9L AS k, 'x' AS p"), "overwrite")
            .option("replaceWhere", "k < 5")
            .save(t.plain)
        ),
        "replaceWhere 'k < 5'",
        "filter them",
    ),
    Misuse(
        "column of replaceWhere",
        lambda t: (
            t.writer(t.query("SELECT 9L AS k, 'x' AS p"), "overwrite")
            .option("replaceWhere", "q < 5")
            .save(t.plain)
        ),
        "'q'",
        "there are k, p",
    ),
    # The catalog, and what Spark does not pass on.
    Misuse(
        "partitionBy",
        lambda t: t.writer(t.query("SELECT 1L AS k, 'x' AS p")).partitionBy("k").save(t.plain),
        "partitioning",
        "match",
    ),
    Misuse(
        "saveAsTable",
        lambda t: t.writer(t.query("SELECT 1L AS k")).saveAsTable("c1"),
        "saveAsTable",
        r"save\(path\)|CREATE TEMPORARY VIEW",
    ),
    Misuse(
        "saveAsTable with a path",
        lambda t: t.writer(t.query("SELECT 1L AS k")).option("path", t.plain).saveAsTable("c2"),
        "saveAsTable",
        r"save\(path\)",
    ),
    Misuse(
        "CTAS",
        lambda t: t.query("CREATE TABLE c3 USING tidegate AS SELECT 1L AS k"),
        "CTAS",
        r"CREATE TEMPORARY VIEW",
    ),
    Misuse(
        "CREATE TABLE",
        lambda t: t.query(f"CREATE TABLE c4 USING tidegate LOCATION '{t.plain}'"),
        "CREATE TABLE",
        r"CREATE TEMPORARY VIEW",
    ),
    Misuse(
        "INSERT INTO",
        lambda t: (
            t.query("CREATE TABLE c5 (k BIGINT) USING tidegate"),
            t.query("INSERT INTO c5 SELECT 1L"),
        ),
        "INSERT INTO",
        r"CREATE TEMPORARY VIEW",
    ),
    Misuse(
        "INSERT OVERWRITE",
        lambda t: (
            t.query("CREATE TABLE c6 (k BIGINT) USING tidegate"),
            t.query("INSERT OVERWRITE c6 SELECT 1L"),
        ),
        "INSERT INTO",
        r"CREATE TEMPORARY VIEW",
    ),
    Misuse(
        "insertInto",
        lambda t: (
            t.query("CREATE TABLE c7 (k BIGINT) USING tidegate"),
            t.writer(t.query("SELECT 1L AS k")).insertInto("c7"),
        ),
        "insertInto",
        r"CREATE TEMPORARY VIEW",
    ),
    Misuse(
        "writeTo",
        lambda t: t.query("SELECT 1L AS k").writeTo("c8").using("tidegate").create(),
        "CTAS",
        r"CREATE TEMPORARY VIEW",
    ),
    Misuse(
        "stream's partitionBy",
        lambda t: t.started({}, lambda w: w.partitionBy("k").start(str(t.line.tables / "new"))),
        "partitionBy",
        "partitionColumns",
    ),
    Misuse(
        "stream's toTable",
        lambda t: t.started({"path": t.plain}, lambda w: w.toTable("c9")),
        "toTable",
        r"\.start\(path\)",
    ),
    Misuse(
        "stream's option",
        lambda t: t.started({"txnVersion": "1", "txnAppId": "a"}, lambda w: w.start(t.plain)),
        "txnVersion",
        "leave",
    ),
    Misuse(
        "stream in mode update",
        lambda t: t.started({}, lambda w: w.outputMode("update").start(t.plain)),
        "[Uu]pdate",
        "append|complete|merge|mode",
    ),
    # Reads.
    Misuse(
        "missing table",
        lambda t: t.spark.read.format("tidegate").load(str(t.line.tables / "nosuch")).count(),
        "nosuch",
        "check the path",
    ),
    Misuse(
        "schema of a read",
        lambda t: t.spark.read.format("tidegate").schema("k string").load(t.plain).count(),
        "schema",
        r"leave \.schema",
    ),
    Misuse(
        "feed that is off",
        lambda t: (
            t.spark.read.format("tidegate")
            .option("readChangeFeed", "true")
            .option("startingVersion", 0)
            .load(t.plain)
            .count()
        ),
        "enableChangeDataFeed=true",
        "set",
    ),
    # Verbs.
    Misuse("column of a delete", lambda t: t.table.delete("q = 1"), "`q`", "`k`"),
    Misuse(
        "column of an update",
        lambda t: t.table.update("k = 1", {"q": "1"}),
        "'q'",
        "the columns are k, v",
    ),
    Misuse(
        "same column twice", lambda t: t.table.update("k = 1", {"v": "1", "V": "2"}), "'V'", "twice"
    ),
    Misuse(
        "value of an update", lambda t: t.table.update("k = 1", {"v": "'one'"}), "'v'", "cast it"
    ),
    Misuse(
        "value that is none",
        lambda t: t.table.update("k = 1", cast(Any, {"v": 7})),
        "'v'",
        "Column or a string",
    ),
    Misuse(
        "null by an update", lambda t: t.table.update("k = 1", {"k": "NULL"}), "'k'", "NOT NULL"
    ),
    Misuse(
        "constraint by an update",
        lambda t: t.table.update("k = 1", {"v": "100"}),
        "CHECK few",
        "correct the rows",
    ),
    Misuse(
        "struct with other fields",
        lambda t: t.table.update("k = 1", {"s": "named_struct('c', 1)"}),
        r"'s'",
        "give it these fields",
    ),
    Misuse(
        "identity by an update", lambda t: t.numbered.update("k = 1", {"n": "7"}), "'n'", "leave"
    ),
    Misuse(
        "ambiguous merge",
        lambda t: (
            t.merge("SELECT 1L AS k, 1 AS v UNION ALL SELECT 1L, 2")
            .whenMatchedUpdate(set={"v": "s.v"})
            .execute()
        ),
        "rows of the source",
        "dropDuplicates",
    ),
    Misuse(
        "column of a merge",
        lambda t: t.merge("SELECT 1L AS k", "t.q = s.k").whenMatchedDelete().execute(),
        "`q`",
        "`k`",
    ),
    Misuse(
        "star without a column",
        lambda t: t.merge("SELECT 1L AS k").whenMatchedUpdateAll().execute(),
        "'v'",
        "withSchemaEvolution",
    ),
    Misuse(
        "assignment of a merge",
        lambda t: t.merge("SELECT 1L AS k").whenMatchedUpdate(set={"q": "1"}).execute(),
        "'q'",
        "the columns are k, v",
    ),
    Misuse(
        "constraint by a merge",
        lambda t: (
            t.merge("SELECT 99L AS k")
            .whenNotMatchedInsert(values={"k": "s.k", "v": "100"})
            .execute()
        ),
        "CHECK few",
        "correct the rows",
    ),
    Misuse(
        "merge that lacks a column",
        lambda t: t.merge("SELECT 99L AS k").whenNotMatchedInsert(values={"v": "1"}).execute(),
        "'k'",
        "NOT NULL",
    ),
    Misuse(
        "new constraint",
        lambda t: t.table.add_constraint("none", "k > 2"),
        "'none'",
        "correct or delete them",
    ),
    Misuse(
        "type of a column",
        lambda t: t.table.add_column("x", "wide"),
        "'x': 'wide'",
        "write one such as",
    ),
    Misuse("Column of a delete", lambda t: t.table.delete(F.col("q") > 1), "`q`", "`k`"),
    # Kafka.
    Misuse(
        "no broker",
        lambda t: (
            t.query("SELECT 1L AS k, 'x' AS p")
            .write.format("tidegate")
            .mode("append")
            .options(**NOWHERE)
            .save(t.plain)
        ),
        r"127\.0\.0\.1:1",
        r"kafka\.bootstrap\.servers",
    ),
    Misuse(
        "no broker for a verb",
        lambda t: Table(t.spark, t.path, NOWHERE).update("k = 1", {"v": "1"}),
        r"127\.0\.0\.1:1",
        r"kafka\.bootstrap[._]servers",
    ),
    Misuse(
        "no broker for a new table",
        lambda t: (
            t.query("SELECT 1L AS k")
            .write.format("tidegate")
            .mode("append")
            .options(**NOWHERE)
            .save(str(t.line.tables / "new"))
        ),
        r"127\.0\.0\.1:1",
        r"kafka\.bootstrap\.servers",
    ),
]


IN_CI: Final = (
    "unknown option",
    "unknown column",
    "null in a task",
    "saveAsTable",
    "missing table",
    "column of an update",
    "constraint by an update",
    "no broker",
)
"""The misuses that are tried by day; the others are by night."""

NOT_SEEN_ON_CONNECT: Final = "stream's toTable"
"""Its tasks are not told who started them; docs/writing-from-spark.md says so."""

_SQL_STATE: Final = "\n SQLSTATE: 38000"
"""What Spark Connect puts behind the error of a Python worker."""

_SHOWN: Final = [
    pytest.param(one, id=one.name, marks=[] if one.name in IN_CI else [pytest.mark.nightly])
    for one in MISUSES
    if one.name != NOT_SEEN_ON_CONNECT or REMOTE not in os.environ
]


@pytest.fixture(scope="module")
def misused(shared_line: Line) -> Misused:
    return Misused(open_session(), shared_line)


@pytest.fixture(scope="module", autouse=True)
def _nothing_is_left(misused: Misused) -> Any:
    """Check at the end that nothing was proposed, and that a listing finds each file left over."""
    proposed = misused.proposals()
    files = _files(misused.path)
    yield
    assert misused.proposals() == proposed
    left = _files(misused.path) - files
    listed = misused.table.vacuum(0, retention_check=False).collect()
    assert {row["path"] for row in listed} == left
    assert not (misused.line.tables / "new" / "_delta_log").exists()


def _files(root: str) -> set[str]:
    result = (item.relative_to(root) for item in Path(root).rglob("*.parquet"))
    return {str(one) for one in result if one.parts[0] != "_delta_log"}


@pytest.mark.parametrize("misuse", _SHOWN)
def test_a_misuse_in_spark_shows_the_problem_and_the_remedy(
    misuse: Misuse, misused: Misused
) -> None:
    with pytest.raises((TidegateError, TypeError, PySparkException, Py4JJavaError)) as raised:
        misuse.act(misused)
    shown = str(raised.value).replace(_SQL_STATE, "")
    lines = [line for line in shown.splitlines() if line.strip()]
    wanted = re.compile(f"(?=.*(?:{misuse.wrong}))(?=.*(?:{misuse.remedy}))")
    assert any(map(wanted.match, (lines[0], lines[-1]))), str(raised.value)
