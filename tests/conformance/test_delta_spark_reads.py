"""Tables that we write, as delta-spark reads them: rows, history, versions, the change feed."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.delta_spark_program import NO_JAR
from tests.conformance.written_tables import TABLES, Gate, Written, fed
from tidegate.producers.history import history
from tidegate.runtime.change_rows import read_changes
from tidegate.runtime.data_files import read_table
from tidegate.runtime.open_table import open_snapshot

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]
BUILT = (*TABLES, fed)
NAMES = [build.__name__ for build in BUILT]


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Written]:
    gate = Gate(tmp_path_factory.mktemp("tables"))
    return {build.__name__: build(gate) for build in BUILT}


@pytest.fixture(scope="module")
def foreign(tables: dict[str, Written]) -> dict[str, Any]:
    """Return what delta-spark read, all tables in one session of its own."""
    folders = {name: str(table.path) for name, table in tables.items()}
    done = subprocess.run(
        [sys.executable, "-m", "tests.conformance.delta_spark_program", *folders.values()],
        cwd=ROOT,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    unresolved = "UNRESOLVED DEPENDENCIES" in done.stderr or "unresolved dependency" in done.stderr
    if done.returncode == NO_JAR and unresolved:
        pytest.skip("delta-spark's jar can't be had: no Maven repository answers")
    assert done.returncode == 0, done.stderr[-4000:]
    read = json.loads(done.stdout)
    return {name: read[folder] for name, folder in folders.items()}


@pytest.mark.parametrize("name", NAMES)
def test_the_rows_are_the_same(
    name: str, tables: dict[str, Written], foreign: dict[str, Any]
) -> None:
    store = tables[name].store
    ours = read_table(store, open_snapshot(store)).sort_by("k")
    assert foreign[name]["columns"] == ours.column_names
    assert foreign[name]["rows"] == [repr(row) for row in ours.to_pylist()]


@pytest.mark.parametrize("name", NAMES)
def test_history_is_the_same(
    name: str, tables: dict[str, Written], foreign: dict[str, Any]
) -> None:
    ours = [[one.version, one.operation] for one in history(tables[name].store)]
    assert foreign[name]["history"] == ours


@pytest.mark.parametrize("name", NAMES)
def test_every_version_has_as_many_rows(
    name: str, tables: dict[str, Written], foreign: dict[str, Any]
) -> None:
    store = tables[name].store
    for version, count in foreign[name]["counts"].items():
        snapshot = open_snapshot(store, int(version))
        assert read_table(store, snapshot, ["k"]).num_rows == count, f"version {version}"


def test_changes_are_the_same(tables: dict[str, Written], foreign: dict[str, Any]) -> None:
    store = tables["fed"].store
    oldest = min(one.version for one in history(store))
    ours = sorted(repr(row) for row in read_changes(store, oldest).to_pylist())
    assert foreign["fed"]["changes"] == ours
    kinds = ("insert", "delete", "update_preimage", "update_postimage")
    assert all(any(f"'{kind}'" in row for row in ours) for kind in kinds)


def test_only_the_checkpointers_files_tell_of_the_first_versions(
    tables: dict[str, Written], foreign: dict[str, Any]
) -> None:
    for name in ("kept_short", "fed"):
        assert foreign[name]["history"][-1][0] > 0
        assert not (tables[name].path / "_delta_log" / f"{0:020d}.json").exists()
