"""A small run of the table bench: its figures are complete and consistent; no time is asserted."""

from pathlib import Path

import pytest
from deltalake import DeltaTable, Schema
from deltalake.transaction import create_table_with_add_actions

from bench import checkpoints, committer_cpu, committer_state, open_table, read_table, restart
from bench.committing import miscounted
from bench.delta_rs_writers import SCHEMA_STRING, add_of
from bench.slow_store import BUCKET, SlowStore
from tidegate_delta.log.file_names import Version, commit_name, in_log
from tidegate_runtime.storage.log_store import Put
from tidegate_runtime.storage.object_store import ObjectStore

FILES = 1_000
ROWS = 1_000


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_opening_is_measured_for_every_shape_of_log(tmp_path: Path) -> None:
    result = open_table.figures(tmp_path, 1, FILES)

    assert [item.goal[:2] for item in result if item.goal != "-"] == [
        "S3",
        "S1",
        "S2",
        "S4",
        "S1",
        "S2",
    ]
    assert all(figure.ratio > 0 for figure in result)


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_checkpoints_are_measured(tmp_path: Path) -> None:
    result = checkpoints.figures(tmp_path, 1, FILES)

    assert [figure.measure[:2] for figure in result] == ["K1", "K1", "K1", "K2", "K3", "K5", "K7"]
    assert all(figure.ratio > 0 for figure in result)


def test_the_slow_store_holds_one_log_for_us_and_for_delta_rs() -> None:
    paths = [f"month=1/{number}.parquet" for number in range(3)]
    with SlowStore(put_ms=1.0) as store:
        root = f"s3://{BUCKET}/t"
        schema = Schema.from_json(SCHEMA_STRING)
        create_table_with_add_actions(
            root, schema, [], "error", partition_by=["month"], storage_options=store.theirs
        )
        table = DeltaTable(root, storage_options=store.theirs)
        for path in paths:
            table.create_write_transaction([add_of(path)], "append", schema, ["month"])
            table.update_incremental()
        ours = ObjectStore(root, store.ours)
        before = store.count("t")
        listed = [item.path for item in ours.list_from("_delta_log", "")]
        first = in_log(commit_name(Version(0)))
        assert ours.put_if_absent(first, b"other", 10.0) is Put.LOST
        assert ours.put_if_absent(in_log(commit_name(Version(4))), b"mine", 10.0) is Put.WON
        assert ours.put_if_absent(in_log(commit_name(Version(5))), b"mine too", 10.0) is Put.WON
        asked = store.count("t") - before
        commits = store.commits("t")
    assert listed == [in_log(commit_name(Version(version))) for version in range(4)]
    assert len(commits) == 6
    assert miscounted(commits[:4], paths) == 0
    assert miscounted(commits[:4], [*paths[:2], "another"]) == 2
    assert asked == {"LIST": 1, "PUT 412": 1, "GET 200": 1, "PUT 200": 2}


@pytest.mark.timeout(300)
def test_requests_to_an_open_table_are_measured(tmp_path: Path) -> None:
    result = read_table.figures(tmp_path, 1, FILES, ROWS)

    assert [item.goal[:2] for item in result] == ["S6", "R2", "R2", "F1", "F1"]
    assert all(figure.ratio > 0 for figure in result)
    assert [figure.measure for figure in result[1:3]] == [
        "plan a scan of 10 of 1,000 files, by partition and statistics",
        "plan a scan of 10 of 1,000 files, by statistics alone",
    ]


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_what_a_committer_costs_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(committer_cpu, "ENTRIES", 2)
    monkeypatch.setattr(committer_state, "LONG_LOG", 50)
    result = [
        *committer_cpu.figures(1),
        *committer_state.figures(tmp_path, 1, FILES),
        *restart.figures(tmp_path, 1, FILES),
    ]

    named = [item.goal.partition(":")[0] for item in result]
    assert named == [*["C11"] * 4, "S6", "<= 10 ms", "C10", "C10", "S5", "S5"]
    assert all(figure.ratio > 0 for figure in result)
