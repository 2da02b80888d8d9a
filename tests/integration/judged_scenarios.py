"""Updates, merges and overwrites, written once and run by delta-spark and by us."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from delta import DeltaTable
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from tidegate_delta.errors import TidegateError
from tidegate_producers.table import Table

Side = Literal["theirs", "ours"]

COLUMNS: Final = "k long, p string, v int, n decimal(8,2), s struct<a: int, b: string>, at date"
ROWS: Final = (
    "SELECT id AS k, IF(id % 2 = 0, 'x/ y', NULL) AS p, cast(id * 10 AS int) AS v, "
    "IF(id = 3, NULL, cast(id AS decimal(8,2))) AS n, "
    "named_struct('a', cast(id AS int), 'b', 'r') AS s, date'2024-01-01' AS at "
    "FROM range(0, 8, 1, 2)"
)


@dataclass
class Target:
    """One side's table, with the same methods for both."""

    spark: SparkSession
    side: Side
    path: str
    options: Mapping[str, str]

    @property
    def kind(self) -> Any:
        """The side's class of tables."""
        return Table if self.side == "ours" else DeltaTable

    def table(self, alias: str = "t") -> Any:
        if self.side == "ours":
            return Table(self.spark, self.path, self.options).alias(alias)
        return DeltaTable.forPath(self.spark, self.path).alias(alias)

    def write(
        self, query: str, mode: str = "overwrite", by: tuple[str, ...] = (), **options: str
    ) -> None:
        frame = self.spark.sql(query)
        if self.side == "ours":
            given = dict(self.options) | options
            if by:
                given["partitionColumns"] = ",".join(by)
            frame.write.format("tidegate").mode(mode).options(**given).save(self.path)
            return
        writer = frame.write.format("delta").mode(mode).options(**options)
        (writer.partitionBy(*by) if by else writer).save(self.path)

    def overwrite(self, query: str, condition: str) -> None:
        """Replace the rows that match any condition."""
        if self.side == "ours":
            self.table().overwrite(self.spark.sql(query), condition)
        else:
            self.write(query, replaceWhere=condition)

    def rows(self) -> list[str]:
        rows = self.spark.read.format("delta").load(self.path)
        return sorted(map(repr, rows.collect()))

    def layout(self) -> list[object]:
        detail = DeltaTable.forPath(self.spark, self.path).detail()
        by = detail.select("partitionColumns").collect()[0][0]
        schema = self.spark.read.format("delta").load(self.path).schema
        return [schema.jsonValue(), by]


Act = Callable[[Target, DataFrame], object]


class Scenario:
    """A change of a table, and the table's rows before it; `differs` says why results differ."""

    def __init__(
        self, act: Act, columns: str, by: tuple[str, ...], rows: str, differs: str
    ) -> None:
        self.__name__ = act.__name__
        self._act = act
        self.columns, self.by, self.rows = columns, by, rows
        self.differs = differs

    def run(
        self, spark: SparkSession, side: Side, path: str, options: Mapping[str, str]
    ) -> list[object]:
        """Return rows, schema, partition columns, and whether the change was refused."""
        target = Target(spark, side, path, options)
        source = spark.createDataFrame(
            [(1, "m", 1), (2, "d", 2), (3, None, None), (20, "i", 20), (21, "j", 21)],
            "k long, p string, v int",
        ).alias("s")
        refused = is_refused(lambda: self._act(target, source), side)
        return [refused, *target.layout(), *target.rows()]


def is_refused(step: Callable[[], object], side: Side) -> bool:
    """Run a step, and return whether it was refused."""
    try:
        step()
    except (PySparkException, Py4JJavaError, TidegateError) as error:
        print(side, str(error)[:600])  # noqa: T201  (pytest shows it where a test fails)
        return True
    return False


SCENARIOS: Final[list[Scenario]] = []


def scenario(
    columns: str = COLUMNS, by: tuple[str, ...] = ("p",), rows: str = ROWS, differs: str = ""
) -> Callable[[Act], Act]:
    """Register a scenario."""

    def register(act: Act) -> Act:
        SCENARIOS.append(Scenario(act, columns, by, rows, differs))
        return act

    return register


