"""TPC-H's refresh functions, several pairs at once, and two of its queries before and after.

The generator makes no refresh streams: a part of its orders is held back for the inserts (RF1),
and other orders are deleted (RF2). Plain Parquet files of the same rows are the judge.
"""

import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.integration.conftest import Line
from tests.integration.spark_session import open_session
from tidegate_producers.datasource import use_session
from tidegate_producers.table import Table

pytestmark = [
    pytest.mark.spark,
    pytest.mark.broker,
    pytest.mark.nightly,
    pytest.mark.timeout(1_500),
]

SCALE: Final = "1"
PAIRS: Final = 4
"""Refresh pairs that run at once, each on orders of its own: a hundredth of all."""

KEYS: Final = {"orders": "o_orderkey", "lineitem": "l_orderkey"}
VECTORS: Final = {"delta.enableDeletionVectors": "true"}
PRICING: Final = """
SELECT l_returnflag, l_linestatus, sum(l_quantity), sum(l_extendedprice),
  sum(l_extendedprice * (1 - l_discount)), avg(l_discount), count(*)
FROM lineitem WHERE l_shipdate <= date'1998-09-02' GROUP BY ALL ORDER BY ALL
"""
PRIORITY: Final = """
SELECT o_orderpriority, count(*) FROM orders
WHERE o_orderdate >= date'1993-07-01' AND o_orderdate < date'1993-10-01' AND EXISTS (
  SELECT * FROM lineitem WHERE l_orderkey = o_orderkey AND l_commitdate < l_receiptdate)
GROUP BY o_orderpriority ORDER BY o_orderpriority
"""


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with TPC-H's tables of orders and their items, as Parquet."""
    program = shutil.which("tpchgen-cli", path=str(Path(sys.executable).parent))
    if program is None:
        pytest.skip("tpchgen-cli is not installed")
    folder = tmp_path_factory.mktemp("tpch")
    argv = [program, "parquet", "-s", SCALE, "--tables=orders,lineitem", f"--output-dir={folder}"]
    subprocess.run(argv, check=True)
    return folder


class Refreshed:
    """The two tables, and the rows that are held back or deleted by each refresh pair."""

    def __init__(self, spark: SparkSession, line: Line, generated: Path) -> None:
        line.started("committer")
        self.spark = spark
        self.options = {
            "kafka.bootstrap.servers": line.kafka.bootstrap_servers,
            "topicPrefix": line.kafka.topic_prefix,
            "outcomeTimeout": "120s",
        }
        self.rows = {name: spark.read.parquet(str(generated / f"{name}.parquet")) for name in KEYS}
        self.tables: dict[str, Table] = {}
        for name, rows in self.rows.items():
            path = str(line.tables / name)
            table = Table.create(spark, path, rows.schema, (), VECTORS, self.options)
            table.append(rows.where(f"{KEYS[name]} % 100 >= {PAIRS}"))
            self.tables[name] = table

    def insert(self, pair: int) -> None:
        """RF1: new orders and their items."""
        for name, rows in self.rows.items():
            self.tables[name].append(rows.where(f"{KEYS[name]} % 100 = {pair}"))

    def delete(self, pair: int) -> None:
        """RF2: old orders and their items leave."""
        gone = self.rows["orders"].where(f"o_orderkey % 100 = {PAIRS + pair}")
        keys = gone.selectExpr("o_orderkey AS gone").alias("s")
        for name, table in self.tables.items():
            merge = table.alias("t").merge(keys, f"t.{KEYS[name]} = s.gone")
            merge.whenMatchedDelete().execute()

    def expected(self, name: str) -> DataFrame:
        key = KEYS[name]
        return self.rows[name].where(f"{key} % 100 < {PAIRS} OR {key} % 100 >= {2 * PAIRS}")


@pytest.fixture(scope="module")
def refreshed(shared_line: Line, generated: Path) -> Refreshed:
    return Refreshed(open_session(), shared_line, generated)


def test_refresh_pairs_at_once_leave_the_rows_that_they_would_leave_one_by_one(
    refreshed: Refreshed,
) -> None:
    def pair(number: int) -> None:
        use_session(refreshed.spark)
        refreshed.insert(number)
        refreshed.delete(number)

    with ThreadPoolExecutor(PAIRS) as pool:
        list(pool.map(pair, range(PAIRS)))
    for name, table in refreshed.tables.items():
        result, wanted = table.to_df(), refreshed.expected(name)
        assert result.exceptAll(wanted).count() == 0
        assert wanted.exceptAll(result).count() == 0
    for query in (PRICING, PRIORITY):
        for name, table in refreshed.tables.items():
            table.to_df().createOrReplaceTempView(name)
        ours = refreshed.spark.sql(query).collect()
        for name in refreshed.tables:
            refreshed.expected(name).createOrReplaceTempView(name)
        assert ours == refreshed.spark.sql(query).collect()
        assert ours
