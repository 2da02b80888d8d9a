"""Tables that we write, as delta-spark reads them: rows, history, versions, the change feed."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.delta_spark_program import FACTS, NO_JAR
from tests.conformance.feature_tables import FEATURE_TABLES
from tests.conformance.grown_tables import Grown
from tests.conformance.written_tables import (
    TABLES,
    Deployment,
    Written,
    copied_row_groups,
    fed,
    reused_sidecars,
)
from tidegate_delta.features.supported_features import FEATURES, Support
from tidegate_delta.log import protocol_versions
from tidegate_delta.log.actions import Action
from tidegate_producers.history.table_history import history
from tidegate_runtime.table_io.change_row_reader import read_changes
from tidegate_runtime.table_io.data_file_reader import read_table
from tidegate_runtime.table_io.open_table import open_snapshot

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
BUILT = (*TABLES, fed, reused_sidecars, copied_row_groups)
NAMES = [build.__name__ for build in BUILT]
FEATURED = [build.__name__ for build in FEATURE_TABLES]

FILES_OF_OTHERS = frozenset(
    {"variantType", "variantType-preview", "variantShredding", "variantShredding-preview"}
)
"""Features whose files we commit but never write ourselves."""


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Deployment:
    return Deployment(tmp_path_factory.mktemp("tables"))


@pytest.fixture(scope="module")
def tables(deployment: Deployment) -> dict[str, Written]:
    return {build.__name__: build(deployment) for build in BUILT}


@pytest.fixture(scope="module")
def featured(deployment: Deployment) -> dict[str, Grown]:
    """Return a table for each feature, with the checkpointer's files in their logs."""
    grown = {build.__name__: build(deployment) for build in FEATURE_TABLES}
    deployment.checkpointer.poll()
    return grown


@pytest.fixture(scope="module")
def miscounted(featured: dict[str, Grown]) -> Path:
    """Return a copy of a table whose checksum has a file too many."""
    table = featured["append_only"]
    copy = table.path.with_name("miscounted")
    shutil.copytree(table.path, copy)
    [*_, newest] = sorted((copy / "_delta_log").glob("*.crc"))
    counted = json.loads(newest.read_text("utf-8"))
    newest.write_text(json.dumps({**counted, "numFiles": counted["numFiles"] + 1}), "utf-8")
    return copy


@pytest.fixture(scope="module")
def foreign(
    tables: dict[str, Written], featured: dict[str, Grown], miscounted: Path
) -> dict[str, Any]:
    """Return what delta-spark read of all tables, in one session of its own."""
    asked = {name: FACTS + str(table.path) for name, table in featured.items()}
    asked["miscounted"] = FACTS + str(miscounted)
    folders = {name: str(table.path) for name, table in tables.items()} | asked
    done = subprocess.run(
        [sys.executable, "-m", "tests.conformance.delta_spark_program", *folders.values()],
        cwd=ROOT,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=840,
        check=False,
    )
    unresolved = "UNRESOLVED DEPENDENCIES" in done.stderr or "unresolved dependency" in done.stderr
    if done.returncode == NO_JAR and unresolved:
        pytest.skip("delta-spark's jar can't be had: no Maven repository answers")
    assert done.returncode == 0, done.stderr[-4000:]
    read = json.loads(done.stdout.splitlines()[-1])
    return {name: read[folder.removeprefix(FACTS)] for name, folder in folders.items()}


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
    ours = [[item.version, item.operation] for item in history(tables[name].store)]
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
    oldest = min(item.version for item in history(store))
    ours = sorted(repr(row) for row in read_changes(store, oldest).to_pylist())
    assert foreign["fed"]["changes"] == ours
    kinds = ("insert", "delete", "update_preimage", "update_postimage")
    assert all(any(f"'{kind}'" in row for row in ours) for kind in kinds)


def test_the_first_versions_are_read_from_the_checkpointers_files_alone(
    tables: dict[str, Written], foreign: dict[str, Any]
) -> None:
    for name in ("kept_short", "fed"):
        assert foreign[name]["history"][-1][0] > 0
        assert not (tables[name].path / "_delta_log" / f"{0:020d}.json").exists()


@pytest.fixture(params=FEATURED)
def both(
    request: pytest.FixtureRequest, featured: dict[str, Grown], foreign: dict[str, Any]
) -> tuple[Grown, dict[str, Any]]:
    """Return a feature's table, and what delta-spark read of it."""
    return featured[request.param], foreign[request.param]


Both = tuple[Grown, dict[str, Any]]


