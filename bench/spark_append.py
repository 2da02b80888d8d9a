"""Rows a second of a Spark append through the committer, beside `df.write.parquet` of the same
rows.
"""

import time
from pathlib import Path

from pyspark.sql import DataFrame

from bench.figures import Figure, median
from tidegate_demo.spark_session import open_session
from tidegate_local.local_stack import LocalStack

ROWS = 1_500_000


def figures(stack: LocalStack, folder: Path, rounds: int) -> list[Figure]:
    """Return the figure; both write the same rows in turn, after one warm-up each."""
    spark = open_session("tidegate-bench")
    rows = spark.range(ROWS).selectExpr(
        "id", "id % 100 AS kind", "cast(id * 0.5 AS double) AS amount", "cast(id AS string) AS note"
    )
    options = {"kafka.bootstrap.servers": stack.kafka.bootstrap_servers}
    root = (folder / "tables" / "appended").as_uri()
    ours, peer = [], []
    for number in range(rounds + 1):
        took = _timed(rows, str(folder / "plain" / str(number)), None)
        through = _timed(rows, root, options)
        if number:
            peer.append(ROWS / took)
            ours.append(ROWS / through)
    spark.stop()
    us, them = median(ours), median(peer)
    return [
        Figure(
            "Spark append, rows/s",
            f"{us:,.0f}/s",
            f"df.write.parquet {them:,.0f}/s",
            us / them,
            ">= 0.5 (W1)",
            "statistics, fsync and the commit included on our side",
            is_met=us / them >= 0.5,
            recorded=None,
        )
    ]


def _timed(rows: DataFrame, place: str, options: dict[str, str] | None) -> float:
    began = time.perf_counter()
    if options is None:
        rows.write.parquet(place)
    else:
        rows.write.format("tidegate").options(**options).mode("append").save(place)
    return time.perf_counter() - began
