"""Checkpoints that we wrote, as delta-rs reads them; the commits before them are gone."""

import json
from collections.abc import Callable
from pathlib import Path

import orjson
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.checkpoints import Form, put_v2
from tests.conformance.other_readers import delta_rs_rows, kernel_rows
from tests.conformance.written_tables import Deployment, Written, copied_row_groups, reused_sidecars
from tidegate_delta.checkpoints import last_checkpoint
from tidegate_delta.checkpoints.last_checkpoint import LastCheckpoint
from tidegate_delta.data_skipping.file_pruning import prune
from tidegate_delta.log.file_names import LAST_CHECKPOINT, commit_name, in_log
from tidegate_delta.snapshots.file_action_columns import rows_to_adds
from tidegate_runtime.storage.local_store import LocalStore
from tidegate_runtime.storage.open_store import canonical_root
from tidegate_runtime.table_io.data_file_reader import read_table
from tidegate_runtime.table_io.open_table import open_snapshot

PROTOCOL = {
    "minReaderVersion": 3,
    "minWriterVersion": 7,
    "readerFeatures": ["v2Checkpoint"],
    "writerFeatures": ["v2Checkpoint", "appendOnly", "invariants"],
}
TYPED = {"delta.checkpoint.writeStatsAsStruct": "true"}
NO_TEXT = {**TYPED, "delta.checkpoint.writeStatsAsJson": "false"}


def written(folder: Path, properties: dict[str, str]) -> LocalStore:
    """Write a table of eight files in two partitions, some removed, with V2 checkpoints."""
    for number in range(4):
        rows = pa.table({"k": [2 * number, 2 * number + 1], "p": [0, 1], "s": ["a", None]})
        write_deltalake(folder, rows, partition_by=["p"], mode="append", configuration=properties)
    DeltaTable(folder).delete("k = 3")
    store = LocalStore(canonical_root(str(folder)))
    content = orjson.dumps({"protocol": PROTOCOL}) + b"\n"
    store.put_if_absent(in_log(commit_name(5)), content, 10.0)
    return store


@pytest.mark.parametrize("form", Form)
@pytest.mark.parametrize("properties", [{}, TYPED, NO_TEXT], ids=["text", "both", "typed"])
def test_a_v2_checkpoint_of_ours_is_read_the_same(
    form: Form, properties: dict[str, str], tmp_path: Path
) -> None:
    store = written(tmp_path, properties)
    put_v2(store, open_snapshot(store), form, now_ms=0, files_a_sidecar=2)
    store.put(in_log(LAST_CHECKPOINT), last_checkpoint.encode(LastCheckpoint(5, 10)))
    for version in range(5):
        store.delete(in_log(commit_name(version)))
    foreign = DeltaTable(tmp_path)
    theirs = delta_rs_rows(foreign)
    ours = read_table(store, open_snapshot(store)).sort_by("k")
    assert ours["k"].to_pylist() == [0, 1, 2, 4, 5, 6, 7]
    assert theirs.cast(ours.schema).select(ours.column_names).to_pylist() == ours.to_pylist()
    assert len(foreign.file_uris()) == open_snapshot(store).files.num_rows
    stated = pa.table(foreign.get_add_actions(flatten=True))
    assert stated["num_records"].to_pylist() == [1] * 7
    assert sorted(stated["min.k"].to_pylist()) == ours["k"].to_pylist()


@pytest.mark.parametrize("build", [reused_sidecars, copied_row_groups])
def test_a_checkpoint_that_keeps_what_it_can_of_the_last_is_read_the_same(
    build: Callable[[Deployment], Written], tmp_path: Path
) -> None:
    table = build(Deployment(tmp_path))
    foreign = DeltaTable(table.path)
    snapshot = open_snapshot(table.store)
    ours = read_table(table.store, snapshot).sort_by("k")
    assert ours.num_rows == 65
    for theirs in (delta_rs_rows(foreign), kernel_rows(table.path, int(snapshot.version))):
        assert theirs.cast(ours.schema).select(ours.column_names).to_pylist() == ours.to_pylist()
    assert len(foreign.file_uris()) == snapshot.files.num_rows


@pytest.mark.parametrize("properties", [{}, TYPED, NO_TEXT], ids=["text", "both", "typed"])
def test_statistics_prune_however_the_checkpoint_holds_them(
    properties: dict[str, str], tmp_path: Path
) -> None:
    store = written(tmp_path, properties)
    put_v2(store, open_snapshot(store), Form.PARQUET, now_ms=0)
    for version in range(5):
        store.delete(in_log(commit_name(version)))
    snapshot = open_snapshot(store)
    wanted = {"op": ">=", "column": ["k"], "type": "long", "value": 6}
    kept = prune(wanted, snapshot.files, snapshot.metadata)
    assert kept.num_rows == 2
    assert {json.loads(add.stats or "{}")["minValues"]["k"] for add in rows_to_adds(kept)} == {6, 7}
