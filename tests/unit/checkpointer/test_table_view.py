"""What a table view knows of a table, and how much it holds in memory to know it."""

import gc
from pathlib import Path
from weakref import ref

import pytest

from tests.unit.cdc_publisher.written_table import WrittenTable, rows
from tidegate_checkpointer import table_view
from tidegate_delta.log.commit import Commit
from tidegate_delta.snapshots.snapshot import Snapshot
from tidegate_runtime.storage.local_store import LocalStore
from tidegate_runtime.storage.log_store import LogStore
from tidegate_runtime.table_io import open_table


def test_a_commit_is_let_go_before_its_version_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = WrittenTable(tmp_path).create()
    table.append(rows(1))
    held: list[ref[Commit]] = []
    read = table_view.read_version

    def read_version(store: LogStore, version: int) -> Commit:
        commit = read(store, version)
        held.append(ref(commit))
        return commit

    def open_snapshot(store: LogStore, version: int) -> Snapshot:
        gc.collect()
        assert [one() for one in held] == [None], "a large commit is in memory once"
        return open_table.open_snapshot(store, version)

    monkeypatch.setattr(table_view, "read_version", read_version)
    monkeypatch.setattr(table_view, "open_snapshot", open_snapshot)
    found = table_view.view_from_log(LocalStore(table.root), 5)
    assert found.learn(found.head).num_files == len(table.files)
    assert len(held) == 1
