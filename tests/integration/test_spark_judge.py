"""What Table and format("tidegate") do to rows, judged by delta-spark in the same session.

It needs a process of its own (`make night-judge`): a JVM without delta-spark's jars can't get them.
"""

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from delta import DeltaTable, configure_spark_with_delta_pip
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException, PySparkRuntimeError
from pyspark.sql import DataFrame, SparkSession

from tests.integration import judged_scripts
from tests.integration.conftest import Line
from tests.integration.judged_conditions import COLUMNS, CONDITIONS, ROWS
from tests.integration.judged_scenarios import SCENARIOS, Scenario, Side, Target, is_refused
from tests.integration.judged_scripts import SCRIPTS, VECTORS, Script
from tests.integration.judged_tables import keys_by_delta_rs, lines, observed
from tidegate_delta.data_skipping.partition_predicates import Predicate, evaluate, prune
from tidegate_delta.errors import InvalidRequest, TidegateError, UnsupportedFeature
from tidegate_delta.schema.column_mapping import mode_of
from tidegate_delta.schema.types import parse_schema
from tidegate_producers.cached_clients import client_for, store_for
from tidegate_producers.options import for_writing
from tidegate_producers.table import Table
from tidegate_producers.table.target_frame import target_frame
from tidegate_producers.writing.table_requests import register
from tidegate_runtime.conditions.sql_condition import predicate_of, wider_predicate_of
from tidegate_runtime.table_io.data_file_reader import partition_values_of, read_rows, rows_of
from tidegate_runtime.table_io.deletion_vector_reader import live_rows
from tidegate_runtime.table_io.open_table import open_snapshot

pytestmark = [
    pytest.mark.spark,
    pytest.mark.broker,
    pytest.mark.nightly,
    pytest.mark.timeout(1_500),
]

SIDES: Final[tuple[Side, ...]] = ("theirs", "ours")
PADDING: Final = "spark.sql.readSideCharPadding"
CACHE_PRUNING: Final = "spark.sql.inMemoryColumnarStorage.partitionPruning"
REFUSED: Final = "refused"
EVALUATED: Final = ("ours vectors", "theirs partitions")
"""Tables on which Spark evaluates each condition; pruning is judged on all."""

