"""Law of log compactions: replacing the commits by one changes nothing, whatever came before."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate_delta.checkpoints.log_compaction import compact
from tidegate_delta.log.actions import (
    Action,
    Add,
    Cdc,
    CommitInfo,
    DeletionVector,
    DomainMetadata,
    Metadata,
    Protocol,
    Remove,
    Txn,
)
from tidegate_delta.log.commit import Commit
from tidegate_delta.log.file_names import Version
from tidegate_delta.snapshots.replay import LogPart, Replayed, parse_log_file, replay

PATHS = st.sampled_from(["a", "b", "x y", "x%20y", "p=1/c"])
VECTORS = st.sampled_from([None, "v1", "v2"])
PROTOCOL = Protocol(min_reader_version=1, min_writer_version=2)
METADATA = Metadata(id="t", schema_string='{"type":"struct","fields":[]}')


def vector(name: str | None) -> DeletionVector | None:
    if name is None:
        return None
    return DeletionVector(
        storage_type="u", path_or_inline_dv=name, offset=1, size_in_bytes=1, cardinality=1
    )


def added(path: str, dv: str | None, stamp: int) -> Add:
    return Add(
        path=path,
        partition_values={"p": None},
        size=stamp,
        modification_time=stamp,
        data_change=True,
        deletion_vector=vector(dv),
    )


def removed(path: str, dv: str | None, stamp: int | None) -> Remove:
    return Remove(path=path, data_change=True, deletion_timestamp=stamp, deletion_vector=vector(dv))


ACTIONS = st.one_of(
    st.builds(added, PATHS, VECTORS, st.integers(0, 9)),
    st.builds(removed, PATHS, VECTORS, st.none() | st.integers(0, 9)),
    st.builds(
        Txn,
        app_id=st.sampled_from(["app", "other"]),
        version=st.integers(0, 9),
        last_updated=st.none() | st.integers(0, 9),
    ),
    st.builds(
        DomainMetadata,
        domain=st.sampled_from(["one", "two"]),
        configuration=st.just("{}"),
        removed=st.booleans(),
    ),
    st.builds(CommitInfo, timestamp=st.integers(0, 9)),
    st.builds(Cdc, path=PATHS, partition_values=st.just({}), size=st.just(1)),
    st.just(METADATA.with_(name="renamed")),
)


def distinct(actions: list[Action]) -> list[Action]:
    """Keep one action for each file, application and domain."""
    seen: dict[Any, Action] = {}
    for action in actions:
        match action:
            case Add() | Remove():
                key: Any = (action.path.replace("%20", " "), action.key.dv_id)
            case Txn():
                key = ("txn", action.app_id)
            case DomainMetadata():
                key = ("domain", action.domain)
            case _:
                key = type(action)
        seen.setdefault(key, action)
    return list(seen.values())


COMMITS = st.lists(st.lists(ACTIONS, max_size=6).map(distinct), min_size=3, max_size=6)


def part(commit: Commit) -> LogPart:
    return parse_log_file(commit.name, commit.encode())


def content(state: Replayed) -> tuple[Any, ...]:
    def rows(table: Any) -> list[str]:
        return sorted(str(row) for row in table.to_pylist())

    return (
        rows(state.files),
        rows(state.tombstones),
        state.protocol,
        state.metadata,
        state.app_transactions,
        state.domains,
    )


@given(COMMITS, st.data())
@settings(deadline=None)
def test_a_compaction_stands_for_its_commits_on_any_base(
    bodies: list[list[Action]], data: st.DataObject
) -> None:
    first: list[Action] = [PROTOCOL, METADATA]
    bodies[0] = [*first, *(body for body in bodies[0] if not isinstance(body, Protocol | Metadata))]
    commits = [Commit(Version(at), tuple(body)) for at, body in enumerate(bodies)]
    start = data.draw(st.integers(0, len(commits) - 2))
    end = data.draw(st.integers(start + 2, len(commits)))
    compacted = parse_log_file("c", compact(commits[start:end]))
    plain = [part(commit) for commit in commits]
    assert content(replay([*plain[:start], compacted, *plain[end:]], None)) == content(
        replay(plain, None)
    )


@given(COMMITS)
@settings(deadline=None)
def test_a_compaction_names_nothing_twice_and_holds_no_provenance(
    bodies: list[list[Action]],
) -> None:
    commits = [Commit(Version(at), tuple(body)) for at, body in enumerate(bodies)]
    kept = Commit.decode(0, compact(commits))
    assert len(distinct(list(kept.actions))) == len(kept.actions)
    assert not kept.of(CommitInfo)
    assert not kept.of(Cdc)
