"""The options of `format("tidegate")` through Spark, a broker and a committer."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, EqualTo, Filter, InputPartition
from pyspark.sql.types import StructType

from tests.integration.conftest import Line
from tests.integration.spark_session import open_session
from tidegate_producers.table import Table

pytestmark = [pytest.mark.spark, pytest.mark.broker]

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    return open_session()


class Tables:
    """A running committer, and tables that it serves."""

    def __init__(self, spark: SparkSession, line: Line) -> None:
        self.spark = spark
        self.folder = line.tables
        self.options = line.spark_options
        line.started("committer")

    def write(self, name: str, query: str, mode: str = "append", **options: str) -> None:
        writer = self.spark.sql(query).write.format("tidegate").mode(mode)
        writer.options(**self.options, **options).save(str(self.folder / name))

    def rows(self, name: str) -> list[dict[str, Any]]:
        """Return the rows as delta-rs reads them, ordered by `k`."""
        result = DeltaTable(str(self.folder / name)).to_pyarrow_table().sort_by("k").to_pylist()
        return list(result)

    def keys(self, name: str) -> list[Any]:
        return [row["k"] for row in self.rows(name)]


@pytest.fixture(scope="module")
def tables(spark: SparkSession, shared_line: Line) -> Tables:
    return Tables(spark, shared_line)


def test_an_overwrite_replaces_what_its_options_name(tables: Tables) -> None:
    tables.write("t", "SELECT id AS k, id % 3 AS p FROM range(6)", partitionColumns="p")
    tables.write("t", "SELECT 10L AS k, 1L AS p, 'x' AS n", mergeSchema="true")
    assert [row["n"] for row in tables.rows("t")] == [None] * 6 + ["x"]
    tables.spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    try:
        tables.write("t", "SELECT 20L AS k, 2L AS p", "overwrite")
    finally:
        tables.spark.conf.unset("spark.sql.sources.partitionOverwriteMode")
    assert tables.keys("t") == [0, 1, 3, 4, 10, 20]
    where = {"replaceWhere": "p = 1 AND k > 3"}
    with pytest.raises(Exception, match="do not all match replaceWhere"):
        tables.write("t", "SELECT 5L AS k, 0L AS p", "overwrite", **where)
    tables.write("t", "SELECT 5L AS k, 1L AS p", "overwrite", **where)
    assert tables.keys("t") == [0, 1, 3, 5, 20]
    schema = {"overwriteSchema": "true", "partitionColumns": "q"}
    tables.write("t", "SELECT 'a' AS k, 7 AS q", "overwrite", **schema)
    assert tables.rows("t") == [{"k": "a", "q": 7}]


def test_what_spark_does_not_pass_on_is_refused(tables: Tables) -> None:
    frame, path = tables.spark.range(3), str(tables.folder / "new")
    writer = frame.write.format("tidegate").mode("append").options(**tables.options)
    path_options = {**tables.options, "path": path}
    options = ", ".join(f"`{key}` '{value}'" for key, value in tables.options.items())
    wrong: list[tuple[Callable[[], object], str]] = [
        (lambda: writer.partitionBy("id").save(path), "provided partitioning"),
        (lambda: frame.writeTo("c").using("tidegate").create(), "CREATE TEMPORARY VIEW"),
        (
            lambda: tables.spark.sql(
                f"CREATE TABLE c USING tidegate OPTIONS (path '{path}', {options}) AS SELECT 1 AS k"
            ),
            "CREATE TEMPORARY VIEW",
        ),
        (
            lambda: writer.option("path", path).partitionBy("id").saveAsTable("c"),
            r"partitionColumns.*save\(path\)",
        ),
        (
            lambda: frame.writeTo("c").using("tidegate").options(**path_options).create(),
            r"partitionColumns.*save\(path\)",
        ),
    ]
    for act, why in wrong:
        with pytest.raises(Exception, match=why):
            act()
    assert not (tables.folder / "new" / "_delta_log").exists()


def test_a_view_is_written_by_sql(tables: Tables) -> None:
    tables.write("viewed", "SELECT 1L AS k, 'a' AS p")
    path = str(tables.folder / "viewed")
    options = ", ".join(f"`{key}` '{value}'" for key, value in tables.options.items())
    tables.spark.sql(f"CREATE TEMPORARY VIEW v USING tidegate OPTIONS (path '{path}', {options})")
    tables.spark.sql("INSERT INTO v SELECT 2L, 'b'")
    assert tables.keys("viewed") == [1, 2]
    tables.spark.sql("INSERT OVERWRITE v SELECT 3L, 'c'")
    assert tables.keys("viewed") == [3]


def test_the_guides_examples_run(tables: Tables) -> None:
    guide = (Path(__file__).parents[2] / "docs" / "writing-from-spark.md").read_text()
    section = guide.partition('\n## From format("delta")\n')[2].partition("\n## ")[0]
    names: dict[str, object] = {
        "spark": tables.spark,
        "kafka": tables.options,
        "path": str(tables.folder / "orders"),
    }
    programs = re.findall(r"^```python\n(.*?)^```", section, re.DOTALL | re.MULTILINE)
    assert len(programs) == 2
    for program in programs:
        exec(compile(program, "docs/writing-from-spark.md", "exec"), names)
    assert {row["id"] for row in Table(tables.spark, str(names["path"])).to_df().collect()} == {
        *range(6)
    }


@pytest.fixture
def pushing(spark: SparkSession) -> Iterator[SparkSession]:
    """Return the session while it shows filters to Python data sources."""
    spark.conf.set(PUSHDOWN, "true")
    yield spark
    spark.conf.unset(PUSHDOWN)


def test_a_dataframe_keeps_its_rows_where_spark_pushes_filters(
    pushing: SparkSession, tmp_path: Path
) -> None:
    for key in range(2):
        write_deltalake(tmp_path, pa.table({"k": [key]}), mode="append")
    frame = pushing.read.format("tidegate").load(str(tmp_path))
    assert [frame.where("k = 0").count(), frame.count()] == [1, 2]


@pytest.mark.nightly
def test_spark_reads_for_one_query_what_was_pruned_for_another(pushing: SparkSession) -> None:
    """The reason why our reader takes no filters: if this fails, Spark has mended it, see ADR 48.

    It judges Spark alone, by the smallest data source that prunes.
    """

    class PruningReader(DataSourceReader):
        def __init__(self) -> None:
            self.keys = [0, 1]

        def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's
            wanted = [item.value for item in filters if isinstance(item, EqualTo)]
            self.keys = [key for key in self.keys if all(key == value for value in wanted)]
            return filters

        def partitions(self) -> Sequence[InputPartition]:
            return [InputPartition(key) for key in self.keys]

        def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
            yield (partition.value,)

    class Pruning(DataSource):
        def schema(self) -> str:
            return "k long"

        def reader(self, schema: StructType) -> DataSourceReader:
            return PruningReader()

    pushing.dataSource.register(Pruning)
    frame = pushing.read.format("Pruning").load()
    assert frame.where("k = 0").count() == 1
    assert frame.count() == 1, "there are two"