REFUSALS: Final = (PySparkException, Py4JJavaError, TidegateError)
CONFIG: Final = {
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    """Return a session with delta-spark; skip where its jars can't be had."""
    if SparkSession.getActiveSession() is not None:
        pytest.skip("another session runs in this process, without delta-spark")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.appName("tidegate-judge").master("local[2]")
    for key, value in CONFIG.items():
        builder = builder.config(key, value)
    try:
        session = configure_spark_with_delta_pip(builder).getOrCreate()
    except (PySparkException, PySparkRuntimeError):
        pytest.skip("delta-spark's jar can't be had: no Maven repository answers")
    session.sparkContext.setLogLevel("OFF")
    return session


@dataclass
class Both:
    """Tables of delta-spark and tables of ours, with a running committer."""

    spark: SparkSession
    folder: Path
    options: Mapping[str, str]

    def made(
        self,
        side: Side,
        name: str,
        columns: str,
        by: tuple[str, ...],
        properties: Mapping[str, str],
        rows: str,
    ) -> str:
        """Make a table with some rows, and return its folder."""
        path = str(self.folder / f"{side}-{name}")
        if side == "ours":
            Table.create(self.spark, path, columns, by, properties, self.options)
            writer = self.spark.sql(rows).write.format("tidegate").options(**self.options)
        else:
            listed = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
            self.spark.sql(
                f"CREATE TABLE delta.`{path}` ({columns}) USING delta"
                + (f" PARTITIONED BY ({', '.join(by)})" if by else "")
                + (f" TBLPROPERTIES ({listed})" if listed else "")
            )
            writer = self.spark.sql(rows).write.format("delta")
        writer.mode("append").save(path)
        return path

    def delete(self, side: Side, path: str, condition: str) -> None:
        if side == "ours":
            Table(self.spark, path, self.options).delete(condition)
        else:
            # With it, delta-spark can't delete rows of a table with a CHAR column.
            self.spark.conf.set(PADDING, "false")
            DeltaTable.forPath(self.spark, path).delete(condition)
            self.spark.conf.unset(PADDING)


@pytest.fixture(scope="module")
def both(spark: SparkSession, shared_line: Line) -> Both:
    shared_line.started("committer")
    options = shared_line.spark_options
    return Both(spark, shared_line.tables, options)


@pytest.fixture(scope="module")
def many_types(both: Both) -> dict[str, str]:
    """Return tables with the same rows: of each side, with vectors or with partitions."""
    result = {}
    for side in SIDES:
        for vectors in (False, True):
            by = () if vectors else ("p",)
            properties = VECTORS if vectors else {}
            path = both.made(side, f"types-{vectors}", COLUMNS, by, properties, ROWS)
            both.delete(side, path, "k = 11")
            result[f"{side} {'vectors' if vectors else 'partitions'}"] = path
    return result


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_conditions_select_the_rows_that_delta_spark_selects(
    ansi: str, both: Both, many_types: dict[str, str]
) -> None:
    both.spark.conf.set("spark.sql.ansi.enabled", ansi)
    # Spark skips cached rows by statistics that leave NaN out, and would misjudge.
    both.spark.conf.set(CACHE_PRUNING, "false")
    try:
        differing = []
        for difference in _differing(both, many_types):
            print(difference)  # noqa: T201  (a run that its limit ends shows it, too)
            differing.append(difference)
    finally:
        both.spark.conf.unset("spark.sql.ansi.enabled")
        both.spark.conf.unset(CACHE_PRUNING)
    assert not differing, "\n".join(differing)


def _differing(both: Both, tables: Mapping[str, str]) -> Iterator[str]:
    judge = both.spark.table(f"delta.`{tables['theirs vectors']}`").cache()
    selections = {name: _Selection(both, path) for name, path in tables.items()}
    for condition in CONDITIONS:
        wanted = _keys(partial(judge.where, condition))
        for name, selection in selections.items():
            if name in EVALUATED:
                result = selection.by_spark(condition)
                if result != wanted:
                    yield f"{name}: {condition}: Spark on our frame {result}, not {wanted}"
            by_us = selection.by_us(condition)
            if by_us not in (None, wanted):
                yield f"{name}: {condition}: our evaluation {by_us}, not {wanted}"
            if isinstance(wanted, list) and not selection.kept(condition) >= set(wanted):
                yield f"{name}: {condition}: pruned to {selection.kept(condition)}, not {wanted}"


def _keys(frame: Callable[[], DataFrame]) -> list[int] | str:
    try:
        return sorted(row["k"] for row in frame().select("k").collect())
    except REFUSALS:
        return REFUSED


class _Selection:
    """The rows that a condition selects of a table, by both ways of Table.delete."""

    def __init__(self, both: Both, path: str) -> None:
        self._spark = both.spark
        self._place = for_writing({**both.options, "path": path}).place
        self._store = store_for(self._place)
        self._snapshot = open_snapshot(self._store)
        self._metadata = self._snapshot.metadata
        self._schema = parse_schema(self._metadata.schema_string)

    def by_spark(self, condition: str) -> list[int] | str:
        """Return the keys that Spark finds in the pruned files."""
        return _keys(
            lambda: target_frame(
                self._spark, self._place, self._metadata, self._files(condition)
            ).where(condition)
        )

    def by_us(self, condition: str) -> list[int] | None:
        """Return the keys that our evaluation finds; None if it leaves the condition to Spark."""
        try:
            predicate = predicate_of(condition, self._schema)
        except (InvalidRequest, UnsupportedFeature):
            return None
        return sorted(self._read(prune(predicate, self._snapshot.files, self._metadata), predicate))

    def kept(self, condition: str) -> set[int]:
        """Return the keys of all rows in the pruned files."""
        paths = self._files(condition)["path"].to_pylist()
        return {key for path in paths for key in self._keys_of[path]}

    def _files(self, condition: str) -> pa.Table:
        predicate = wider_predicate_of(condition, self._schema)
        return prune(predicate, self._snapshot.files, self._metadata)

    @cached_property
    def _keys_of(self) -> dict[str, list[int]]:
        files = self._snapshot.files
        every = {"op": "true"}
        slices = [files.slice(at, 1) for at in range(files.num_rows)]
        return {item["path"][0].as_py(): self._read(item, every) for item in slices}

    def _read(self, files: pa.Table, predicate: Predicate) -> list[int]:
        keys: list[int] = []
        for file in rows_of(files):
            values = partition_values_of(self._metadata, dict(file["partitionValues"] or {}))
            choice, mode = live_rows(self._store, file), mode_of(self._metadata)
            fields = self._schema.fields
            for batch in read_rows(self._store, file["path"], fields, values, mode, choice):
                rows = pa.Table.from_batches([batch])
                mask = pc.fill_null(evaluate(predicate, rows), False)
                keys += rows.filter(mask).column("k").to_pylist()
        return keys


@pytest.mark.parametrize("vectors", [False, True], ids=["copies", "vectors"])
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: one.__name__)
def test_a_change_of_rows_has_the_result_that_delta_spark_has(
    scenario: Scenario, vectors: bool, both: Both
) -> None:
    results = {}
    properties = VECTORS if vectors else {}
    for side in SIDES:
        name = f"{scenario.__name__}-{vectors}"
        path = both.made(side, name, scenario.columns, scenario.by, properties, scenario.rows)
        both.spark.conf.set(PADDING, "false")
        results[side] = scenario.run(both.spark, side, path, both.options)
        both.spark.conf.unset(PADDING)
    if scenario.differs:
        assert results["ours"] != results["theirs"], scenario.differs
    else:
        assert results["ours"] == results["theirs"]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda one: one.name)
