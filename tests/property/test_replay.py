"""Folding commits, replaying the log, and replaying it from any checkpoint agree."""

from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.checkpoints import Form, put_classic, put_v2
from tests.fakes.memory_store import MemoryStore
from tests.property.log_strategies import logs
from tidegate_delta.checkpoints.log_compaction import compact
from tidegate_delta.log.commit import Commit
from tidegate_delta.log.file_names import compacted_name, in_log
from tidegate_delta.log.file_paths import canonical_paths
from tidegate_delta.snapshots.replay import LogPart, Replayed, parse_log_file, replay
from tidegate_delta.snapshots.snapshot import Snapshot, evolve, from_replay
from tidegate_runtime.table_io.open_table import open_keys, open_snapshot


def part(commit: Commit) -> LogPart:
    return parse_log_file(commit.name, commit.encode())


def checkpoint(state: Replayed) -> LogPart:
    return LogPart(
        files=state.files,
        tombstones=state.tombstones,
        protocol=state.protocol,
        metadata=state.metadata,
        txns=tuple(state.app_transactions.values()),
        domains=tuple(state.domains.values()),
    )


def rows(table: pa.Table) -> list[str]:
    return sorted(str(row) for row in table.to_pylist())


def plain(snapshot: Snapshot) -> tuple[Any, ...]:
    return (
        snapshot.version,
        rows(snapshot.files),
        rows(snapshot.tombstones),
        dict(snapshot.app_transactions),
        dict(snapshot.domains),
        sorted(snapshot.file_keys.to_pylist()),
    )


@given(logs)
@settings(max_examples=60)
def test_folding_commits_and_replaying_the_log_come_to_the_same(log: list[Commit]) -> None:
    folded = from_replay(0, replay([part(log[0])], None), None)
    for commit in log[1:]:
        folded = evolve(folded, commit)
    whole = from_replay(log[-1].version, replay([part(item) for item in log], None), None)
    assert plain(folded) == plain(whole)


@given(logs, st.data())
@settings(max_examples=60)
def test_a_checkpoint_anywhere_changes_nothing(log: list[Commit], data: st.DataObject) -> None:
    at = data.draw(st.integers(1, len(log)))
    parts = [part(item) for item in log]
    below = checkpoint(replay(parts[:at], None))
    from_checkpoint = from_replay(len(log) - 1, replay(parts[at:], below), None)
    whole = from_replay(len(log) - 1, replay(parts, None), None)
    assert plain(from_checkpoint) == plain(whole)


def kept(snapshot: Snapshot) -> tuple[Any, ...]:
    """Return what a checkpoint keeps: everything except `dataChange`."""
    _, _, _, *rest = plain(snapshot)
    tables = (snapshot.files, snapshot.tombstones)
    return (*(rows(table.drop_columns(["dataChange"])) for table in tables), *rest)


@given(logs, st.sampled_from([None, *Form]), st.data())
@settings(max_examples=60, deadline=None)
def test_a_table_reads_the_same_from_files_of_any_kind(
    log: list[Commit], form: Form | None, data: st.DataObject
) -> None:
    head = len(log) - 1
    whole = from_replay(head, replay([part(item) for item in log], None), None)
    store = MemoryStore()
    for one in log:
        store.files[in_log(one.name)] = one.encode() or b'{"commitInfo":{}}'
    at = data.draw(st.integers(0, head))
    below = open_snapshot(store, at)
    if form is None:
        put_classic(store, below, now_ms=0)
    else:
        put_v2(store, below, form, now_ms=0, files_a_sidecar=2)
    for one in log[: at + 1]:
        del store.files[in_log(one.name)]
    if head - at >= 2:
        first = data.draw(st.integers(at + 1, head - 1))
        last = data.draw(st.integers(first + 1, head))
        if content := compact(log[first : last + 1]):
            store.files[in_log(compacted_name(first, last))] = content
    assert kept(open_snapshot(store)) == kept(whole)
    assert sorted(open_keys(store).paths) == sorted(
        canonical_paths(whole.files["path"]).to_pylist()
    )