@scenario()
def update_by_expressions(t: Target, s: DataFrame) -> None:
    t.table().update("k % 3 = 0", {"v": "v + k", "n": "n * 2", "p": "'new'"})


@scenario(by=())
def update_swaps_columns(t: Target, s: DataFrame) -> None:
    t.table().update(F.col("k") > 2, {"v": F.col("k").cast("int"), "k": "t.v"})


@scenario()
def update_overflows(t: Target, s: DataFrame) -> None:
    t.table().update("k = 5", {"v": "k * 10000000000"})


@scenario()
def update_text_to_number(t: Target, s: DataFrame) -> None:
    t.table().update("k = 5", {"v": "'12'", "n": "'1.239'"})


@scenario()
def update_bad_text_to_number(t: Target, s: DataFrame) -> None:
    t.table().update("k = 5", {"v": "'twelve'"})


@scenario()
def update_rounds_decimals(t: Target, s: DataFrame) -> None:
    t.table().update("k = 5", {"n": "1.239", "v": "2.7D"})


@scenario()
def update_date_from_timestamp(t: Target, s: DataFrame) -> None:
    t.table().update("k < 3", {"at": "timestamp'2024-03-03 10:00:00'"})


@scenario()
def update_date_from_number(t: Target, s: DataFrame) -> None:
    t.table().update("k < 3", {"at": "1"})


@scenario()
def update_text_from_anything(t: Target, s: DataFrame) -> None:
    t.table().update("k < 3", {"p": "n"})


@scenario()
def update_nested_field(t: Target, s: DataFrame) -> None:
    t.table().update("k < 3", {"s.a": "7"})


@scenario()
def update_nested_field_with_alias(t: Target, s: DataFrame) -> None:
    t.table().update("k < 3", {"t.s.b": "concat(s.b, k)", "v": "NULL"})


@scenario()
def update_struct_by_other_order(t: Target, s: DataFrame) -> None:
    t.table().update("k < 3", {"s": "named_struct('b', 'q', 'a', 9)"})


@scenario()
def update_struct_of_fewer_fields(t: Target, s: DataFrame) -> None:
    t.table().update("k < 3", {"s": "named_struct('a', 9)"})


@scenario()
def update_unknown_column(t: Target, s: DataFrame) -> None:
    t.table().update("k < 3", {"nosuch": "1"})


@scenario()
def update_twice_the_same_column(t: Target, s: DataFrame) -> None:
    t.table().update("k < 3", {"v": "1", "V": "2"})


@scenario()
def merge_upserts(t: Target, s: DataFrame) -> None:
    merge = t.table().merge(s, "t.k = s.k")
    merge = merge.whenMatchedUpdate(set={"p": "s.p", "v": "s.v + t.v"})
    merge.whenNotMatchedInsert(values={"k": "s.k", "v": "s.v"}).execute()


@scenario(columns="k long, p string, v int", rows="SELECT id k, 'a' p, 5 v FROM range(4)")
def merge_all_columns(t: Target, s: DataFrame) -> None:
    merge = t.table().merge(s, "t.k = s.k")
    merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()


@scenario()
def merge_all_with_a_column_too_few(t: Target, s: DataFrame) -> None:
    merge = t.table().merge(s, "t.k = s.k")
    merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()


@scenario(columns="k long, v int", by=(), rows="SELECT id k, 5 v FROM range(4)")
def merge_all_with_a_column_too_many(t: Target, s: DataFrame) -> None:
    merge = t.table().merge(s, "t.k = s.k")
    merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()


@scenario()
def merge_many_clauses(t: Target, s: DataFrame) -> None:
    merge = t.table().merge(s, "t.k = s.k")
    merge = merge.whenMatchedDelete("s.p = 'd'").whenMatchedUpdate("s.p = 'm'", {"v": "t.v + s.v"})
    merge = merge.whenMatchedUpdate(set={"v": "-5"})
    merge = merge.whenNotMatchedInsert("s.p = 'i'", {"k": "s.k"})
    merge = merge.whenNotMatchedBySourceUpdate("t.k = 7", {"v": "-1"})
    merge.whenNotMatchedBySourceDelete("t.k > 5").execute()


