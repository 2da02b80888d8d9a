"""Checkpoints from which alone we and delta-rs read the same table."""

import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.builders import add, creation, info, metadata, to_bytes
from tests.checkpoints import Form, put_classic, put_v2
from tests.fakes.memory_store import MemoryStore
from tests.support.table_files import parquet, protocol_listing
from tidegate_delta.checkpoints.last_checkpoint import LastCheckpoint, decode
from tidegate_delta.log.file_names import LAST_CHECKPOINT, checkpoint_name, commit_name, in_log
from tidegate_delta.snapshots.snapshot import Snapshot
from tidegate_runtime.storage.local_store import LocalStore
from tidegate_runtime.table_io.checkpoint_reader import whole_checkpoint
from tidegate_runtime.table_io.checkpoint_writer import hinted_version, move_hint_forward
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
    return store, snapshot, put_classic(store, snapshot, NOW_MS)


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


def hinted(store: MemoryStore) -> int:
    hint = decode(store.files[in_log(LAST_CHECKPOINT)])
    assert hint is not None
    return hint.version


def with_checkpoints(*versions: int) -> tuple[MemoryStore, dict[int, LastCheckpoint]]:
    """Return a table of 40 versions with checkpoints of some of them, and the hints to these."""
    store = MemoryStore()
    store.files[in_log(commit_name(0))] = to_bytes(creation())
    for version in range(1, 41):
        store.files[in_log(commit_name(version))] = to_bytes([info(), add(f"f{version}")])
    return store, {item: put_classic(store, open_snapshot(store, item), 0) for item in versions}


def test_the_hint_moves_forward_only() -> None:
    store, hints = with_checkpoints(5, 10)
    del store.files[in_log(checkpoint_name(10))]
    put_classic(store, open_snapshot(store, 10), 0)
    assert move_hint_forward(store, hints[10])
    assert not move_hint_forward(store, hints[5])
    assert not move_hint_forward(store, hints[10])
    assert hinted(store) == 10


class Late(MemoryStore):
    """A store in which another instance's work lands just before our first hint does."""

    work: Callable[[], None] | None = None

    def put(self, path: str, content: bytes) -> None:
        work, self.work = self.work, None
        if work is not None and path == in_log(LAST_CHECKPOINT):
            work()
        super().put(path, content)


@pytest.mark.parametrize("form", [None, Form.JSON, Form.PARQUET])
def test_the_hint_does_not_stay_where_a_slower_instance_took_it_back(form: Form | None) -> None:
    below, hints = with_checkpoints(20)
    store = Late()
    store.files = below.files
    first = [info(), protocol_listing("v2Checkpoint"), metadata()]
    store.files[in_log(commit_name(0))] = to_bytes(first)
    del store.files[in_log(checkpoint_name(20))]
    snapshot = open_snapshot(store, 30)

    def other_instance() -> None:
        if form is None:
            hint = put_classic(store, snapshot, 0)
        else:
            hint = put_v2(store, snapshot, form, 0, files_a_sidecar=7).hint
        assert move_hint_forward(store, hint)
        told.append(hint)

    told: list[LastCheckpoint] = []
    store.work = other_instance
    assert move_hint_forward(store, hints[20])
    hint = decode(store.files[in_log(LAST_CHECKPOINT)])
    assert hint is not None
    assert (hint.version, hint.size, hint.size_in_bytes) == (
        30,
        told[0].size,
        told[0].size_in_bytes,
    )


@pytest.mark.parametrize("cut", [0, 1, -1, -8, -200])
def test_a_torn_checkpoint_is_replaced_and_a_whole_one_of_another_writer_stays(cut: int) -> None:
    store, hints = with_checkpoints(20)
    path = in_log(checkpoint_name(20))
    ours, other = store.files[path], open_snapshot(store, 20)
    store.files[path] = theirs = parquet(pq.read_table(io.BytesIO(ours)), compression="gzip")
    result = put_classic(store, other, 1)
    assert (result.size, result.size_in_bytes) == (hints[20].size, len(theirs))
    assert store.files[path] is theirs
    store.files[path] = theirs[:cut]
    assert hinted_version(store) == -1
    assert put_classic(store, other, 1) == hints[20]
    assert store.files[path] == ours
    assert move_hint_forward(store, hints[20])
    assert (hinted_version(store), hinted_version(store, 21)) == (20, -1)


def test_a_checkpoint_without_one_of_its_sidecars_is_not_whole() -> None:
    store, _ = with_checkpoints()
    first = [info(), protocol_listing("v2Checkpoint"), metadata()]
    store.files[in_log(commit_name(0))] = to_bytes(first)
    hint = put_v2(store, open_snapshot(store, 20), Form.CLASSIC, 0, files_a_sidecar=7).hint
    assert whole_checkpoint(store, 20) == replace(hint, num_of_add_files=None)
    sidecar = next(path for path in store.files if "_sidecars" in path)
    del store.files[sidecar]
    assert whole_checkpoint(store, 20) is None
    again = put_v2(store, open_snapshot(store, 20), Form.CLASSIC, 0, files_a_sidecar=8).hint
    assert whole_checkpoint(store, 20) == replace(again, num_of_add_files=None)


def test_a_hint_that_contradicts_its_checksum_is_not_followed() -> None:
    store, hints = with_checkpoints(20)
    assert move_hint_forward(store, hints[20])
    content = store.files[in_log(LAST_CHECKPOINT)]
    store.files[in_log(LAST_CHECKPOINT)] = content.replace(b'"version":20', b'"version":40')
    assert hinted_version(store) == -1
    assert open_snapshot(store).version == 40
    assert move_hint_forward(store, hints[20])


@pytest.mark.parametrize(
    "there", [b"torn", b'{"version":99,"size":1,"checksum":"no"}', b'{"version":99,"size":1}']
)
def test_a_hint_that_leads_nowhere_is_replaced(there: bytes) -> None:
    store = MemoryStore()
    store.files[in_log(LAST_CHECKPOINT)] = there
    assert move_hint_forward(store, LastCheckpoint(5, 1))
    assert json.loads(store.files[in_log(LAST_CHECKPOINT)])["version"] == 5