def test_a_script_has_the_result_that_delta_spark_has(script: Script, both: Both) -> None:
    results = {}
    paths = {}
    for side in SIDES:
        name = script.name.replace(" ", "-")
        columns, rows = judged_scripts.COLUMNS, judged_scripts.ROWS
        path = both.made(side, name, columns, script.by, script.properties, rows)
        target = Target(both.spark, side, path, both.options)
        refused = [is_refused(partial(step, target), side) for step in script.steps]
        results[side], paths[side] = {"refused": refused, **observed(both.spark, path)}, path
    _compare(results, script.differs)
    if "rows" in script.differs:
        return
    if UNREAD_BY_DELTA_RS.isdisjoint(results["theirs"]["features"]):
        _check_delta_rs(both, paths)
    _check_continued(both, paths)


def _check_delta_rs(both: Both, paths: Mapping[Side, str]) -> None:
    key = both.spark.read.format("delta").load(paths["ours"]).columns[0]
    read = {side: keys_by_delta_rs(path, key) for side, path in paths.items()}
    assert read["ours"] == read["theirs"], "delta-rs reads other rows"


def _compare(results: Mapping[Side, Mapping[str, Any]], differs: Mapping[str, str]) -> None:
    """Check that the tables of both sides are alike in all but what is said to differ."""
    differing = {
        part: f"{part}: ours {results['ours'][part]}\n theirs {expected}"
        for part, expected in results["theirs"].items()
        if results["ours"][part] != expected
    }
    assert differing.keys() == differs.keys(), "\n".join(differing.values()) or differs


def _check_continued(both: Both, paths: Mapping[Side, str]) -> None:
    """Let each engine delete a row of the other's table, then its owner another, and compare."""
    asked = for_writing({**both.options, "path": paths["theirs"]})
    assert register(client_for(asked.kafka), asked.place, None, 60.0).status == "committed"
    before = both.spark.read.format("delta").load(paths["theirs"])
    [key, *_], rows = before.columns, before.collect()
    values = sorted(row[key] for row in rows if row[key] is not None)[:2]
    refused = {}
    for owner, path in paths.items():
        guest: Side = "ours" if owner == "theirs" else "theirs"
        refused[owner] = [
            is_refused(partial(both.delete, side, path, f"{key} = {value}"), side)
            for side, value in zip((guest, owner), values, strict=False)
        ]
    assert refused["ours"] == refused["theirs"]
    left = {side: lines(both.spark.read.format("delta").load(path)) for side, path in paths.items()}
    assert left["ours"] == left["theirs"]


