"""However a log is split into checkpoints, log compactions and commits, it reads the same.

It goes through real files: what is written to a store is opened from it.
"""

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.checkpoints import Form, classic_rows, put_classic, put_v2
from tests.fakes.memory_store import MemoryStore
from tests.property.log_strategies import logs
from tidegate_delta.checkpoints import log_compaction, version_checksum
from tidegate_delta.checkpoints.checkpoint_rows import classic_schema
from tidegate_delta.errors import InvalidRequest
from tidegate_delta.log.commit import Commit
from tidegate_delta.log.file_names import commit_name, compacted_name, in_log
from tidegate_delta.log.file_paths import canonical_path
from tidegate_delta.snapshots.snapshot import Snapshot
from tidegate_runtime.table_io import log_reader
from tidegate_runtime.table_io.checkpoint_writer import move_hint_forward
from tidegate_runtime.table_io.open_table import open_keys, open_snapshot, refresh

NOW_MS = 0
"""Long before any retention ends."""

INFO = b'{"commitInfo":{"operation":"WRITE"}}\n'
KEPT = ("path", "partitionValues", "size", "modificationTime", "stats", "tags", "deletionVector")
PARTS = "in parts"
FORMS: list[Form | str] = [*Form, "classic", PARTS]


def stored(log: list[Commit]) -> MemoryStore:
    store = MemoryStore()
    for commit in log:
        store.files[in_log(commit.name)] = INFO + commit.encode()
    return store


def put_checkpoint(store: MemoryStore, version: int, form: Form | str, size: int) -> None:
    snapshot = open_snapshot(store, version)
    if isinstance(form, Form):
        put_v2(store, snapshot, form, NOW_MS, size)
    elif form == PARTS:
        put_parts(store, snapshot, size)
    else:
        move_hint_forward(store, put_classic(store, snapshot, NOW_MS))


def put_parts(store: MemoryStore, snapshot: Snapshot, size: int) -> None:
    rows = pa.Table.from_batches(classic_rows(snapshot, NOW_MS), classic_schema(snapshot.metadata))
    starts = range(0, rows.num_rows, size)
    for part, start in enumerate(starts, 1):
        buffer = io.BytesIO()
        pq.write_table(rows.slice(start, size), buffer)
        name = f"{snapshot.version:020d}.checkpoint.{part:010d}.{len(starts):010d}.parquet"
        store.files[in_log(name)] = buffer.getvalue()


def put_compaction(store: MemoryStore, log: list[Commit], start: int, end: int) -> None:
    content = log_compaction.compact(log[start : end + 1])
    if content:
        store.files[in_log(compacted_name(start, end))] = content


def state_of(snapshot: Snapshot) -> tuple[Any, ...]:
    return (
        snapshot.version,
        sorted(map(str, snapshot.files.select(KEPT).to_pylist())),
        sorted(snapshot.file_keys.to_pylist()),
        sorted(snapshot.tombstones["path"].to_pylist()),
        version_checksum.encode(version_checksum.of(snapshot)),
    )


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_a_log_says_the_same_from_any_checkpoint_and_compaction_on(form: Form | str) -> None:
    @given(logs, st.data())
    @settings(max_examples=20)
    def law(log: list[Commit], data: st.DataObject) -> None:
        whole, store = stored(log), stored(log)
        at = data.draw(st.integers(0, len(log) - 1), "checkpoint")
        put_checkpoint(store, at, form, data.draw(st.integers(1, 4), "files a part"))
        start = data.draw(st.integers(0, len(log) - 1), "compaction from")
        end = data.draw(st.integers(start, len(log) - 1), "to")
        if end > start:
            put_compaction(store, log, start, end)
        for cleaned in range(data.draw(st.integers(0, at), "cleaned up to") if at else 0):
            del store.files[in_log(commit_name(cleaned))]
        for version in {data.draw(st.integers(at, len(log) - 1), "version"), len(log) - 1}:
            assert state_of(open_snapshot(store, version)) == state_of(
                open_snapshot(whole, version)
            )
            keys, snapshot = open_keys(store, version), open_snapshot(store, version)
            assert sorted(keys.files["path"].to_pylist()) == sorted(
                snapshot.files["path"].to_pylist()
            )
            assert keys.canonical.to_pylist() == [
                canonical_path(path) for path in keys.files["path"].to_pylist()
            ]
            assert (keys.protocol, keys.metadata) == (snapshot.protocol, snapshot.metadata)

    law()


@given(logs, st.data())
@settings(max_examples=40)
def test_following_a_log_comes_to_what_opening_it_comes_to(
    log: list[Commit], data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(log) - 1), "known")
    known = open_snapshot(stored(log[: at + 1]))
    assert state_of(refresh(stored(log), known)) == state_of(open_snapshot(stored(log)))


@given(logs, st.integers(1, 600))
@settings(max_examples=40)
def test_commits_read_in_batches_reconcile_as_all_at_once(log: list[Commit], together: int) -> None:
    whole = state_of(open_snapshot(stored(log)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_reader, "TOGETHER_BYTES", together)
        assert state_of(open_snapshot(stored(log))) == whole


@given(logs)
@settings(max_examples=15)
def test_a_cleaned_up_log_has_nothing_of_deleted_versions(log: list[Commit]) -> None:
    store = stored(log)
    put_checkpoint(store, len(log) - 1, "classic", 1)
    for commit in log:
        del store.files[in_log(commit.name)]
    assert open_snapshot(store).version == len(log) - 1
    for version in range(len(log) - 1):
        with pytest.raises(InvalidRequest) as refused:
            open_snapshot(store, version)
        assert refused.value.error_class == "VersionNotFound"
