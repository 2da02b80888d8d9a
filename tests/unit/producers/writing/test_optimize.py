"""Compaction and purge: which files are written anew, what is proposed, and a second run."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest

from tests.unit.producers.writing.test_table_write import FRAME, Line
from tidegate_delta.deletion_vectors.descriptors import inline
from tidegate_delta.deletion_vectors.roaring_bitmap import of_rows
from tidegate_delta.errors import Unavailable
from tidegate_delta.log.actions import Action, Add
from tidegate_delta.snapshots.file_action_columns import rows_to_adds
from tidegate_producers.parquet.file_rewrite import CompactionResult
from tidegate_producers.writing import optimize as module
from tidegate_producers.writing.optimize import (
    Bin,
    Compacting,
    OptimizeRequest,
    compact_here,
    optimize,
    survey,
)
from tidegate_producers.writing.table_write import WriteRequest, commit, creating, creation
from tidegate_runtime.client.proposal_builders import removal
from tidegate_runtime.table_io.data_file_reader import read_table
from tidegate_runtime.table_io.open_table import open_snapshot

REQUEST: Final = WriteRequest(10)
SMALL: Final = OptimizeRequest()


@pytest.fixture
def line(tmp_path: Path) -> Line:
    return Line(tmp_path)


def begun(line: Line, properties: Mapping[str, str]) -> None:
    options = line.options()
    wanted = creation(line.client, FRAME, (), options, properties)
    commit(line.client, creating(wanted, options.place), (), REQUEST)


def live(line: Line) -> list[Add]:
    return rows_to_adds(open_snapshot(line.yes.store).files)


def put(line: Line, actions: Sequence[Action]) -> None:
    """Commit actions as they are, as another engine would."""
    version = len(list((line.root / "_delta_log").glob("*.json")))
    content = "".join(json.dumps(action.to_row()) + "\n" for action in actions)
    line.yes.store.put_if_absent(f"_delta_log/{version:020d}.json", content.encode(), 5)


def compact(line: Line, request: OptimizeRequest = SMALL) -> list[int]:
    place = line.options().place
    return optimize(line.client, place, request, REQUEST, compact_here).versions


def test_rows_keep_their_ids_when_small_files_become_one(line: Line) -> None:
    begun(line, {"delta.enableRowTracking": "true", "delta.columnMapping.mode": "name"})
    for k in range(3):
        line.write(pa.table({"k": [k, k + 10], "p": ["a", "b"]}))
    files = sorted(live(line), key=lambda add: (add.modification_time, add.path))
    put(
        line,
        [
            add.with_(base_row_id=at * 2, default_row_commit_version=at)
            for at, add in enumerate(files)
        ],
    )
    names = ["k", "_metadata.row_id", "_metadata.row_commit_version"]
    before = read_table(line.yes.store, open_snapshot(line.yes.store), names)
    compact(line)
    [moved] = line.last().row_mapping
    assert moved.keeps_row_ids
    assert [(source.offset, source.rows) for source in moved.sources] == [(0, 2), (2, 2), (4, 2)]
    after = read_table(line.yes.store, open_snapshot(line.yes.store), names)
    assert after.sort_by("k").equals(before.sort_by("k"))
    assert len(live(line)) == 1


def test_a_purge_writes_only_files_with_deleted_rows_anew(line: Line) -> None:
    begun(line, {"delta.enableDeletionVectors": "true"})
    for k in range(3):
        line.write(pa.table({"k": [k, k + 10], "p": ["a", "b"]}))
    hollow, *others = live(line)
    marked = hollow.with_(deletion_vector=inline(of_rows([1])))
    put(line, [removal(hollow, 0), marked])
    purging = OptimizeRequest(purges=True)
    assert [item.adds[0].path for item in survey(line.options().place, purging)] == [hollow.path]
    assert compact(line, purging) == [5]
    sent = line.last()
    assert (sent.operation.name, sent.operation.parameters["applyPurge"]) == ("REORG", "true")
    assert {add.path for add in others} < {add.path for add in live(line)}
    assert not any(add.deletion_vector for add in live(line))
    assert len(line.rows()) == 5
    assert compact(line, purging) == []


def test_a_run_that_dies_is_ended_by_the_next(
    line: Line, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "SOURCES_MAX", 2)
    for k in range(4):
        line.write(pa.table({"k": [k], "p": ["a"]}))
    runs = 0

    def dying(compacting: Compacting, bins: Sequence[Bin]) -> Sequence[CompactionResult]:
        nonlocal runs
        runs += 1
        if runs > 1:
            raise Unavailable("the driver is killed here")
        return compact_here(compacting, bins)

    place = line.options().place
    with caplog.at_level("INFO"), pytest.raises(Unavailable):
        optimize(line.client, place, SMALL, REQUEST, dying)
    assert "optimize_progress" in caplog.text
    assert "files_done=2 files_planned=4" in caplog.text
    assert len(live(line)) == 3
    compact(line)
    compact(line)
    assert (len(live(line)), [row["k"] for row in line.rows()]) == (1, [0, 1, 2, 3])
