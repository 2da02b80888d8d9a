"""Folding commits, replaying the log, and replaying it from any checkpoint come to the same."""

from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.property.logs import logs
from tidegate.delta.commit import Commit
from tidegate.delta.replay import LogPart, Replayed, read_part, replay
from tidegate.delta.snapshot import Snapshot, evolve, from_replay


def part(commit: Commit) -> LogPart:
    return read_part(commit.name, commit.encode())


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
    whole = from_replay(log[-1].version, replay([part(one) for one in log], None), None)
    assert plain(folded) == plain(whole)


@given(logs, st.data())
@settings(max_examples=60)
def test_a_checkpoint_anywhere_changes_nothing(log: list[Commit], data: st.DataObject) -> None:
    at = data.draw(st.integers(1, len(log)))
    parts = [part(one) for one in log]
    below = checkpoint(replay(parts[:at], None))
    from_checkpoint = from_replay(len(log) - 1, replay(parts[at:], below), None)
    whole = from_replay(len(log) - 1, replay(parts, None), None)
    assert plain(from_checkpoint) == plain(whole)