@scenario()
def merge_matches_nulls(t: Target, s: DataFrame) -> None:
    merge = t.table().merge(s.dropDuplicates(["p"]).where("p IS NULL"), "t.p <=> s.p AND t.k = 3")
    merge.whenMatchedUpdate(set={"v": "s.v"}).execute()


@scenario()
def merge_with_duplicate_matches(t: Target, s: DataFrame) -> None:
    merge = t.table().merge(s.union(s), "t.k = s.k")
    merge.whenMatchedUpdate(set={"v": "s.v"}).execute()


@scenario()
def merge_deletes_with_duplicate_matches(t: Target, s: DataFrame) -> None:
    t.table().merge(s.union(s), "t.k = s.k").whenMatchedDelete().execute()


@scenario()
def merge_deletes_and_inserts_with_duplicate_matches(t: Target, s: DataFrame) -> None:
    merge = t.table().merge(s.union(s), "t.k = s.k").whenMatchedDelete()
    merge.whenNotMatchedInsert(values={"k": "s.k", "p": "s.p"}).execute()


@scenario()
def merge_deletes_some_with_duplicate_matches(t: Target, s: DataFrame) -> None:
    t.table().merge(s.union(s), "t.k = s.k").whenMatchedDelete("s.v = 1").execute()


@scenario(differs="delta-spark refuses two matches of which only one acts; we take it")
def merge_with_duplicates_of_which_one_acts(t: Target, s: DataFrame) -> None:
    twice = t.spark.createDataFrame([(1, "a", 1), (1, "b", 2)], "k long, p string, v int")
    merge = t.table().merge(twice.alias("s"), "t.k = s.k")
    merge.whenMatchedUpdate("s.p = 'a'", {"v": "s.v"}).execute()


@scenario()
def merge_inserts_duplicates(t: Target, s: DataFrame) -> None:
    merge = t.table().merge(s.union(s), "t.k = s.k")
    merge.whenNotMatchedInsert(values={"k": "s.k", "p": "s.p"}).execute()


@scenario()
def merge_insert_names_source_columns_bare(t: Target, s: DataFrame) -> None:
    merge = t.table().merge(s, "t.k = s.k")
    merge.whenNotMatchedInsert("v > 20", {"k": "k", "p": "p", "v": "v + 1"}).execute()


@scenario()
def merge_by_source_names_target_columns_bare(t: Target, s: DataFrame) -> None:
    merge = t.table().merge(s, "t.k = s.k")
    merge.whenNotMatchedBySourceUpdate("k > 5", {"v": "v + 1"}).execute()


@scenario()
def merge_update_names_columns_bare(t: Target, s: DataFrame) -> None:
    t.table().merge(s, "t.k = s.k").whenMatchedUpdate(set={"v": "v + 1"}).execute()


@scenario()
def merge_insert_refers_to_target(t: Target, s: DataFrame) -> None:
    merge = t.table().merge(s, "t.k = s.k")
    merge.whenNotMatchedInsert(values={"k": "t.k", "p": "s.p"}).execute()


@scenario()
def merge_by_source_refers_to_source(t: Target, s: DataFrame) -> None:
    merge = t.table().merge(s, "t.k = s.k")
    merge.whenNotMatchedBySourceUpdate(set={"v": "s.v"}).execute()


@scenario()
def merge_updates_a_nested_field(t: Target, s: DataFrame) -> None:
    t.table().merge(s, "t.k = s.k").whenMatchedUpdate(set={"s.a": "s.v"}).execute()


@scenario()
def merge_updates_by_columns(t: Target, s: DataFrame) -> None:
    merge = t.table().merge(s, F.col("t.k") == F.col("s.k"))
    merge = merge.whenMatchedUpdate(F.col("s.v") > 1, {"v": F.col("s.v") * F.lit(2)})
    merge.whenNotMatchedInsert(values={"k": F.col("s.k"), "v": F.lit(None)}).execute()


