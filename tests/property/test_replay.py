"""Folding commits, replaying the log, and replaying it from any checkpoint come to the same."""

from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.delta.actions import (
    Action,
    Add,
    DeletionVector,
    DomainMetadata,
    Metadata,
    Protocol,
    Remove,
    Txn,
)
from tidegate.delta.commit import Commit
from tidegate.delta.names import Version
from tidegate.delta.replay import LogPart, Replayed, read_part, replay
from tidegate.delta.snapshot import Snapshot, evolve, from_replay

HEAD = (
    Protocol(min_reader_version=1, min_writer_version=2),
    Metadata(id="t", schema_string="{}"),
)
PATHS = ["a", "b", "p=a%20b/c", "p=a b/c", "s3://b/d"]
VECTORS = [
    None,
    DeletionVector(
        storage_type="u", path_or_inline_dv="x", offset=1, size_in_bytes=1, cardinality=1
    ),
]

domain_rows = st.builds(
    DomainMetadata,
    domain=st.just("d"),
    configuration=st.sampled_from("12"),
    removed=st.booleans(),
)


@st.composite
def commit_actions(draw: st.DrawFn) -> tuple[Action, ...]:
    """Actions as a writer may put into one commit: a key is added or removed, not both."""
    chosen = draw(
        st.lists(
            st.tuples(st.sampled_from([0, 1, 2, 4]), st.sampled_from(VECTORS), st.booleans()),
            unique_by=lambda one: (PATHS[one[0]], one[1] and one[1].unique_id),
            max_size=4,
        )
    )
    files: list[Action] = []
    for position, dv, is_add in chosen:
        path = draw(st.sampled_from(["p=a%20b/c", "p=a b/c"])) if position == 2 else PATHS[position]
        common: dict[str, Any] = {"path": path, "data_change": True, "deletion_vector": dv}
        size = draw(st.integers(0, 99))
        files.append(
            Add(**common, partition_values={}, size=size, modification_time=1)
            if is_add
            else Remove(**common, deletion_timestamp=size)
        )
    txns = draw(
        st.lists(
            st.builds(Txn, app_id=st.sampled_from("xy"), version=st.integers(0, 9)), max_size=1
        )
    )
    domains = draw(
        st.lists(
            domain_rows,
            max_size=1,
        )
    )
    return (*files, *txns, *domains)


logs = st.lists(commit_actions(), min_size=1, max_size=8).map(
    lambda commits: [
        Commit(Version(version), (*(HEAD if version == 0 else ()), *actions))
        for version, actions in enumerate(commits)
    ]
)


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
