"""Checkpoints from which alone we and delta-rs read the same table."""

import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.fakes.memory_store import MemoryStore
from tidegate_delta.checkpoints.last_checkpoint import LastCheckpoint, decode
from tidegate_delta.log.file_names import LAST_CHECKPOINT, checkpoint_name, commit_name, in_log
from tidegate_delta.snapshots.snapshot import Snapshot
from tidegate_runtime.storage.local_store import LocalStore
from tidegate_runtime.table_io.checkpoint_writer import move_hint_forward, write_classic
from tidegate_runtime.table_io.data_file_reader import read_table
from tidegate_runtime.table_io.open_table import open_snapshot

NOW_MS = 1_800_000_000_000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A table by delta-rs: three appends, a delete, an app transaction, odd partition values."""
    root = tmp_path / "table"
    for at in range(3):
        rows = pa.table({"p": ["a b", None], "v": [at, at + 10], "s": ["x", None]})
        write_deltalake(root, rows, mode="append", partition_by=["p"])
    table = DeltaTable(root)
    table.alter.set_table_properties({"delta.appendOnly": "false"})
    table.delete("v = 1")
    return root


def without_commits(root: Path, below: int) -> None:
    for version in range(below):
        (root / "_delta_log" / commit_name(version)).unlink()


def checkpointed(root: Path) -> tuple[LocalStore, Snapshot, LastCheckpoint]:
    store = LocalStore(f"file://{root}")
    snapshot = open_snapshot(store)
    return store, snapshot, write_classic(store, snapshot, NOW_MS)


def sorted_rows(rows: Any) -> list[Any]:
    return sorted(rows.to_pylist(), key=str)


def test_delta_rs_reads_the_table_from_the_checkpoint_alone(folder: Path) -> None:
    expected = sorted_rows(DeltaTable(folder).to_pyarrow_table())
    store, snapshot, hint = checkpointed(folder)
    assert move_hint_forward(store, hint)
    without_commits(folder, snapshot.version + 1)
    table = DeltaTable(folder)
    assert table.version() == snapshot.version
    assert sorted_rows(table.to_pyarrow_table()) == expected
    assert table.metadata().configuration == dict(snapshot.metadata.configuration)


def test_delta_rs_writes_on_from_the_checkpoint(folder: Path) -> None:
    store, snapshot, hint = checkpointed(folder)
    assert move_hint_forward(store, hint)
    without_commits(folder, snapshot.version)
    write_deltalake(folder, pa.table({"p": ["a b"], "v": [99], "s": ["z"]}), mode="append")
    rows = DeltaTable(folder).to_pyarrow_table()
    assert sorted_rows(rows) == sorted_rows(read_table(store, open_snapshot(store)))
    assert 99 in rows.column("v").to_pylist()


def test_typed_statistics_are_read_by_delta_rs_too(folder: Path) -> None:
    properties = {
        "delta.checkpoint.writeStatsAsStruct": "true",
        "delta.checkpoint.writeStatsAsJson": "false",
    }
    DeltaTable(folder).alter.set_table_properties(properties)
    before = DeltaTable(folder).get_add_actions(flatten=True)
    store, snapshot, hint = checkpointed(folder)
    assert move_hint_forward(store, hint)
    without_commits(folder, snapshot.version + 1)
    after = DeltaTable(folder).get_add_actions(flatten=True)
    for name in ("path", "num_records", "min.v", "max.v", "null_count.s", "partition.p"):
        assert sorted(after[name].to_pylist(), key=str) == sorted(before[name].to_pylist(), key=str)


def test_we_read_the_same_snapshot_back(folder: Path) -> None:
    store, before, hint = checkpointed(folder)
    rows = sorted_rows(read_table(store, before))
    without_commits(folder, before.version)
    after = open_snapshot(store)
    assert after.version == before.version == hint.version
    assert after.protocol == before.protocol
    assert after.metadata == before.metadata
    assert sorted_rows(read_table(store, after)) == rows
    kept = ["path", "partitionValues", "size", "modificationTime", "stats"]
    assert sorted_rows(after.files.select(kept)) == sorted_rows(before.files.select(kept))


def test_the_file_is_plain_parquet_of_three_level_maps(folder: Path) -> None:
    store, snapshot, hint = checkpointed(folder)
    content = store.read(in_log(checkpoint_name(snapshot.version)))
    assert content is not None
    file = pq.ParquetFile(io.BytesIO(content))
    paths = {file.schema.column(at).path for at in range(len(file.schema))}
    assert {"add.partitionValues.key_value.key", "protocol.readerFeatures.list.element"} <= paths
    assert hint.size == file.metadata.num_rows
    assert hint.size_in_bytes == len(content)
    assert hint.num_of_add_files == snapshot.files.num_rows
    assert not file.metadata.metadata


def test_the_hint_moves_forward_only() -> None:
    store = MemoryStore()
    for version in (5, 10):
        store.files[in_log(checkpoint_name(version))] = b"x"
    assert move_hint_forward(store, LastCheckpoint(10, 1))
    assert not move_hint_forward(store, LastCheckpoint(5, 1))
    assert not move_hint_forward(store, LastCheckpoint(10, 1))
    hint = decode(store.files[in_log(LAST_CHECKPOINT)])
    assert hint is not None
    assert hint.version == 10


@pytest.mark.parametrize(
    "there", [b"torn", b'{"version":99,"size":1,"checksum":"no"}', b'{"version":99,"size":1}']
)
def test_a_hint_that_leads_nowhere_is_replaced(there: bytes) -> None:
    store = MemoryStore()
    store.files[in_log(LAST_CHECKPOINT)] = there
    assert move_hint_forward(store, LastCheckpoint(5, 1))
    assert json.loads(store.files[in_log(LAST_CHECKPOINT)])["version"] == 5