@scenario()
def merge_overflows(t: Target, s: DataFrame) -> None:
    merge = t.table().merge(s, "t.k = s.k")
    merge.whenMatchedUpdate(set={"v": "s.k * 10000000000"}).execute()


@scenario()
def merge_into_itself(t: Target, s: DataFrame) -> None:
    same = t.spark.read.format("delta").load(t.path).alias("s")
    merge = t.table().merge(same, "t.k = s.k + 1")
    merge.whenMatchedUpdate(set={"v": "s.v"}).whenNotMatchedInsertAll().execute()


@scenario()
def merge_without_columns_of_the_condition(t: Target, s: DataFrame) -> None:
    merge = t.table().merge(s, "false").whenNotMatchedInsert(values={"k": "s.k"})
    merge.whenNotMatchedBySourceDelete("t.v > 30").execute()


WIDE: Final = "cast(100 AS bigint) k, 'z' p, 1 v, cast(1 AS decimal(8,2)) n, s, date'2024-01-01' at"
NESTED: Final = "(SELECT named_struct('a', 1, 'b', 'x') s)"


@scenario()
def replace_where_partition(t: Target, s: DataFrame) -> None:
    t.write(f"SELECT {WIDE} FROM {NESTED}".replace("'z'", "'x/ y'"), replaceWhere="p = 'x/ y'")


@scenario()
def replace_where_rows(t: Target, s: DataFrame) -> None:
    t.write(f"SELECT {WIDE} FROM {NESTED}", replaceWhere="v < 40")


@scenario()
def replace_where_null_partition(t: Target, s: DataFrame) -> None:
    t.write(
        f"SELECT {WIDE} FROM {NESTED}".replace("'z'", "cast(NULL AS string)"),
        replaceWhere="p IS NULL",
    )


@scenario()
def replace_where_rows_do_not_match(t: Target, s: DataFrame) -> None:
    t.write(f"SELECT {WIDE} FROM {NESTED}", replaceWhere="v > 40")


@scenario()
def replace_where_unknown_match(t: Target, s: DataFrame) -> None:
    t.write(
        f"SELECT {WIDE} FROM {NESTED}".replace(" 1 v", " cast(NULL AS int) v"),
        replaceWhere="v > 40",
    )


@scenario()
def replace_where_by_expression(t: Target, s: DataFrame) -> None:
    t.overwrite(f"SELECT {WIDE} FROM {NESTED}", "v % 20 = 1 OR length(p) = 1")


@scenario()
def replace_where_by_expression_with_other_rows(t: Target, s: DataFrame) -> None:
    t.overwrite(f"SELECT {WIDE} FROM {NESTED}", "v % 20 = 10 OR length(p) > 1")


@scenario()
def replace_where_by_expression_without_rows(t: Target, s: DataFrame) -> None:
    t.overwrite(f"SELECT {WIDE} FROM {NESTED} WHERE false", "v % 20 = 10 AND s.a > 1")


@scenario()
def replace_where_without_rows(t: Target, s: DataFrame) -> None:
    t.write(f"SELECT {WIDE} FROM {NESTED} WHERE false", replaceWhere="k > 3")


@scenario()
def replace_where_adds_a_column(t: Target, s: DataFrame) -> None:
    t.write(f"SELECT {WIDE}, 5 w FROM {NESTED}", replaceWhere="v < 40", mergeSchema="true")


@scenario(differs="delta-spark ignores replaceWhere in an append; we refuse it")
def append_with_replace_where(t: Target, s: DataFrame) -> None:
    t.write(f"SELECT {WIDE} FROM {NESTED}", "append", replaceWhere="v < 40")


@scenario(differs="delta-spark ignores overwriteSchema beside replaceWhere; we refuse it")
def replace_where_with_overwrite_schema(t: Target, s: DataFrame) -> None:
    t.write(f"SELECT {WIDE} FROM {NESTED}", replaceWhere="v < 40", overwriteSchema="true")


@scenario()
def dynamic_overwrite(t: Target, s: DataFrame) -> None:
    t.write(
        f"SELECT {WIDE} FROM {NESTED}".replace("'z'", "cast(NULL AS string)"),
        partitionOverwriteMode="dynamic",
    )


