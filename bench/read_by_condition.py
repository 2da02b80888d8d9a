"""Reads of one row of a table whose files are clustered, by each way of reading from Spark.

The same table, written by delta-spark, is read in one session of two cores, each query on a
DataFrame of its own, as a job that runs once does.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from bench.figures import Figure, median
from bench.spark_beside import open_session
from tidegate_producers.table import Table

FILES: Final = 200
PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"
"""Spark's setting under which Python data sources are shown filters."""

UNUSED_KAFKA: Final = {"kafka.bootstrap.servers": "127.0.0.1:9"}
"""An address that a `Table` must have, and that reading does not use."""


def figures(folder: Path, rounds: int, rows: int) -> list[Figure]:
    """Return the figure of a read of one of `rows` rows, by `Table.to_df(where=…)`."""
    spark = open_session()
    path = str(folder / "clustered")
    columns = "id", "id % 100 AS kind", "cast(id * 0.5 AS double) AS amount", "string(id) AS note"
    clustered = spark.range(rows).selectExpr(*columns).repartitionByRange(FILES, "id")
    clustered.write.format("delta").save(path)
    condition = f"id = {rows // 7}"
    table = Table(spark, path, UNUSED_KAFKA)
    ways: dict[str, Callable[[], DataFrame]] = {
        "to_df(where)": lambda: table.to_df(where=condition),
        "to_df().where": lambda: table.to_df().where(condition),
        "format": lambda: _loaded(spark, "tidegate", path, is_shown=False).where(condition),
        "format, shown": lambda: _loaded(spark, "tidegate", path, is_shown=True).where(condition),
        "delta": lambda: _loaded(spark, "delta", path, is_shown=False).where(condition),
    }
    try:
        opened = {way: len(ways[way]().inputFiles()) for way in ("to_df(where)", "delta")}
        took = _alternated(ways, rounds)
    finally:
        spark.stop()
    ours, peer = took["to_df(where)"], took["delta"]
    return [
        Figure(
            f"read of one of {rows:,} rows in {FILES} files by `Table.to_df(where=…)`",
            f"{ours:.2f} s, {opened['to_df(where)']} file",
            f"delta-spark {peer:.2f} s, {opened['delta']}",
            ours / peer,
            "-",
            f"`to_df().where(…)` {took['to_df().where']:.2f} s; format {took['format']:.2f} s, "
            f"under {PUSHDOWN} {took['format, shown']:.2f} s",
            recorded=None,
        )
    ]


def _loaded(spark: SparkSession, name: str, path: str, *, is_shown: bool) -> DataFrame:
    spark.conf.set(PUSHDOWN, str(is_shown).lower())
    return spark.read.format(name).load(path)


def _alternated(ways: dict[str, Callable[[], DataFrame]], rounds: int) -> dict[str, float]:
    """Return the median seconds of each way, in turn, the first two rounds uncounted."""
    took: dict[str, list[float]] = {way: [] for way in ways}
    for number in range(rounds + 2):
        for way, frame in ways.items():
            began = time.perf_counter()
            assert len(frame().collect()) == 1, way
            if number >= 2:
                took[way].append(time.perf_counter() - began)
    return {way: median(seconds) for way, seconds in took.items()}
