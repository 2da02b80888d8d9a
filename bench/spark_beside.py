"""What Spark programs do through the committer, beside delta-spark in the same session.

Both write the same rows with the same codec into as many files, in turn. A figure is the median of
the rounds after one that is not counted; before each engine's table is measured, it is made anew.
"""

import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from delta import DeltaTable, configure_spark_with_delta_pip
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from bench.figures import Figure, median
from tidegate_delta.errors import TidegateError
from tidegate_local.local_stack import LocalStack
from tidegate_producers.datasource import use_session
from tidegate_producers.table import Table

ROWS: Final = 10_000_000
"""Rows of the tables that are merged, deleted from and read; a fifth of them is appended."""

FILES: Final = 4
WRITERS: Final = 16
RATE: Final = 400_000
"""Rows a second that the stream's source offers."""

VECTORS: Final = {"delta.enableDeletionVectors": "true"}
COPIES: Final = {"delta.enableDeletionVectors": "false"}
COLUMNS: Final = (
    "id",
    "id % 100 AS kind",
    "cast(id * 0.5 AS double) AS amount",
    "cast(id AS string) AS note",
    "date_add(date'2024-01-01', cast(id % 365 AS int)) AS day",
)
CONFIG: Final = {
    "spark.driver.memory": "3g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": str(FILES),
    "spark.sql.session.timeZone": "UTC",
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


def open_session() -> SparkSession:
    """Return a session on two cores with delta-spark's jars."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.appName("tidegate-bench").master("local[2]")
    for key, value in CONFIG.items():
        builder = builder.config(key, value)
    session = configure_spark_with_delta_pip(builder).getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session


@dataclass(frozen=True)
class Engine:
    """One engine, with the same methods for both."""

    spark: SparkSession
    folder: Path
    format: str
    options: Mapping[str, str]

    @property
    def is_ours(self) -> bool:
        """Whether it is ours."""
        return self.format == "tidegate"

    def path(self, name: str) -> str:
        """Return the root of a table."""
        return str(self.folder / f"{self.format}-{name}")

    def create(self, name: str, rows: DataFrame, properties: Mapping[str, str]) -> str:
        """Make a table with rows in FILES files, and return its root."""
        path = self.path(name)
        listed = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
        if self.is_ours:
            Table.create(self.spark, path, rows.schema, (), properties, self.options)
        else:
            columns = ", ".join(
                f"{field.name} {field.dataType.simpleString()}" for field in rows.schema
            )
            self.spark.sql(
                f"CREATE TABLE delta.`{path}` ({columns}) USING delta TBLPROPERTIES ({listed})"
            )
        self.append(path, rows)
        return path

    def append(self, path: str, rows: DataFrame) -> None:
        """Append rows."""
        rows.write.format(self.format).options(**self.options).mode("append").save(path)

    def table(self, path: str) -> Any:
        """Return the table, whose verbs have the same names in both engines."""
        if self.is_ours:
            return Table(self.spark, path, self.options)
        return DeltaTable.forPath(self.spark, path)


@dataclass(frozen=True)
class Measured:
    """The seconds of each round, ours and theirs."""

    ours: list[float]
    theirs: list[float]

    def figure(self, measure: str, most: float, note: str = "") -> Figure:
        """Return the figure of a duration, with the most that its ratio may be."""
        ours, peer = median(self.ours), median(self.theirs)
        return Figure(
            measure,
            f"{ours:.2f} s",
            f"delta-spark {peer:.2f} s",
            ours / peer,
            f"<= {most}",
            note,
            is_met=ours / peer <= most,
            recorded=None,
        )


def figures(
    stack: LocalStack, folder: Path, rounds: int, seconds: float, rows: int = ROWS
) -> list[Figure]:
    """Return the figures of appends, merges, deletes, reads, a stream and many writers."""
    spark = open_session()
    options = {"kafka.bootstrap.servers": stack.kafka.bootstrap_servers, "outcomeTimeout": "300s"}
    ours = Engine(spark, folder / "tables", "tidegate", options)
    bench = _Bench(ours, Engine(spark, folder / "tables", "delta", {}), rounds, rows)
    try:
        return [
            *bench.appends(folder / "plain"),
            bench.merge(),
            bench.delete("vectors", VECTORS, 0.3),
            bench.delete("copies", COPIES, 0.5),
            *bench.reads(),
            bench.stream(seconds),
            bench.writers(seconds),
        ]
    finally:
        spark.stop()


class _Bench:
    def __init__(self, ours: Engine, theirs: Engine, rounds: int, rows: int) -> None:
        self.ours, self.theirs, self.rounds, self.rows = ours, theirs, rounds, rows
        self.spark = ours.spark

    def frame(self, count: int, start: int = 0) -> DataFrame:
        return self.spark.range(start, start + count, 1, FILES).selectExpr(*COLUMNS)

    def measured(self, act: Callable[[Engine, int], object]) -> Measured:
        """Time an act of both engines in turn, the first round uncounted."""
        took: dict[str, list[float]] = {}
        for number in range(self.rounds + 1):
            for engine in (self.theirs, self.ours):
                began = time.perf_counter()
                act(engine, number)
                if number:
                    took.setdefault(engine.format, []).append(time.perf_counter() - began)
        return Measured(took["tidegate"], took["delta"])

    def appends(self, plain: Path) -> list[Figure]:
        count = self.rows // 5
        paths = {
            engine.format: engine.create("appended", self.frame(1), VECTORS)
            for engine in (self.ours, self.theirs)
        }
        rows = self.frame(count)
        large = self.measured(lambda engine, _: engine.append(paths[engine.format], rows))
        parquet = []
        for number in range(self.rounds + 1):
            began = time.perf_counter()
            rows.write.parquet(str(plain / str(number)))
            parquet.append(time.perf_counter() - began)
        note = f"df.write.parquet {median(parquet[1:]):.2f} s"
        single = self.frame(1).coalesce(1)
        small = self.measured(lambda engine, _: engine.append(paths[engine.format], single))
        return [
            large.figure(f"Spark append of {count:,} rows", 1.1, note),
            small.figure("Spark append of one row", 0.5),
        ]

    def merge(self) -> Figure:
        paths = self._created("merged", VECTORS)
        share = self.rows // 100

        def act(engine: Engine, number: int) -> None:
            source = self.spark.range(share).selectExpr(
                f"id * 100 + {number} AS id", "7L AS kind", "1.5D AS amount", "'m' AS note"
            )
            merge = (
                engine.table(paths[engine.format])
                .alias("t")
                .merge(source.alias("s"), "t.id = s.id")
            )
            changed = {"kind": "s.kind", "amount": "s.amount", "note": "s.note"}
            merge.whenMatchedUpdate(set=changed).execute()

        return self.measured(act).figure(f"MERGE of 1 % into {self.rows:,} rows", 1.0)

    def delete(self, kind: str, properties: Mapping[str, str], most: float) -> Figure:
        paths = self._created(f"deleted-{kind}", properties)

        def act(engine: Engine, number: int) -> None:
            engine.table(paths[engine.format]).delete(f"id % 100 = {number}")

        return self.measured(act).figure(f"delete of 1 % of {self.rows:,} rows by {kind}", most)

    def reads(self) -> list[Figure]:
        paths = self._created("read", VECTORS)

        def frame(engine: Engine) -> DataFrame:
            rows: DataFrame = engine.table(paths[engine.format]).toDF()
            return rows

        def scan(engine: Engine, _: int) -> None:
            sums = "sum(id)", "sum(kind)", "sum(amount)", "max(note)", "max(day)"
            frame(engine).selectExpr(*sums).collect()

        def point(engine: Engine, number: int) -> None:
            wanted = self.rows // 7 * (number + 1) % self.rows
            assert frame(engine).where(f"id = {wanted}").count() == 1

        return [
            self.measured(scan).figure(f"scan of {self.rows:,} rows", 1.1, "Table.toDF"),
            self.measured(point).figure(f"point read of {self.rows:,} rows", 1.2, "Table.toDF"),
        ]

    def stream(self, seconds: float) -> Figure:
        rates: dict[str, list[float]] = {"tidegate": [], "delta": []}
        for number in range(self.rounds + 1):
            for engine in (self.theirs, self.ours):
                rate = _streamed(engine, number, seconds)
                if number:
                    rates[engine.format].append(rate)
        ours, peer = median(rates["tidegate"]), median(rates["delta"])
        return Figure(
            "stream with a trigger of 1 s, rows/s",
            f"{ours:,.0f}/s",
            f"delta-spark {peer:,.0f}/s",
            ours / peer,
            ">= 0.8",
            f"the source offers {RATE:,}/s",
            is_met=ours / peer >= 0.8,
            recorded=None,
        )

    def writers(self, seconds: float) -> Figure:
        count = 100_000
        rows = self.frame(count).coalesce(1)
        rates: dict[str, list[float]] = {"tidegate": [], "delta": []}
        refused = {"tidegate": 0, "delta": 0}
        for number in range(self.rounds + 1):
            for engine in (self.theirs, self.ours):
                path = engine.create(f"shared-{number}", rows, VECTORS)
                done, failed = _deleted_by_many(engine, path, seconds)
                assert engine.table(path).toDF().count() == count - done, "rows were lost"
                refused[engine.format] += failed
                if number:
                    rates[engine.format].append(done / seconds)
        ours, peer = median(rates["tidegate"]), median(rates["delta"])
        return Figure(
            f"{WRITERS} writers delete single rows of one file, commits/s",
            f"{ours:.1f}/s, {refused['tidegate']} refused",
            f"delta-spark {peer:.1f}/s, {refused['delta']} refused",
            ours / peer if peer else 0.0,
            ">= 8, none refused",
            is_met=ours >= 8 * peer and not refused["tidegate"],
            recorded=None,
        )

    def _created(self, name: str, properties: Mapping[str, str]) -> dict[str, str]:
        rows = self.frame(self.rows)
        return {
            engine.format: engine.create(name, rows, properties)
            for engine in (self.ours, self.theirs)
        }


def _streamed(engine: Engine, number: int, seconds: float) -> float:
    """Return the rows a second that a stream brings into a table."""
    path = engine.create(
        f"streamed-{number}", engine.spark.range(0).selectExpr("id AS value"), VECTORS
    )
    source = engine.spark.readStream.format("rate").option("rowsPerSecond", RATE)
    rows = source.option("numPartitions", FILES).load().select("value")
    writer = rows.writeStream.format(engine.format).options(**engine.options)
    writer = writer.option("checkpointLocation", f"{path}-checkpoint")
    query = writer.trigger(processingTime="1 second").start(path)
    while not query.recentProgress:
        time.sleep(0.2)
    before: int = engine.table(path).toDF().count()
    began = time.perf_counter()
    time.sleep(seconds)
    query.stop()
    after: int = engine.table(path).toDF().count()
    return (after - before) / (time.perf_counter() - began)


def _deleted_by_many(engine: Engine, path: str, seconds: float) -> tuple[int, int]:
    """Return how many rows WRITERS threads deleted one by one, and how many deletes failed."""
    until = time.perf_counter() + seconds
    all_ready = threading.Barrier(WRITERS)

    def delete(writer: int) -> tuple[int, int]:
        use_session(engine.spark)
        table = engine.table(path)
        done = failed = 0
        all_ready.wait()
        row = writer
        while time.perf_counter() < until:
            try:
                table.delete(f"id = {row}")
                done += 1
                row += WRITERS
            except (TidegateError, PySparkException, Py4JJavaError):  # a lost race
                failed += 1
        return done, failed

    with ThreadPoolExecutor(WRITERS) as pool:
        counts = list(pool.map(delete, range(WRITERS)))
    return sum(done for done, _ in counts), sum(failed for _, failed in counts)