@scenario()
def dynamic_overwrite_of_no_rows(t: Target, s: DataFrame) -> None:
    t.write(f"SELECT {WIDE} FROM {NESTED} WHERE false", partitionOverwriteMode="dynamic")


@scenario(by=())
def dynamic_overwrite_without_partitions(t: Target, s: DataFrame) -> None:
    t.write(f"SELECT {WIDE} FROM {NESTED}", partitionOverwriteMode="dynamic")


@scenario()
def dynamic_with_replace_where(t: Target, s: DataFrame) -> None:
    t.write(f"SELECT {WIDE} FROM {NESTED}", replaceWhere="v < 40", partitionOverwriteMode="dynamic")


@scenario()
def merge_schema_appends_columns(t: Target, s: DataFrame) -> None:
    t.write("SELECT 9L AS k, 'z' AS p, 'n' AS w, map('a', 1) AS m", "append", mergeSchema="true")


@scenario()
def merge_schema_adds_a_nested_field(t: Target, s: DataFrame) -> None:
    query = "SELECT 9L AS k, 'z' AS p, named_struct('a', 1, 'b', 'x', 'c', 2.5D) AS s"
    t.write(query, "append", mergeSchema="true")


@scenario()
def merge_schema_other_type(t: Target, s: DataFrame) -> None:
    t.write("SELECT 9L AS k, 'z' AS p, 'text' AS v", "append", mergeSchema="true")


@scenario()
def merge_schema_wider_type(t: Target, s: DataFrame) -> None:
    t.write("SELECT 9L AS k, 'z' AS p, 90000000000L AS v", "append", mergeSchema="true")


@scenario()
def merge_schema_other_case(t: Target, s: DataFrame) -> None:
    t.write("SELECT 9L AS K, 'z' AS P, 1 AS V, true AS W", "append", mergeSchema="true")


@scenario()
def merge_schema_in_an_overwrite(t: Target, s: DataFrame) -> None:
    t.write("SELECT 9L AS k, 'z' AS p, 'n' AS w", mergeSchema="true")


@scenario(differs="delta-spark refuses rows without the partition column; for us they have a null")
def append_without_the_partition_column(t: Target, s: DataFrame) -> None:
    t.write("SELECT 9L AS k", "append")


@scenario()
def append_without_merge_schema(t: Target, s: DataFrame) -> None:
    t.write("SELECT 9L AS k, 'z' AS p, 'n' AS w", "append")


@scenario()
def overwrite_schema_without_partitions(t: Target, s: DataFrame) -> None:
    t.write("SELECT 'a' AS k, 7 AS q", overwriteSchema="true")


@scenario()
def overwrite_schema_keeping_the_partition_column(t: Target, s: DataFrame) -> None:
    t.write("SELECT 'a' AS k, 'x' AS p", overwriteSchema="true")


@scenario()
def overwrite_schema_with_the_same_columns(t: Target, s: DataFrame) -> None:
    t.write(f"SELECT {WIDE} FROM {NESTED}", overwriteSchema="true")


@scenario()
def overwrite_schema_with_partitions(t: Target, s: DataFrame) -> None:
    t.write("SELECT 'a' AS k, 7 AS q", by=("q",), overwriteSchema="true")


@scenario(differs="delta-spark ignores the dynamic mode beside overwriteSchema; we refuse it")
def overwrite_schema_dynamic(t: Target, s: DataFrame) -> None:
    query = "SELECT 'a' AS k, 'x' AS p"
    t.write(query, overwriteSchema="true", partitionOverwriteMode="dynamic")


@scenario()
def overwrite_schema_in_an_append(t: Target, s: DataFrame) -> None:
    t.write("SELECT 9L AS k, 'z' AS p, 'n' AS w", "append", overwriteSchema="true")


@scenario()
def overwrite_with_another_type(t: Target, s: DataFrame) -> None:
    t.write("SELECT 'a' AS k")


@scenario(columns="k int, v int NOT NULL", by=(), rows="SELECT 1 k, 2 v")
def update_not_null_to_null(t: Target, s: DataFrame) -> None:
    t.table().update(set={"v": "NULL"})