UNREAD_BY_DELTA_RS: Final = frozenset({"typeWidening", "typeWidening-preview"})
"""Features of tables that delta-rs does not read."""
MADE_BY_DELTA_SPARK: Final = (
    "CREATE TABLE delta.`{path}` (id BIGINT NOT NULL, v INT, label STRING DEFAULT concat('a', 'b'),"
    " at DATE, year INT GENERATED ALWAYS AS (year(at))) USING delta"
    " TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')"
)
WRONG_ROWS: Final = (
    ("SELECT 7L AS id, -1 AS v, 'x' AS label, DATE'2024-05-01' AS at", "CHECK few"),
    ("SELECT 7L AS id, CAST(NULL AS INT) AS v, 'x' AS label, DATE'2024-05-01' AS at", "CHECK few"),
    ("SELECT 7L AS id, 1 AS v, 'x' AS label, DATE'2024-05-01' AS at, 1999 AS year", "Column year"),
    ("SELECT CAST(NULL AS BIGINT) AS id, 1 AS v, 'x' AS label, DATE'2024-05-01' AS at", "'id'"),
)


def test_appends_to_a_table_with_constraints_fill_and_refuse_as_delta_spark_does(
    both: Both,
) -> None:
    paths = {side: str(both.folder / f"constraints-{side}") for side in ("ours", "theirs")}
    for path in paths.values():
        both.spark.sql(MADE_BY_DELTA_SPARK.format(path=path))
        both.spark.sql(f"ALTER TABLE delta.`{path}` ADD CONSTRAINT few CHECK (v >= 0)")
    asked = for_writing({**both.options, "path": paths["ours"]})
    assert register(client_for(asked.kafka), asked.place, None, 60.0).status == "committed"
    ours = Table(both.spark, paths["ours"], both.options)
    right = [
        "SELECT id, CAST(id AS INT) AS V, 'given' AS label, DATE'2024-05-01' AS at FROM range(3)",
        "SELECT 4L AS id, 4 AS v, DATE'2023-05-01' AS at, CAST(NULL AS STRING) AS label",
        "SELECT 5L AS id, 5 AS v, 'x' AS label, DATE'2022-05-01' AS at, 2022 AS year",
        "SELECT 6L AS id, 6 AS v, 'x' AS label, DATE(NULL) AS at, INT(NULL) AS year",
    ]
    for text in right:
        both.spark.sql(text).write.format("delta").mode("append").save(paths["theirs"])
        ours.append(both.spark.sql(text))
    before = ours.version()
    for text, result in WRONG_ROWS:
        rows = both.spark.sql(text)
        with pytest.raises(REFUSALS):
            rows.write.format("delta").mode("append").save(paths["theirs"])
        with pytest.raises(REFUSALS, match=f"{result}.*nothing was proposed"):
            ours.append(rows)
    assert ours.version() == before
    found = {
        side: both.spark.table(f"delta.`{path}`").orderBy("id").collect()
        for side, path in paths.items()
    }
    assert found["ours"] == found["theirs"]
    ours.append(both.spark.sql("SELECT 8L AS id, 8 AS v"), {"txnAppId": "job", "txnVersion": "1"})
    ours.append(both.spark.sql("SELECT 8L AS id, 8 AS v"), {"txnAppId": "job", "txnVersion": "1"})
    added = both.spark.table(f"delta.`{paths['ours']}`").where("id = 8").collect()
    assert [(row["label"], row["at"], row["year"]) for row in added] == [("ab", None, None)]
    plain = both.spark.sql("SELECT 9L AS id, 9 AS v").write.format("tidegate").mode("append")
    with pytest.raises(PySparkException, match=r"'label'.*Table\.append"):
        plain.options(**both.options).save(paths["ours"])
