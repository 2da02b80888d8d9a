"""delta-spark does the same through the gate as alone: the judged scripts and changes of rows."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.sql import SparkSession

from tests.integration import judged_scripts
from tests.integration.conftest import Line
from tests.integration.judged_scenarios import SCENARIOS, Target, is_refused
from tests.integration.judged_scripts import SCRIPTS, VECTORS
from tests.integration.judged_tables import observed
from tests.integration.proposers import values
from tests.integration.test_log_store import Driver, past_the_gate
from tests.integration.test_spark_judge import PADDING, Both
from tidegate_local.child_processes import ServiceProcess

pytestmark = [
    pytest.mark.spark,
    pytest.mark.broker,
    pytest.mark.nightly,
    pytest.mark.timeout(600),
]
ALONE: Final = {"spark.delta.logStore.file.impl": "io.delta.storage.HDFSLogStore"}
"""What delta-spark takes for local folders by itself."""


def script_result(spark: SparkSession, folder: str, name: str) -> dict[str, Any]:
    """Run a judged script with delta-spark, and return what it made of its table."""
    [script] = [one for one in SCRIPTS if one.name == name]
    columns, rows = judged_scripts.COLUMNS, judged_scripts.ROWS
    both = Both(spark, Path(folder), {})
    place = name.replace(" ", "-")
    path = both.made("theirs", place, columns, script.by, script.properties, rows)
    target = Target(spark, "theirs", path, {})
    refused = [is_refused(partial(step, target), "theirs") for step in script.steps]
    return {"refused": refused, **_made(path), **observed(spark, path)}


def change_result(spark: SparkSession, folder: str, name: str, vectors: bool) -> dict[str, Any]:
    """Run a judged change of rows with delta-spark, and return what it made of its table."""
    [scenario] = [one for one in SCENARIOS if one.__name__ == name]
    properties = VECTORS if vectors else {}
    both = Both(spark, Path(folder), {})
    place = f"{name}-{vectors}"
    path = both.made("theirs", place, scenario.columns, scenario.by, properties, scenario.rows)
    spark.conf.set(PADDING, "false")
    returned = scenario.run(spark, "theirs", path, {})
    spark.conf.unset(PADDING)
    return {"returned": returned, **_made(path), **observed(spark, path)}


def _made(path: str) -> dict[str, Any]:
    """Return a table's folder and, for each version, how many actions of each kind it has."""
    files = sorted((Path(path) / "_delta_log").glob("[0-9]*.json"))
    kinds = [
        Counter(next(iter(json.loads(line))) for line in file.read_text().splitlines())
        for file in files
    ]
    assert [int(file.stem) for file in files] == list(range(len(files)))
    return {"folder": Path(path).name, "versions": [sorted(each.items()) for each in kinds]}


@pytest.fixture(scope="module")
def committer(shared_line: Line) -> ServiceProcess:
    return shared_line.started("committer")


@pytest.fixture(scope="module")
def drivers(shared_line: Line, committer: ServiceProcess) -> Iterator[Sequence[Driver]]:
    """Yield a driver whose commits go through the gate, and one of delta-spark alone."""
    through = Driver(shared_line.kafka, shared_line.tables / "through").ready()
    alone = Driver(shared_line.kafka, shared_line.folder / "alone", ALONE).ready()
    yield through, alone
    through.kill()
    alone.kill()


def check(drivers: Sequence[Driver], line: Line, committer: ServiceProcess, call: str) -> None:
    """Fail if a call has another result through the gate, or a version did not come through it.

    `folder` in the call is a driver's own.
    """
    head = "from tests.integration.test_log_store_judge import *\n"
    head += "folder = spark.conf.get('spark.sql.warehouse.dir').removeprefix('file:')\n"
    with ThreadPoolExecutor(2) as pool:
        through, alone = pool.map(lambda one: one.run(f"{head}result = {call}"), drivers)
    assert through == alone
    assert past_the_gate(committer) == set()
    came = {
        record["version"]
        for record in values(line.kafka, line.kafka.topics.commits)
        if record["table_root"].endswith(f"/{through['folder']}")
    }
    assert came == set(range(len(through["versions"])))


@pytest.mark.parametrize("name", [script.name for script in SCRIPTS])
def test_a_script_through_the_gate_has_the_result_of_delta_spark_alone(
    name: str, drivers: Sequence[Driver], committer: ServiceProcess, shared_line: Line
) -> None:
    check(drivers, shared_line, committer, f"script_result(spark, folder, {name!r})")


@pytest.mark.parametrize("vectors", [False, True], ids=["copies", "vectors"])
@pytest.mark.parametrize("name", [scenario.__name__ for scenario in SCENARIOS])
def test_a_change_of_rows_through_the_gate_has_the_result_of_delta_spark_alone(
    name: str,
    vectors: bool,
    drivers: Sequence[Driver],
    committer: ServiceProcess,
    shared_line: Line,
) -> None:
    check(drivers, shared_line, committer, f"change_result(spark, folder, {name!r}, {vectors})")
