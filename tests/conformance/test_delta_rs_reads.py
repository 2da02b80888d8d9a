"""Tables written by proposals, as delta-rs reads them: rows, statistics, history."""

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tests.conformance.other_readers import delta_rs_rows
from tests.conformance.written_tables import TABLES, Deployment, Written, overwritten
from tidegate_producers.history.table_history import history
from tidegate_runtime.client import proposal_builders
from tidegate_runtime.table_io.data_file_reader import read_table
from tidegate_runtime.table_io.open_table import open_snapshot


@pytest.fixture(scope="module", params=TABLES, ids=lambda build: build.__name__)
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Written:
    folder: Path = tmp_path_factory.mktemp("tables")
    build: Callable[[Deployment], Written] = request.param
    return build(Deployment(folder))


def as_json(rows: pa.Table) -> list[str]:
    return [repr(row) for row in rows.to_pylist()]


def test_the_rows_are_the_same(written: Written) -> None:
    ours = read_table(written.store, open_snapshot(written.store)).sort_by("k")
    foreign = delta_rs_rows(DeltaTable(written.path))
    assert foreign.column_names == ours.column_names
    assert as_json(foreign.cast(ours.schema)) == as_json(ours)
    assert ours.num_rows > 0


def test_every_version_the_log_can_rebuild_is_the_same(written: Written) -> None:
    versions = [item.version for item in history(written.store)]
    for version in versions:
        ours = read_table(written.store, open_snapshot(written.store, version)).sort_by("k")
        foreign = delta_rs_rows(DeltaTable(written.path, version=version)).cast(ours.schema)
        assert as_json(foreign) == as_json(ours), f"version {version}"


def test_history_and_applications_are_the_same(written: Written) -> None:
    foreign = DeltaTable(written.path)
    ours = {item.version: item.operation for item in history(written.store)}
    assert {entry["version"]: entry["operation"] for entry in foreign.history()} == ours
    for app in open_snapshot(written.store).app_transactions.values():
        assert foreign.transaction_version(app.app_id) == app.version


def test_statistics_hold_for_the_rows_that_delta_rs_reads_in_each_file(written: Written) -> None:
    foreign = DeltaTable(written.path)
    snapshot = open_snapshot(written.store)
    stats = [json.loads(text) for text in snapshot.files["stats"].to_pylist()]
    assert sum(stat["numRecords"] for stat in stats) == delta_rs_rows(foreign).num_rows
    for file, one in zip(snapshot.files["path"].to_pylist(), stats, strict=True):
        assert one["nullCount"]["k"] == 0, file
    low, high = min(s["minValues"]["k"] for s in stats), max(s["maxValues"]["k"] for s in stats)
    keys = delta_rs_rows(foreign)["k"].to_pylist()
    assert (low, high) == (min(keys), max(keys))
    skipped = foreign.to_pyarrow_table(filters=[("k", "=", keys[-1])])
    assert skipped.num_rows == keys.count(keys[-1])


def test_actions_behind_a_claim_check_are_committed_like_any_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proposal_builders, "INLINE_BYTES_MAX", 500)
    table = overwritten(Deployment(tmp_path))
    checks = list((table.path / "_tidegate" / "proposals").glob("*.ndjson"))
    assert len(checks) == 3
    assert delta_rs_rows(DeltaTable(table.path))["k"].to_pylist() == [70, 71]