def test_rows_of_every_feature_are_the_same_now_and_a_version_before(both: Both) -> None:
    table, result = both
    assert "refused" not in result
    head = table.snapshot
    assert result["version"] == head.version
    for version, rows in ((head.version, "rows"), (head.version - 1, "rows_before")):
        ours = read_table(table.store, open_snapshot(table.store, version)).sort_by("k")
        assert result[rows] == [repr(row) for row in ours.to_pylist()], f"version {version}"
    assert result["rows"]


def test_both_read_the_same_of_every_feature_from_the_log(both: Both) -> None:
    table, result = both
    head = table.snapshot
    assert _comparable(result["metadata"]) == _comparable(_plain(head.metadata))
    assert _comparable(result["protocol"]) == _comparable(_plain(head.protocol))
    domains = [item["domainMetadata"] for item in result["domains"]]
    assert {domain["domain"]: domain["configuration"] for domain in domains} == {
        name: one.configuration for name, one in head.domains.items()
    }
    transactions = [one["txn"] for one in result["transactions"]]
    assert {transaction["appId"]: transaction["version"] for transaction in transactions} == {
        name: one.version for name, one in head.app_transactions.items()
    }
    assert result["files"] == head.files.num_rows
    assert result["bytes"] == sum(head.files["size"].to_pylist())


def test_tables_whose_rows_the_gate_deleted_by_vectors_can_be_vacuumed(
    foreign: dict[str, Any],
) -> None:
    # No removed file is older than the retention.
    assert foreign["row_deletes"]["vacuumed"] == []
    assert foreign["tracked"]["vacuumed"] == []


def test_a_vector_in_the_log_stops_vacuum_and_so_the_gate_writes_none(
    foreign: dict[str, Any],
) -> None:
    assert "MatchError" in foreign["cdc_recorded"]["vacuumed"]


def test_checksums_that_we_write_hold_for_delta_spark(both: Both) -> None:
    table, result = both
    assert result["checksum_holds"] is (None if table.by_hand else True)


def test_a_checksum_that_does_not_hold_is_noticed(foreign: dict[str, Any]) -> None:
    assert "DELTA_TXN_LOG_FAILED_INTEGRITY" in foreign["miscounted"]["refused"]


def test_row_ids_that_the_committer_gave_are_the_same(
    featured: dict[str, Grown], foreign: dict[str, Any]
) -> None:
    for name in ("tracked", "tracked_in_mid_life", "as_iceberg_v3"):
        ours = [[k, *result] for k, result in sorted(featured[name].row_ids().items())]
        assert foreign[name]["row_ids"] == ours
        assert len({row_id for _, row_id, _ in ours}) == len(ours) > 1


def test_versions_are_of_the_times_that_stand_in_them(
    featured: dict[str, Grown], foreign: dict[str, Any]
) -> None:
    for name, least in (("timed", 3), ("timed_in_mid_life", 2)):
        log = sorted((featured[name].path / "_delta_log").glob("[0-9]*[0-9].json"))
        infos = [json.loads(path.read_text("utf-8").splitlines()[0])["commitInfo"] for path in log]
        ours = {str(at): one.get("inCommitTimestamp") for at, one in enumerate(infos)}
        stated = {version: at for version, at in ours.items() if at is not None}
        assert len(stated) == least
        assert {version: foreign[name]["times_ms"][version] for version in stated} == stated


def test_changes_in_change_files_are_the_same(
    featured: dict[str, Grown], foreign: dict[str, Any]
) -> None:
    ours = read_changes(featured["cdc_recorded"].store, 0).to_pylist()
    assert foreign["cdc_recorded"]["changes"] == sorted(map(repr, ours))
    assert [row["_commit_version"] for row in ours].count(2) == 3


def test_clustering_columns_are_listed_by_their_current_names(foreign: dict[str, Any]) -> None:
    assert foreign["clustered"]["clustering"] == ["t", "k"]


def test_every_feature_that_we_write_is_in_some_table(featured: dict[str, Grown]) -> None:
    protocols = [table.snapshot.protocol for table in featured.values()]
    listed = {
        name for protocol in protocols for name in protocol_versions.writer_features(protocol)
    }
    written = {name for name, one in FEATURES.items() if one.writes is not Support.NO}
    assert written - FILES_OF_OTHERS <= listed


def _plain(action: Action) -> dict[str, Any]:
    """Return an action as the log writes it."""
    return action.model_dump(mode="json", by_alias=True, exclude_none=True)


def _comparable(plain: dict[str, Any]) -> dict[str, Any]:
    """Return an action with sorted features, its schema as an object, and no nulls."""
    result = {key: value for key, value in plain.items() if value is not None}
    for key in ("readerFeatures", "writerFeatures"):
        if key in result:
            result[key] = sorted(result[key])
    if "schemaString" in result:
        result["schemaString"] = json.loads(result["schemaString"])
    return result
